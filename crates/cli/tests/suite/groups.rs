//! `baton member` and `baton counter`, end to end. On Baton's server, or with
//! BATON_TEST_TARGET=zookeeper on Apache ZooKeeper.

use crate::common::ServedHome;

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_there_while_its_command_runs() {
    let served = ServedHome::new().await;
    assert_eq!(served.run(&["member", "ls", "/web"]).code, 1);
    let mut watching = served.spawn(&["member", "watch", "/web", "--json"]);
    assert!(watching.line().contains(r#""members":[]"#));
    let mut member = served.spawn(&[
        "member",
        "join",
        "/web",
        "--id",
        "eu-1",
        "--data",
        "port=80",
        "-c",
        "echo $BATON_PATH $BATON_NODE; exec sleep 1000",
    ]);
    assert_eq!(member.line(), "/web /web/eu-1");
    let line = watching.line();
    assert!(line.contains(r#""joined":["eu-1"]"#), "{line}");
    let listed = served.run(&["member", "ls", "/web"]);
    let lines: Vec<_> = listed.out.lines().collect();
    assert!(
        lines[0].starts_with("ID ") && lines[1].starts_with("eu-1 "),
        "{listed:?}"
    );
    assert!(lines[1].ends_with("port=80"), "{listed:?}");
    let groups = served.run(&["member", "ls"]).out;
    assert!(groups.lines().any(|line| line == "/web  1"), "{groups}");
    let listed = served.run(&["member", "ls", "/web", "--json"]).out;
    assert!(
        listed.contains(r#""data":"port=80""#) && listed.contains(r#""pid":"#),
        "{listed}"
    );
    member.signal("TERM");
    assert_eq!(member.end().code, 128 + 15);
    let line = watching.line();
    assert!(line.contains(r#""left":["eu-1"]"#), "{line}");
    let ran = served.run(&["member", "join", "/web", "-c", "exit 7"]);
    assert_eq!(ran.code, 7, "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_takes_over_and_the_predecessor_stops() {
    let served = ServedHome::new().await;
    let instance = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";
    let join = [
        "member",
        "join",
        "/web",
        "--id",
        "a",
        "--instance",
        instance,
    ];
    let mut first = served.spawn(&join);
    assert!(
        first
            .line()
            .starts_with("joined /web node /web/a session 0x")
    );
    let mut watching = served.spawn(&["member", "watch", "/web"]);
    assert_eq!(watching.line(), "1 members: a; joined: a");
    let mut second = served.spawn(&join);
    assert!(second.line().starts_with("joined"));
    assert_eq!(watching.line(), "1 members: a; changed: a");
    let first = first.end();
    assert_eq!(first.code, 113, "{first:?}");
    second.signal("INT");
    assert_eq!(second.end().code, 130);
    assert_eq!(watching.line(), "0 members: ; left: a");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_count_at_once_get_different_numbers() {
    let served = ServedHome::new().await;
    let counting: Vec<_> = (0..6)
        .map(|_| served.spawn(&["counter", "add", "/tickets"]))
        .collect();
    let mut sums: Vec<i64> = counting
        .into_iter()
        .map(|mut running| running.line().parse().unwrap())
        .collect();
    sums.sort_unstable();
    assert_eq!(sums, [1, 2, 3, 4, 5, 6]);
    assert_eq!(
        served.run(&["counter", "add", "/tickets", "-8"]).out,
        "-2\n"
    );
    assert_eq!(
        served.run(&["counter", "get", "/tickets", "--json"]).out,
        "{\"path\":\"/tickets\",\"value\":-2}\n"
    );
    let mut watching = served.spawn(&["counter", "watch", "/tickets"]);
    assert_eq!(watching.line(), "-2");
    assert_eq!(served.run(&["counter", "set", "/tickets", "40"]).code, 0);
    assert_eq!(watching.line(), "40");
    let refused = served.run(&["counter", "get", "/tickets", "--layout", "int32"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.complaint().contains("not a number"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_a_usage_error_in_one_line() {
    let served = ServedHome::new().await;
    for args in [
        &["member", "join", "web"][..],
        &["member", "join", "/web", "--id", "a/b"],
        &["member", "join", "/web", "--layout", "party", "--data", "x"],
        &["member", "join", "/web", "--instance", "me"],
        &["member", "join", "/web", "true"],
        &["counter", "add", "/n", "many"],
        &["counter", "get", "n"],
        &["counter", "get", "/n", "--layout", "roman"],
    ] {
        let ran = served.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert!(!ran.complaint().is_empty());
    }
    assert_eq!(served.run(&["ls", "/"]).out.trim(), "zookeeper");
}
