//! What was acknowledged is there after any fault, or the server refuses to start and says why.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use baton_proto::{EventKind, OpCode, Request};
use baton_server::{Options, Server, StartError};
use baton_wal::testing::{Fault, FaultStorage, Loss};
use support::{Frame, PATIENCE, Wire, create, in_memory, set, watched};

fn options() -> Options {
    in_memory().options().clone()
}

async fn on(disk: &FaultStorage) -> Result<Server, StartError> {
    Server::start_with(options(), Arc::new(disk.clone())).await
}

/// Writes until the server is gone; returns the largest number that was acknowledged.
async fn write_until_it_breaks(server: &Server, most: usize) -> Option<usize> {
    let mut wire = Wire::silent(&server.connect_string()).await;
    let mut bytes = Vec::new();
    baton_proto::frame::write_connect_request(&mut bytes, &support::no_session());
    wire.try_send_bytes(&bytes).await.ok()?;
    wire.next_bytes().await?;
    let mut acknowledged = None;
    let mut sent = 0;
    while sent < most {
        let paths: Vec<_> = (sent..sent + 3).map(|n| format!("/n{n}")).collect();
        let mut bytes = Vec::new();
        for (n, path) in (sent..).zip(&paths) {
            baton_proto::frame::write_request(&mut bytes, n as i32 + 1, &create(path, b"value", 0));
        }
        if wire.try_send_bytes(&bytes).await.is_err() {
            break;
        }
        for n in sent..sent + 3 {
            match wire.next().await {
                Some(Frame::Reply(header, _)) => {
                    assert_eq!(header.err, 0);
                    acknowledged = Some(n);
                }
                _ => return acknowledged,
            }
        }
        sent += 3;
    }
    acknowledged
}

#[tokio::test]
async fn everything_acknowledged_survives_any_fault_of_the_disk_at_any_operation() {
    let clean = FaultStorage::new();
    let server = on(&clean).await.unwrap();
    assert_eq!(write_until_it_breaks(&server, 15).await, Some(14));
    drop(server);
    let operations = clean.operations();
    assert!(operations > 20, "{operations}");
    for (n, operation) in (0..operations).enumerate() {
        // Two of the six at each operation; over all operations, each meets each kind.
        for fault in [FAULTS[n % 6], FAULTS[(n + 3) % 6]] {
            let disk = FaultStorage::new();
            disk.fail_at(operation, fault);
            let mut acknowledged = None;
            if let Ok(server) = on(&disk).await {
                acknowledged = write_until_it_breaks(&server, 15).await;
                drop(server);
            }
            let loss = LOSSES[n % LOSSES.len()];
            match on(&disk.crash(loss)).await {
                Ok(server) => {
                    let mut wire = Wire::open(&server.connect_string()).await;
                    for n in 0..=acknowledged.unwrap_or(0) {
                        let there = wire.exists(&format!("/n{n}")).await;
                        assert!(
                            there || acknowledged.is_none(),
                            "/n{n} was acknowledged; operation {operation}, {fault:?}, {loss:?}"
                        );
                    }
                }
                Err(error) => {
                    assert!(!error.to_string().contains('\n'), "{error}");
                    assert!(
                        acknowledged.is_none(),
                        "{error}: nothing here may keep it from starting"
                    );
                }
            }
        }
    }
}

const FAULTS: [Fault; 6] = [
    Fault::Crash,
    Fault::CrashAfter,
    Fault::TornWrite,
    Fault::Error,
    Fault::PartialWrite,
    Fault::SyncLost,
];
const LOSSES: [Loss; 4] = [
    Loss::Nothing,
    Loss::Everything,
    Loss::Random(7),
    Loss::Random(8),
];

#[tokio::test]
async fn a_failed_sync_stops_the_server_and_nobody_is_told_that_it_was_written() {
    let disk = FaultStorage::new();
    let server = on(&disk).await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/before", b"", 0).await.unwrap();
    // The write, then its sync.
    disk.fail_at(disk.operations() + 1, Fault::Error);
    wire.send(&[create("/lost", b"", 0)]).await;
    assert!(wire.is_closed().await, "closed without an answer");
    let why = tokio::time::timeout(PATIENCE, server.failed())
        .await
        .unwrap()
        .to_string();
    assert!(why.contains("sync"), "{why}");
    assert!(!why.contains('\n'));
    assert!(server.shutdown().await.is_err());
    let again = on(&disk.crash(Loss::Everything)).await.unwrap();
    let mut wire = Wire::open(&again.connect_string()).await;
    assert!(wire.exists("/before").await);
}

#[tokio::test]
async fn sessions_and_ephemerals_survive_a_restart_with_a_full_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let builder = || {
        Server::builder()
            .data_dir(folder.path())
            .listen("127.0.0.1:0")
            .tick(Duration::from_millis(20))
            .min_session_timeout(Duration::from_millis(100))
    };
    let server = builder().start().await.unwrap();
    let to = server.connect_string();
    let mut keeper = Wire::open(&to).await;
    let mut leaver = Wire::open_with(
        &to,
        &baton_proto::ConnectRequest {
            timeout_ms: 400,
            ..support::no_session()
        },
    )
    .await
    .unwrap();
    keeper.create("/kept", b"mine", 1).await.unwrap();
    leaver.create("/left", b"", 1).await.unwrap();
    let zxid = server.last_zxid();
    drop(server);

    let server = builder().start().await.unwrap();
    let to = server.connect_string();
    assert_eq!(server.last_zxid(), zxid, "no write is made up at a restart");
    assert_eq!(server.active_sessions(), 2);
    let mut keeper = Wire::resume(&to, &keeper.session, zxid).await.unwrap();
    assert_eq!(keeper.get("/kept").await.unwrap(), b"mine");
    keeper.call(watched("/left")).await.unwrap();
    let event = keeper.event().await;
    assert_eq!(
        (event.kind, event.path.as_str()),
        (EventKind::NodeDeleted, "/left")
    );
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_graceful_stop_answers_what_it_has_taken_on() {
    let folder = tempfile::tempdir().unwrap();
    let builder = || {
        Server::builder()
            .data_dir(folder.path())
            .listen("127.0.0.1:0")
    };
    let server = builder().start().await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/a", b"", 0).await.unwrap();
    let values: Vec<_> = (0..500).map(|n| n.to_string()).collect();
    let requests: Vec<_> = values
        .iter()
        .map(|value| set("/a", value.as_bytes()))
        .collect();
    wire.send(&requests).await;
    let first = wire.reply().await;
    assert_eq!(first.0.err, 0);
    let stop = tokio::spawn(server.shutdown());
    let mut last = 0;
    while let Some(Frame::Reply(header, _)) = wire.next().await {
        assert_eq!(header.err, 0);
        last += 1;
    }
    stop.await.unwrap().unwrap();
    let server = builder().start().await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    let there: usize = String::from_utf8(wire.get("/a").await.unwrap())
        .unwrap()
        .parse()
        .unwrap();
    assert!(there >= last, "{there} on disk, {last} acknowledged");
}

#[tokio::test]
async fn snapshots_are_written_while_requests_go_on_and_the_server_starts_from_them() {
    let folder = tempfile::tempdir().unwrap();
    let builder = || {
        Server::builder()
            .data_dir(folder.path())
            .listen("127.0.0.1:0")
            .with(|options| {
                options.snapshot_every_entries = 20;
            })
    };
    let server = builder().start().await.unwrap();
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    wire.create("/mine", b"", 1).await.unwrap();
    for n in 0..200 {
        wire.create(&format!("/n{n}"), &[n as u8; 2000], 0)
            .await
            .unwrap();
    }
    let snapshots = || {
        let names = std::fs::read_dir(folder.path()).unwrap();
        names
            .filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .starts_with("snap-")
            })
            .count()
    };
    tokio::time::timeout(PATIENCE, async {
        while snapshots() == 0 {
            wire.call(Request::Sync { path: "/" }).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    drop(server);
    let server = builder().start().await.unwrap();
    let mut wire = Wire::resume(&server.connect_string(), &wire.session, 0)
        .await
        .unwrap();
    for n in 0..200 {
        assert_eq!(wire.get(&format!("/n{n}")).await.unwrap(), [n as u8; 2000]);
    }
    assert!(wire.exists("/mine").await);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_said_and_loses_nothing_that_was_acknowledged() {
    let disk = FaultStorage::new();
    disk.set_capacity(Some(3 << 20));
    let server = on(&disk).await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    let big = vec![7_u8; 200_000];
    let mut acknowledged = Vec::new();
    for n in 0..100 {
        let path = format!("/n{n}");
        wire.send(&[create(&path, &big, 0)]).await;
        match wire.next().await {
            Some(Frame::Reply(header, body)) if header.err == 0 => {
                support::decode(OpCode::Create, header, &body).unwrap();
                acknowledged.push(path);
            }
            _ => break,
        }
    }
    assert!(
        (3..20).contains(&acknowledged.len()),
        "{}",
        acknowledged.len()
    );
    let why = tokio::time::timeout(PATIENCE, server.failed())
        .await
        .unwrap()
        .to_string();
    assert!(why.contains("space"), "{why}");
    drop(server);
    let disk = disk.crash(Loss::Everything);
    disk.set_capacity(None);
    let server = on(&disk).await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    for path in acknowledged {
        assert_eq!(wire.get(&path).await.unwrap(), big);
    }
}
