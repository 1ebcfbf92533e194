//! For any bytes that a caller sends, it gets one JSON error with thing, cause and next step, and
//! the agent goes on.

use baton::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::support::{Stage, within};

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_request_is_refused_by_name() {
    let stage = Stage::new().await;
    let large = format!(r#"{{"name": "{}"}}"#, "x".repeat(3 << 20));
    for (method, path, body, status) in [
        ("POST", "/v1/lock/a", "{", 400),
        ("POST", "/v1/lock/a", "[]", 400),
        ("POST", "/v1/lock/a", "\u{0}", 400),
        ("POST", "/v1/lock/a", r#"{"wait": 1}"#, 400),
        ("POST", "/v1/lock/a", r#"{"wait_ms": -1}"#, 400),
        ("POST", "/v1/lock/a", r#"{"mode": "both"}"#, 400),
        ("POST", "/v1/lock/a", r#"{"slots": 2}"#, 400),
        ("POST", "/v1/lock/a", r#"{"mode": "slot"}"#, 400),
        ("POST", "/v1/lock/a", r#"{"mode": "slot", "slots": 0}"#, 400),
        (
            "POST",
            "/v1/lock/a",
            r#"{"mode": "read", "lock_delay_ms": 5}"#,
            400,
        ),
        (
            "POST",
            "/v1/lock/a",
            r#"{"lock_delay_ms": 999999999999}"#,
            400,
        ),
        ("POST", "/v1/lock/a/../b", "", 400),
        ("POST", "/v1/lock//a", "", 400),
        ("POST", "/v1/lock/a%00b", "", 400),
        ("POST", "/v1/lock/a%ff", "", 400),
        ("POST", "/v1/lock/a", &large, 413),
        ("POST", "/v1/queue/jobs", "", 404),
        ("POST", "/v1/queue/jobs/steal", "", 404),
        ("POST", "/v1/queue/jobs/put", r#"{"data_base64": "?"}"#, 400),
        ("POST", "/v1/queue/jobs/ack", r#"{"claim": "x"}"#, 410),
        ("POST", "/v1/hold/a", "", 400),
        ("POST", "/v1/hold/a", r#"{"ttl_ms": 0}"#, 400),
        ("POST", "/v1/hold/a", r#"{"ttl_ms": 1, "token": 7}"#, 410),
        ("DELETE", "/v1/hold/a?token=x", "", 400),
        ("GET", "/v1/token/a/x", "", 400),
        ("GET", "/v1/locks", "", 400),
        ("POST", "/v1/guard/none/release", "", 404),
        ("POST", "/v1/guard/none/steal", "", 404),
        ("GET", "/v1/lock/a", "", 405),
        ("GET", "/v2/lock/a", "", 404),
    ] {
        let (answered, refused) = stage.ask(method, path, body).await;
        assert_eq!(answered, status, "{method} {path}: {refused}");
        for part in ["error", "thing", "cause", "next_step", "code"] {
            assert!(refused[part].is_string(), "{method} {path}: {refused}");
        }
        let parts = refused.as_object().unwrap();
        assert_eq!(parts.len(), 5, "{method} {path}: {refused}");
    }
    stage.lock("/a", r#"{"wait_ms": 0}"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_http_end_their_connection_alone() {
    let stage = Stage::new().await;
    let (_answer, _) = stage.lock("/deploy", "").await;
    for bytes in [
        &b"\x16\x03\x01\x00\x05"[..],
        b"GET\r\n\r\n",
        &[0xff; 70_000],
    ] {
        let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
        // The agent may close before it has read all.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let _ = within(stream.read_to_end(&mut rest)).await;
    }
    let (status, health) = stage.ask("GET", "/v1/health", "").await;
    assert_eq!((status, &health["guards"]), (200, &1.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_servers_says_so() {
    let config = Config::new("127.0.0.1:1").unwrap();
    let config = config.connect_within(std::time::Duration::from_millis(50));
    let stage = Stage::with(config).await;
    for (method, url, body) in [
        ("POST", "/v1/lock/a", ""),
        ("POST", "/v1/elect/a", ""),
        ("POST", "/v1/hold/a", r#"{"ttl_ms": 1000}"#),
        ("POST", "/v1/queue/a/put", ""),
        ("GET", "/v1/counter/a", ""),
        ("GET", "/v1/locks?prefix=/", ""),
    ] {
        let (status, refused) = stage.ask(method, url, body).await;
        assert_eq!(
            (status, &refused["code"]),
            (503, &"unavailable".into()),
            "{url}: {refused}"
        );
        assert!(refused["unavailable_for_ms"].is_u64(), "{url}: {refused}");
    }
    let (_, health) = stage.ask("GET", "/v1/health", "").await;
    assert!(health["unavailable_for_ms"].is_u64(), "{health}");
}
