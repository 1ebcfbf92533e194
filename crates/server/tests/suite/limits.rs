//! Every limit that protects the server has a metric that shows when it was reached.

use std::sync::Arc;
use std::time::Duration;

use baton_proto::{ErrorCode, Request, frame};
use baton_server::Server;

use crate::support::gate::{Gate, GatedStorage};
use crate::support::http;
use crate::support::{PATIENCE, Wire, get, in_memory, set, start, word};

/// A metric of `mntr`.
async fn metric(to: &str, name: &str) -> f64 {
    let mntr = word(to, "mntr").await;
    let line = mntr
        .lines()
        .find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
    line.unwrap_or_else(|| panic!("no {name} in {mntr}"))
        .parse()
        .unwrap()
}

/// Waits until the metric is at least `wanted`.
async fn reaches(to: &str, name: &str, wanted: f64) {
    let reached = async { while metric(to, name).await < wanted {} };
    tokio::time::timeout(PATIENCE, reached).await.unwrap();
}

/// Waits until one connection is left: those that asked for metrics may still be closing.
async fn alone(server: &Server) {
    let alone = async {
        while server.active_connections() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, alone).await.unwrap();
}

#[tokio::test]
async fn a_request_over_the_limit_is_answered_in_its_turn_and_the_connection_goes_on() {
    let server = start().await;
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    wire.create("/a", b"before", 0).await.unwrap();
    let mut highest = 0;
    for length in [1_048_576_usize, 1_100_000, 2_097_000] {
        let large = vec![b'x'; length];
        let first = wire
            .send(&[set("/a", b"kept"), set("/a", &large), get("/a")])
            .await;
        for (offset, code) in [ErrorCode::Ok, ErrorCode::BadArguments, ErrorCode::Ok]
            .into_iter()
            .enumerate()
        {
            let (header, _) = wire.reply().await;
            assert_eq!(
                (header.xid, header.error()),
                (first + i32::try_from(offset).unwrap(), code),
                "{length}"
            );
            assert!(header.zxid >= highest, "zxids never fall: {header:?}");
            highest = header.zxid;
        }
    }
    assert_eq!(wire.get("/a").await.unwrap(), b"kept");
    assert!((metric(&to, "large_requests_rejected").await - 3.0).abs() < 0.1);
}

#[tokio::test]
async fn a_request_of_more_than_twice_the_limit_ends_its_connection_as_kazoo_expects() {
    let server = start().await;
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    wire.create("/a", b"before", 0).await.unwrap();
    wire.send(&[set("/a", &vec![b'x'; 2 << 20])]).await;
    assert!(wire.is_closed().await);
    let mut next = Wire::open(&to).await;
    assert_eq!(next.get("/a").await.unwrap(), b"before");
    assert!((metric(&to, "large_requests_rejected").await - 1.0).abs() < 0.1);
}

#[tokio::test]
async fn a_large_request_that_arrives_in_pieces_is_answered_once() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let mut bytes = Vec::new();
    frame::write_request(&mut bytes, 7, &set("/a", &vec![b'x'; 1_200_000]));
    for piece in [&bytes[..4], &bytes[4..9], &bytes[9..12], &bytes[12..50_000]] {
        wire.send_bytes(piece).await;
        tokio::task::yield_now().await;
    }
    let (header, body) = wire.reply().await;
    assert_eq!((header.xid, header.error()), (7, ErrorCode::BadArguments));
    assert!(body.is_empty());
    wire.send_bytes(&bytes[50_000..]).await;
    assert!(wire.exists("/").await);
    let (header, _) = {
        wire.send(&[Request::Ping]).await;
        wire.reply().await
    };
    assert_eq!(header.xid, -2);
}

#[tokio::test]
async fn refused_connections_are_counted_by_the_limit_that_refused_them() {
    let server = in_memory()
        .with(|options| options.max_connections_per_address = 3)
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut first = Wire::open(&to).await;
    let others = (Wire::open(&to).await, Wire::open(&to).await);
    assert!(Wire::silent(&to).await.is_closed().await);
    drop(others);
    alone(&server).await;
    for (name, times) in [
        ("baton_rejected_per_address", 1.0),
        ("connection_rejected", 1.0),
        ("baton_rejected_in_all", 0.0),
    ] {
        assert!((metric(&to, name).await - times).abs() < 0.1, "{name}");
        alone(&server).await;
    }
    assert!(first.exists("/").await);

    let server = in_memory()
        .with(|options| options.max_connections = 3)
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let _first = Wire::open(&to).await;
    let others = (Wire::open(&to).await, Wire::open(&to).await);
    assert!(Wire::silent(&to).await.is_closed().await);
    drop(others);
    alone(&server).await;
    assert!(metric(&to, "baton_rejected_in_all").await >= 1.0);
}

#[tokio::test]
async fn connections_that_name_no_session_are_counted() {
    let server = in_memory()
        .with(|options| options.handshake_timeout = Duration::from_millis(50))
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    assert!(Wire::silent(&to).await.is_closed().await);
    reaches(&to, "sessionless_connections_expired", 1.0).await;
}

#[tokio::test]
async fn what_a_client_does_not_read_is_shown_and_its_end_is_counted() {
    let server = in_memory()
        .with(|options| options.max_outbound_bytes = 50_000)
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut slow = Wire::open(&to).await;
    slow.create("/big", &vec![1; 900_000], 0).await.unwrap();
    slow.call(Request::AddWatch { path: "/", mode: 1 })
        .await
        .unwrap();
    let requests: Vec<_> = (0..30).map(|_| get("/big")).collect();
    slow.send(&requests).await;
    reaches(&to, "baton_outbound_bytes_max", 50_000.0).await;
    let mut writer = Wire::open(&to).await;
    let path = format!("/{}", "n".repeat(400));
    writer.create(&path, b"", 0).await.unwrap();
    let closed = async {
        while server.active_connections() > 1 {
            let requests: Vec<_> = (0..100).map(|_| set(&path, b"x")).collect();
            writer.send(&requests).await;
            for _ in 0..100 {
                writer.reply().await;
            }
        }
    };
    tokio::time::timeout(PATIENCE * 2, closed).await.unwrap();
    assert!(metric(&to, "baton_slow_readers_closed").await >= 1.0);
    assert!(metric(&to, "baton_queue_bytes").await < 0.1);
    assert!(metric(&to, "outstanding_requests").await < 0.1);
}

#[tokio::test]
async fn the_longest_pause_of_a_snapshot_is_reported() {
    let server = in_memory()
        .with(|options| options.snapshot_every_entries = 20)
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    for place in 0..40 {
        let path = format!("/{place}");
        wire.create(&path, &[7; 10_000], 0).await.unwrap();
    }
    reaches(&to, "snap_count", 1.0).await;
    assert!(metric(&to, "cnt_baton_snapshot_slice_seconds").await >= 2.0);
    let longest = metric(&to, "baton_snapshot_slice_max_seconds").await;
    assert!(longest > 0.0 && longest < PATIENCE.as_secs_f64());
    assert!(metric(&to, "cnt_snapshottime").await >= 1.0);
}

#[tokio::test]
async fn while_the_disk_hangs_requests_wait_in_their_sockets_and_the_server_is_not_ready() {
    const LIMIT: usize = 200_000;
    const CLIENTS: usize = 4;
    const WRITES: usize = 1000;
    let options = in_memory()
        .http("127.0.0.1:0")
        .with(|options| options.max_queued_bytes = LIMIT)
        .options()
        .clone();
    let gate = Gate::default();
    let server = Server::start_with(options, Arc::new(GatedStorage::new(&gate)))
        .await
        .unwrap();
    let to = server.connect_string();
    let telling = server.http_addr().unwrap();
    let mut first = Wire::open(&to).await;
    first.create("/a", b"", 0).await.unwrap();
    assert_eq!(http::get(telling, "/readyz").await.0, 200);
    let mut wires = Vec::new();
    for _ in 0..CLIENTS {
        wires.push(Wire::open(&to).await);
    }
    let shut = gate.shut();
    let writers: Vec<_> = wires
        .into_iter()
        .map(|mut wire| {
            tokio::spawn(async move {
                let data = vec![7; 2000];
                for _ in 0..WRITES / 50 {
                    wire.send(&vec![set("/a", &data); 50]).await;
                }
                for _ in 0..WRITES {
                    assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
                }
            })
        })
        .collect();
    // The rest is for connections of which nothing waits.
    reaches(&to, "baton_queue_bytes", (LIMIT - LIMIT / 8) as f64).await;
    for _ in 0..50 {
        // Each connection that had nothing waiting may bring what it has read at once.
        let bound = LIMIT + CLIENTS * 200_000;
        assert!(metric(&to, "baton_queue_bytes").await < bound as f64);
    }
    let (status, why) = http::get(telling, "/readyz").await;
    assert_eq!(status, 503, "{why}");
    assert_eq!(http::get(telling, "/healthz").await.0, 200);
    drop(shut);
    for writer in writers {
        tokio::time::timeout(PATIENCE, writer)
            .await
            .unwrap()
            .unwrap();
    }
    assert!(first.exists("/a").await);
    assert_eq!(http::get(telling, "/readyz").await.0, 200);
}
