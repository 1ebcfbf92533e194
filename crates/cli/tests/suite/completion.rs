//! Completion by Tab, asked as the scripts ask and in the shells themselves. On Baton's server, or
//! with BATON_TEST_TARGET=zookeeper on Apache ZooKeeper.

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::terminal::Terminal;
use crate::common::{Home, Ran, ServedHome, until};

const BREAKS: &str = " \t\n\"'><=;|&(:";

/// Words that the shell's script gets for this line up to the cursor.
fn asked(mut baton: Command, line: &str) -> Vec<String> {
    let mut child = baton
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(line.as_bytes()).unwrap();
    drop(input);
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    ran.out.lines().map(str::to_owned).collect()
}

impl ServedHome {
    fn completed(&self, line: &str) -> Vec<String> {
        asked(self.baton(&["complete", "bash", BREAKS]), line)
    }

    fn make(&self, paths: &[&str]) {
        for path in paths {
            let made = self.run(&["create", path]);
            assert_eq!(made.code, 0, "{made:?}");
        }
    }

    /// This shell, with `baton` in its path.
    fn shell(&self, name: &str, args: &[&str]) -> Command {
        let baton = self.baton(&[]);
        let folder = Path::new(env!("CARGO_BIN_EXE_baton")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut shell = Command::new(name);
        shell.args(args).current_dir(self.home.dir.path());
        for (name, value) in baton.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.env("PATH", format!("{}:{path}", folder.display()));
        shell
    }
}

/// Whether a shell is there to be tested.
fn is_installed(shell: &str) -> bool {
    let found = Command::new(shell).arg("--version").output();
    if found.is_err() {
        eprintln!("{shell} is not installed: its completion is not tested here");
    }
    found.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_complete_level_by_level_on_the_servers_that_a_verb_would_use() {
    let served = ServedHome::new().await;
    served.make(&["/deploy", "/deploy/eu", "/deploy/us", "/jobs"]);
    assert_eq!(served.completed("baton get /de"), ["open", "/deploy"]);
    // It is complete: what is below it comes next.
    let below = ["open", "/deploy/eu", "/deploy/us"];
    assert_eq!(served.completed("baton get /deploy"), below);
    assert_eq!(served.completed("baton get /deploy/"), below);
    assert_eq!(served.completed("baton queue put /jo"), ["names", "/jobs"]);
    assert_eq!(
        served.completed("baton get /deploy/e"),
        ["names", "/deploy/eu"]
    );
    assert_eq!(served.completed("baton get /none/"), ["names"]);
    // Of several servers on one line, those that are named count.
    let line = "baton --servers 127.0.0.1:1 get /de";
    assert_eq!(served.completed(line), ["names"]);
    let mut elsewhere = served.home.baton(&["complete", "bash", BREAKS]);
    elsewhere.env("BATON_SERVERS", "127.0.0.1:1");
    let line = format!("baton get --servers={} /de", served.servers);
    assert_eq!(asked(elsewhere, &line), ["open", "/deploy"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn contexts_and_credentials_on_the_line_count() {
    let served = ServedHome::new().await;
    let config = served.home.path(".config/baton");
    std::fs::create_dir_all(&config).unwrap();
    let text = format!("[context.dev]\nservers = \"{}\"\n", served.servers);
    std::fs::write(config.join("config.toml"), text).unwrap();
    let auth = served.home.write_secret("auth", "digest:bob:secret\n");
    let auth = auth.to_str().unwrap();
    let acl = ["--acl", "creator=all", "--auth-file", auth];
    for path in ["/hidden", "/hidden/x"] {
        let made = served.run(&[&["create", path][..], &acl].concat());
        assert_eq!(made.code, 0, "{made:?}");
    }
    let asked = |line: &str| asked(served.home.baton(&["complete", "bash", BREAKS]), line);
    assert_eq!(asked("baton get /h --context=d"), ["names", "dev"]);
    assert_eq!(asked("baton context use "), ["names", "dev"]);
    assert_eq!(asked("baton --context dev get /hidden/"), ["names"]);
    let line = format!("baton --context dev --auth-file {auth} get /hidden/");
    assert_eq!(asked(&line), ["names", "/hidden/x"]);
    // Which file it is only the shell knows.
    let line = "baton --context dev --auth-file $(cat name) get /hidden/";
    assert_eq!(asked(line), ["names"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_of_waiters_are_no_locks_and_long_lists_are_cut() {
    let served = ServedHome::new().await;
    let mut holder = served.spawn(&["lock", "/held"]);
    assert!(holder.line().starts_with("held "));
    assert_eq!(served.completed("baton lock /he"), ["names", "/held"]);
    assert_eq!(served.completed("baton lock /held/"), ["names"]);
    assert_eq!(served.completed("baton get /held/").len(), 2);
    let client = baton_client::Client::connect(baton_client::Config::new(&served.servers).unwrap());
    let session = client.await.unwrap().session().await.unwrap();
    let mode = baton_client::CreateMode::Persistent;
    session.create("/many", b"", mode).await.unwrap();
    let made: Vec<_> = (0..1100)
        .map(|number| session.create(&format!("/many/n{number}"), b"", mode))
        .collect();
    for made in made {
        made.await.unwrap();
    }
    assert_eq!(served.completed("baton get /many/").len(), 1 + 1000);
    assert_eq!(
        served.completed("baton get /many/n1099"),
        ["names", "/many/n1099"]
    );
}

#[test]
fn no_server_is_started_and_one_that_says_nothing_is_left_alone() {
    let home = Home::new();
    let answer = asked(home.baton(&["complete", "bash", BREAKS]), "baton get /");
    assert_eq!(answer, ["names"]);
    let files = std::fs::read_dir(home.dir.path()).unwrap();
    assert_eq!(files.count(), 0, "something was made");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let line = format!("baton --servers {} get /", silent.local_addr().unwrap());
    let answer = asked(home.baton(&["complete", "bash", BREAKS]), &line);
    assert_eq!(answer, ["names"]);
    let fifo = home.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    // Nobody ever writes to it.
    let line = format!(
        "baton --servers 127.0.0.1:1 --auth-file {} get /",
        fifo.display()
    );
    let answer = asked(home.baton(&["complete", "bash", BREAKS]), &line);
    assert_eq!(answer, ["names"]);
}

#[test]
fn verbs_options_values_files_and_commands_are_told_apart() {
    let home = Home::new();
    let asked = |line: &str| asked(home.baton(&["complete", "bash", BREAKS]), line);
    assert_eq!(asked("baton que"), ["names", "queue"]);
    assert_eq!(asked("baton queue work ta"), ["names", "take"]);
    assert_eq!(asked("baton compl"), ["names", "completions"]);
    assert_eq!(asked("baton lock --kill"), ["names", "--kill-after"]);
    assert_eq!(asked("baton --color=al"), ["names", "always"]);
    assert_eq!(asked("baton get --auth-file "), ["files"]);
    assert_eq!(asked("baton ls / > "), ["files"]);
    assert_eq!(asked("baton serve --data-dir "), ["folders"]);
    assert_eq!(asked("baton lock /x -- ca"), ["commands"]);
    assert_eq!(asked("baton set /x "), ["names"]);
    let zsh = self::asked(home.baton(&["complete", "zsh"]), "baton\0que\0");
    assert!(zsh[1].starts_with("queue\tPut items"), "{zsh:?}");
}

/// Names that end a command, or hide something, where a shell takes them as they are.
const HOSTILE: [&str; 6] = [
    "/h/1 $(touch HACKED)",
    "/h/2`touch HACKED`",
    "/h/3;touch HACKED",
    "/h/4'\"\\",
    "/h/5 -rf",
    "/h/6*{a,b}",
];

#[tokio::test(flavor = "multi_thread")]
async fn bash_and_zsh_write_hostile_names_as_one_word() {
    let served = ServedHome::new().await;
    served.make(&["/h", "/c:d"]);
    served.make(&HOSTILE);
    served.make(&["/h/7\u{202e}"]);
    let bash = "PS1='prompt> '; source <(command baton completions bash)\n";
    let zsh = "PS1='prompt> '; autoload -Uz compinit; compinit -u -D; \
               source <(command baton completions zsh)\n";
    for (shell, args, script) in [
        ("bash", &["--norc", "--noprofile", "-i"][..], bash),
        ("zsh", &["-f", "-i"], zsh),
    ] {
        if !is_installed(shell) {
            continue;
        }
        let mut terminal = Terminal::run(&served.shell(shell, args), 200);
        terminal.keys("baton() { printf '<%s>' \"$@\"; echo; }\n");
        terminal.keys(script);
        terminal.keys("echo re''ady\n");
        until("the shell is ready", || {
            terminal.text().contains("ready\r\n")
        });
        for name in HOSTILE {
            let begun = name.get(..4).unwrap();
            for quote in ["", "'", "\""] {
                terminal.keys(&format!("baton get {quote}{begun}\t\n"));
                let shown = format!("<get><{name}>");
                until(&format!("{shell} completes {quote}{name}"), || {
                    terminal.text().contains(&shown)
                });
            }
        }
        terminal.keys("baton get /c:\t\n");
        until("a colon is completed", || {
            terminal.text().contains("<get></c:d>")
        });
        terminal.keys("baton get /h/7\t\n");
        until("a name that turns the line", || {
            terminal.text().contains("<get></h/7>")
        });
        terminal.keys("exit\n");
        terminal.child.wait().unwrap();
        assert!(!served.home.path("HACKED").exists(), "{shell}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fish_gets_names_as_they_are() {
    if !is_installed("fish") {
        return;
    }
    let served = ServedHome::new().await;
    served.make(&["/h", "/deploy", "/deploy/eu"]);
    served.make(&HOSTILE);
    let complete = |line: &str| {
        let script = "command baton completions fish | source; complete -C $argv[1]";
        let ran = served
            .shell("fish", &["--no-config", "-c", script, line])
            .output();
        let ran = Ran::from(ran.unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        ran.out
    };
    for name in HOSTILE {
        let begun = name.get(..4).unwrap();
        assert_eq!(complete(&format!("baton get {begun}")), format!("{name}\n"));
    }
    assert_eq!(complete("baton get /dep"), "/deploy\n/deploy/\n");
    assert!(complete("baton que").starts_with("queue\tPut items"));
    assert!(complete("baton lock /x -- mkfif").starts_with("mkfifo"));
}
