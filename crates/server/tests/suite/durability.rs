//! Acknowledged writes are there after any fault, or the server refuses to start and says why.

use std::sync::Arc;
use std::time::Duration;

use baton_proto::{EventKind, OpCode, Request, Response};
use baton_server::{Options, Server, StartError, offline};
use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{Record, Storage, Wal, WalOptions};

use crate::support::{Frame, PATIENCE, Wire, create, http, in_memory, set, watched, word};

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
    baton_proto::frame::write_connect_request(&mut bytes, &crate::support::no_session());
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
async fn a_failed_sync_stops_the_server_and_nobody_receives_a_success() {
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
            ..crate::support::no_session()
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
async fn while_the_disk_is_full_reads_go_on_and_writes_wait_and_nothing_is_lost() {
    let disk = FaultStorage::new();
    disk.set_capacity(Some(3 << 20));
    let options = in_memory().http("127.0.0.1:0").options().clone();
    let server = Server::start_with(options, Arc::new(disk.clone()))
        .await
        .unwrap();
    let to = server.connect_string();
    let telling = server.http_addr().unwrap();
    let mut writer = Wire::open(&to).await;
    let mut reader = Wire::open(&to).await;
    let big = vec![7_u8; 200_000];
    let paths: Vec<String> = (0..30).map(|n| format!("/n{n}")).collect();
    // More than there is room for: some are answered, the others wait.
    for path in &paths {
        writer.send(&[create(path, &big, 0)]).await;
    }
    let full = async {
        while http::get(telling, "/readyz").await.0 == 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, full).await.unwrap();
    let (status, why) = http::get(telling, "/readyz").await;
    assert_eq!((status, why.contains("disk is full")), (503, true), "{why}");
    assert_eq!(http::get(telling, "/healthz").await.0, 200);
    assert!(word(&to, "mntr").await.contains("zk_baton_disk_full\t1\n"));
    assert_eq!(reader.get("/n0").await.unwrap(), big);
    assert!(!reader.exists("/n29").await);
    assert_eq!(reader.call(Request::Ping).await.unwrap(), Response::Empty);
    // A machine that stops now has all that was acknowledged, and may not have a part of the rest.
    let crashed = disk.crash(Loss::Everything);
    crashed.set_capacity(None);
    let mut acknowledged = 0;
    disk.set_capacity(None);
    for path in &paths {
        let (header, body) = writer.reply().await;
        crate::support::decode(OpCode::Create, header, &body).unwrap();
        acknowledged += usize::from(reader.get(path).await.unwrap() == big);
    }
    assert_eq!(acknowledged, paths.len());
    assert_eq!(http::get(telling, "/readyz").await.0, 200);
    server.shutdown().await.unwrap();
    for disk in [crashed, disk.crash(Loss::Everything)] {
        let server = on(&disk).await.unwrap();
        let mut wire = Wire::open(&server.connect_string()).await;
        assert_eq!(wire.get("/n0").await.unwrap(), big);
    }
}

#[tokio::test]
async fn a_server_that_waits_for_room_can_be_stopped_and_says_what_it_waited_for() {
    let disk = FaultStorage::new();
    disk.set_capacity(Some(3 << 20));
    let server = on(&disk).await.unwrap();
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    let big = vec![7_u8; 500_000];
    for n in 0..8 {
        wire.send(&[create(&format!("/n{n}"), &big, 0)]).await;
    }
    let first = wire.reply().await;
    assert_eq!(first.0.err, 0);
    let full = async {
        while !word(&to, "mntr").await.contains("zk_baton_disk_full\t1\n") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, full).await.unwrap();
    let why = tokio::time::timeout(PATIENCE, server.shutdown())
        .await
        .unwrap()
        .unwrap_err()
        .to_string();
    assert!(why.contains("no space left"), "{why}");
    assert!(!why.contains('\n'), "{why}");
    let disk = disk.crash(Loss::Everything);
    disk.set_capacity(None);
    let again = on(&disk).await.unwrap();
    let mut wire = Wire::open(&again.connect_string()).await;
    assert_eq!(wire.get("/n0").await.unwrap(), big);
}

/// The end of the log's last segment, zeroed from where `from` says.
fn without_the_end(disk: &FaultStorage, from: impl Fn(&[u8]) -> usize) -> FaultStorage {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.starts_with("log-"));
    let name = names.iter().max().unwrap();
    let mut content = disk.content(name).unwrap();
    let at = from(&content);
    content[at..].fill(0);
    let damaged = disk.crash(Loss::Nothing);
    damaged.put(name, &content);
    damaged
}

#[tokio::test]
async fn a_log_that_lost_its_end_at_rest_or_after_a_stop_is_refused() {
    let disk = FaultStorage::new();
    let server = on(&disk).await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/first", b"", 0).await.unwrap();
    wire.create("/last", &[7; 300], 0).await.unwrap();
    // Where the data of the last write stands.
    let last = |content: &[u8]| content.windows(300).position(|w| w == [7; 300]).unwrap();
    let is_marked = || {
        let rest = disk.crash(Loss::Everything);
        let report = baton_wal::verify(&without_the_end(&rest, last)).unwrap();
        !report.is_sound()
    };
    tokio::time::timeout(PATIENCE, async {
        while !is_marked() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    let killed = disk.crash(Loss::Everything);
    server.shutdown().await.unwrap();
    let stopped = disk.crash(Loss::Everything);
    for disk in [killed, stopped] {
        let error = on(&without_the_end(&disk, last)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("SYNCED") && !text.contains('\n'), "{text}");
        let server = on(&disk).await.unwrap();
        let mut wire = Wire::open(&server.connect_string()).await;
        assert!(wire.exists("/last").await);
    }
}

#[tokio::test]
async fn a_start_after_a_graceful_stop_has_nothing_to_doubt() {
    let disk = FaultStorage::new();
    let server = on(&disk).await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/a", b"", 0).await.unwrap();
    let running = baton_wal::verify(&disk.kill()).unwrap().start.unwrap();
    assert!(!running.notes.is_empty());
    server.shutdown().await.unwrap();
    let stopped = baton_wal::verify(&disk).unwrap().start.unwrap();
    assert_eq!(stopped.notes, []);
}

/// The payload of an entry that raises the format level to one of a later version.
fn entry_of_a_later_version() -> Vec<u8> {
    let newest = baton_tree::FormatLevel::NEWEST;
    let mut payload = baton_tree::BatchBuilder::raising(newest, 1)
        .finish()
        .to_vec();
    let last = payload.last_mut().unwrap();
    assert_eq!(u64::from(*last), newest.number());
    *last = 99;
    payload
}

fn content(disk: &FaultStorage) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.list().unwrap();
    names.sort();
    let content = |name: String| {
        let bytes = disk.content(&name).unwrap();
        (name, bytes)
    };
    names.into_iter().map(content).collect()
}

/// An operator who starts the wrong version again and again loses nothing, and `wal verify` says
/// before that it would be refused.
#[tokio::test]
async fn a_start_that_is_refused_for_what_the_log_contains_writes_nothing() {
    let disk = FaultStorage::new();
    let server = on(&disk).await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/kept", b"", 0).await.unwrap();
    server.shutdown().await.unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let (mut wal, _) = Wal::open(storage, WalOptions::default()).unwrap();
    let index = wal.last_index() + 1;
    let entry = baton_wal::Entry {
        index,
        term: 1,
        kind: 1,
        payload: entry_of_a_later_version().into(),
    };
    wal.append(&[Record::Entry(entry), Record::Commit { index }])
        .unwrap();
    wal.sync().unwrap();
    wal.close().unwrap();

    let before = content(&disk);
    let found = baton_wal::verify(&disk).unwrap();
    assert!(found.is_sound(), "each byte is as it was written");
    let checked = offline::check_content(&disk, &found.start.unwrap());
    let expected =
        format!("log entry {index} cannot be applied: the log entry raises the format level to 99");
    for error in [
        checked.unwrap_err().to_string(),
        on(&disk).await.unwrap_err().to_string(),
        on(&disk).await.unwrap_err().to_string(),
    ] {
        assert!(error.contains(&expected), "{error}");
    }
    assert!(content(&disk) == before, "a refused start has written");
}
