//! Supervisors' questions: answered whatever else is asked, and truly while the disk hangs or is
//! full.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "suite/support/mod.rs"]
mod support;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use baton_proto::frame;
use baton_server::Server;
use baton_wal::testing::FaultStorage;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use support::gate::{Gate, GatedStorage};
use support::http::get;
use support::log::{LOG, lines};
use support::{PATIENCE, Wire, create, in_memory, no_session, word};

/// Waits until the condition holds.
async fn until<F: Future<Output = bool>>(condition: impl Fn() -> F) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_while_hundreds_of_connections_send_half_a_request_or_read_no_answer() {
    let server = in_memory().http("127.0.0.1:0").start().await.unwrap();
    let to = server.http_addr().unwrap();
    let mut slow = Vec::new();
    for n in 0..300 {
        let mut stream = TcpStream::connect(to).await.unwrap();
        let part: &[u8] = match n % 3 {
            0 => b"",
            1 => b"GET /metrics HTTP/1.1\r\nHost: b",
            _ => b"POST /commands/srst HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf",
        };
        // A connection whose place was taken may be closed already.
        let _ = stream.write_all(part).await;
        slow.push(stream);
        if n % 50 == 49 {
            for probe in ["/healthz", "/readyz"] {
                assert_eq!(
                    get(to, probe).await,
                    (200, "ok\n".to_owned()),
                    "{n} {probe}"
                );
            }
        }
    }
    drop(slow);
    until(|| async { get(to, "/metrics").await.0 == 200 }).await;
}

#[tokio::test]
async fn a_connection_between_requests_gives_its_place_to_a_new_one_and_one_that_asks_does_not() {
    let server = in_memory().http("127.0.0.1:0").start().await.unwrap();
    let to = server.http_addr().unwrap();
    // Its request has come, but not its body: it keeps its place.
    let mut asking = TcpStream::connect(to).await.unwrap();
    let head = "POST /commands/ruok HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n1";
    asking.write_all(head.as_bytes()).await.unwrap();
    until(|| async { get(to, "/healthz").await.0 == 200 }).await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(to).await.unwrap());
    }
    assert_eq!(get(to, "/metrics").await.0, 200);
    asking.write_all(b"2").await.unwrap();
    let mut answer = String::new();
    asking.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_sync_hangs_the_server_is_not_ready_and_says_why_and_then_it_is_again() {
    let gate = Gate::default();
    let options = in_memory().http("127.0.0.1:0").options().clone();
    let storage = Arc::new(GatedStorage::new(&gate));
    let server = Server::start_with(options, storage).await.unwrap();
    let (to, telling) = (server.connect_string(), server.http_addr().unwrap());
    let mut wire = Wire::open(&to).await;
    let shut = gate.shut();
    wire.send(&[create("/a", b"", 0)]).await;
    until(|| async { get(telling, "/readyz").await.0 == 503 }).await;
    let (_, why) = get(telling, "/readyz").await;
    assert!(why.starts_with("the disk has not answered for "), "{why}");
    assert_eq!(
        get(telling, "/healthz").await.0,
        200,
        "a new start would not help"
    );
    let mntr = word(&to, "mntr").await;
    let busy = mntr
        .lines()
        .find_map(|line| line.strip_prefix("zk_baton_core_busy_seconds\t"));
    assert!(busy.unwrap().parse::<f64>().unwrap() >= 2.0, "{busy:?}");
    drop(shut);
    assert_eq!(wire.reply().await.0.err, 0);
    until(|| async { get(telling, "/readyz").await.0 == 200 }).await;
}

/// The client has named its session in time: it is the server that could not write it down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_a_full_or_hung_disk_keeps_from_being_opened_is_not_called_late() {
    LazyLock::force(&LOG);
    let quick = || {
        let quick = Duration::from_millis(300);
        let builder = in_memory().http("127.0.0.1:0");
        let builder = builder.with(|options| options.handshake_timeout = quick);
        builder.options().clone()
    };
    let disk = FaultStorage::new();
    disk.set_capacity(Some(3 << 20));
    let server = Server::start_with(quick(), Arc::new(disk.clone()))
        .await
        .unwrap();
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    let big = vec![7_u8; 500_000];
    for n in 0..10 {
        wire.send(&[create(&format!("/n{n}"), &big, 0)]).await;
    }
    let telling = server.http_addr().unwrap();
    until(|| async { get(telling, "/readyz").await.0 == 503 }).await;
    assert!(Wire::open_with(&to, &no_session()).await.is_none());
    let with =
        "its session could not be written down within 300ms: the disk is full; make room on it";
    until(|| async { !lines(with).is_empty() }).await;
    let mntr = word(&to, "mntr").await;
    assert!(
        mntr.contains("zk_baton_handshakes_unanswered\t1\n"),
        "{mntr}"
    );
    assert!(
        mntr.contains("zk_sessionless_connections_expired\t0\n"),
        "{mntr}"
    );
    disk.set_capacity(None);
    drop(server);

    let gate = Gate::default();
    let storage = Arc::new(GatedStorage::new(&gate));
    let server = Server::start_with(quick(), storage).await.unwrap();
    let shut = gate.shut();
    let telling = server.http_addr().unwrap();
    let mut first = Wire::silent(&server.connect_string()).await;
    let mut bytes = Vec::new();
    frame::write_connect_request(&mut bytes, &no_session());
    first.send_bytes(&bytes).await;
    until(|| async { get(telling, "/readyz").await.0 == 503 }).await;
    assert!(
        Wire::open_with(&server.connect_string(), &no_session())
            .await
            .is_none()
    );
    until(|| async {
        !lines("written down within 300ms: the disk has not answered for ").is_empty()
    })
    .await;
    drop(shut);
}
