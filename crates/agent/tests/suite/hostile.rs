//! Callers that attack the agent, each other, or the machine's memory.

use std::time::Duration;

use baton::Config;
use baton_agent::AgentOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::support::{Stage, within};

/// Numbers from a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a70_mutated_requests_are_answered_or_end_their_connection_and_harm_nobody() {
    let stage = Stage::new().await;
    let (_holder, _) = stage.lock("/mine", "").await;
    let requests = [
        "POST /v1/lock/a HTTP/1.1\r\nHost: x\r\nContent-Length: 36\r\n\r\n{\"wait_ms\": 0, \"mode\": \"exclusive\"}",
        "POST /v1/queue/q/put HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"data\": \"abc\"}",
        "DELETE /v1/hold/a?token=12 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "PUT /v1/lock/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nf\r\n{\"wait_ms\": 0}\n\r\n0\r\n\r\n",
        "GET /v1/token/a%2Fb/12 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    ];
    let mut numbers = Numbers(70);
    for _ in 0..400 {
        let mut bytes = requests[numbers.below(requests.len())].as_bytes().to_vec();
        for _ in 0..=numbers.below(6) {
            let at = numbers.below(bytes.len());
            match numbers.below(3) {
                0 => bytes[at] = u8::try_from(numbers.below(256)).unwrap(),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\r\n{}\"%/0\xff "[numbers.below(10)]),
            }
        }
        let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
        // The agent may close before it has read all.
        let _ = stream.write_all(&bytes).await;
    }
    // What some of them have got goes with them.
    loop {
        let (_, health) = stage.ask("GET", "/v1/health", "").await;
        if health["guards"] == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (status, token) = stage.ask("GET", "/v1/token/mine/1", "").await;
    assert_eq!(status, 200);
    assert!(token["newest"].is_u64(), "the lock is held on: {token}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a71_connections_over_the_bound_end_and_those_within_it_are_served() {
    let config = Config::new("127.0.0.1:1").unwrap();
    let mut options = AgentOptions::new(config.connect_within(Duration::from_millis(50)));
    options.max_connections = 3;
    let stage = Stage::on(options).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
        let request = "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut first = [0; 8];
        within(stream.read_exact(&mut first)).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1");
        open.push(stream);
    }
    let mut over = UnixStream::connect(stage.socket()).await.unwrap();
    let mut rest = Vec::new();
    // Ended by the agent, with or without a reset.
    let _ = within(over.read_to_end(&mut rest)).await;
    assert!(rest.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a72_paths_lead_to_no_other_node_and_no_other_route() {
    let stage = Stage::new().await;
    for path in [
        "/v1/lock/..",
        "/v1/lock/a/./b",
        "/v1/lock/%2e%2e/zookeeper",
        "/v1/lock/a/%2e%2e/b",
        "/v1/lock/%2f%2fa",
        "/v1/lock/a/",
        "/v1/lock/a%0d%0aX:%20y",
        "/v1/hold/..%2fguard",
    ] {
        let (status, refused) = stage.ask("POST", path, r#"{"ttl_ms": 1000}"#).await;
        assert_eq!(status, 400, "{path}: {refused}");
        let lines = refused["error"].as_str().unwrap();
        assert!(!lines.contains(['\r', '\n']), "{path}: {lines}");
    }
}
