//! Bad input: each has one line that names the thing and the remedy, and its exit code.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use baton_wal::{DirStorage, Entry, Record, Wal, WalOptions};

use crate::common::CommandHome;

/// Runs `args`, and wants this code and a line with all of these in it.
fn refused(home: &CommandHome, args: &[&str], code: i32, parts: &[&str]) {
    let ran = home.run(args);
    assert_eq!(ran.code, code, "{args:?}: {ran:?}");
    let line = ran.complaint();
    for part in parts {
        assert!(line.contains(part), "{args:?}: no {part:?} in {line:?}");
    }
}

#[test]
fn wrong_arguments_are_refused_with_2() {
    let home = CommandHome::new();
    refused(&home, &["lock"], 2, &["PATH", "see baton lock --help"]);
    refused(
        &home,
        &["lock", "--wiat", "5s", "/x"],
        2,
        &["--wiat", "--wait"],
    );
    refused(
        &home,
        &["lock", "--wait", "5", "/x"],
        2,
        &["'5'", "500ms, 5s"],
    );
    refused(
        &home,
        &["lock", "-w", "1s", "-n", "/x"],
        2,
        &["--wait", "--no-wait"],
    );
    refused(
        &home,
        &["lock", "--on-lost", "pray", "/x"],
        2,
        &["pray", "term, kill"],
    );
    refused(&home, &["lcok", "/x"], 2, &["lcok", "lock"]);
    refused(
        &home,
        &["lock", "--lock-delay", "2m", "/x", "--", "true"],
        2,
        &["2m", "1m or less"],
    );
    refused(
        &home,
        &["lock", "--lock-delay", "1s", "-s", "/x"],
        2,
        &["--lock-delay", "--shared"],
    );
    refused(
        &home,
        &["lock", "--kill-after", "9s", "/x", "--", "true"],
        2,
        &["9s", "30s", "--session-timeout"],
    );
    refused(
        &home,
        &["serve", "--ephemeral"],
        2,
        &["--listen", "--unix-socket"],
    );
    refused(&home, &["completions", "tcsh"], 2, &["tcsh", "bash"]);
    for (option, verb) in [
        ("--jobs", &["queue", "work"][..]),
        ("--max-attempts", &["queue", "work"]),
        ("--visibility", &["queue", "work"]),
        ("--max-attempts", &["queue", "work", "put"]),
        ("--capacity", &["queue", "work", "put"]),
        ("--batch", &["queue", "work", "put"]),
        ("--slots", &["sem"]),
        ("--permits", &["sem"]),
        ("--count", &["barrier"]),
    ] {
        let args = [verb, &["/x", option, "0"]].concat();
        refused(&home, &args, 2, &["0"]);
    }
    refused(
        &home,
        &["elect", "/x", "--http", "nowhere", "--", "true"],
        2,
        &["--http", "nowhere"],
    );
}

#[test]
fn paths_that_break_the_rules_are_refused_with_2() {
    let home = CommandHome::new();
    for path in ["x", "", "//", "/x/", "/a//b", "/a/../b", "/\u{7}"] {
        for verb in [
            &["lock", path, "--", "true"][..],
            &["get", path],
            &["create", path],
            &["queue", "take", "-n", path],
        ] {
            let ran = home.run(verb);
            assert_eq!(ran.code, 2, "{verb:?}: {ran:?}");
            assert!(ran.complaint().contains("path"), "{ran:?}");
        }
    }
}

#[test]
fn a_path_that_breaks_the_rules_is_refused_before_a_server_is_asked_or_started() {
    let home = CommandHome::new();
    for verb in [
        &["lock", "x"][..],
        &["lock", "show", "x"],
        &["lock", "break", "x", "--token", "1"],
        &["sem", "x", "--slots", "2"],
        &["sem", "resize", "x", "2"],
        &["elect", "x"],
        &["elect", "resign", "x"],
        &["barrier", "x", "--count", "2"],
        &["barrier", "open", "x"],
        &["queue", "depth", "x"],
        &["queue", "work", "x", "--", "cat"],
        &["queue", "work", "put", "x", "item"],
        &["queue", "work", "dead", "x"],
        &["member", "join", "x"],
        &["member", "ls", "x"],
        &["counter", "add", "x"],
        &["ls", "x"],
        &["get", "/x/"],
        &["set", "x", "1"],
        &["create", "/x/"],
        &["create", "--sequential", "x"],
        &["rm", "/a//b"],
        &["stat", "x"],
        &["watch", "x"],
        &["acl", "x"],
        &[
            "queue",
            "take",
            "/q",
            "--layout",
            "curator",
            "--lock-path",
            "x",
        ],
    ] {
        let ran = home.run(verb);
        assert_eq!(ran.code, 2, "{verb:?}: {ran:?}");
        assert!(ran.complaint().contains("not a legal path"), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "no server was started: {ran:?}");
    }
    assert!(!home.state().exists());
}

#[test]
fn errors_are_json_with_json() {
    let home = CommandHome::new();
    for args in [
        &["--json", "lock"][..],
        &["lock", "--json", "x", "--", "true"],
        &["get", "/missing", "--json"],
    ] {
        let ran = home.run(args);
        let error: serde_json::Value =
            serde_json::from_str(ran.err.trim()).unwrap_or_else(|_| panic!("{ran:?}"));
        assert_eq!(error["exit_code"], ran.code);
        assert!(error["error"].is_string() && error["kind"].is_string());
    }
}

#[test]
fn servers_that_cannot_be_reached_are_named() {
    let home = CommandHome::new();
    let unused = baton_testkit::free_addr().unwrap().to_string();
    let list = format!("{unused},{unused}");
    refused(
        &home,
        &[
            "lock",
            "/x",
            "--servers",
            &list,
            "--connect-timeout",
            "300ms",
            "--",
            "true",
        ],
        125,
        &[&unused, "refused", "check that one is running"],
    );
    let other = baton_testkit::free_addr().unwrap().to_string();
    let list = format!("{unused},{other}/app");
    let silent = format!("nothing listens at {unused}, {other};");
    refused(
        &home,
        &[
            "get",
            "/x",
            "--servers",
            &list,
            "--connect-timeout",
            "300ms",
        ],
        125,
        &["0 of 2 servers run, no majority", &silent],
    );
    refused(
        &home,
        &["get", "/x", "--servers", "host:port"],
        2,
        &["host:port"],
    );
    refused(&home, &["get", "/x", "--servers", ""], 2, &["server"]);
    refused(
        &home,
        &[
            "get",
            "/x",
            "--servers",
            "unix:/no/such.sock",
            "--connect-timeout",
            "200ms",
        ],
        125,
        &["/no/such.sock"],
    );
}

#[test]
fn a_port_in_use_is_named() {
    let home = CommandHome::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(
        &home,
        &["serve", "--ephemeral", "--listen", &address],
        125,
        &[&address, "in use", "stop the program"],
    );
    refused(
        &home,
        &["serve", "--ephemeral", "--listen", "nowhere"],
        125,
        &["nowhere"],
    );
}

#[test]
fn a_data_folder_in_use_is_named_with_the_process_that_has_it() {
    let home = CommandHome::new();
    let mut server = home.spawn(&["serve", "--data-dir", "data"]);
    server.line();
    let pid = server.pid().to_string();
    refused(
        &home,
        &["serve", "--data-dir", "data"],
        125,
        &["data", "in use", &pid, "another folder"],
    );
    server.signal("TERM");
    assert_eq!(server.end().code, 0);
}

#[test]
fn a_data_folder_of_another_format_version_is_refused_also_through_the_local_server() {
    let home = CommandHome::new();
    let mut server = home.spawn(&["serve", "--data-dir", "data"]);
    server.line();
    server.signal("TERM");
    server.end();
    let marker = home.path("data/FORMAT");
    let text = std::fs::read_to_string(&marker).unwrap();
    let other = text.replacen(|letter: char| letter.is_ascii_digit(), "9", 1);
    assert_ne!(text, other);
    std::fs::write(&marker, other).unwrap();
    refused(
        &home,
        &["serve", "--data-dir", "data"],
        125,
        &["FORMAT", "version 9"],
    );
    refused(
        &home,
        &["get", "/x", "--data-dir", "data"],
        125,
        &["local server did not start", "version 9"],
    );
    refused(&home, &["wal", "verify", "data"], 125, &["version 9"]);
}

#[test]
fn folders_that_cannot_be_used_are_named() {
    let home = CommandHome::new();
    std::fs::write(home.path("file"), "").unwrap();
    refused(
        &home,
        &["get", "/x", "--data-dir", "file"],
        125,
        &["file", "choose"],
    );
    refused(
        &home,
        &["serve", "--data-dir", "file"],
        125,
        &["file", "choose"],
    );
    std::fs::create_dir(home.path("open")).unwrap();
    std::fs::set_permissions(home.path("open"), std::fs::Permissions::from_mode(0o777)).unwrap();
    refused(
        &home,
        &["get", "/x", "--data-dir", "open"],
        125,
        &["open", "chmod 700"],
    );
    refused(
        &home,
        &["wal", "verify", "missing"],
        125,
        &["missing", "--data-dir"],
    );
    let long = format!("/tmp/{}", "s".repeat(120));
    refused(
        &home,
        &["serve", "--ephemeral", "--unix-socket", &long],
        2,
        &["125 bytes", "107", "shorter"],
    );
}

#[test]
fn a_damaged_log_is_found_with_file_and_offset() {
    let home = CommandHome::new();
    let mut server = home.spawn(&["serve", "--data-dir", "data"]);
    server.line();
    for at in 0..20 {
        assert_eq!(
            home.run(&["create", &format!("/n{at}"), "value", "--data-dir", "data"])
                .code,
            0
        );
    }
    server.signal("TERM");
    server.end();
    let sound = home.run(&["wal", "verify", "data"]);
    assert_eq!(sound.code, 0, "{sound:?}");
    assert!(home.run(&["wal", "dump", "data"]).out.contains("entry"));
    let segment = home.path("data/log-0000000000000001");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[400] ^= 0x10;
    std::fs::write(&segment, bytes).unwrap();
    let damaged = home.run(&["wal", "verify", "data", "--json"]);
    assert_eq!(damaged.code, 1, "{damaged:?}");
    assert!(
        damaged.out.contains("log-0000000000000001") && damaged.out.contains("damaged at byte"),
        "{damaged:?}"
    );
    refused(
        &home,
        &["serve", "--data-dir", "data"],
        125,
        &["log-0000000000000001", "damaged at byte"],
    );
}

#[test]
fn a_log_of_a_later_version_is_refused_by_verify_and_by_the_start_alike() {
    let home = CommandHome::new();
    let mut server = home.spawn(&["serve", "--data-dir", "data"]);
    server.line();
    server.signal("TERM");
    server.end();
    let storage = DirStorage::open(home.path("data")).unwrap();
    let (mut wal, _) = Wal::open(Arc::new(storage), WalOptions::default()).unwrap();
    let index = wal.last_index() + 1;
    let entry = Entry {
        index,
        term: 1,
        kind: 1,
        payload: vec![9].into(),
    };
    let records = [Record::Entry(entry), Record::Commit { index }];
    wal.append(&records).unwrap();
    wal.sync().unwrap();
    wal.close().unwrap();
    let bytes = || std::fs::read(home.path("data/log-0000000000000001")).unwrap();
    let before = bytes();
    let refusal = format!("log entry {index} cannot be applied");
    for (args, code) in [
        (&["wal", "verify", "data"][..], 1),
        (&["serve", "--data-dir", "data"], 125),
        (&["serve", "--data-dir", "data"], 125),
    ] {
        refused(&home, args, code, &[&refusal, "payload format 9"]);
    }
    assert!(bytes() == before, "a refused start has written");
}

#[test]
fn what_the_server_refuses_is_said_with_1() {
    let home = CommandHome::new();
    assert_eq!(home.run(&["create", "/x"]).code, 0);
    refused(&home, &["create", "/x"], 1, &["/x", "NodeExists"]);
    refused(&home, &["get", "/missing"], 1, &["/missing", "NoNode"]);
    refused(
        &home,
        &["set", "/x", "1", "--if-version", "7"],
        1,
        &["/x", "BadVersion"],
    );
    std::fs::write(home.path("large"), vec![b'x'; 1_100_000]).unwrap();
    let mut command = home.baton(&["set", "/x"]);
    command.stdin(std::fs::File::open(home.path("large")).unwrap());
    let ran = crate::common::Ran::from(command.output().unwrap());
    assert_eq!(ran.code, 125);
    assert!(
        ran.complaint().contains("store less in one node"),
        "{ran:?}"
    );
}

#[test]
fn a_chroot_that_does_not_exist_is_named_and_a_work_queue_takes_no_other_items() {
    let home = CommandHome::new();
    let mut server = home.spawn(&["serve", "--ephemeral", "--listen", "127.0.0.1:0"]);
    let line = server.line();
    let addr = line.split([' ', ';']).nth(3).unwrap();
    let below = format!("{addr}/nope/app");
    for verb in [&["lock"][..], &["get"], &["queue", "take"]] {
        let args = [verb, &["/x", "--servers", &below]].concat();
        refused(&home, &args, 125, &["has no znode /nope/app", "create it"]);
    }
    let work = ["queue", "work", "put", "/jobs", "one", "--servers", addr];
    assert_eq!(home.run(&work).code, 0);
    let plain = ["queue", "put", "/jobs", "two", "--servers", addr];
    refused(
        &home,
        &plain,
        125,
        &["/jobs", "work queue", "baton queue work"],
    );
    // And the other way round.
    let plain = ["queue", "put", "/mail", "one", "--servers", addr];
    assert_eq!(home.run(&plain).code, 0);
    let remedy = ["no work queue", "qn-0000000000", "baton queue take /mail"];
    for verb in [
        &["take", "/mail"][..],
        &["put", "/mail", "two"],
        &["/mail", "--", "true"],
    ] {
        let args = [&["--servers", addr, "queue", "work"], verb].concat();
        refused(&home, &args, 125, &remedy);
    }
}

#[test]
fn no_recipe_is_run_on_what_belongs_to_the_server() {
    let home = CommandHome::new();
    for verb in [
        &["lock", "/zookeeper", "--", "true"][..],
        &["lock", "-s", "/zookeeper/quota", "--", "true"],
        &["sem", "/zookeeper/x", "--slots", "2", "--", "true"],
        &["elect", "/zookeeper", "--", "true"],
        &["barrier", "/zookeeper", "--count", "1"],
        &["barrier", "close", "/zookeeper/x"],
        &["queue", "put", "/zookeeper", "item"],
        &["queue", "work", "put", "/zookeeper/config", "item"],
        &["member", "join", "/zookeeper", "--", "true"],
        &["counter", "add", "/zookeeper/x"],
    ] {
        refused(
            &home,
            verb,
            2,
            &["/zookeeper", "belong to the server", "choose another path"],
        );
    }
    assert!(!home.state().exists(), "no server was started");
}

#[test]
fn an_empty_item_is_put_only_where_it_is_meant() {
    let home = CommandHome::new();
    let with_input = |args: &[&str], input: &str| {
        std::fs::write(home.path("input"), input).unwrap();
        let mut command = home.baton(args);
        command.stdin(std::fs::File::open(home.path("input")).unwrap());
        crate::common::Ran::from(command.output().unwrap())
    };
    for put in [&["queue", "put"][..], &["queue", "work", "put"]] {
        let queue = put.join("-").replace("queue-", "/");
        let put = [put, &[queue.as_str()]].concat();
        let refused = with_input(&put, "");
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.complaint().contains("--allow-empty"), "{refused:?}");
        // No lines are no items.
        let none = with_input(&[&put[..], &["--lines"]].concat(), "");
        assert_eq!(none.code, 0, "{none:?}");
        for (more, input) in [
            (&["--allow-empty"][..], ""),
            (&["--lines"], "a\n\nb\n"),
            (&[""], ""),
            (&["--lines"], "c\n"),
        ] {
            let put = with_input(&[&put[..], more].concat(), input);
            assert_eq!(put.code, 0, "{more:?}: {put:?}");
        }
    }
    let depth = home.run(&["queue", "depth", "/put"]);
    assert_eq!(depth.out.trim(), "6", "{depth:?}");
    let depth = home.run(&["queue", "work", "depth", "/work-put", "--json"]);
    assert!(depth.out.contains("6"), "{depth:?}");
}
