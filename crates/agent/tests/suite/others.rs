//! Queues, membership, counters, locks that outlive their request.

use serde_json::json;

use crate::support::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn an_item_comes_back_when_its_consumer_dies_and_is_gone_once_acknowledged() {
    let stage = Stage::new().await;
    let put = r#"{"data": "job"}"#;
    assert_eq!(stage.ask("POST", "/v1/queue/jobs/put", put).await.0, 200);
    let mut dead = stage.open("POST", "/v1/queue/jobs/take", "").await;
    let item = dead.until("item").await;
    assert_eq!(
        (&item["data"], &item["data_base64"]),
        (&json!("job"), &json!("am9i"))
    );
    drop(dead);
    let mut next = stage.open("POST", "/v1/queue/jobs/take", "").await;
    let item = next.until("item").await;
    let claim = json!({ "claim": item["claim"] }).to_string();
    let (status, _) = stage.ask("POST", "/v1/queue/jobs/extend", &claim).await;
    assert_eq!(status, 200);
    next.until("lease").await;
    assert_eq!(stage.ask("POST", "/v1/queue/jobs/ack", &claim).await.0, 200);
    next.until("settled").await;
    let none = stage
        .ask("POST", "/v1/queue/jobs/take", r#"{"wait_ms": 0}"#)
        .await;
    assert_eq!(none.0, 409);
    let (status, again) = stage.ask("POST", "/v1/queue/jobs/ack", &claim).await;
    assert_eq!((status, &again["code"]), (410, &json!("lost")));
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_there_as_long_as_their_response() {
    let stage = Stage::new().await;
    let mut view = stage.open("GET", "/v1/member/workers", "").await;
    assert_eq!(view.until("members").await["members"], json!([]));
    let mut member = stage
        .open(
            "POST",
            "/v1/member/workers",
            r#"{"id": "a", "data": "x:1"}"#,
        )
        .await;
    member.until("joined").await;
    let seen = view.until("members").await;
    assert_eq!(
        (&seen["members"][0]["id"], &seen["members"][0]["data"]),
        (&json!("a"), &json!("x:1"))
    );
    drop(member);
    assert_eq!(view.until("members").await["members"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_adds_and_shows() {
    let stage = Stage::new().await;
    for (delta, value) in [
        ("{}", 1),
        (r#"{"delta": 41}"#, 42),
        (r#"{"delta": -2}"#, 40),
    ] {
        let added = stage.ask("POST", "/v1/counter/hits/add", delta).await;
        assert_eq!(added, (200, json!({ "value": value })));
    }
    let shown = stage.ask("GET", "/v1/counter/hits", "").await;
    assert_eq!(shown, (200, json!({ "value": 40 })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_outlives_its_request_and_ends_by_its_token() {
    let stage = Stage::new().await;
    let (status, hold) = stage
        .ask("POST", "/v1/hold/release", r#"{"ttl_ms": 600000}"#)
        .await;
    assert_eq!(status, 200, "{hold}");
    let token = hold["token"].as_u64().unwrap();
    let busy = stage
        .ask("POST", "/v1/lock/release", r#"{"wait_ms": 0}"#)
        .await;
    assert_eq!(busy.0, 409);
    let again = json!({ "ttl_ms": 600_000, "token": token }).to_string();
    let (status, held) = stage.ask("POST", "/v1/hold/release", &again).await;
    assert_eq!((status, held["token"].as_u64()), (200, Some(token)));
    let wrong = format!("/v1/hold/release?token={}", token + 1);
    assert_eq!(stage.ask("DELETE", &wrong, "").await.0, 410);
    let right = format!("/v1/hold/release?token={token}");
    assert_eq!(stage.ask("DELETE", &right, "").await.0, 200);
    stage.lock("/release", r#"{"wait_ms": 0}"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_ends_with_its_time_to_live() {
    let stage = Stage::new().await;
    let hold = stage
        .ask("POST", "/v1/hold/release", r#"{"ttl_ms": 1}"#)
        .await;
    assert_eq!(hold.0, 200);
    stage.lock("/release", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_counts_what_is_held() {
    let stage = Stage::new().await;
    let (_answer, _) = stage.lock("/deploy", "").await;
    let (status, health) = stage.ask("GET", "/v1/health", "").await;
    assert_eq!((status, &health["guards"]), (200, &json!(1)));
    assert_eq!(health["unavailable_for_ms"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_locks_below_a_prefix_are_listed_with_who_holds_them() {
    let stage = Stage::new().await;
    let (_deploy, _) = stage.lock("/app/deploy", "").await;
    let (_pool, _) = stage
        .lock("/app/pool", r#"{"mode": "slot", "slots": 2}"#)
        .await;
    let (_reader, _) = stage.lock("/app/deep/er", r#"{"mode": "read"}"#).await;
    let (_other, _) = stage.lock("/else", "").await;
    let (status, listed) = stage.ask("GET", "/v1/locks?prefix=/app", "").await;
    assert_eq!((status, &listed["is_complete"]), (200, &true.into()));
    let locks = listed["locks"].as_array().unwrap();
    let mut paths: Vec<_> = locks
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/app/deep/er", "/app/deploy", "/app/pool"]);
    for lock in locks {
        assert_eq!(lock["holders"].as_array().unwrap().len(), 1, "{lock}");
    }
    let (status, refused) = stage.ask("GET", "/v1/locks", "").await;
    assert_eq!((status, &refused["code"]), (400, &"refused".into()));
}
