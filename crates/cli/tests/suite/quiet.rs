//! Standard error where nothing is wrong, and how it is silenced.

use crate::common::{CommandHome, Ran, processes, until};

fn servers_of(home: &CommandHome) -> Vec<i32> {
    processes(&["serve", &home.state().to_string_lossy()])
}

#[test]
fn quiet_says_nothing_of_a_server_that_it_starts_and_still_reports_errors() {
    let home = CommandHome::new();
    let ran = home.run(&["-q", "lock", "/x", "--", "true"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let ran = home.run(&["get", "/missing", "--quiet"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.complaint().contains("/missing"), "{ran:?}");
    let both = home.run(&["-q", "-v", "ls"]);
    assert_eq!(both.code, 2, "{both:?}");
    assert!(both.complaint().contains("--quiet"), "{both:?}");
}

#[test]
fn a_server_that_is_started_again_is_no_news_to_cron() {
    let home = CommandHome::new();
    let first = home.run(&["create", "/x"]);
    assert!(first.err.contains("started a local server"), "{first:?}");
    until("the idle server has ended", || servers_of(&home).is_empty());
    let again = home.run(&["get", "/x"]);
    assert_eq!((again.code, again.err.as_str()), (0, ""), "{again:?}");
    until("the idle server has ended", || servers_of(&home).is_empty());
    let verbose = home.run(&["-v", "get", "/x"]);
    assert!(
        verbose.err.contains("started a local server"),
        "{verbose:?}"
    );
}

#[test]
fn a_held_lock_that_is_no_failure_by_e_0_is_not_mentioned() {
    let home = CommandHome::new();
    let mut holder = home.spawn(&["lock", "/nightly"]);
    assert!(holder.line().starts_with("held /nightly"));
    for verb in [
        &["lock", "-n", "/nightly"][..],
        &["lock", "-x", "-n", "/other"],
        &["sem", "-n", "/licences", "--slots", "1"],
    ] {
        let path = verb[verb.len() - 1];
        let mut other = (path != "/nightly").then(|| {
            let held = verb.iter().filter(|word| **word != "-n").copied();
            home.spawn(&held.collect::<Vec<_>>())
        });
        if let Some(other) = &mut other {
            other.line();
        }
        let skipped = home.run(&[verb, &["-E", "0", "--", "echo", "ran"]].concat());
        assert_eq!(
            (skipped.code, skipped.out.as_str(), skipped.err.as_str()),
            (0, "", ""),
            "{skipped:?}"
        );
        // Another code is a failure that somebody asked to see.
        let reported = home.run(&[verb, &["-E", "75", "--", "true"]].concat());
        assert_eq!(reported.code, 75, "{reported:?}");
        assert!(
            reported.complaint().contains("not acquired"),
            "{reported:?}"
        );
    }
    let args = ["lock", "-n", "/nightly", "-E", "0"];
    let verbose = home.run(&[&args[..], &["-v", "--", "true"]].concat());
    assert!(verbose.err.contains("not acquired"), "{verbose:?}");
    // With `--json` an object says that nothing was run.
    let json = home.run(&[&args[..], &["--json", "--", "true"]].concat());
    let object: serde_json::Value = serde_json::from_str(json.err.trim()).unwrap();
    assert_eq!(object["kind"], "not_acquired");
    assert_eq!(json.code, 0);
}

/// Runs `baton` with one variable set.
fn with(home: &CommandHome, name: &str, value: &str, args: &[&str]) -> Ran {
    Ran::from(home.baton(args).env(name, value).output().unwrap())
}

#[test]
fn an_empty_variable_counts_as_unset_and_a_wrong_one_is_named() {
    let home = CommandHome::new();
    for (name, value) in [
        ("BATON_SERVERS", ""),
        ("BATON_SERVERS", " "),
        ("BATON_DATA_DIR", ""),
        ("BATON_IDLE", ""),
    ] {
        let ran = with(&home, name, value, &["ls"]);
        assert_eq!(ran.code, 0, "{name}={value:?}: {ran:?}");
    }
    assert!(!servers_of(&home).is_empty(), "the local server was used");
    for value in ["host:port", ","] {
        let ran = with(&home, "BATON_SERVERS", value, &["ls"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        let line = ran.complaint();
        assert!(line.contains("BATON_SERVERS in the environment"), "{line}");
        let flag = home.run(&["ls", "--servers", value]);
        let said = flag.complaint();
        assert!(said.starts_with("baton: --servers: "), "{said}");
    }
    let home = CommandHome::new();
    let ran = with(&home, "BATON_IDLE", "soon", &["ls"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.complaint().contains("BATON_IDLE"), "{ran:?}");
    for (value, code) in [("chatty", 2), ("inf0", 2), ("debug", 0), ("WARN", 0)] {
        let args = ["serve", "--ephemeral", "--listen", "127.0.0.1:0"];
        let mut command = home.baton(&args);
        command.env("BATON_LOG", value);
        let mut server = crate::common::RunningCommand::new(command);
        if code == 0 {
            assert!(server.line().contains("serving on"), "{value}");
            server.signal("TERM");
        }
        let ran = server.end();
        assert_eq!(ran.code, code, "{value}: {ran:?}");
        if code != 0 {
            let line = ran.complaint();
            for part in ["BATON_LOG", value, "error, warn, info, debug, trace"] {
                assert!(line.contains(part), "{line}");
            }
        }
    }
}

#[test]
fn with_json_a_server_writes_nothing_but_objects() {
    let home = CommandHome::new();
    let mut command = home.baton(&["--json", "serve", "--data-dir", "data"]);
    command.env("BATON_LOG", "debug");
    let mut server = crate::common::RunningCommand::new(command);
    let ready: serde_json::Value = serde_json::from_str(&server.line()).unwrap();
    assert!(ready["serving"].is_array(), "{ready}");
    assert_eq!(home.run(&["create", "/x", "--data-dir", "data"]).code, 0);
    // A second one fails, and says that in the same way.
    let second = home.run(&["--json", "serve", "--data-dir", "data"]);
    assert_eq!(second.code, 125, "{second:?}");
    server.signal("TERM");
    let ended = server.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    let lines = ended.out.lines().chain(ended.err.lines());
    let mut levels = 0;
    for line in lines.chain(second.err.lines()) {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?} in {ended:?}"));
        assert!(object.is_object(), "{line}");
        levels += u32::from(object["level"].is_string() && object["message"].is_string());
    }
    assert!(levels > 0, "it had a log: {ended:?}");
}
