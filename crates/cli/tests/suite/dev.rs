//! `baton dev`: servers to try things out. They are reported, and none outlives the command.

use std::path::PathBuf;

use serde_json::Value;

use crate::common::{CommandHome, RunningCommand, runs, signal, until};

/// `baton dev`, with temporary folders in this home, and what it says with `--json`.
struct Dev {
    running: RunningCommand,
    servers: String,
    folder: PathBuf,
    /// The process of each server.
    pids: Vec<i32>,
}

impl Dev {
    fn start(home: &CommandHome, count: usize, args: &[&str]) -> Self {
        let mut command = home.baton(&[&["dev", "--json"], args].concat());
        command.env("TMPDIR", home.dir.path());
        let mut running = RunningCommand::new(command);
        let serving = event(&mut running);
        assert_eq!(serving["event"], "serving", "{serving}");
        let pids = (0..count).map(|_| {
            let server = event(&mut running);
            i32::try_from(server["pid"].as_i64().unwrap()).unwrap()
        });
        let pids = pids.collect();
        Self {
            servers: serving["servers"].as_str().unwrap().to_owned(),
            folder: serving["data_dir"].as_str().unwrap().into(),
            running,
            pids,
        }
    }

    fn event(&mut self) -> Value {
        event(&mut self.running)
    }
}

fn event(running: &mut RunningCommand) -> Value {
    let line = running.line();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

#[test]
fn one_server_runs_until_the_command_is_stopped_and_leaves_nothing() {
    let home = CommandHome::new();
    let dev = Dev::start(&home, 1, &[]);
    let ran = home.run(&["create", "/a", "x", "--servers", &dev.servers]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(dev.folder.starts_with(home.dir.path()) && dev.folder.join("1/FORMAT").exists());
    dev.running.signal("TERM");
    let ended = dev.running.end();
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{ended:?}");
    assert!(!runs(dev.pids[0]));
    assert!(!dev.folder.exists());
}

#[test]
fn people_read_the_list_for_servers_and_each_server() {
    let home = CommandHome::new();
    let mut command = home.baton(&["dev"]);
    command.env("TMPDIR", home.dir.path());
    let mut running = RunningCommand::new(command);
    let list = running.line();
    assert!(
        list.starts_with("baton: serving; use --context dev, or --servers 127.0.0.1:")
            && list.ends_with("(removed when this command ends)"),
        "{list}"
    );
    let server = running.line();
    assert!(
        server.starts_with("server 1: standalone, 127.0.0.1:"),
        "{server}"
    );
    assert!(
        server.contains(", console on http://127.0.0.1:"),
        "{server}"
    );
    running.signal("INT");
    assert_eq!(running.end().code, 130);
}

#[test]
fn no_server_outlives_a_command_that_is_killed() {
    let home = CommandHome::new();
    let dev = Dev::start(&home, 1, &[]);
    dev.running.signal("KILL");
    until("the server ends", || !runs(dev.pids[0]));
}

#[test]
fn a_server_that_is_killed_is_reported_and_the_command_ends_with_the_last_one() {
    let home = CommandHome::new();
    let mut dev = Dev::start(&home, 1, &[]);
    signal(dev.pids[0], "KILL");
    let ended = dev.event();
    assert_eq!(ended["event"], "ended", "{ended}");
    assert_eq!(ended["how"], "was ended by SIGKILL", "{ended}");
    let ran = dev.running.end();
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("every server has ended"), "{ran:?}");
}

#[test]
fn a_server_is_started_again_where_that_is_wanted_with_its_data_and_its_port() {
    let home = CommandHome::new();
    let mut dev = Dev::start(&home, 1, &["--restart", "--data-dir", "dev"]);
    let create = ["create", "/a", "x", "--servers", &dev.servers];
    assert_eq!(home.run(&create).code, 0);
    signal(dev.pids[0], "KILL");
    assert_eq!(dev.event()["restart"], true);
    let started = dev.event();
    assert_eq!(started["event"], "started", "{started}");
    let get = [
        "get",
        "/a",
        "--servers",
        &dev.servers,
        "--connect-timeout",
        "60s",
    ];
    let ran = home.run(&get);
    assert_eq!((ran.code, ran.out.trim_end()), (0, "x"), "{ran:?}");
    dev.running.signal("TERM");
    assert_eq!(dev.running.end().code, 0);
    // The folder keeps both for the next time.
    let again = Dev::start(&home, 1, &["--data-dir", "dev"]);
    assert_eq!(again.servers, dev.servers);
    let ran = home.run(&get);
    assert_eq!((ran.code, ran.out.trim_end()), (0, "x"), "{ran:?}");
    again.running.signal("TERM");
    assert_eq!(again.running.end().code, 0);
    assert!(home.path("dev/1/FORMAT").exists());
}

#[test]
fn numbers_and_lists_that_are_not_possible_are_refused() {
    let home = CommandHome::new();
    for (args, part) in [
        (
            &["dev", "--servers", "9"][..],
            "'9' is not a number of servers",
        ),
        (&["dev", "--servers", "a:2181,b:2181"], "1 to 7 of its own"),
        (&["dev", "--port-base", "65535"], "from 1 to 65533"),
    ] {
        let ran = home.run(args);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.complaint().contains(part), "{ran:?}");
    }
}

#[test]
fn a_list_in_the_environment_is_for_other_verbs() {
    let home = CommandHome::new();
    let mut command = home.baton(&["dev", "--json"]);
    command
        .env("TMPDIR", home.dir.path())
        .env("BATON_SERVERS", "127.0.0.1:1");
    let mut running = RunningCommand::new(command);
    assert_eq!(event(&mut running)["event"], "serving");
    running.signal("TERM");
    assert_eq!(running.end().code, 0);
}

#[test]
fn three_servers_go_on_after_one_is_killed() {
    let home = CommandHome::new();
    let mut dev = Dev::start(&home, 3, &["--servers", "3"]);
    assert_eq!(dev.servers.split(',').count(), 3);
    let create = ["create", "/a", "x", "--servers", &dev.servers];
    assert_eq!(home.run(&create).code, 0);
    signal(dev.pids[0], "KILL");
    assert_eq!(dev.event()["event"], "ended");
    let get = [
        "get",
        "/a",
        "--servers",
        &dev.servers,
        "--connect-timeout",
        "60s",
    ];
    let ran = home.run(&get);
    assert_eq!((ran.code, ran.out.trim_end()), (0, "x"), "{ran:?}");
    let ran = home.run(&["create", "/b", "--servers", &dev.servers]);
    assert_eq!(ran.code, 0, "{ran:?}");
    dev.running.signal("TERM");
    assert_eq!(dev.running.end().code, 0);
}

#[test]
fn the_servers_are_a_context_while_the_command_runs() {
    let home = CommandHome::new();
    let dev = Dev::start(&home, 1, &[]);
    let created = home.run(&["--context", "dev", "create", "/a", "x"]);
    assert_eq!(created.code, 0, "{created:?}");
    let got = home.run(&["get", "/a", "--servers", &dev.servers]);
    assert_eq!(got.out, "x\n", "{got:?}");
    let listed = home.run(&["context", "ls"]);
    assert!(listed.out.contains(&dev.servers), "{listed:?}");
    // A later one has the name; the end of the earlier one leaves it alone.
    let later = Dev::start(&home, 1, &[]);
    dev.running.signal("TERM");
    dev.running.end();
    let shown = home.run(&["context", "show", "dev"]);
    assert!(shown.out.contains(&later.servers), "{shown:?}");
    later.running.signal("TERM");
    later.running.end();
    let gone = home.run(&["--context", "dev", "ls"]);
    assert_eq!(gone.code, 2, "{gone:?}");
}

#[test]
fn a_context_of_the_user_keeps_its_name() {
    let home = CommandHome::new();
    let own = "[context.dev]\nservers = \"host:2181\"\n";
    std::fs::create_dir_all(home.path("config/baton")).unwrap();
    std::fs::write(home.path("config/baton/config.toml"), own).unwrap();
    let mut command = home.baton(&["dev"]);
    command.env("XDG_CONFIG_HOME", home.path("config"));
    let mut running = RunningCommand::new(command);
    assert!(
        running
            .line()
            .starts_with("baton: serving; use --servers 127.0.0.1:")
    );
    assert!(!home.path("config/baton/dev.toml").exists());
    running.signal("TERM");
    running.end();
}

#[test]
fn servers_without_a_majority_are_counted_in_the_error_and_by_doctor() {
    let home = CommandHome::new();
    let dev = Dev::start(&home, 3, &["--servers", "3"]);
    for pid in &dev.pids[..2] {
        signal(*pid, "KILL");
        until("the server ends", || !runs(*pid));
    }
    let refused = home.run(&["--context", "dev", "--connect-timeout", "1s", "ls"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    let expected = "1 of 3 servers runs, no majority";
    assert!(refused.complaint().contains(expected), "{refused:?}");
    let doctor = home.run(&["--context", "dev", "--connect-timeout", "1s", "doctor"]);
    assert_eq!(
        (doctor.code, doctor.out.lines().next()),
        (3, Some(expected)),
        "{doctor:?}"
    );
    assert!(doctor.out.contains("error leader"), "{doctor:?}");
}
