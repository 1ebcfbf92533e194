//! `baton barrier`, end to end. On Baton's server, or with BATON_TEST_TARGET=zookeeper on Apache
//! ZooKeeper.

use crate::common::ServedHome;
#[tokio::test(flavor = "multi_thread")]
async fn commands_start_when_all_have_come_and_one_that_gives_up_stops_all() {
    let served = ServedHome::new().await;
    let meet = [
        "barrier",
        "/b",
        "-N",
        "2",
        "-c",
        "echo $BATON_ROUND; exit 3",
    ];
    let first = served.spawn(&meet);
    let second = served.run(&meet);
    assert_eq!((second.code, &*second.out), (3, "1\n"));
    let first = first.end();
    assert_eq!((first.code, &*first.out), (3, "1\n"));

    let patient = served.spawn(&["barrier", "/b", "-N", "3", "--", "echo", "never"]);
    let waiting = |path: &str| served.run(&["ls", path]).out.lines().count();
    while waiting("/b/round-0000000002") < 1 {}
    let hasty = served.run(&[
        "barrier", "/b", "-N", "3", "-t", "1500ms", "--name", "hasty",
    ]);
    assert_eq!(hasty.code, 124);
    let cancelled = "round 2 was cancelled because hasty (";
    assert!(hasty.complaint().contains(cancelled));
    let patient = patient.end();
    assert_eq!((patient.code, &*patient.out), (124, ""));

    let meeting = served.run(&["barrier", "/b", "-N", "1", "--json"]);
    assert_eq!(meeting.code, 0);
    assert_eq!(
        meeting.out.lines().last().unwrap(),
        r#"{"path":"/b","state":"left","round":3,"lost":0}"#
    );
    assert_eq!(served.run(&["barrier", "/b"]).code, 2);
    assert_eq!(served.run(&["barrier", "/b", "-N", "0"]).code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_is_closed_waited_at_and_opened() {
    let served = ServedHome::new().await;
    assert_eq!(served.run(&["barrier", "wait", "/g"]).out, "/g is open\n");
    assert_eq!(
        served.run(&["barrier", "close", "/g"]).out,
        "/g is closed\n"
    );
    let waited = served.run(&["barrier", "wait", "/g", "-t", "1500ms"]);
    assert_eq!(waited.code, 124);
    let waiting = served.spawn(&["barrier", "wait", "/g", "--json"]);
    assert_eq!(served.run(&["barrier", "open", "/g"]).out, "/g is open\n");
    assert_eq!(waiting.end().out, "{\"path\":\"/g\",\"gate\":\"open\"}\n");
}
