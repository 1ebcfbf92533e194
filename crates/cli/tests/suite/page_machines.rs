//! Machines on which the commands of the operators' pages run as the pages write them: each is a
//! folder here, and its ports are free ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

use crate::common::{CommandHome, Ran, RunningCommand, free_port, until};

/// `super:secret`.
const SUPER_DIGEST: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

/// Commands whose paths are files.
const FILE_VERBS: [&str; 4] = ["recover", "backup", "restore", "wal"];

/// The text of the first fenced block of `page` behind `mark`.
pub fn block_behind(page: &'static str, mark: &str) -> &'static str {
    let (_, behind) = page.split_once(mark).expect(mark);
    let (_, fence) = behind.split_once("```").expect(mark);
    let (_, fenced) = fence.split_once('\n').expect(mark);
    fenced.split_once("```").expect(mark).0
}

/// A command in the text of `page` that begins so and has arguments.
pub fn inline(page: &'static str, beginning: &str) -> &'static str {
    let mut spans = page.split('`').skip(1).step_by(2);
    spans
        .find(|span| span.starts_with(beginning) && span.len() > beginning.len())
        .expect(beginning)
}

/// The words of a command line, as a shell has them.
fn words(line: &str) -> Vec<String> {
    let unquoted = |word: &str| word.trim_matches('\'').to_owned();
    line.split_whitespace().map(unquoted).collect()
}

/// Hosts that a text names.
fn hosts(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
    let hosts = words.filter(|word| word.starts_with("zk") && word.ends_with(".example"));
    hosts.map(str::to_owned).collect()
}

/// The machines of a page.
pub struct Machines {
    pub home: CommandHome,
    /// The port that stands for one of a host.
    ports: BTreeMap<(String, String), u16>,
    /// The host of each member.
    at: BTreeMap<u8, String>,
    pub running: BTreeMap<String, RunningCommand>,
    /// Verbs of `baton server` that were run.
    pub verbs: BTreeSet<String>,
    /// Further lines of each `server.toml`.
    pub settings: String,
}

impl Machines {
    pub fn new() -> Self {
        let machines = Self {
            home: CommandHome::new(),
            ports: BTreeMap::new(),
            at: (1..=9).map(|id| (id, format!("zk{id}.example"))).collect(),
            running: BTreeMap::new(),
            verbs: BTreeSet::new(),
            settings: String::new(),
        };
        machines.home.write_secret("auth", "digest:super:secret\n");
        machines
    }

    fn port(&mut self, host: &str, port: &str) -> u16 {
        let key = (host.to_owned(), port.to_owned());
        *self.ports.entry(key).or_insert_with(free_port)
    }

    /// The text with the addresses of this test: a port is that of the host before it.
    pub fn located(&mut self, text: &str) -> String {
        let mut out = String::new();
        let (mut host, mut rest) = (String::new(), text);
        while let Some(next) = rest.chars().next() {
            let digits = rest.bytes().skip(1).take_while(u8::is_ascii_digit).count();
            let port = rest.get(1..=digits).filter(|it| it.len() > 3);
            if rest.starts_with("127.0.0.1:") {
                host = "zk1.example".to_owned();
                out.push_str("127.0.0.1");
                rest = &rest["127.0.0.1".len()..];
            } else if let Some(found) = hosts(rest).first().filter(|host| rest.starts_with(*host)) {
                host.clone_from(found);
                out.push_str("127.0.0.1");
                rest = &rest[found.len()..];
            } else if let Some(port) = port.filter(|_| matches!(next, ':' | ';')) {
                out.push(next);
                out.push_str(&self.port(&host, port).to_string());
                rest = &rest[1 + port.len()..];
            } else {
                out.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
        out
    }

    /// The folder that stands for the machine's root.
    fn root(&self, host: &str) -> PathBuf {
        let root = self.home.path(host);
        std::fs::create_dir_all(root.join("var/lib")).unwrap();
        root
    }

    pub fn folder(&self, host: &str, folder: &str) -> PathBuf {
        self.root(host).join(folder.trim_start_matches('/'))
    }

    /// `baton serve --config server.toml` on a host, with a list of these servers; alone without
    /// one.
    pub fn serve(&mut self, host: &str, folder: &str, list: &[u8]) {
        let id = self.at.iter().find(|(_, at)| *at == host);
        let id = *id.expect(host).0;
        let mut toml = format!(
            "data_dir = {:?}\nlisten = \"{}\"\nhttp = \"{}\"\nserver_id = {id}\nsuper_digest = \"{SUPER_DIGEST}\"\n",
            self.folder(host, folder),
            self.located(&format!("{host}:2181")),
            self.located(&format!("{host}:8080")),
        );
        toml.push_str(&self.settings);
        for (table, port) in [("servers", "2888"), ("clients", "2181")] {
            if list.is_empty() {
                break;
            }
            if table == "servers" {
                toml.push_str("[ensemble]\nreconfig = true\n");
            }
            toml.push_str(&format!("[ensemble.{table}]\n"));
            for id in list {
                let host = self.at[id].clone();
                let address = self.located(&format!("{host}:{port}"));
                toml.push_str(&format!("{id} = \"{address}\"\n"));
            }
        }
        let root = self.root(host);
        std::fs::write(root.join("server.toml"), toml).unwrap();
        let mut serve = self.home.baton(&["serve", "--config", "server.toml"]);
        serve.current_dir(root);
        self.running
            .insert(host.to_owned(), RunningCommand::new(serve));
    }

    pub fn stop(&mut self, host: &str) {
        let running = self.running.remove(host).expect(host);
        running.signal("TERM");
        assert_eq!(running.end().code, 0, "{host}");
    }

    /// Runs a `baton` command of the page, where servers 1 to 3 are the usual ones.
    pub fn run(&mut self, command: &str) -> Ran {
        let args = words(command);
        assert_eq!(args[0], "baton", "{command}");
        if args[1] == "server" {
            self.verbs.insert(args[2].clone());
            self.prepare(&args[2..]);
        }
        let host = hosts(command).first().cloned();
        let host = host.unwrap_or_else(|| "zk1.example".to_owned());
        // Paths of other commands are znodes.
        let has_files = |arg: &String| FILE_VERBS.contains(&arg.as_str());
        let root = match args.iter().any(has_files) {
            true => format!("{}/", self.root(&host).display()),
            false => "/".to_owned(),
        };
        let args: Vec<_> = args[1..].iter().map(|arg| self.located(arg)).collect();
        let args: Vec<_> = args
            .iter()
            .map(|arg| match arg.strip_prefix('/') {
                Some(path) => format!("{root}{path}"),
                None => arg.clone(),
            })
            .collect();
        let usual = self.located("zk1.example:2181,zk2.example:2181,zk3.example:2181");
        let mut baton = self.home.baton(&[]);
        baton.args(&args).env("BATON_SERVERS", usual);
        if !args.iter().any(|arg| arg == "--auth-file") {
            baton.env("BATON_AUTH", "super:secret");
        }
        Ran::from(baton.output().unwrap())
    }

    /// Does what the page says in words before a command: a server to be added waits with an empty
    /// folder, and one that is replaced has lost its data.
    fn prepare(&mut self, args: &[String]) {
        let servers = args.iter().filter_map(|arg| {
            let (id, address) = arg.split_once('=').unwrap_or((arg, ""));
            Some((id.parse::<u8>().ok()?, hosts(address).first().cloned()))
        });
        for (id, host) in servers {
            let before = self.at[&id].clone();
            let host = host.unwrap_or_else(|| before.clone());
            match args[0].as_str() {
                "add" if !self.running.contains_key(&host) => {
                    self.at.insert(id, host.clone());
                    let list: Vec<_> = (1..=id).collect();
                    self.serve(&host, "/var/lib/baton", &list);
                }
                "replace" => {
                    self.stop(&before);
                    std::fs::remove_dir_all(self.folder(&before, "/var/lib/baton")).unwrap();
                    self.at.insert(id, host.clone());
                    self.serve(&host, "/var/lib/baton", &[1, 2, 3]);
                }
                _ => {}
            }
        }
    }

    /// Does what a block says, line by line, and compares what the page says that commands print.
    pub fn follow(&mut self, block: &str) {
        let mut last: Option<(String, Ran)> = None;
        for line in block.lines() {
            // Behind two blanks is where a command is run, or why.
            let (command, note) = line.split_once("  ").unwrap_or((line, ""));
            if let Some(command) = command.strip_prefix("$ ") {
                let ran = self.run(command);
                assert_eq!(ran.code, 0, "{command}: {ran:?}");
                last = Some((command.to_owned(), ran));
            } else if let Some(command) = command.strip_prefix("# ") {
                self.act(command, note);
            } else {
                let (command, ran) = last.as_ref().expect(line);
                let expected = self.located(line);
                let masked = |text: &str| match text.split_once(", from zxid ") {
                    Some((before, zxid)) => {
                        let behind = zxid.split_once(';').map_or("", |(_, behind)| behind);
                        format!("{before};{behind}")
                    }
                    None => text.to_owned(),
                };
                let root = self.home.path("zk1.example").display().to_string();
                let printed = format!("{}{}", ran.out, ran.err).replace(&root, "");
                let is_printed = printed
                    .lines()
                    .any(|line| masked(line) == masked(&expected));
                assert!(is_printed, "{command}: not {expected:?} but {ran:?}");
            }
        }
    }

    /// Does what a block says that has commands alone, with notes behind `#`: on the first machine,
    /// or where the note says.
    pub fn obey(&mut self, block: &str) {
        for line in block.lines() {
            let (command, note) = line.split_once(" #").unwrap_or((line, ""));
            let command = command.trim();
            let args = words(command);
            let all: Vec<String> = self.running.keys().cloned().collect();
            let first = "zk1.example";
            match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["systemctl", "stop", "baton"] if note.contains("on all three") => {
                    assert!(note.contains("move each /var/lib/baton away"), "{note}");
                    for host in all {
                        self.stop(&host);
                        let folder = self.folder(&host, "/var/lib/baton");
                        std::fs::rename(&folder, folder.with_extension("old")).unwrap();
                    }
                }
                ["systemctl", "stop", "baton"] => self.stop(first),
                ["systemctl", "start", "baton"] => self.serve(first, "/var/lib/baton", &[]),
                ["mv", from, to] => {
                    let paths = [from, to].map(|path| self.folder(first, path));
                    std::fs::rename(&paths[0], &paths[1]).unwrap();
                }
                // All is this user's.
                ["chown", ..] => {}
                ["baton", "serve", ..] => {
                    let short = note.split(|c: char| !c.is_ascii_alphanumeric());
                    let named = short.filter(|word| word.starts_with("zk"));
                    let named: String = named.map(|host| format!("{host}.example ")).collect();
                    self.act(command, &format!("{note} {named}"));
                }
                ["baton", ..] => {
                    let ran = self.run(command);
                    assert_eq!(ran.code, 0, "{command}: {ran:?}");
                }
                _ => panic!("this test does not know how to do: {command}"),
            }
        }
    }

    /// Does what an operator does on a machine.
    fn act(&mut self, command: &str, note: &str) {
        let mut named = hosts(note);
        if named.is_empty() {
            named = vec!["zk1.example".to_owned()];
        }
        match command {
            "systemctl stop baton" => {
                self.stop(&named[0]);
                if note.contains("move its folder to") {
                    let (from, to) = (&named[0], &named[1]);
                    let folder = "/var/lib/baton";
                    std::fs::rename(self.folder(from, folder), self.folder(to, folder)).unwrap();
                    let moved = self.at.iter().find(|(_, at)| *at == from);
                    let id = *moved.expect(from).0;
                    self.at.insert(id, to.clone());
                }
            }
            "baton serve --config server.toml" => {
                let folder = note.split('"').nth(1).unwrap_or("/var/lib/baton");
                let list: &[u8] = match note {
                    note if note.contains("server 1 alone") => &[1],
                    note if note.contains("with 1 to 4") => &[1, 2, 3, 4],
                    note if note.contains("servers 1 to 3") || note.contains("in its list") => {
                        &[1, 2, 3]
                    }
                    _ => panic!("which list? {note}"),
                };
                for host in named {
                    self.serve(&host, folder, list);
                }
                if list == [1] {
                    // The command that follows does not wait long for a server that restarts.
                    until("it serves", || {
                        let listed = self.run("baton ls / --servers zk1.example:2181");
                        listed.code == 0
                    });
                }
            }
            _ => panic!("this test does not know how to do: {command}"),
        }
    }

    fn members(&mut self) -> Vec<Value> {
        let ran = self.run("baton server ls --json --connect-timeout 60s");
        let lines = ran.out.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub fn until_all_serve(&mut self, count: usize) {
        until(&format!("{count} members serve"), || {
            let members = self.members();
            let serve = |member: &&Value| {
                ["leader", "follower"].contains(&member["mode"].as_str().unwrap_or_default())
            };
            members.len() == count && members.iter().filter(serve).count() == count
        });
    }

    /// Removes servers that a block has added, as the page says: with their processes and folders.
    pub fn remove(&mut self, command: &str) {
        let removed = self.run(command);
        assert_eq!(removed.code, 0, "{command}: {removed:?}");
        for word in words(command) {
            if let Ok(id) = word.parse::<u8>() {
                let host = self.at[&id].clone();
                self.stop(&host);
                std::fs::remove_dir_all(self.folder(&host, "/var/lib/baton")).unwrap();
            }
        }
        self.until_all_serve(3);
    }
}
