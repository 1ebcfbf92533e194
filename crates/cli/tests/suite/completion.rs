//! Completion by Tab, asked as the scripts ask and in the shells themselves. On Baton's server, or
//! with BATON_TEST_TARGET=zookeeper on Apache ZooKeeper.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::common::terminal::Terminal;
use crate::common::{CommandHome, Ran, ServedHome, until};

/// Candidates for the last word of a line, and what each means.
fn asked(mut baton: Command, line: &str) -> Vec<String> {
    baton
        .env("BATON_COMPLETE", "fish")
        .arg("--")
        .args(line.split(' '));
    let ran = Ran::from(baton.output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    ran.out.lines().map(str::to_owned).collect()
}

/// Candidates without what they mean.
fn names(baton: Command, line: &str) -> Vec<String> {
    let name = |line: String| line.split('\t').next().unwrap().to_owned();
    asked(baton, line).into_iter().map(name).collect()
}

impl ServedHome {
    fn completed(&self, line: &str) -> Vec<String> {
        asked(self.baton(&[]), line)
    }

    /// Waits for these candidates: a server that is slow to answer has none.
    fn completes(&self, line: &str, candidates: &[&str]) {
        until(line, || self.completed(line) == candidates);
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

#[tokio::test(flavor = "multi_thread")]
async fn paths_complete_level_by_level_on_the_servers_that_a_verb_would_use() {
    let served = ServedHome::new().await;
    served.make(&["/deploy", "/deploy/eu", "/deploy/us", "/jobs"]);
    served.completes("baton get /de", &["/deploy", "/deploy/"]);
    let below = ["/deploy/eu", "/deploy/us"];
    served.completes("baton get /deploy/", &below);
    served.completes("baton queue put /jo", &["/jobs"]);
    served.completes("baton get /deploy/e", &["/deploy/eu"]);
    assert_eq!(served.completed("baton get /none/"), [""; 0]);
    // Of several servers on one line, those that are named count.
    let line = "baton --servers 127.0.0.1:1 get /de";
    assert_eq!(served.completed(line), [""; 0]);
    let line = format!("baton get --servers={} /jo", served.servers);
    until("the servers of the line are asked", || {
        let mut elsewhere = served.home.baton(&[]);
        elsewhere.env("BATON_SERVERS", "127.0.0.1:1");
        asked(elsewhere, &line) == ["/jobs"]
    });
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
    let asked = |line: &str| asked(served.home.baton(&[]), line);
    assert_eq!(asked("baton get /h --context=d"), ["--context=dev"]);
    assert_eq!(asked("baton context use d"), ["dev"]);
    assert_eq!(asked("baton get --context dev /hidden/"), [""; 0]);
    let line = format!("baton get --context dev --auth-file {auth} /hidden/");
    until("the server has answered in time", || {
        asked(&line) == ["/hidden/x"]
    });
    // Which file it is only the shell knows.
    let line = "baton get --context dev --auth-file $FILE /hidden/";
    assert_eq!(asked(line), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_of_waiters_are_no_locks_and_long_lists_are_cut() {
    let served = ServedHome::new().await;
    let mut holder = served.spawn(&["lock", "/held"]);
    assert!(holder.line().starts_with("held "));
    served.completes("baton lock /he", &["/held"]);
    assert_eq!(served.completed("baton lock /held/"), [""; 0]);
    until("the waiter is listed", || {
        served.completed("baton get /held/").len() == 1
    });
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
    until("the list is cut", || {
        served.completed("baton get /many/").len() == 1000
    });
    served.completes("baton get /many/n1099", &["/many/n1099"]);
}

#[test]
fn no_server_is_started_and_one_that_says_nothing_is_left_alone() {
    let home = CommandHome::new();
    let none = [""; 0];
    assert_eq!(asked(home.baton(&[]), "baton get /"), none);
    let files = std::fs::read_dir(home.dir.path()).unwrap();
    assert_eq!(files.count(), 0, "something was made");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let line = format!("baton --servers {} get /", silent.local_addr().unwrap());
    assert_eq!(asked(home.baton(&[]), &line), none);
    let fifo = home.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    // Nobody ever writes to it.
    let line = format!(
        "baton --servers 127.0.0.1:1 --auth-file {} get /",
        fifo.display()
    );
    assert_eq!(asked(home.baton(&[]), &line), none);
}

#[test]
fn verbs_options_values_and_files_are_told_apart() {
    let home = CommandHome::new();
    let names = |line: &str| names(home.baton(&[]), line);
    assert_eq!(names("baton que"), ["queue"]);
    assert_eq!(names("baton queue work ta"), ["take"]);
    assert_eq!(names("baton compl"), ["completions"]);
    assert_eq!(names("baton lock --kill"), ["--kill-after"]);
    assert_eq!(names("baton --color=al"), ["--color=always"]);
    std::fs::create_dir(home.path("folder")).unwrap();
    std::fs::write(home.path("file"), "").unwrap();
    let in_home = |line: &str| {
        let mut baton = home.baton(&[]);
        baton.current_dir(home.dir.path());
        self::names(baton, line)
    };
    assert_eq!(in_home("baton get --auth-file f"), ["file", "folder/"]);
    assert_eq!(in_home("baton serve --data-dir f"), ["folder/"]);
    assert_eq!(in_home("baton set /x f"), [""; 0]);
    let files = ["file", "folder/"];
    assert_eq!(in_home("baton lock /x -- cat f"), files);
    let line = asked(home.baton(&[]), "baton que").remove(0);
    assert!(line.starts_with("queue\tPut items"), "{line:?}");
}

#[test]
fn a_variable_that_names_no_shell_is_refused() {
    let home = CommandHome::new();
    for value in ["fsh", "1"] {
        let mut baton = home.baton(&["--version"]);
        let ran = Ran::from(baton.env("BATON_COMPLETE", value).output().unwrap());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.contains("BATON_COMPLETE"), "{ran:?}");
    }
    for value in ["", "0"] {
        let mut baton = home.baton(&["--version"]);
        let ran = Ran::from(baton.env("BATON_COMPLETE", value).output().unwrap());
        assert!(ran.out.starts_with("baton "), "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_is_no_text_does_not_keep_others_from_completion() {
    let served = ServedHome::new().await;
    served.make(&["/jobs"]);
    until("the server has answered in time", || {
        let mut baton = served.baton(&[]);
        baton.env("BATON_COMPLETE", "fish");
        baton.args(["--", "baton", "lock", "--wait"]);
        baton.arg(OsStr::from_bytes(b"\xff")).arg("/jo");
        let ran = Ran::from(baton.output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        ran.out == "/jobs\n"
    });
}

/// PowerShell takes candidates as they are; fish quotes them.
#[test]
fn powershell_is_offered_no_hostile_file() {
    let home = CommandHome::new();
    for name in ["x1", "x;reboot", "x$(id)", "x\t;id", "x\n;id"] {
        std::fs::write(home.path(name), "").unwrap();
    }
    let mut baton = home.baton(&["--", "baton", "get", "--auth-file", "x"]);
    baton.current_dir(home.dir.path());
    let ran = Ran::from(baton.env("BATON_COMPLETE", "powershell").output().unwrap());
    assert_eq!((ran.code, ran.out.as_str()), (0, "x1\tx1\n"));
}

/// Names that end a command, or hide something, where a shell takes them as they are.
const HOSTILE: [&str; 7] = [
    "/h/1 $(touch HACKED)",
    "/h/2`touch HACKED`",
    "/h/3;touch HACKED",
    "/h/4'\"\\",
    "/h/5 -rf",
    "/h/6*{a,b}",
    "/h/7\u{202e}",
];
const HOSTILE_FILES: [&str; 2] = ["f1;touch HACKED", "f2$(touch HACKED)"];

#[tokio::test(flavor = "multi_thread")]
async fn bash_completes_words_with_colons_and_offers_no_hostile_name() {
    let served = ServedHome::new().await;
    served.make(&["/h", "/h/8ü", "/c:d"]);
    served.make(&HOSTILE);
    for file in HOSTILE_FILES {
        std::fs::write(served.home.path(file), "").unwrap();
    }
    std::fs::create_dir(served.home.path("d;touch HACKED")).unwrap();
    let mut terminal = Terminal::run(&served.shell("bash", &["--norc", "--noprofile", "-i"]), 200);
    terminal.keys("PS1='prompt> '; source <(command baton completions bash)\n");
    terminal.keys("baton() { printf '<%s>' \"$@\"; echo; }\n");
    terminal.keys(&format!("cd '{}'\n", served.home.dir.path().display()));
    terminal.keys("echo re''ady\n");
    until("the shell is ready", || {
        terminal.text().contains("ready\r\n")
    });
    terminal.keys("_command_offset() { COMPREPLY=(\"word-$1\"); }\n");
    let servers = &served.servers;
    for (keys, shown) in [
        ("baton lock /x -- ca\t", "<--><word-4>".to_owned()),
        ("baton get /c:\t", "<get></c:d>".to_owned()),
        ("baton get /h/8\t", "<get></h/8ü>".to_owned()),
        (
            &format!("baton --servers {servers} get /c\t"),
            format!("<--servers><{servers}><get></c:d>"),
        ),
    ] {
        terminal.keys(&format!("{keys}\n"));
        until(keys, || terminal.text().contains(&shown));
    }
    for name in HOSTILE {
        let begun = name.get(..4).unwrap();
        terminal.keys(&format!("baton get {begun}\t\n"));
        let shown = format!("<get><{begun}>\r\n");
        until(&format!("{name} is not offered"), || {
            terminal.text().contains(&shown)
        });
    }
    // Bash itself completes and quotes them.
    for (keys, shown) in [
        (
            "baton get --auth-file f1\t",
            "<--auth-file><f1;touch HACKED>",
        ),
        (
            "baton get --auth-file=f2\t",
            "<--auth-file=f2$(touch HACKED)>",
        ),
        (
            "baton get --auth-file d\t",
            "<--auth-file><d;touch HACKED/>",
        ),
    ] {
        terminal.keys(&format!("{keys}\n"));
        until(keys, || terminal.text().contains(shown));
    }
    terminal.keys("exit\n");
    terminal.child.wait().unwrap();
    assert!(!served.home.path("HACKED").exists());
}

#[test]
fn fish_completes_the_command_behind_the_separator() {
    let home = CommandHome::new();
    let candidates = |line: &str| {
        let script = format!("source $argv[1]; complete --do-complete '{line}'");
        let folder = Path::new(env!("CARGO_BIN_EXE_baton")).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/completions");
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c", &script])
            .arg(scripts.join("baton.fish"));
        fish.env("PATH", path).env("HOME", home.dir.path());
        let ran = Ran::from(fish.output().ok()?);
        Some(
            ran.out
                .lines()
                .map(|it| it.split('\t').next().unwrap().to_owned())
                .collect(),
        )
    };
    let Some(verbs): Option<Vec<String>> = candidates("baton que") else {
        eprintln!("NOT CHECKED: fish is not installed here");
        return;
    };
    assert_eq!(verbs, ["queue"]);
    let commands: Vec<String> = candidates("baton lock /x -- ch").unwrap();
    assert!(commands.contains(&"chmod".to_owned()), "{commands:?}");
    assert!(!commands.contains(&"baton".to_owned()), "{commands:?}");
}

/// Checks that the packages have the scripts that the command prints.
#[test]
fn the_scripts_of_the_packages_are_those_of_the_command() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/completions");
    for shell in ["bash", "zsh", "fish"] {
        let file = folder.join(format!("baton.{shell}"));
        let printed = CommandHome::new().run(&["completions", shell]);
        // Else a failure would be written in the middle of the line.
        assert!(printed.out.contains("2>/dev/null"), "{shell}");
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            printed.out,
            "{}",
            file.display()
        );
    }
}
