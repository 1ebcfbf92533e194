//! Locks and elections: one holder at a time, a death that frees at once, releases, guarded writes.

use std::time::Duration;

use baton::Config;
use baton::embedded::Embedded;
use baton_agent::{Agent, AgentOptions};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::support::{Stage, within};

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_a_holder_passes_the_lock_on_at_once_and_tokens_rise() {
    let stage = Stage::new().await;
    let (first, held) = stage.lock("/deploy", "").await;
    let mut next = stage.open("POST", "/v1/lock/deploy", "{}").await;
    let waiting = next.next().await.unwrap();
    assert_eq!(
        (&waiting["event"], &waiting["place"]),
        (&"waiting".into(), &1.into())
    );
    // The session of both is one and lives on: nothing but the closed socket frees the lock.
    drop(first);
    let passed = next.until("held").await;
    assert!(passed["token"].as_u64() > held["token"].as_u64());
    assert_ne!(passed["guard"], held["guard"]);
    assert_eq!(held["path"], "/deploy");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_of_an_older_http_gets_lines_without_chunks() {
    let stage = Stage::new().await;
    let stream = UnixStream::connect(stage.socket()).await.unwrap();
    let mut stream = BufReader::new(stream);
    let request = "POST /v1/lock/deploy HTTP/1.0\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut head, mut line) = (String::new(), String::new());
    while line != "\r\n" {
        line.clear();
        within(stream.read_line(&mut line)).await.unwrap();
        head += &line;
    }
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    assert!(!head.contains("transfer-encoding"), "{head}");
    within(stream.read_line(&mut line)).await.unwrap();
    let held: Value = serde_json::from_str(&line).unwrap();
    let release = format!("/v1/guard/{}/release", held["guard"].as_str().unwrap());
    stage.ask("POST", &release, "").await;
    let mut rest = String::new();
    within(stream.read_to_string(&mut rest)).await.unwrap();
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "released");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_while_it_waits_leaves_no_node() {
    let stage = Stage::new().await;
    let (holder, _) = stage.lock("/deploy", "").await;
    let mut gone = stage.open("POST", "/v1/lock/deploy", "").await;
    gone.next().await.unwrap();
    drop(gone);
    let mut next = stage.open("POST", "/v1/lock/deploy", "").await;
    drop(holder);
    next.until("held").await;
    let (_, lock) = stage.ask("GET", "/v1/locks?path=/deploy", "").await;
    assert_eq!(lock["waiters"], serde_json::json!([]), "{lock}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_told_on_the_clock_of_the_machine_and_in_milliseconds() {
    let stage = Stage::new().await;
    let (mut answer, held) = stage
        .lock("/deploy", r#"{"session_timeout_ms": 4000}"#)
        .await;
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(held["boot_id"], boot_id.trim());
    let ns = |event: &serde_json::Value, name: &str| event[name].as_u64().unwrap();
    let left = ns(&held, "lease_until_ns") - ns(&held, "now_ns");
    assert!(
        left <= 4_000_000_000,
        "no longer than the session's timeout"
    );
    assert!(left >= ns(&held, "lease_ms") * 1_000_000 - 1_000_000);
    let lease = answer.until("lease").await;
    assert!(ns(&lease, "lease_until_ns") >= ns(&held, "lease_until_ns"));
    let guard = held["guard"].as_str().unwrap();
    let (status, renewed) = stage
        .ask("POST", &format!("/v1/guard/{guard}/renew"), "")
        .await;
    assert_eq!(status, 200);
    assert!(renewed["lease_ms"].as_u64().unwrap() <= 4000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_confirmed_and_its_guard_is_unknown_afterwards() {
    let stage = Stage::new().await;
    let (mut answer, held) = stage.lock("/deploy", "").await;
    let release = format!("/v1/guard/{}/release", held["guard"].as_str().unwrap());
    let (status, released) = stage.ask("POST", &release, "").await;
    assert_eq!((status, &released["event"]), (200, &"released".into()));
    answer.until("released").await;
    assert!(answer.next().await.is_none(), "the response is over");
    let (status, again) = stage.ask("POST", &release, "").await;
    assert_eq!((status, &again["code"]), (404, &"refused".into()));
    stage.lock("/deploy", r#"{"wait_ms": 0}"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_wait_is_refused_with_a_status_and_the_holders_name() {
    let stage = Stage::new().await;
    let (_holder, _) = stage.lock("/deploy", r#"{"name": "first"}"#).await;
    let mut leader = stage
        .open("POST", "/v1/elect/main", r#"{"name": "first"}"#)
        .await;
    leader.until("held").await;
    for (url, body) in [
        ("/v1/lock/deploy", r#"{"wait_ms": 0}"#),
        ("/v1/lock/deploy", r#"{"wait_ms": 50}"#),
        (
            "/v1/hold/deploy",
            r#"{"ttl_ms": 1000, "lock": {"wait_ms": 0}}"#,
        ),
    ] {
        let (status, refused) = stage.ask("POST", url, body).await;
        assert_eq!((status, &refused["code"]), (409, &"not_acquired".into()));
        assert_eq!(refused["held_by"], "first", "{url} {body}: {refused}");
    }
    // A candidate's node has data of its own, and no name.
    let (_, refused) = stage
        .ask("POST", "/v1/elect/main", r#"{"wait_ms": 0}"#)
        .await;
    let held_by = refused["held_by"].as_str().unwrap();
    assert!(held_by.starts_with("/main/"), "{refused}");
    // The refusal of a wait that shows its positions is its last line.
    let body = r#"{"wait_ms": 300}"#;
    let mut waited = stage.open("POST", "/v1/lock/deploy", body).await;
    let refused = waited.until("error").await;
    assert_eq!(
        (&refused["code"], &refused["held_by"]),
        (&"not_acquired".into(), &"first".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_caller_is_notified_of_each_position_without_being_asked() {
    let stage = Stage::new().await;
    let (_holder, _) = stage.lock("/deploy", "").await;
    let mut second = stage.open("POST", "/v1/lock/deploy", "").await;
    assert_eq!(second.until("waiting").await["place"], 1);
    let mut third = stage.open("POST", "/v1/lock/deploy", "").await;
    assert_eq!(third.until("waiting").await["place"], 2);
    // It waits for the nearest before it.
    drop(second);
    let nearer = third.until("waiting").await;
    assert_eq!(nearer["place"], 1);
    let held_by = nearer["held_by"].as_str().unwrap();
    assert!(held_by.starts_with("/deploy/"), "{nearer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_slots_are_counted() {
    let stage = Stage::new().await;
    let read = r#"{"mode": "read"}"#;
    let (_first, _) = stage.lock("/table", read).await;
    let (_second, _) = stage.lock("/table", read).await;
    let write = r#"{"mode": "write", "wait_ms": 0}"#;
    assert_eq!(stage.ask("POST", "/v1/lock/table", write).await.0, 409);
    let slot = r#"{"mode": "slot", "slots": 2, "wait_ms": 0}"#;
    let (one, _) = stage.lock("/pool", slot).await;
    let (_two, _) = stage.lock("/pool", slot).await;
    assert_eq!(stage.ask("POST", "/v1/lock/pool", slot).await.0, 409);
    drop(one);
    stage.lock("/pool", r#"{"mode": "slot", "slots": 2}"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_write_applies_while_the_lock_is_held_and_not_after() {
    let stage = Stage::new().await;
    let (answer, held) = stage.lock("/deploy", "").await;
    let txn = format!("/v1/guard/{}/txn", held["guard"].as_str().unwrap());
    let create = r#"{"writes": [{"op": "create", "path": "/state", "data": "1"}]}"#;
    let (status, applied) = stage.ask("POST", &txn, create).await;
    assert_eq!((status, &applied["applied"]), (200, &true.into()));
    let (status, conflict) = stage.ask("POST", &txn, create).await;
    assert_eq!((status, &conflict["code"]), (400, &"refused".into()));
    drop(answer);
    let (_next, _) = stage.lock("/deploy", "").await;
    assert_eq!(stage.ask("POST", &txn, create).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_writes_without_a_pause_receives_its_lease_too() {
    let stage = Stage::new().await;
    let (mut answer, held) = stage
        .lock("/deploy", r#"{"session_timeout_ms": 4000}"#)
        .await;
    let txn = format!("/v1/guard/{}/txn", held["guard"].as_str().unwrap());
    let check = r#"{"writes": [{"op": "check", "path": "/deploy"}]}"#;
    let writing = async {
        loop {
            assert_eq!(stage.ask("POST", &txn, check).await.0, 200);
        }
    };
    tokio::select! {
        lease = answer.until("lease") => assert!(lease["lease_ms"].as_u64() > Some(0)),
        () = writing => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_hears_who_asks_for_its_lock_and_then_of_its_loss() {
    let stage = Stage::new().await;
    let (mut answer, _) = stage.lock("/deploy", "").await;
    let (_, lock) = stage.ask("GET", "/v1/locks?path=/deploy", "").await;
    let node = lock["holders"][0]["path"].as_str().unwrap();
    let client = stage.client().await;
    let session = client.session().await.unwrap();
    session.set_data(node, b"__REVOKE__", None).await.unwrap();
    answer.until("release_requested").await;
    session.delete(node, None).await.unwrap();
    assert_eq!(answer.until("lost").await["reason"], "node_gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_at_a_time_and_a_stop_of_the_agent_ends_the_term() {
    let mut stage = Stage::new().await;
    let mut leader = stage
        .open("POST", "/v1/elect/main", r#"{"data": "a:1"}"#)
        .await;
    let held = leader.until("held").await;
    assert_eq!(held["term"], 1);
    let other = stage
        .ask("POST", "/v1/elect/main", r#"{"wait_ms": 0}"#)
        .await;
    assert_eq!(other.0, 409);
    stage.stop().await;
    let client = stage.client().await;
    let election = baton::LeaderElection::new(&client, "/main").unwrap();
    let next = crate::support::within(election.campaign()).await.unwrap();
    assert_eq!(next.term().epoch, 2);
    next.resign().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_current_only_for_the_present_holder() {
    let stage = Stage::new().await;
    let (first, held) = stage.lock("/deploy", "").await;
    let old = held["token"].as_u64().unwrap();
    let asked = async |token: u64| {
        let path = format!("/v1/token/deploy/{token}");
        stage.ask("GET", &path, "").await.1["current"].clone()
    };
    assert_eq!(asked(old).await, true);
    drop(first);
    let (_second, held) = stage.lock("/deploy", "").await;
    assert_eq!(asked(old).await, false);
    assert_eq!(asked(held["token"].as_u64().unwrap()).await, true);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_nobody_needs_ends_and_one_that_holds_does_not() {
    let server = Embedded::in_memory().await.unwrap();
    let mut options = AgentOptions::new(Config::new(&server.connect_string()).unwrap());
    options.exit_when_idle = Some(Duration::from_millis(5));
    let mut stage = Stage::on(options).await;
    let (mut answer, _) = stage.lock("/a", r#"{"session_timeout_ms": 1000}"#).await;
    // It comes long after that time.
    answer.until("lease").await;
    // One hold stays without a connection, for as long.
    let ask = r#"{"ttl_ms": 600000}"#;
    let (status, held) = stage.ask("POST", "/v1/hold/b", ask).await;
    assert_eq!(status, 200, "{held}");
    drop(answer);
    let (mut answer, _) = stage.lock("/a", r#"{"session_timeout_ms": 1000}"#).await;
    answer.until("lease").await;
    drop(answer);
    let release = format!("/v1/hold/b?token={}", held["token"]);
    assert_eq!(stage.ask("DELETE", &release, "").await.0, 200);
    stage.ended().await;
    assert!(!stage.socket().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_replaces_no_file_and_removes_no_other_agent_s_socket() {
    let server = Embedded::in_memory().await.unwrap();
    let options = || AgentOptions::new(Config::new(&server.connect_string()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    std::fs::write(&path, "a file").unwrap();
    Agent::bind(&path, options()).await.unwrap_err();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
    std::fs::remove_file(&path).unwrap();
    let first = Agent::bind(&path, options()).await.unwrap();
    // As at a logout: the folder is emptied while the agent lives on.
    std::fs::remove_file(&path).unwrap();
    let second = Agent::bind(&path, options()).await.unwrap();
    first.run(std::future::ready(())).await;
    assert!(path.exists());
    second.run(std::future::ready(())).await;
    assert!(!path.exists());
}
