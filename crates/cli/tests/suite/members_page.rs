//! The commands of `docs/operate/ensemble.md` that change members, run as the page writes them: its
//! machines are folders here, and their ports are free ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

use crate::common::{Home, Ran, Running, free_port, until};

const PAGE: &str = include_str!("../../../../docs/operate/ensemble.md");
/// `super:secret`.
const SUPER_DIGEST: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

/// The text of the first fenced block behind `mark`.
fn block_behind(mark: &str) -> &'static str {
    let (_, behind) = PAGE.split_once(mark).expect(mark);
    let (_, fenced) = behind.split_once("```\n").expect(mark);
    fenced.split_once("```").expect(mark).0
}

/// A command in the text that begins so and has arguments.
fn inline(beginning: &str) -> &'static str {
    let mut spans = PAGE.split('`').skip(1).step_by(2);
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

/// The machines of the page.
struct Machines {
    home: Home,
    /// The port that stands for one of a host.
    ports: BTreeMap<(String, String), u16>,
    /// The host of each member.
    at: BTreeMap<u8, String>,
    running: BTreeMap<String, Running>,
    /// Verbs of `baton server` that were run.
    verbs: BTreeSet<String>,
}

impl Machines {
    fn new() -> Self {
        let machines = Self {
            home: Home::new(),
            ports: BTreeMap::new(),
            at: (1..=9).map(|id| (id, format!("zk{id}.example"))).collect(),
            running: BTreeMap::new(),
            verbs: BTreeSet::new(),
        };
        machines.home.write_secret("auth", "digest:super:secret\n");
        machines
    }

    fn port(&mut self, host: &str, port: &str) -> u16 {
        let key = (host.to_owned(), port.to_owned());
        *self.ports.entry(key).or_insert_with(free_port)
    }

    /// The text with the addresses of this test: a port is that of the host before it.
    fn located(&mut self, text: &str) -> String {
        let mut out = String::new();
        let (mut host, mut rest) = (String::new(), text);
        while let Some(next) = rest.chars().next() {
            let port = rest
                .get(1..5)
                .filter(|it| it.bytes().all(|b| b.is_ascii_digit()));
            if let Some(found) = hosts(rest).first().filter(|host| rest.starts_with(*host)) {
                host.clone_from(found);
                out.push_str("127.0.0.1");
                rest = &rest[found.len()..];
            } else if let Some(port) = port.filter(|_| matches!(next, ':' | ';')) {
                out.push(next);
                out.push_str(&self.port(&host, port).to_string());
                rest = &rest[5..];
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

    fn folder(&self, host: &str, folder: &str) -> PathBuf {
        self.root(host).join(folder.trim_start_matches('/'))
    }

    /// `baton serve --config server.toml` on a host, with a list of these servers; alone without
    /// one.
    fn serve(&mut self, host: &str, folder: &str, list: &[u8]) {
        let id = self.at.iter().find(|(_, at)| *at == host);
        let id = *id.expect(host).0;
        let mut toml = format!(
            "data_dir = {:?}\nlisten = \"{}\"\nhttp = \"{}\"\nserver_id = {id}\nsuper_digest = \"{SUPER_DIGEST}\"\n",
            self.folder(host, folder),
            self.located(&format!("{host}:2181")),
            self.located(&format!("{host}:8080")),
        );
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
        self.running.insert(host.to_owned(), Running::new(serve));
    }

    fn stop(&mut self, host: &str) {
        let running = self.running.remove(host).expect(host);
        running.signal("TERM");
        assert_eq!(running.end().code, 0, "{host}");
    }

    /// Runs a `baton` command of the page, where servers 1 to 3 are the usual ones.
    fn run(&mut self, command: &str) -> Ran {
        let args = words(command);
        assert_eq!(args[0], "baton", "{command}");
        if args[1] == "server" {
            self.verbs.insert(args[2].clone());
            self.prepare(&args[2..]);
        }
        let host = hosts(command).first().cloned().unwrap_or_default();
        let root = match args.iter().any(|arg| arg == "recover") {
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
    fn follow(&mut self, block: &str) {
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

    fn until_all_serve(&mut self, count: usize) {
        until(&format!("{count} members serve"), || {
            let members = self.members();
            let serve = |member: &&Value| {
                ["leader", "follower"].contains(&member["mode"].as_str().unwrap_or_default())
            };
            members.len() == count && members.iter().filter(serve).count() == count
        });
    }

    /// Removes servers that a block has added, as the page says: with their processes and folders.
    fn remove(&mut self, command: &str) {
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

/// A fenced command of the page that no test runs is one that nobody has tried.
#[test]
fn members_come_and_go_as_the_page_says() {
    let mut machines = Machines::new();
    for id in 1..=3 {
        machines.serve(&format!("zk{id}.example"), "/var/lib/baton", &[1, 2, 3]);
    }
    machines.until_all_serve(3);

    // The page shows server 2 as the leader, and server 3 stopped.
    let transferred = machines.run(inline("baton server transfer 2"));
    assert_eq!(transferred.out, "server 2 leads\n", "{transferred:?}");
    machines.stop("zk3.example");
    let listing = block_behind("### Changing the members");
    let (command, expected) = listing.split_once('\n').unwrap();
    let ran = machines.run(command.strip_prefix("$ ").unwrap());
    let columns = |text: &str| -> Vec<Vec<String>> {
        let rows = text.lines().map(|line| {
            let cells = line
                .split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty());
            cells.map(str::to_owned).collect()
        });
        rows.collect()
    };
    let (expected, printed) = (columns(&machines.located(expected)), columns(&ran.out));
    assert_eq!(printed[0], expected[0]);
    assert_eq!(printed.len(), expected.len(), "{ran:?}");
    for (printed, expected) in printed.iter().zip(&expected) {
        // Neither the newest change nor the version.
        let kept = |row: &[String]| [0, 1, 2, 6, 7].map(|cell| row[cell].clone());
        assert_eq!(kept(printed), kept(expected), "{ran:?}");
    }
    machines.serve("zk3.example", "/var/lib/baton", &[1, 2, 3]);
    machines.until_all_serve(3);

    machines.follow(block_behind("From three voters to five"));
    machines.remove(inline("baton server remove"));
    machines.follow(block_behind("**Adding a server.**"));
    machines.remove("baton server remove 4");
    let reset = machines.run(inline("baton server reset-time"));
    assert_eq!(reset.code, 0, "{reset:?}");
    machines.follow(block_behind("**Moving a server**"));
    machines.until_all_serve(3);
    machines.follow(block_behind("**Replacing a machine"));
    machines.until_all_serve(3);
    let tried: BTreeSet<_> = machines.verbs.into_iter().collect();
    let help = Home::new().run(&["server", "--help"]).out;
    let (_, verbs) = help.split_once("Commands:\n").unwrap();
    let verbs = verbs.lines().take_while(|line| !line.is_empty());
    // Further lines of a verb are indented more.
    let verbs = verbs.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let verbs = verbs.filter(|verb| !verb.is_empty() && *verb != "help");
    let untried: Vec<_> = verbs.filter(|verb| !tried.contains(*verb)).collect();
    assert_eq!(untried, ["recover"], "{help}");
}

#[test]
fn r34_one_server_becomes_three_and_one_that_is_left_a_new_cluster_as_the_page_says() {
    let mut machines = Machines::new();
    machines.serve("zk1.example", "/var/lib/baton", &[]);
    until("it serves", || {
        let made = machines.run("baton create /kept x --servers zk1.example:2181");
        made.code == 0
    });
    machines.follow(block_behind("**From one server to three"));
    machines.until_all_serve(3);
    let get = "baton get /kept --servers zk3.example:2181";
    until("server 3 has it", || {
        machines.run(get).out.trim_end() == "x"
    });

    for id in [1, 2, 3] {
        drop(machines.running.remove(&format!("zk{id}.example")));
    }
    let recover = inline("baton server recover --majority-lost");
    let recover = recover.replace("OLD", "/var/lib/baton");
    let recovered = machines.run(&recover.replace("NEW", "/var/lib/baton-3"));
    assert_eq!(recovered.code, 0, "{recovered:?}");
    machines.serve("zk3.example", "/var/lib/baton-3", &[3]);
    until("it serves", || machines.run(get).out.trim_end() == "x");
    // "No server starts on OLD any more."
    machines.serve("zk3.example", "/var/lib/baton", &[3]);
    let refused = machines.running.remove("zk3.example").unwrap().end();
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.err.contains("/var/lib/baton-3"), "{refused:?}");
}
