//! `baton queue work`, end to end. On Baton's server, or with BATON_TEST_TARGET=zookeeper on Apache
//! ZooKeeper.

use std::process::Command;

use baton_testkit::Proxy;

use crate::common::{Ran, RunningCommand, ServedHome};

/// A home whose `baton` is `baton queue work`.
struct Jobs(ServedHome);

impl Jobs {
    async fn new() -> Self {
        Self(ServedHome::new().await)
    }

    fn baton(&self, args: &[&str]) -> Command {
        self.0.baton(&[&["queue", "work"], args].concat())
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.baton(args).output().unwrap())
    }

    fn spawn(&self, args: &[&str]) -> RunningCommand {
        RunningCommand::new(self.baton(args))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_item_is_read_by_a_command_and_what_fails_for_good_is_kept() {
    let served = Jobs::new().await;
    assert_eq!(served.run(&["depth", "/q"]).code, 1, "no queue yet");
    assert_eq!(served.run(&["put", "/q", "a", "b", "bad"]).code, 0);
    let id = ["put", "/q", "--priority", "0", "--id", "first", "urgent"];
    assert_eq!(served.run(&id).code, 0);
    let again = served.run(&id);
    assert_eq!(again.code, 1);
    assert!(
        again.complaint().contains("already"),
        "{}",
        again.complaint()
    );
    let work = [
        "/q",
        "--max-attempts",
        "2",
        "--backoff",
        "1ms",
        "--until-empty",
        "-c",
        "read x; echo $x $BATON_ATTEMPT $BATON_ITEM_ID; test $x != bad",
    ];
    let mut said = Vec::new();
    crate::common::until("the bad item is dead", || {
        let ran = served.run(&work);
        assert_eq!(ran.code, 0, "{}", ran.err);
        said.extend(ran.out.lines().map(str::to_owned));
        served.run(&["dead", "/q"]).out.contains("exit code 1")
    });
    assert_eq!(said[0], "urgent 1 first");
    assert!(
        said[1].starts_with("a 1 ") && said[2].starts_with("b 1 "),
        "{said:?}"
    );
    assert!(
        said.iter().any(|line| line.starts_with("bad 2 ")),
        "{said:?}"
    );
    assert_eq!(said.len(), 5);
    assert_eq!(served.run(&["replay", "/q", "--all"]).code, 0);
    let depth = served.run(&["depth", "/q", "--json"]).out;
    assert!(
        depth.contains(r#""items":1,"delayed":0,"dead":0"#),
        "{depth}"
    );
    let nothing = served.run(&["discard", "/q", "d-0000000000"]);
    assert_eq!(nothing.code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_stopped_gives_its_items_back() {
    let served = Jobs::new().await;
    assert_eq!(served.run(&["put", "/q", "a", "b", "c"]).code, 0);
    let mut worker = served.spawn(&["/q", "-j", "2", "-c", "read x; echo $x; sleep 100"]);
    let mut said = [worker.line(), worker.line()];
    said.sort();
    assert_eq!(said, ["a", "b"]);
    let claims = served.run(&["claims", "/q"]).out;
    assert_eq!(claims.lines().count(), 3, "{claims}");
    assert!(claims.starts_with("ITEM "), "{claims}");
    worker.signal("TERM");
    let ran = worker.end();
    assert_eq!(ran.code, 128 + 15, "{}", ran.err);
    assert!(served.run(&["claims", "/q"]).out.is_empty());
    let rest = served.run(&[
        "/q",
        "--until-empty",
        "-c",
        "read x; echo $x $BATON_ATTEMPT",
    ]);
    assert_eq!(rest.out, "a 1\nb 1\nc 1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_be_run_costs_no_attempt() {
    let served = Jobs::new().await;
    assert_eq!(served.run(&["put", "/q", "a"]).code, 0);
    let ran = served.run(&["/q", "--", "/no/such/command"]);
    assert_eq!(ran.code, 127, "{}", ran.err);
    let ran = served.run(&["/q", "--until-empty", "-c", "echo $BATON_ATTEMPT"]);
    assert_eq!(ran.out, "1\n");
    assert_eq!(served.run(&["/q"]).code, 2);
    assert_eq!(
        served.run(&["put", "/q", "--priority", "1000", "x"]).code,
        2
    );
    assert_eq!(served.run(&["put", "/q", "--id", "x", "1", "2"]).code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn h67_the_command_has_ended_before_another_worker_gets_the_item() {
    let served = Jobs::new().await;
    let proxy = Proxy::start(served.0.server.addr()).await.unwrap();
    assert_eq!(served.run(&["put", "/q", "a"]).code, 0);
    let pid_file = served.0.home.path("pid");
    let line = format!(
        "trap '' TERM; echo $$ > {}; echo running; sleep 100 & wait; wait; sleep 100",
        pid_file.display()
    );
    let mut args = vec![
        "/q",
        "--session-timeout",
        "4s",
        "--ensemble-tick",
        "200ms",
        "-c",
        &line,
    ];
    let mut command = served.baton(&args);
    command.env("BATON_SERVERS", proxy.addr().to_string());
    let mut first = RunningCommand::new(command);
    assert_eq!(first.line(), "running");
    let pid = crate::common::number_in(&pid_file);
    proxy.partition();
    let check =
        format!("if kill -0 {pid} 2>/dev/null; then echo both; else echo alone $BATON_ATTEMPT; fi");
    args.truncate(1);
    args.extend(["-c", &check]);
    let mut second = served.spawn(&args);
    assert_eq!(second.line(), "alone 2");
    second.signal("TERM");
    second.end();
    first.signal("KILL");
    first.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_takes_longer_than_it_may_is_stopped() {
    let served = Jobs::new().await;
    assert_eq!(served.run(&["put", "/q", "a"]).code, 0);
    // On a busy machine an attempt may be stopped before it prints its number.
    let begun = tempfile::tempdir().unwrap();
    let command = format!(
        "echo $BATON_ATTEMPT; mkdir '{}/once' && sleep 100; true",
        begun.path().display()
    );
    let mut worker = served.spawn(&["/q", "--visibility", "2s", "-c", &command]);
    let first: u32 = worker.line().parse().unwrap();
    let second: u32 = worker.line().parse().unwrap();
    assert!(first < second, "{first}, {second}");
    crate::common::until("the item is done", || {
        served.run(&["depth", "/q"]).out.starts_with("items 0 ")
    });
    worker.signal("TERM");
    assert_eq!(worker.end().code, 128 + 15);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_whose_inner_node_was_deleted_is_named_and_made_again() {
    let served = Jobs::new().await;
    assert_eq!(served.run(&["put", "/q", "a", "b"]).code, 0);
    assert_eq!(served.run(&["repair", "/q"]).out, "");
    assert_eq!(served.0.run(&["rm", "-r", "/q/items"]).code, 0);
    let depth = served.run(&["depth", "/q"]);
    assert_eq!(depth.code, 1, "{depth:?}");
    let complaint = depth.complaint();
    assert!(
        complaint.contains("/q/items") && complaint.contains("baton queue work repair /q"),
        "{complaint}"
    );
    assert_eq!(served.run(&["put", "/q", "c"]).code, 0);
    assert_eq!(served.run(&["/q", "--until-empty", "-c", "cat"]).out, "c");
    assert_eq!(served.0.run(&["rm", "-r", "/q/dead"]).code, 0);
    let repaired = served.run(&["repair", "/q", "--json"]);
    assert_eq!(repaired.out, "{\"made\":\"/q/dead\"}\n");
    assert_eq!(served.run(&["depth", "/q"]).code, 0);
    assert_eq!(served.run(&["repair", "/none"]).code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_removes_what_nobody_works_on_and_with_dead_the_dead_letters() {
    let served = Jobs::new().await;
    assert_eq!(served.run(&["purge", "/q"]).code, 1, "no queue");
    let put = ["put", "/q", "a", "b", "c", "--capacity", "3"];
    assert_eq!(served.run(&put).code, 0);
    let mut keeper = served.spawn(&["take", "/q"]);
    assert!(keeper.line().contains(" id "));
    assert_eq!(
        served.run(&["purge", "/q"]).out,
        "removed 2  left 1\n",
        "nobody is asked without a terminal"
    );
    assert_eq!(
        served.run(&["put", "/q", "d", "e"]).code,
        0,
        "there is room"
    );
    let fails = ["/q", "--max-attempts", "1", "--until-empty", "-c", "false"];
    assert_eq!(served.run(&fails).code, 0);
    keeper.signal("TERM");
    keeper.end();
    let purged = served.run(&["purge", "/q", "--dead", "--yes", "--json"]);
    assert_eq!(
        purged.out,
        "{\"path\":\"/q\",\"removed\":1,\"left\":0,\"dead_removed\":2,\"dead_left\":0}\n"
    );
    assert!(served.run(&["depth", "/q"]).out.starts_with("items 0"));
}
