//! The other verbs, end to end: elections, queues, the tree. On Baton's server, or with
//! BATON_TEST_TARGET=zookeeper on Apache ZooKeeper.

use std::process::Stdio;

use baton_proto::{Acl, Create, CreateOp, Request};
use baton_testkit::RawClient;

use crate::common::{RunningCommand, ServedHome};

#[tokio::test(flavor = "multi_thread")]
async fn leaders_follow_one_another_with_growing_terms() {
    let served = ServedHome::new().await;
    let mut watching = served.spawn(&["elect", "watch", "/e", "--json"]);
    let line = watching.line();
    assert!(
        line.contains(r#""leader":null"#) && line.contains("first_look"),
        "{line}"
    );
    let mut first = served.spawn(&[
        "elect",
        "/e",
        "--name",
        "first",
        "-c",
        "echo $BATON_TERM $BATON_TOKEN; exec sleep 1000",
    ]);
    let term = |line: String| {
        line.split_whitespace()
            .map(|number| number.parse().unwrap())
            .collect::<Vec<u64>>()
    };
    let one = term(first.line());
    let line = watching.line();
    assert!(
        line.contains("first") && line.contains("none_before"),
        "{line}"
    );
    let mut second = served.spawn(&[
        "elect",
        "/e",
        "--name",
        "second",
        "-c",
        "echo $BATON_TERM $BATON_TOKEN; exec sleep 1000",
    ]);
    first.signal("TERM");
    assert_eq!(first.end().code, 143);
    let two = term(second.line());
    assert!(two[0] > one[0] && two[1] > one[1], "{one:?} {two:?}");
    let mut line = watching.line();
    assert!(line.contains(r#""reason":"resigned""#), "{line}");
    while !line.contains("second") {
        line = watching.line();
    }
    assert!(served.run(&["elect", "show", "/e"]).out.contains("second"));
    second.signal("INT");
    assert_eq!(second.end().code, 130);
    assert_eq!(served.run(&["elect", "show", "/e"]).code, 1);
    assert!(watching.line().contains(r#""reason":"resigned""#));
    let mut third = served.spawn(&["elect", "/e", "-c", "echo up; exec sleep 1000"]);
    assert_eq!(third.line(), "up");
    assert!(watching.line().contains("none_before"));
    let deposed = served.run(&["elect", "resign", "/e", "--force"]);
    assert_eq!(deposed.code, 0, "{}", deposed.err);
    assert!(watching.line().contains(r#""reason":"removed""#));
    assert_eq!(third.end().code, 113);
    let mut fourth = served.spawn(&[
        "elect",
        "/e",
        "--session-timeout",
        "4s",
        "-c",
        "echo up; exec sleep 1000",
    ]);
    assert_eq!(fourth.line(), "up");
    assert!(watching.line().contains("none_before"));
    fourth.signal("KILL");
    fourth.end();
    assert!(watching.line().contains(r#""reason":"failed""#));
    watching.signal("TERM");
    assert_eq!(watching.end().code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_without_command_leads_until_a_signal() {
    let served = ServedHome::new().await;
    let mut leader = served.spawn(&["elect", "/e"]);
    assert!(leader.line().starts_with("leading /e term 1"));
    leader.signal("TERM");
    assert_eq!(leader.end().code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_around_a_term_and_a_leader_resigns_when_asked() {
    let served = ServedHome::new().await;
    let log = served.home.path("log");
    let note = |what: &str| format!("echo {what} $BATON_TERM >> {}", log.display());
    let (elected, demoted) = (note("elected"), note("demoted"));
    let mut leader = served.spawn(&[
        "elect",
        "/e",
        "--id",
        "eu-1",
        "--on-elected",
        &elected,
        "--on-demoted",
        &demoted,
        "-c",
        "echo running; exec sleep 1000",
    ]);
    assert_eq!(leader.line().trim(), "running");
    let shown: serde_json::Value =
        serde_json::from_str(&served.run(&["elect", "show", "/e", "--json"]).out).unwrap();
    assert_eq!(shown["leader"], "eu-1");
    // Its waiter node holds an id instead of Baton's record.
    assert!(
        shown["since_ms"].as_i64() > Some(1_600_000_000_000),
        "{shown}"
    );
    let token = shown["token"].to_string();
    let other = served.run(&["elect", "resign", "/e", "--token", "1"]);
    assert_eq!(other.code, 1);
    assert_eq!(
        served
            .run(&["elect", "resign", "/e", "--token", &token])
            .code,
        0
    );
    let ended = leader.end();
    assert_eq!(ended.code, 113);
    assert!(ended.err.contains("asked to resign"), "{ended:?}");
    assert_eq!(
        std::fs::read_to_string(&log).unwrap(),
        "elected 1\ndemoted 1\n"
    );
    assert_eq!(served.run(&["elect", "resign", "/e"]).code, 1);

    let failing = served.run(&[
        "elect",
        "/e",
        "--on-elected",
        "exit 7",
        "--",
        "echo",
        "never",
    ]);
    assert_eq!((failing.code, &*failing.out), (7, ""));
    let mut leader = served.spawn(&["elect", "/e"]);
    assert!(leader.line().starts_with("leading"));
    assert_eq!(served.run(&["elect", "resign", "/e", "--force"]).code, 0);
    assert_eq!(leader.end().code, 113);
    let missing = served.run(&["elect", "/e", "--data", "/nowhere", "--", "echo", "never"]);
    assert_eq!(missing.code, 2);
    assert_eq!(served.run(&["elect", "/e", "--dialect", "x"]).code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_gives_each_item_once_and_in_order() {
    let served = ServedHome::new().await;
    assert_eq!(served.run(&["queue", "put", "/q", "a", "b"]).code, 0);
    let mut put = served.baton(&["queue", "put", "/q", "--lines"]);
    std::fs::write(served.home.path("in"), "c\n\nd\n").unwrap();
    put.stdin(Stdio::from(
        std::fs::File::open(served.home.path("in")).unwrap(),
    ));
    assert!(put.status().unwrap().success());
    assert_eq!(served.run(&["queue", "peek", "/q"]).out, "a\n");
    assert_eq!(served.run(&["queue", "ls", "/q"]).out.lines().count(), 5);
    for item in ["a", "b", "c", "", "d"] {
        assert_eq!(
            served.run(&["queue", "take", "-n", "/q"]).out,
            format!("{item}\n")
        );
    }
    assert_eq!(served.run(&["queue", "take", "-n", "/q"]).code, 1);
    assert_eq!(served.run(&["queue", "peek", "/q"]).code, 1);
    let waited = served.run(&["queue", "take", "-w", "1500ms", "/q"]);
    assert_eq!(waited.code, 124);
    assert!(waited.complaint().contains("/q: no item within 1.5s"));
    let taker = served.spawn(&["queue", "take", "/q", "--json"]);
    assert_eq!(served.run(&["queue", "put", "/q", "late"]).code, 0);
    assert_eq!(taker.end().out, "{\"path\":\"/q\",\"data\":\"late\"}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_of_other_libraries_are_put_into_and_taken_from() {
    let served = ServedHome::new().await;
    let queue = |arguments: &[&str]| served.run(&[&["queue"], arguments].concat());
    for (layout, first) in [
        ("qn", "qn-0000000000"),
        ("curator", "queue-0000000000"),
        ("kazoo", "entry-100-0000000000"),
        ("locking", "entry-100-0000000000"),
    ] {
        let path = &format!("/{layout}");
        assert_eq!(queue(&["put", "--layout", layout, path, "a", "b"]).code, 0);
        let names = queue(&["ls", "--layout", layout, path]).out;
        assert_eq!(names.lines().next(), Some(first));
        assert_eq!(queue(&["depth", "--layout", layout, path]).out, "2\n");
        assert_eq!(queue(&["peek", "--layout", layout, path]).out, "a\n");
        assert_eq!(queue(&["take", "--layout", layout, path]).out, "a\n");
        assert_eq!(queue(&["take", "-n", "--layout", layout, path]).out, "b\n");
        assert_eq!(queue(&["take", "-n", "--layout", layout, path]).code, 1);
    }
    assert_eq!(queue(&["put", "/qn", "plain"]).code, 0);
    for flag in [["--priority", "3"], ["--delay", "1s"], ["--id", "x"]] {
        let ran = queue(&["put", flag[0], flag[1], "/qn", "unseen"]);
        assert_eq!(ran.code, 1);
        assert!(ran.complaint().contains("never see"), "{}", ran.err);
    }
    assert_eq!(queue(&["take", "/qn"]).out, "plain\n");
    assert_eq!(queue(&["put", "--priority", "3", "/p", "later"]).code, 0);
    assert_eq!(queue(&["put", "--priority", "-3", "/p", "sooner"]).code, 0);
    assert_eq!(queue(&["take", "-l", "priority", "/p"]).out, "sooner\n");
    assert_eq!(queue(&["put", "--delay", "1h", "/d", "far"]).code, 0);
    assert_eq!(queue(&["put", "--delay", "1ms", "/d", "near"]).code, 0);
    assert_eq!(queue(&["take", "-l", "delay", "/d"]).out, "near\n");
    assert_eq!(queue(&["take", "-n", "-l", "delay", "/d"]).code, 1);
    assert_eq!(
        queue(&["put", "-l", "curator", "--lock-path", "/locks", "/c", "x"]).code,
        0
    );
    assert_eq!(
        queue(&["take", "-l", "curator", "--lock-path", "/locks", "/c"]).out,
        "x\n"
    );
    for wrong in [
        &["put", "-l", "qn", "--priority", "1", "/q", "x"][..],
        &["put", "-l", "kazoo", "--delay", "1s", "/q", "x"],
        &["put", "--priority", "1", "--delay", "1s", "/q", "x"],
        &["take", "--lock-path", "/locks", "/q"],
        &["take", "-l", "sideways", "/q"],
        &["depth", "q"],
        &["put", "-l", "kazoo", "--priority", "1000", "/k", "x"],
    ] {
        assert_eq!(queue(wrong).code, 2, "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_verbs_read_and_write() {
    let served = ServedHome::new().await;
    assert_eq!(
        served.run(&["create", "-p", "/a/b/c", "one"]).out,
        "/a/b/c\n"
    );
    assert_eq!(served.run(&["get", "/a/b/c"]).out, "one\n");
    assert_eq!(
        served
            .run(&["set", "/a/b/c", "two", "--if-version", "0"])
            .code,
        0
    );
    let stat: serde_json::Value =
        serde_json::from_str(&served.run(&["stat", "/a/b/c", "--json"]).out).unwrap();
    assert_eq!(
        (&stat["version"], &stat["data_length"]),
        (&1.into(), &3.into())
    );
    assert_eq!(served.run(&["ls", "/a"]).out, "b\n");
    assert_eq!(served.run(&["ls", "-r", "/a"]).out, "/a\n/a/b\n/a/b/c\n");
    assert!(
        served
            .run(&["acl", "/a"])
            .out
            .contains("rwcda world anyone")
    );
    assert_eq!(
        served.run(&["create", "--sequential", "/a/n-"]).out.len(),
        "/a/n-0000000001\n".len()
    );
    let watching = served.spawn(&["watch", "-r", "/w", "--count", "2", "--json", "-v"]);
    // It says nothing on standard output before the first change, so changes are made until it has
    // seen two.
    let mut at = 0;
    let mut watching = watching;
    while watching.child.try_wait().unwrap().is_none() {
        served.run(&["create", "-p", &format!("/w/{at}")]);
        at += 1;
        assert!(at < 1000);
    }
    let seen = watching.end();
    assert_eq!((seen.code, seen.out.lines().count()), (0, 2), "{seen:?}");
    assert!(seen.out.contains("/w"));
    assert_eq!(served.run(&["rm", "/a"]).code, 1);
    assert_eq!(served.run(&["rm", "-r", "/a"]).code, 0);
    assert_eq!(served.run(&["get", "/a"]).code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_listed_wherever_they_are() {
    let served = ServedHome::new().await;
    let mut holders: Vec<RunningCommand> = ["/one", "/deep/er/two"]
        .iter()
        .map(|path| served.spawn(&["lock", path, "--name", "me"]))
        .collect();
    for holder in &mut holders {
        assert!(holder.line().starts_with("held"));
    }
    let listed = served.run(&["lock", "ls"]).out;
    assert!(
        listed.contains("/one ") && listed.contains("/deep/er/two "),
        "{listed}"
    );
    let below = served.run(&["lock", "ls", "/deep"]).out;
    assert!(!below.contains("/one "), "{below}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_hold_a_lock_together_and_a_writer_holds_it_alone() {
    let served = ServedHome::new().await;
    let mut one = served.spawn(&["lock", "-s", "/rw"]);
    let held = one.line();
    assert!(held.starts_with("held /rw token"), "{held}");
    let token = held.split_whitespace().nth(3).unwrap().to_owned();
    let mut two = served.spawn(&["lock", "--shared", "/rw", "--name", "second"]);
    two.line();
    assert_eq!(
        served.run(&["lock", "-n", "-x", "/rw", "--", "true"]).code,
        124
    );
    let mixed = served.run(&["lock", "-n", "/rw", "--", "true"]);
    assert_eq!(mixed.code, 125, "{mixed:?}");
    let shown = served.run(&["lock", "show", "/rw"]).out;
    assert_eq!(shown.matches("holds").count(), 2, "{shown}");
    assert!(shown.contains(&format!("holds  {token} ")), "{shown}");
    let listed = served.run(&["lock", "ls", "/rw"]).out;
    let row: Vec<_> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(&row[row.len() - 3..], ["2", "0", &token], "{listed}");
    let broken = served.run(&["lock", "break", "/rw", "--token", &token]);
    assert_eq!(broken.code, 0, "{broken:?}");
    assert_eq!(one.end().code, 113);
    two.signal("TERM");
    assert_eq!(two.end().code, 0);
    assert_eq!(
        served.run(&["lock", "-n", "-x", "/rw", "--", "true"]).code,
        0
    );
    assert_eq!(served.run(&["lock", "-s", "-x", "/rw"]).code, 2);
}

/// Text that others put into the tree is shown on its line: it neither ends the line nor commands
/// the terminal.
#[tokio::test(flavor = "multi_thread")]
async fn no_name_and_no_record_of_others_forges_a_line_or_commands_the_terminal() {
    let served = ServedHome::new().await;
    let name = "/l/_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-lock-0000000007";
    let record = r#"{"id":"a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10","host":"h\nholds  token 1  forged","pid":1,"name":"\u001b[2J"}"#;
    assert_eq!(served.run(&["create", "/l", ""]).code, 0);
    let timeout = std::time::Duration::from_secs(60);
    let mut holder = RawClient::connect(served.server.addr(), timeout)
        .await
        .unwrap();
    let node = Request::Create(Create {
        op: CreateOp::Create,
        path: name,
        data: Some(record.as_bytes()),
        acl: Some(vec![Acl::open_unsafe()]),
        flags: 1,
        ttl_ms: 0,
    });
    holder.call(&node).await.unwrap();
    let odd = "/l/\u{202e}txt.\u{2028}exe";
    assert_eq!(served.run(&["create", odd, ""]).code, 0);
    for (verb, shown) in [
        (&["lock", "show", "/l"][..], "h\\nholds  token 1  forged"),
        (&["lock", "ls", "/"], "\\u{1b}[2J"),
        (&["ls", "/l"], "\\u{202e}txt.\\u{2028}exe"),
        (&["ls", "-r", "/l"], "/l/\\u{202e}txt.\\u{2028}exe"),
        (&["watch", "-v", odd, "--count", "0"], ""),
    ] {
        let ran = served.run(verb);
        assert_eq!(ran.code, 0, "{verb:?} {ran:?}");
        assert!(ran.out.contains(shown), "{verb:?} {ran:?}");
        for text in [&ran.out, &ran.err] {
            let wild = |letter: char| {
                letter != '\n' && (letter.is_control() || "\u{202e}\u{2028}".contains(letter))
            };
            assert!(!text.contains(wild), "{verb:?} {ran:?}");
        }
        assert!(
            !ran.out
                .lines()
                .any(|line| line.starts_with("holds  token 1")),
            "{ran:?}"
        );
    }
    let refused = served.run(&["get", "/no\u{202e}such"]);
    assert!(
        refused.complaint().contains("/no\\u{202e}such"),
        "{refused:?}"
    );
    let json = served.run(&["lock", "show", "/l", "--json"]);
    assert!(
        json.out.contains(r#"\u001b[2J"#),
        "as it is, in JSON: {json:?}"
    );
}
