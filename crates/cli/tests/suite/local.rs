//! The local server: started once, by the first command that needs it; of one folder only; gone
//! when nobody uses it.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{CommandHome, RunningCommand, processes, runs, signal, until, word};

#[test]
fn the_first_command_starts_a_server_and_says_so_once() {
    let home = CommandHome::new();
    let first = home.run(&["lock", "/demo", "--", "echo", "held"]);
    assert_eq!((first.code, first.out.as_str()), (0, "held\n"), "{first:?}");
    assert_eq!(
        first
            .err
            .lines()
            .filter(|line| line.contains("started a local server"))
            .count(),
        1,
        "{first:?}"
    );
    assert_eq!(home.run(&["lock", "/demo", "--", "true"]).err, "");
    let mode = std::fs::metadata(home.state())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn commands_at_once_start_one_server_between_them() {
    let home = CommandHome::new();
    let running: Vec<_> = (0..6)
        .map(|at| home.spawn(&["queue", "put", "/q", &at.to_string()]))
        .collect();
    let ran: Vec<_> = running
        .into_iter()
        .map(crate::common::RunningCommand::end)
        .collect();
    assert!(ran.iter().all(|ran| ran.code == 0), "{ran:?}");
    let started = ran
        .iter()
        .filter(|ran| ran.err.contains("started a local server"))
        .count();
    assert_eq!(started, 1, "{ran:?}");
    let folder = home.state().to_string_lossy().into_owned();
    assert_eq!(processes(&["serve", &folder]).len(), 1);
    assert_eq!(home.run(&["queue", "ls", "/q"]).out.lines().count(), 6);
}

#[test]
fn two_folders_do_not_meet() {
    let home = CommandHome::new();
    assert_eq!(home.run(&["create", "/here"]).code, 0);
    let elsewhere = home.path("elsewhere");
    let elsewhere = elsewhere.to_str().unwrap();
    assert_eq!(home.run(&["get", "/here", "--data-dir", elsewhere]).code, 1);
    assert_eq!(home.run(&["get", "/here"]).code, 0);
    // Nor do two homes, which is what two users have.
    assert_eq!(CommandHome::new().run(&["get", "/here"]).code, 1);
}

#[test]
fn an_idle_server_ends_itself_and_keeps_the_data() {
    let home = CommandHome::new();
    assert_eq!(home.run(&["create", "/kept", "value"]).code, 0);
    let folder = home.state().to_string_lossy().into_owned();
    until("the idle server has ended", || {
        processes(&["serve", &folder]).is_empty()
    });
    assert!(!home.state().join("baton.sock").exists());
    let again = home.run(&["get", "/kept"]);
    assert_eq!(
        (again.code, again.out.as_str()),
        (0, "value\n"),
        "{again:?}"
    );
}

#[test]
fn a_server_in_use_is_not_idle() {
    let home = CommandHome::new();
    let ran = home.run(&["lock", "/x", "-v", "--", "sleep", "2"]);
    assert_eq!(ran.code, 0);
    assert_eq!(
        ran.err.matches("started a local server").count(),
        1,
        "it ended under a holder: {ran:?}"
    );
}

#[test]
fn a_folder_with_a_path_longer_than_a_sockets_serves_as_well() {
    let home = CommandHome::new();
    let long = home.path(&"long/".repeat(40));
    let long = long.to_str().unwrap();
    let ran = home.run(&["lock", "/x", "--data-dir", long, "--", "echo", "held"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "held\n"), "{ran:?}");
    assert_eq!(home.run(&["ls", "/x", "--data-dir", long]).code, 0);
}

#[test]
fn a_server_in_the_foreground_is_found_by_its_folder() {
    let home = CommandHome::new();
    let mut server = home.spawn(&[
        "serve",
        "--data-dir",
        "data",
        "--listen",
        "127.0.0.1:0",
        "--json",
    ]);
    let ready: serde_json::Value = serde_json::from_str(&server.line()).unwrap();
    let address = ready["serving"][0].as_str().unwrap();
    assert_eq!(
        home.run(&["create", "/x", "1", "--servers", address]).code,
        0
    );
    let found = home.run(&["get", "/x", "--data-dir", "data"]);
    assert_eq!((found.out.as_str(), found.err.as_str()), ("1\n", ""));
    server.signal("TERM");
    assert_eq!(server.end().code, 0);
}

#[test]
fn kill_9_of_the_server_loses_nothing_that_was_acknowledged() {
    let home = CommandHome::new();
    for round in 0..3 {
        for at in 0..5 {
            let put = home.run(&["queue", "put", "/q", &format!("{round}-{at}")]);
            assert_eq!(put.code, 0, "{put:?}");
        }
        for pid in processes(&["serve", &home.state().to_string_lossy()]) {
            signal(pid, "KILL");
        }
    }
    assert_eq!(home.run(&["queue", "ls", "/q"]).out.lines().count(), 15);
}

#[test]
fn a_limit_on_the_size_of_files_is_a_full_disk_and_ends_no_server() {
    let home = CommandHome::new();
    let mut limited = Command::new("sh");
    // As much as a log's first file is made ahead, or twice that, by what the shell counts in.
    let script = r#"ulimit -f 2048; exec "$0" serve --data-dir data --listen 127.0.0.1:0"#;
    limited.args(["-c", script, env!("CARGO_BIN_EXE_baton")]);
    limited.current_dir(home.dir.path());
    let mut server = RunningCommand::new(limited);
    let addr = server.line();
    let addr = addr.split_whitespace().nth(3).unwrap();
    std::fs::write(
        home.path("items"),
        [[b'x'; 90_000].as_slice(), b"\n"].concat().repeat(40),
    )
    .unwrap();
    let mut put = home.baton(&["queue", "put", "/q", "--lines", "--servers", addr]);
    put.stdin(std::fs::File::open(home.path("items")).unwrap());
    let put = RunningCommand::new(put);
    until("the server has no room", || {
        word(addr, "mntr").contains("zk_baton_disk_full\t1")
    });
    assert!(runs(server.pid()) && runs(put.pid()));
    server.signal("TERM");
    let ended = server.end();
    assert_eq!(ended.code, 125, "{ended:?}");
    let why = ended.err.lines().last().unwrap();
    assert!(
        why.contains("no space left") && why.contains("limit on file sizes"),
        "{ended:?}"
    );
    drop(put);
    let depth = home.run(&["--data-dir", "data", "queue", "depth", "/q"]);
    assert!(depth.out.trim().parse::<u64>().unwrap() > 0, "{depth:?}");
}

/// For any umask, and any folder that was there before, also one of an earlier version.
#[test]
fn nobody_else_can_read_a_servers_folder() {
    let home = CommandHome::new();
    let mut open = Command::new("sh");
    let script = r#"umask 0; exec "$0" --data-dir data create /x secret"#;
    open.args(["-c", script, env!("CARGO_BIN_EXE_baton")]);
    open.current_dir(home.dir.path())
        .env("BATON_IDLE", "1m")
        .env("BATON_SYSTEM_DIR", home.path("system"))
        .env_remove("BATON_SERVERS");
    let made = RunningCommand::new(open).end();
    assert_eq!(made.code, 0, "{made:?}");
    let data = home.path("data");
    let mode = |path: &std::path::Path| {
        let about = std::fs::symlink_metadata(path).unwrap();
        about.permissions().mode() & 0o777
    };
    let files = || {
        let names = std::fs::read_dir(&data).unwrap();
        names.map(|name| name.unwrap().path()).collect::<Vec<_>>()
    };
    assert_eq!(mode(&data), 0o700);
    assert!(files().len() >= 6, "{:?}", files());
    for file in files() {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    let folder = data.to_string_lossy().into_owned();
    signal(processes(&["serve", &folder])[0], "TERM");
    until("the server has ended", || {
        processes(&["serve", &folder]).is_empty()
    });
    for file in files() {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        home.run(&["--data-dir", "data", "get", "/x"]).out,
        "secret\n"
    );
    assert_eq!(mode(&data), 0o700);
    for file in files() {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}
