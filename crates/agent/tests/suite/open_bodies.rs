//! `PUT`: what is held lasts as long as the body of the request, and one connection carries many
//! requests.

use std::time::Duration;

use serde_json::json;

use crate::support::{Answer, Stage};

const NO_WAIT: &str = r#"{"wait_ms": 0}"#;
/// The head of a request for a lock, whose body is open.
const LOCK: &str = "PUT /v1/lock/deploy HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
const HEALTH: &str = "GET /v1/health HTTP/1.1\r\n\r\n";

/// Asks on a connection, which is kept, for the number of guards.
async fn guards(connection: &mut Answer) -> serde_json::Value {
    connection.send(HEALTH).await;
    connection.head().await;
    connection.whole().await["guards"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_and_their_releases_take_turns_on_one_connection() {
    let stage = Stage::new().await;
    let mut connection = stage.connect().await;
    let mut token = 0;
    for url in ["/v1/lock/deploy", "/v1/lock/deploy", "/v1/elect/main"] {
        assert_eq!(connection.hold(url, NO_WAIT).await, 200);
        let held = connection.until("held").await;
        assert!(held["token"].as_u64() > Some(token));
        token = held["token"].as_u64().unwrap();
        assert_eq!(stage.ask("POST", url, NO_WAIT).await.0, 409);
        connection.end_body().await;
        connection.until("released").await;
        assert!(connection.next().await.is_none(), "the response is over");
        assert_eq!(guards(&mut connection).await, 0);
    }
    let member = r#"{"id": "a"}"#;
    assert_eq!(connection.hold("/v1/member/workers", member).await, 200);
    connection.until("joined").await;
    connection.end_body().await;
    connection.until("released").await;
    assert!(connection.next().await.is_none());
    assert_eq!(guards(&mut connection).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_body_is_a_release_and_the_end_of_its_connection_a_death() {
    let stage = Stage::new().await;
    // A lock delay follows a death only.
    let delaying = r#"{"lock_delay_ms": 60000}"#;
    let waiting = r#"{"wait_ms": 300}"#;
    let mut connection = stage.connect().await;
    connection.hold("/v1/lock/released", delaying).await;
    connection.until("held").await;
    let mut next = stage.open("POST", "/v1/lock/released", "").await;
    next.until("waiting").await;
    connection.end_body().await;
    connection.until("released").await;
    next.until("held").await;
    connection.next().await;
    connection.hold("/v1/lock/dead", delaying).await;
    connection.until("held").await;
    let mut next = stage.open("POST", "/v1/lock/dead", waiting).await;
    next.until("waiting").await;
    drop(connection);
    assert_eq!(next.until("error").await["code"], "not_acquired");
    let (_, lock) = stage.ask("GET", "/v1/locks?path=/dead", "").await;
    assert_eq!(lock["holders"], json!([]), "freed at once: {lock}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_no_server_confirms_ends_as_unknown_and_keeps_its_connection() {
    let mut stage = Stage::new().await;
    let mut connection = stage.connect().await;
    let body = r#"{"session_timeout_ms": 60000}"#;
    connection.hold("/v1/lock/deploy", body).await;
    connection.until("held").await;
    drop(stage.server.take());
    connection.end_body().await;
    connection.until("unknown").await;
    assert!(connection.next().await.is_none(), "the response is over");
    assert_eq!(guards(&mut connection).await, 1, "it is released on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_body_ends_gives_up_its_place_and_keeps_its_connection() {
    let stage = Stage::new().await;
    let (holder, _) = stage.lock("/deploy", "").await;
    let mut connection = stage.connect().await;
    connection.hold("/v1/lock/deploy", "").await;
    connection.until("waiting").await;
    connection.end_body().await;
    assert_eq!(connection.until("error").await["code"], "not_acquired");
    assert!(connection.next().await.is_none());
    assert_eq!(guards(&mut connection).await, 1);
    // One that ends with its request waits for nothing, whether it has a length or chunks.
    let put = "PUT /v1/lock/deploy HTTP/1.1\r\n";
    for body in [
        "Content-Length: 3\r\n\r\n{}\n",
        "Content-Length: 2\r\n\r\n{}",
        "Transfer-Encoding: chunked\r\n\r\n3;a=b\r\n{}\n\r\n0\r\nA: b\r\n\r\n",
    ] {
        connection.send(&format!("{put}{body}")).await;
        connection.head().await;
        assert_eq!(connection.status, 409, "{body}");
        assert_eq!(connection.whole().await["code"], "not_acquired", "{body}");
    }
    drop(holder);
    connection.hold("/v1/lock/deploy", "").await;
    connection.until("held").await;
    let (_, lock) = stage.ask("GET", "/v1/locks?path=/deploy", "").await;
    assert_eq!(lock["waiters"], json!([]), "{lock}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_leaves_the_connection_to_the_next_request_once_the_body_has_ended() {
    let stage = Stage::new().await;
    let (_holder, _) = stage.lock("/deploy", "").await;
    let mut connection = stage.connect().await;
    for (url, body, status) in [
        ("/v1/lock/deploy", NO_WAIT, 409),
        ("/v1/lock/deploy", "{", 400),
        ("/v1/lock/deploy", r#"{"wait": 0}"#, 400),
        ("/v1/counter/a", "", 405),
        ("/v1/nothing", "", 404),
    ] {
        assert_eq!(connection.hold(url, body).await, status, "{url} {body}");
        assert!(connection.whole().await["cause"].is_string());
        // The next request in the same write as the end.
        connection.send(&format!("0\r\n\r\n{HEALTH}")).await;
        connection.head().await;
        assert_eq!(connection.whole().await["guards"], 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_is_told_to_go_on_where_it_asks_first() {
    let stage = Stage::new().await;
    let mut connection = stage.connect().await;
    let head = "PUT /v1/lock/a HTTP/1.1\r\nExpect: 100-continue\r\n";
    connection
        .send(&format!("{head}Transfer-Encoding: chunked\r\n\r\n"))
        .await;
    connection.head().await;
    assert_eq!(connection.status, 100);
    connection.send("1\r\n\n\r\n").await;
    connection.head().await;
    assert_eq!(connection.status, 200);
    connection.until("held").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a70_a_malformed_body_ends_its_connection_and_what_it_held() {
    let stage = Stage::new().await;
    let mut health = stage.connect().await;
    for garbage in [
        "x\r\n",
        "-1\r\n",
        "\n",
        "\r\n",
        "2\r\nabc\r\n",
        "fffffffffffffffff\r\n",
        "GET /v1/health HTTP/1.1\r\n\r\n",
        &"1".repeat(2000),
        &format!("0\r\n{}", "a: b\r\n".repeat(100)),
    ] {
        let mut connection = stage.connect().await;
        connection.hold("/v1/lock/deploy", "").await;
        connection.until("held").await;
        // What means nothing does no harm.
        connection.send("4\r\n\n{}\n\r\n").await;
        assert_eq!(guards(&mut health).await, 1);
        connection.send(garbage).await;
        connection.closed().await;
        while guards(&mut health).await != 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let mut connection = stage.connect().await;
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    connection
        .send(&format!("{LOCK}{chunk}{chunk}{chunk}"))
        .await;
    connection.head().await;
    assert_eq!(connection.status, 413);
    assert_eq!(connection.whole().await["code"], "refused");
    connection.end_body().await;
    assert_eq!(guards(&mut connection).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a70_a_body_that_cannot_be_read_is_refused_with_its_cause() {
    let stage = Stage::new().await;
    for (body, cause) in [
        ("x\r\n", "a chunk has no size"),
        ("2\r\nabc\r\n", "a chunk is longer than its size"),
    ] {
        let mut connection = stage.connect().await;
        connection.send(&format!("{LOCK}{body}")).await;
        connection.head().await;
        assert_eq!(connection.status, 400, "{body}");
        assert_eq!(connection.whole().await["cause"], cause, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a70_requests_are_answered_in_order_and_no_more_are_read_ahead_than_fit() {
    let stage = Stage::new().await;
    let mut connection = stage.connect().await;
    connection.send(&HEALTH.repeat(20)).await;
    for _ in 0..20 {
        connection.head().await;
        assert_eq!(connection.whole().await["guards"], 0);
    }
    // While it waits for an answer.
    let (_holder, _) = stage.lock("/a", "").await;
    let hold = r#"{"ttl_ms": 1000}"#;
    let length = hold.len();
    let head = format!("POST /v1/hold/a HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{hold}");
    connection.send(&head).await;
    connection.send(&HEALTH.repeat(6000)).await;
    assert!(connection.closed().await.is_empty());
}
