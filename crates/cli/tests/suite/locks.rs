//! Listing of locks of any client, and asking a holder to release one. On Baton's server,
//! or with BATON_TEST_TARGET=zookeeper on Apache ZooKeeper.

use std::time::{Duration, Instant};

use baton_client::{Config, CreateMode, Session};

use crate::common::{ServedHome, until};

/// Makes `nodes`, each `(path, data)`: ephemeral, and with a number if the path ends in a dash, an
/// underscore or an `n_`.
async fn plant(served: &ServedHome, nodes: &[(&str, &str)]) -> Session {
    let config = Config::new(&served.servers).unwrap();
    let session = Session::connect(config).await.unwrap();
    for (node, data) in nodes {
        let mut above = String::new();
        let (folder, _) = node.rsplit_once('/').unwrap();
        for part in folder.split('/').skip(1) {
            above = format!("{above}/{part}");
            let _ = session.create(&above, b"", CreateMode::Persistent).await;
        }
        let mode = if node.ends_with(['-', '_']) {
            CreateMode::EphemeralSequential
        } else {
            CreateMode::Ephemeral
        };
        session.create(node, data.as_bytes(), mode).await.unwrap();
    }
    session
}

fn shown(served: &ServedHome, path: &str) -> Vec<serde_json::Value> {
    let shown = served.run(&["lock", "show", path, "--json"]);
    shown
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn states(served: &ServedHome, path: &str) -> Vec<String> {
    let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    shown(served, path)
        .iter()
        .map(|line| word(&line["kind"]) + " " + &word(&line["state"]))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_librarys_locks_are_shown() {
    let served = ServedHome::new().await;
    let session = plant(
        &served,
        &[
            ("/simple/lock", "10.0.0.1"),
            (
                "/latch/_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-latch-",
                "eu-1",
            ),
            (
                "/latch/_c_b41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-latch-",
                "eu-2",
            ),
            ("/support/n_", "host-a"),
            ("/recipes/x-72057594037927936-", "\u{12}4"),
            ("/kazoo/0123456789abcdef0123456789abcdef__lock__", "k"),
            ("/rw/_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-__READ__", ""),
            ("/rw/_c_b41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-__READ__", ""),
            ("/rw/_c_c41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-__WRIT__", ""),
            (
                "/sem/leases/_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-lease-",
                "",
            ),
            (
                "/sem/leases/_c_b41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-lease-",
                "",
            ),
            (
                "/sem/locks/_c_c41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-lock-",
                "",
            ),
            ("/ksem/0123456789abcdef0123456789abcdef", "k"),
            (
                "/ksem-__lock__/1123456789abcdef0123456789abcdef__lock__",
                "",
            ),
            ("/folder/lock-notes/lock", "in a folder"),
        ],
    )
    .await;
    session.set_data("/ksem", b"3", None).await.unwrap();
    for (path, expected) in [
        ("/simple", &["simple holds"] as &[&str]),
        ("/latch", &["lock holds", "lock waits"]),
        ("/support", &["lock holds"]),
        ("/recipes", &["lock holds"]),
        ("/kazoo", &["lock holds"]),
        (
            "/rw",
            &["read_write holds", "read_write holds", "read_write waits"],
        ),
        (
            "/sem",
            &["semaphore holds", "semaphore holds", "semaphore waits"],
        ),
        ("/ksem", &["semaphore holds", "semaphore waits"]),
    ] {
        assert_eq!(states(&served, path), expected, "{path}");
    }
    let simple = served.run(&["lock", "show", "/simple"]);
    assert!(
        simple.out.contains("another program (10.0.0.1)"),
        "{simple:?}"
    );

    let listed = served.run(&["lock", "ls"]).out;
    let paths: Vec<_> = listed
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(
        paths,
        [
            "/folder/lock-notes",
            "/kazoo",
            "/ksem",
            "/latch",
            "/recipes",
            "/rw",
            "/sem",
            "/simple",
            "/support"
        ],
        "{listed}"
    );
    assert!(listed.contains("  1 of 3  1  "), "{listed}");
    // What no session owns is nobody's lock.
    session
        .create("/old", b"", CreateMode::Persistent)
        .await
        .unwrap();
    session
        .create("/old/lock", b"", CreateMode::Persistent)
        .await
        .unwrap();
    assert_eq!(served.run(&["lock", "show", "/old"]).code, 1);
    for args in [
        &["lock", "show", "old"] as &[&str],
        &["lock", "ls", "old"],
        &["lock", "revoke", "old"],
    ] {
        let bad = served.run(args);
        assert_eq!(bad.code, 2, "{bad:?}");
        assert!(bad.complaint().contains("not a legal path"), "{bad:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_asked_stops_its_command_and_lets_go() {
    let served = ServedHome::new().await;
    let nobody = served.run(&["lock", "revoke", "/x"]);
    assert_eq!(nobody.code, 1, "{nobody:?}");
    assert!(nobody.complaint().contains("/x is not held"), "{nobody:?}");

    let mut holder = served.spawn(&["lock", "/x", "-c", "echo $BATON_TOKEN; exec sleep 1000"]);
    let token = holder.line();
    let other = served.run(&["lock", "revoke", "/x", "--token", "1"]);
    assert_eq!(other.code, 1, "{other:?}");
    let asked = served.run(&["lock", "revoke", "/x", "--token", &token]);
    assert_eq!(asked.code, 0, "{asked:?}");
    let ended = holder.end();
    assert_eq!(ended.code, 113, "{ended:?}");
    assert!(
        ended
            .err
            .contains("somebody asks for the lock; stopping the command"),
        "{ended:?}"
    );
    assert_eq!(served.run(&["lock", "-n", "/x", "--", "true"]).code, 0);

    // Readers, all at once; and without a command.
    let mut readers = [
        served.spawn(&["lock", "-s", "/r"]),
        served.spawn(&["lock", "-s", "/r", "--json"]),
    ];
    for reader in &mut readers {
        assert!(reader.line().contains("/r"));
    }
    let asked = served.run(&["lock", "revoke", "/r"]);
    assert_eq!((asked.code, asked.out.lines().count()), (0, 2), "{asked:?}");
    for reader in readers {
        let ended = reader.end();
        assert_eq!(ended.code, 113, "{ended:?}");
        assert!(ended.err.contains("released on request"), "{ended:?}");
    }
    let mut permit = served.spawn(&["sem", "/s", "--slots", "2"]);
    permit.line();
    assert_eq!(served.run(&["lock", "revoke", "/s"]).code, 0);
    assert_eq!(permit.end().code, 113);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_not_to_be_stopped_runs_on_under_its_lock() {
    let served = ServedHome::new().await;
    let done = served.home.path("done");
    let wait = format!(
        "echo up; until test -e {}; do sleep 0.02; done; exit 7",
        done.display()
    );
    let mut holder = served.spawn(&["lock", "/x", "--on-lost", "ignore", "-c", &wait]);
    assert_eq!(holder.line(), "up");
    assert_eq!(served.run(&["lock", "revoke", "/x"]).code, 0);
    let busy = served.run(&["lock", "-n", "/x", "--", "true"]);
    assert_eq!(busy.code, 124, "{busy:?}");
    assert!(
        served
            .run(&["lock", "show", "/x"])
            .out
            .contains("asked to release")
    );
    std::fs::write(done, "").unwrap();
    let ended = holder.end();
    assert_eq!(ended.code, 7, "{ended:?}");
    assert!(ended.err.contains("the command runs on"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_locks_and_shared_ones_at_one_path_are_refused_with_what_to_do() {
    let served = ServedHome::new().await;
    let mut holder = served.spawn(&["lock", "/x"]);
    holder.line();
    let refused = served.run(&["lock", "-s", "/x", "--", "true"]);
    assert_eq!(refused.code, 125);
    assert!(
        refused.complaint().contains("locks with -s and -x"),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_just_taken_is_not_shown_as_of_no_age() {
    let served = ServedHome::new().await;
    let mut holder = served.spawn(&["lock", "/x"]);
    holder.line();
    // The first of these is within the first second, unless the machine is slow; none may say 0.
    let show = served.run(&["lock", "show", "/x"]);
    assert!(!show.out.contains(" 0ms"), "{show:?}");
    assert!(show.out.contains("  FOR  "), "{show:?}");
}

/// The holder's token.
fn token(served: &ServedHome) -> String {
    shown(served, "/x")[0]["token"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_delay_holds_the_next_off_after_a_break_and_not_after_a_release() {
    let served = ServedHome::new().await;
    // Far beyond the patience of this test.
    let mut holder = served.spawn(&["lock", "--lock-delay", "60s", "/x"]);
    assert!(holder.line().starts_with("held /x"));
    let mut next = served.spawn(&["lock", "--lock-delay", "1500ms", "/x"]);
    until("the next waits", || shown(&served, "/x").len() == 2);
    holder.signal("TERM");
    assert_eq!(holder.end().code, 0);
    assert!(next.line().starts_with("held /x"));
    let mut last = served.spawn(&["lock", "/x"]);
    until("the last waits", || shown(&served, "/x").len() == 2);
    let broken = Instant::now();
    let ran = served.run(&["lock", "break", "/x", "--token", &token(&served)]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(last.line().starts_with("held /x"));
    assert!(broken.elapsed() >= Duration::from_millis(1500));
    assert_eq!(next.end().code, 113);
    last.signal("TERM");
    assert_eq!(last.end().code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_was_only_asked_for_is_not_shown_as_held() {
    let served = ServedHome::new().await;
    let mut holder = served.spawn(&["sem", "/s", "--slots", "2", "--permits", "2"]);
    let held = holder.line();
    let token = held.split_whitespace().nth(3).unwrap().to_owned();
    let waiter = served.spawn(&["sem", "/s"]);
    // The first waiter asks for its permit beforehand.
    until("the waiter has asked", || {
        served.run(&["ls", "/s/leases"]).out.lines().count() == 3
    });
    let expected = ["semaphore holds", "semaphore holds", "semaphore waits"];
    assert_eq!(states(&served, "/s"), expected);
    let tokens: Vec<_> = shown(&served, "/s")[..2]
        .iter()
        .map(|line| line["token"].to_string())
        .collect();
    assert_eq!(tokens, [token.clone(), token], "{held}");
    let listed = served.run(&["lock", "ls", "/s"]).out;
    let row: Vec<_> = listed.lines().nth(1).unwrap().split("  ").collect();
    assert!(row.contains(&"2 of 2") && row.contains(&"1"), "{listed}");
    drop(waiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_position_and_a_number_that_nobody_reads_change_no_order() {
    let served = ServedHome::new().await;
    let node = |first| format!("/x/_c_{first}41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-lock-");
    let record =
        r#"{"id":"a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10","host":"forger","pid":1,"served":1}"#;
    let session = plant(&served, &[(&*node('b'), "first"), (&*node('a'), record)]).await;
    // Too large for 64 bits.
    session
        .create("/x/lock-99999999999999999999", b"", CreateMode::Ephemeral)
        .await
        .unwrap();
    let lines = shown(&served, "/x");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(
        (&lines[0]["data"], &lines[0]["state"]),
        (&"first".into(), &"holds".into())
    );
    assert_eq!(
        (&lines[1]["holder"]["host"], &lines[1]["state"]),
        (&"forger".into(), &"waits".into())
    );
}
