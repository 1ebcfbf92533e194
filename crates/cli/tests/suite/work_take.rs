//! `baton queue work take`, `ack` and `nack`, each a process of its own. On Baton's server, or with
//! BATON_TEST_TARGET=zookeeper on Apache ZooKeeper.

use std::process::Command;

use baton_client::OpCode;
use baton_testkit::{Action, Match, Proxy, Variant};
use serde_json::Value;

use crate::common::{Ran, RunningCommand, ServedHome};

struct Jobs(ServedHome);

impl Jobs {
    async fn with(items: &[&str]) -> Self {
        let jobs = Self(ServedHome::new().await);
        assert_eq!(jobs.run(&[&["put", "/q"], items].concat()).code, 0);
        jobs
    }

    fn baton(&self, args: &[&str]) -> Command {
        self.0.baton(&[&["queue", "work"], args].concat())
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.baton(args).output().unwrap())
    }

    /// A keeper, what it says of its claim, and the token.
    fn take(&self, args: &[&str]) -> (RunningCommand, Value, String) {
        let mut keeper =
            RunningCommand::new(self.baton(&[&["take", "/q", "--json"], args].concat()));
        let claim: Value = serde_json::from_str(&keeper.line()).unwrap();
        let token = claim["token"].to_string();
        (keeper, claim, token)
    }

    fn settle(&self, verb: &str, token: &str, args: &[&str]) -> Ran {
        self.run(&[&[verb, "/q", "--json", "--token", token], args].concat())
    }

    fn depth(&self) -> Value {
        serde_json::from_str(&self.run(&["depth", "/q", "--json"]).out).unwrap()
    }
}

fn settled(line: &str) -> Value {
    serde_json::from_str::<Value>(line).unwrap()["settled"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn h67_an_item_that_one_process_has_claimed_is_settled_by_another_and_once() {
    let jobs = Jobs::with(&["a", "b"]).await;
    let (keeper, claim, token) = jobs.take(&[]);
    assert_eq!(
        (&claim["data"], &claim["attempt"]),
        (&"a".into(), &1.into())
    );
    assert_eq!(claim["for_ms"], Value::Null);
    assert!(claim["node"].as_str().unwrap().starts_with("/q/items/"));
    assert!(
        jobs.run(&["claims", "/q"])
            .out
            .contains(&format!("  1        {token} "))
    );
    let acked = jobs.settle("ack", &token, &[]);
    assert_eq!(
        (acked.code, settled(&acked.out)),
        (0, "acked".into()),
        "{}",
        acked.err
    );
    let kept = keeper.end();
    assert_eq!((kept.code, settled(&kept.out)), (0, "acked".into()));
    assert_eq!(jobs.depth()["items"], 1);
    for verb in ["ack", "nack"] {
        let again = jobs.settle(verb, &token, &[]);
        assert_eq!(again.code, 1);
        assert!(
            again.err.contains(r#""kind":"not_claimed""#),
            "{}",
            again.err
        );
    }
    let said = jobs.run(&["ack", "/q", "--token", &token]);
    assert!(
        said.complaint().contains("nothing was changed"),
        "{}",
        said.err
    );
    assert_eq!(jobs.depth()["items"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_nacked_comes_back_later_what_is_released_at_once_and_a_dead_letter_never() {
    let jobs = Jobs::with(&["a"]).await;
    let (keeper, _, token) = jobs.take(&[]);
    let released = jobs.settle("nack", &token, &["--release"]);
    assert_eq!(
        (released.code, settled(&released.out)),
        (0, "released".into())
    );
    let kept = keeper.end();
    assert_eq!((kept.code, settled(&kept.out)), (1, "released".into()));

    let (keeper, claim, token) = jobs.take(&["-n"]);
    assert_eq!(claim["attempt"], 1, "it did not count");
    let nacked = jobs.settle("nack", &token, &["--delay", "1h"]);
    assert_eq!(settled(&nacked.out), "nacked");
    assert_eq!(keeper.end().code, 1);
    assert_eq!(jobs.depth()["delayed"], 1);
    assert_eq!(jobs.run(&["take", "/q", "-n"]).code, 1, "not due");
    let none = jobs.run(&["take", "/q", "--wait", "1500ms"]);
    assert_eq!(none.code, 124);
    assert!(none.complaint().contains("--wait"), "{}", none.err);

    assert_eq!(jobs.run(&["put", "/q", "b", "--max-attempts", "2"]).code, 0);
    let (keeper, _, token) = jobs.take(&[]);
    assert_eq!(
        settled(&jobs.settle("nack", &token, &["--delay", "0"]).out),
        "nacked"
    );
    assert_eq!(keeper.end().code, 1);
    let (keeper, claim, token) = jobs.take(&[]);
    assert_eq!(claim["attempt"], 2);
    let last = jobs.settle("nack", &token, &["--reason", "no such host"]);
    assert_eq!(settled(&last.out), "buried");
    assert_eq!(keeper.end().code, 1);

    assert_eq!(jobs.run(&["put", "/q", "c"]).code, 0);
    let (keeper, _, token) = jobs.take(&[]);
    assert_eq!(
        jobs.settle("nack", &token, &["--bury", "--reason", "no use"])
            .code,
        0
    );
    assert_eq!(keeper.end().code, 1);
    let dead = jobs.run(&["dead", "/q"]).out;
    assert!(
        dead.starts_with("NAME ") && dead.contains("no such host") && dead.contains("no use"),
        "{dead}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_that_is_signalled_or_dies_gives_the_item_back() {
    let jobs = Jobs::with(&["a"]).await;
    let (keeper, _, token) = jobs.take(&[]);
    keeper.signal("TERM");
    assert_eq!(keeper.end().code, 128 + 15);
    assert_eq!(jobs.settle("ack", &token, &[]).code, 1);
    let (keeper, claim, _) = jobs.take(&["--session-timeout", "4s"]);
    assert_eq!(claim["attempt"], 1, "given back, it did not count");
    keeper.signal("KILL");
    keeper.end();
    let (keeper, claim, token) = jobs.take(&[]);
    assert_eq!(claim["attempt"], 2);
    assert_eq!(jobs.settle("ack", &token, &[]).code, 0);
    assert_eq!(keeper.end().code, 0);
    // Waiting for an item, too.
    let waiting = RunningCommand::new(jobs.baton(&["take", "/q"]));
    crate::common::until("it waits in the queue", || {
        jobs.0.run(&["ls", "/q/waiters"]).out.contains("lock-")
    });
    waiting.signal("INT");
    assert_eq!(waiting.end().code, 128 + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn h67_a_keeper_whose_claim_is_lost_says_so_and_its_token_settles_nothing() {
    let jobs = Jobs::with(&["a"]).await;
    let (slow, claim, token) = jobs.take(&["--visibility", "1s"]);
    assert_eq!(claim["for_ms"], 1000);
    let lost = slow.end();
    assert_eq!(lost.code, 113);
    assert!(lost.err.contains(r#""kind":"lost""#), "{}", lost.err);
    let (keeper, claim, new_token) = jobs.take(&[]);
    assert_eq!(claim["attempt"], 2);
    assert_eq!(jobs.settle("ack", &token, &[]).code, 1);
    // Deleted by somebody, it is lost, and nobody has settled it.
    let node = claim["node"].as_str().unwrap();
    let name = jobs.0.run(&["ls", node]).out.trim().to_owned();
    assert_eq!(jobs.0.run(&["rm", &format!("{node}/{name}")]).code, 0);
    let lost = keeper.end();
    assert_eq!(lost.code, 113, "{}", lost.out);
    assert_eq!(jobs.settle("nack", &new_token, &[]).code, 1);
    assert_eq!(jobs.depth()["items"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn h68_an_ack_whose_answer_is_lost_is_found_out() {
    for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
        let jobs = Jobs::with(&["a"]).await;
        let (keeper, _, token) = jobs.take(&[]);
        let proxy = Proxy::start(jobs.0.server.addr()).await.unwrap();
        let cut = proxy.on(message).then(Action::Cut(Variant::Rst));
        let mut ack = jobs.baton(&["ack", "/q", "--token", &token]);
        ack.env("BATON_SERVERS", proxy.addr().to_string());
        let acked = RunningCommand::new(ack).end();
        assert_eq!((acked.code, acked.err.as_str(), cut.times()), (0, "", 1));
        assert_eq!(keeper.end().code, 0);
        assert_eq!(jobs.depth()["items"], 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused() {
    let jobs = Jobs::with(&["a"]).await;
    for args in [
        &["ack", "/q"][..],
        &["ack", "q", "--token", "1"],
        &["take", "/q/"],
        &["take", "/q", "--visibility", "0"],
        &["take", "/q", "-n", "--wait", "1s"],
        &["nack", "/q", "--token", "1", "--release", "--delay", "1s"],
        &["nack", "/q", "--token", "1", "--release", "--bury"],
        &["nack", "/q", "--token", "x"],
    ] {
        assert_eq!(jobs.run(args).code, 2, "{args:?}");
    }
    let differs = jobs.run(&["put", "/q", "--capacity", "5", "b"]);
    assert_eq!(differs.code, 125);
    assert!(
        differs.complaint().contains("leave --capacity out")
            && !differs.err.contains("set_capacity"),
        "{}",
        differs.err
    );
}
