//! The state of a running server as a file: who gets it, what is in it, and what a server that was
//! made from one does first.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_proto::Request;
use baton_server::{Options, Server, Storage, restoring};
use baton_tree::{Identity, Tree};
use baton_wal::testing::FaultStorage;
use baton_wal::{BackupReader, Hold, read_hold, write_hold};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::http::get;
use crate::support::{PATIENCE, Wire, in_memory, no_session, set};

const SUPER: &str = "Authorization: digest super:secret\r\n";
const MEGABYTE: usize = 1 << 20;

async fn serving(change: impl FnOnce(&mut Options)) -> (Server, SocketAddr) {
    let server = in_memory()
        .http("127.0.0.1:0")
        .with(|options| {
            options.super_digest = Some(baton_tree::digest_id(b"super:secret"));
            change(options);
        })
        .start()
        .await
        .unwrap();
    let to = server.http_addr().unwrap();
    (server, to)
}

/// A request of which the answer is not read yet.
async fn asked(to: SocketAddr, path: &str, more: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Status, head and body.
async fn download(to: SocketAddr, path: &str, more: &str) -> (u16, String, Vec<u8>) {
    let mut stream = asked(to, path, more).await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let body = answer.split_off(end.unwrap() + 4);
    let head = String::from_utf8(answer).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, body)
}

async fn backup(to: SocketAddr) -> (u16, String, Vec<u8>) {
    download(to, "/commands/backup", SUPER).await
}

/// The state in a backup, which is read to its end.
fn rebuilt(bytes: &[u8]) -> Tree {
    let disk = FaultStorage::new();
    disk.put("it", bytes);
    let mut reader = BackupReader::open(&disk, "it").unwrap();
    let tree = restoring::rebuild(&mut reader, &baton_server::Progress::default()).unwrap();
    reader.verify().unwrap();
    tree
}

fn data(tree: &Tree, path: &str) -> Vec<u8> {
    let read = tree.get_data(path, &Identity::anonymous());
    read.unwrap().0.unwrap().to_vec()
}

#[tokio::test]
async fn a_backup_has_everything_that_was_acknowledged_before_it_and_counts_as_a_file_of_one_zxid()
{
    let (server, to) = serving(|_| {}).await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/config", b"v0", 0).await.unwrap();
    wire.create("/lock", b"", 1).await.unwrap();
    for round in 1..=3 {
        let value = format!("v{round}");
        wire.call(set("/config", value.as_bytes())).await.unwrap();
        let zxid = server.last_zxid();
        let (status, head, bytes) = backup(to).await;
        assert_eq!(status, 200, "{head}");
        assert!(
            head.contains(&format!("last_zxid: 0x{zxid:x}\r\n")),
            "{head}"
        );
        let tree = rebuilt(&bytes);
        assert_eq!(
            (data(&tree, "/config"), tree.zxid()),
            (value.into_bytes(), zxid)
        );
        assert_eq!((tree.sessions().len(), tree.ephemeral_count()), (1, 1));
    }
}

#[tokio::test]
async fn writes_go_on_while_a_backup_is_read() {
    let (server, to) = serving(|_| {}).await;
    let mut wire = Wire::open(&server.connect_string()).await;
    // More than sockets and channels take: the answer waits for its reader.
    for number in 0..24 {
        let path = format!("/large-{number}");
        wire.create(&path, &vec![7; MEGABYTE - 1000], 0)
            .await
            .unwrap();
    }
    let mut first = asked(to, "/commands/backup", SUPER).await;
    let mut head = [0; 1000];
    first.read_exact(&mut head).await.unwrap();
    wire.create("/later", b"", 0).await.unwrap();
    // Another one at a time is refused, and one that is given up makes room.
    let (status, _, body) = backup(to).await;
    let body = String::from_utf8(body).unwrap();
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("another backup is being sent"), "{body}");
    drop(first);
    let again = async {
        loop {
            let (status, _, bytes) = backup(to).await;
            if status == 200 {
                return bytes;
            }
            tokio::task::yield_now().await;
        }
    };
    let bytes = tokio::time::timeout(PATIENCE, again).await.unwrap();
    let tree = rebuilt(&bytes);
    assert_eq!(data(&tree, "/large-23").len(), MEGABYTE - 1000);
    assert_eq!(data(&tree, "/later"), b"");
}

/// It holds what every ACL closes, and the passwords of sessions.
#[tokio::test]
async fn a30_a_backup_goes_to_those_alone_who_may_change_everything_also_on_this_machine() {
    let (server, to) = serving(|_| {}).await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/a", b"secret", 0).await.unwrap();
    for command in ["backup", "snapshot", "snap"] {
        for (authorization, refused) in [
            ("", 401),
            ("Authorization: digest super:guess\r\n", 403),
            ("Authorization: digest alice:secret\r\n", 403),
            ("Authorization: x509\r\n", 403),
        ] {
            let path = format!("/commands/{command}");
            let (status, _, body) = download(to, &path, authorization).await;
            assert_eq!(status, refused, "{command} {authorization}");
            assert!(!String::from_utf8(body).unwrap().contains("secret\""));
        }
    }
    assert_eq!(backup(to).await.0, 200);
}

#[tokio::test]
async fn zookeepers_command_sends_zookeepers_format_as_often_as_its_interval_lets_it() {
    let (server, to) = serving(|_| {}).await;
    let mut wire = Wire::open(&server.connect_string()).await;
    // A child comes before its parent's number, once a parent was deleted and made again.
    for path in ["/a", "/b", "/b/c"] {
        wire.create(path, path.as_bytes(), 0).await.unwrap();
    }
    wire.call(Request::Delete {
        path: "/a",
        version: -1,
    })
    .await
    .unwrap();
    wire.create("/b/c/d", b"", 0).await.unwrap();
    wire.create("/z", b"", 0).await.unwrap();
    wire.create("/z/own", b"", 1).await.unwrap();
    let zxid = server.last_zxid();
    let target = "/commands/snapshot?streaming=true";
    let (status, head, bytes) = download(to, target, SUPER).await;
    assert_eq!(status, 200, "{head}");
    assert!(
        head.contains(&format!("last_zxid: 0x{zxid:x}\r\n")),
        "{head}"
    );
    assert!(
        head.contains(&format!("snapshot_size: {}\r\n", bytes.len())),
        "{head}"
    );
    let database = baton_zkdata::read_streamed_snapshot("it", &bytes[..]).unwrap();
    assert_eq!((database.zxid(), database.session_count()), (zxid, 1));
    let tree = database
        .into_tree(baton_zkdata::OwnerForm::Extended)
        .unwrap()
        .tree;
    assert_eq!(data(&tree, "/b/c"), b"/b/c");
    assert_eq!(tree.ephemeral_count(), 1);
    let (status, _, body) = download(to, target, SUPER).await;
    let body = String::from_utf8(body).unwrap();
    assert_eq!(status, 429, "{body}");
    assert!(body.contains("snapshot_interval"), "{body}");
    // Baton's own has no interval.
    assert_eq!(backup(to).await.0, 200);
}

#[tokio::test]
async fn a_snapshot_that_is_not_to_be_sent_is_taken_all_the_same() {
    let (_server, to) = serving(|options| options.snapshot_interval = Duration::ZERO).await;
    for _ in 0..2 {
        let target = "/commands/snapshot?streaming=false";
        let (status, head, body) = download(to, target, SUPER).await;
        assert_eq!(status, 200, "{head}");
        assert!(head.contains("snapshot_size: "), "{head}");
        assert!(String::from_utf8(body).unwrap().contains("\"error\": null"));
    }
    let (_, shown) = get(to, "/commands/last_snapshot").await;
    assert!(!shown.contains("\"timestamp\": -1"), "{shown}");
}

#[tokio::test]
async fn without_room_for_a_snapshot_there_is_no_backup_and_everything_else_goes_on() {
    let disk = FaultStorage::new();
    let options = Options {
        listen: vec!["127.0.0.1:0".to_owned()],
        http: vec!["127.0.0.1:0".to_owned()],
        super_digest: Some(baton_tree::digest_id(b"super:secret")),
        ..Options::default()
    };
    let server = Server::start_with(options, Arc::new(disk.clone()))
        .await
        .unwrap();
    let to = server.http_addr().unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/a", &vec![1; 100_000], 0).await.unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 50_000));
    let (status, _, body) = backup(to).await;
    let body = String::from_utf8(body).unwrap();
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("no space left"), "{body}");
    assert!(
        disk.list()
            .unwrap()
            .iter()
            .all(|name| !name.ends_with(".tmp"))
    );
    wire.call(set("/a", b"goes on")).await.unwrap();
    disk.set_capacity(None);
    let (status, _, bytes) = backup(to).await;
    assert_eq!(
        (status, data(&rebuilt(&bytes), "/a")),
        (200, b"goes on".to_vec())
    );
}

fn restored(disk: &FaultStorage, longest_timeout_ms: u64, made_ago: Duration) {
    let made = SystemTime::now() - made_ago;
    let made_ms = made.duration_since(UNIX_EPOCH).unwrap().as_millis();
    let hold = Hold {
        longest_timeout_ms,
        made_ms: i64::try_from(made_ms).unwrap(),
    };
    write_hold(disk, hold).unwrap();
}

/// Another folder of the same time may have been used since, and its tokens would be given again.
#[tokio::test]
async fn r42_a_restored_folder_that_has_lain_for_long_is_refused() {
    let disk = FaultStorage::new();
    restored(&disk, 1, Duration::from_secs(2 * 3600));
    let refused = Server::start_with(Options::default(), Arc::new(disk)).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("made 2 h ago: restore the backup again"),
        "{refused}"
    );
}

/// A client that holds a lock by an earlier lease does not know yet that the state was replaced.
#[tokio::test]
async fn r43_a_restored_server_serves_no_session_before_every_lease_of_before_has_ended() {
    let disk = FaultStorage::new();
    restored(&disk, 3_600_000, Duration::ZERO);
    let options = || Options {
        listen: vec!["127.0.0.1:0".to_owned()],
        http: vec!["127.0.0.1:0".to_owned()],
        max_session_timeout: Duration::from_secs(1),
        ..Options::default()
    };
    let server = Server::start_with(options(), Arc::new(disk.clone()))
        .await
        .unwrap();
    let refused = Wire::open_with(&server.connect_string(), &no_session()).await;
    assert!(refused.is_none());
    let (status, why) = get(server.http_addr().unwrap(), "/readyz").await;
    assert_eq!(status, 503);
    assert!(
        why.contains("restored from a backup: sessions are served in 3"),
        "{why}"
    );
    server.shutdown().await.unwrap();
    // A start in between does not shorten it.
    assert!(read_hold(&disk).unwrap().is_some());
    restored(&disk, 1, Duration::ZERO);
    let server = Server::start_with(options(), Arc::new(disk.clone()))
        .await
        .unwrap();
    let served = async {
        while Wire::open_with(&server.connect_string(), &no_session())
            .await
            .is_none()
        {
            tokio::task::yield_now().await;
        }
        while read_hold(&disk).unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, served).await.unwrap();
    server.shutdown().await.unwrap();
    let server = Server::start_with(options(), Arc::new(disk)).await.unwrap();
    assert!(
        Wire::open_with(&server.connect_string(), &no_session())
            .await
            .is_some()
    );
}

/// The value of a metric; `None`: the server does not show it.
async fn metric(to: SocketAddr, name: &str) -> Option<u64> {
    let (_, page) = get(to, "/metrics").await;
    let mut lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let value = lines.find_map(|rest| rest.strip_prefix(' '))?;
    Some(value.parse().unwrap())
}

/// The value of a metric once it is this: a connection that has broken is noticed a moment later.
async fn becomes(to: SocketAddr, name: &str, value: u64) {
    let until = async {
        while metric(to, name).await != Some(value) {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, until).await;
    waited.unwrap_or_else(|_| panic!("{name} does not become {value}"));
}

#[tokio::test]
async fn backups_are_counted_once_they_were_sent_whole_or_broke_off() {
    let (server, to) = serving(|_| {}).await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let large = vec![7; MEGABYTE - 1000];
    for number in 0..24 {
        let path = format!("/large{number}");
        wire.create(&path, &large, 0).await.unwrap();
    }
    assert_eq!(
        metric(to, "baton_backup_last_success_timestamp_seconds").await,
        None
    );
    assert_eq!(metric(to, "baton_backups_total").await, Some(0));
    // Its reader goes away with most of it unread.
    let mut stream = asked(to, "/commands/backup", SUPER).await;
    stream.read_exact(&mut [0; 100]).await.unwrap();
    drop(stream);
    becomes(to, "baton_backups_failed_total", 1).await;
    assert_eq!(metric(to, "baton_backups_total").await, Some(0));
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    // The thread that read for the one that broke off may be about to end.
    let after_it = async {
        loop {
            let (status, _, bytes) = backup(to).await;
            match status {
                503 => tokio::time::sleep(Duration::from_millis(5)).await,
                status => break (status, bytes),
            }
        }
    };
    let (status, bytes) = tokio::time::timeout(PATIENCE, after_it).await.unwrap();
    assert_eq!(status, 200);
    becomes(to, "baton_backups_total", 1).await;
    let size = metric(to, "baton_backup_last_size_bytes").await;
    assert_eq!(size, Some(bytes.len() as u64));
    let at = metric(to, "baton_backup_last_success_timestamp_seconds").await;
    assert!(at.unwrap() >= before.as_secs(), "{at:?}");
    // Who may not have one breaks nothing.
    assert_eq!(download(to, "/commands/backup", "").await.0, 401);
    assert_eq!(metric(to, "baton_backups_failed_total").await, Some(1));
    server.shutdown().await.unwrap();
}
