//! Words and commands that list many things: asked by many at once they end no session, and each is
//! answered whole, or refused with the reason.

use std::net::SocketAddr;
use std::time::Duration;

use baton_proto::{ConnectRequest, Request, Response};
use baton_server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::http::get;
use crate::support::{PATIENCE, Wire, no_session, with_words, word};

/// Sets `count` watches on paths that begin with `prefix`.
async fn watch(wire: &mut Wire, prefix: &str, count: usize) {
    let paths: Vec<String> = (0..count).map(|n| format!("{prefix}{n:06}")).collect();
    for paths in paths.chunks(5000) {
        let again = Request::SetWatches {
            relative_zxid: i64::MAX,
            data: Vec::new(),
            exist: paths.iter().map(String::as_str).collect(),
            child: Vec::new(),
        };
        assert_eq!(wire.call(again).await, Ok(Response::Empty));
    }
}

/// A session that needs no packet as long as a test takes.
async fn watcher(to: &str) -> Wire {
    let request = ConnectRequest {
        timeout_ms: 120_000,
        ..no_session()
    };
    Wire::open_with(to, &request).await.unwrap()
}

/// A session that lives only while the server receives its packets, which it does every few
/// milliseconds.
async fn short_session(to: &str) -> Wire {
    let request = ConnectRequest {
        timeout_ms: 2_000,
        ..no_session()
    };
    Wire::open_with(to, &request).await.unwrap()
}

async fn metric(to: &str, name: &str) -> u64 {
    let mntr = word(to, "mntr").await;
    let line = mntr.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix('\t')?;
        value.parse().ok()
    });
    line.unwrap_or_else(|| panic!("{name}: {mntr}"))
}

/// Asks until the server has time for it: a listing that is not ready in time is refused.
async fn listing(to: &str, name: &str) -> String {
    let deadline = tokio::time::Instant::now() + 6 * PATIENCE;
    loop {
        let answer = word(to, name).await;
        if !refused_as_late(name, &answer) {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "{answer}");
    }
}

fn refused_as_late(name: &str, answer: &str) -> bool {
    answer.starts_with(&format!(
        "{name} is not executed because it was not ready in time: "
    ))
}

/// 50,000 watches and 150 connections that send four bytes each. On a busy machine some of them
/// are refused as late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_and_fifty_askers_of_every_watch_end_no_session() {
    const WATCHES: usize = 50_000;
    let server = with_words().http("127.0.0.1:0").start().await.unwrap();
    let to = server.connect_string();
    let mut watcher = watcher(&to).await;
    watch(&mut watcher, "/some/longer/path-", WATCHES).await;
    let mut living = short_session(&to).await;
    living.create("/held", b"", 1).await.unwrap();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let alive = tokio::spawn(async move {
        while stopped.try_recv().is_err() {
            assert!(living.exists("/held").await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        living
    });
    // Most of them read as much as shows that there is an answer, and then no more.
    let mut others = Vec::new();
    for n in 0..140 {
        let mut other = TcpStream::connect(&to).await.unwrap();
        let name = ["wchp", "wchc"][n % 2];
        other.write_all(name.as_bytes()).await.unwrap();
        others.push(other);
    }
    let askers: Vec<_> = (0..5)
        .map(|n| {
            let to = to.clone();
            let name = ["wchp", "wchc", "dump"][n % 3];
            tokio::spawn(async move { (name, word(&to, name).await) })
        })
        .collect();
    for other in &mut others {
        let first = tokio::time::timeout(PATIENCE, other.read_u8());
        let first = first.await.unwrap().unwrap();
        if first == b'w' {
            let mut rest = String::new();
            other.read_to_string(&mut rest).await.unwrap();
            let refused = ["chp", "chc"]
                .iter()
                .any(|name| refused_as_late(name, &rest));
            assert!(refused, "{rest}");
        } else {
            assert!(b"/0".contains(&first), "{first}");
        }
    }
    let mut answers = Vec::new();
    for asker in askers {
        let (name, answer) = asker.await.unwrap();
        if !refused_as_late(name, &answer) {
            answers.push((name, answer));
        }
    }
    for name in ["wchp", "wchc", "dump"] {
        answers.push((name, listing(&to, name).await));
    }
    for (name, answer) in answers {
        match name {
            // A line for each path, and one for the session, of each or of all; and an empty one.
            "wchp" => assert_eq!(answer.lines().count(), 2 * WATCHES + 1),
            "wchc" => assert_eq!(answer.lines().count(), WATCHES + 2),
            _ => assert!(answer.contains("Sessions with Ephemerals (1):"), "{answer}"),
        }
    }
    stop.send(()).unwrap();
    let _living = alive.await.unwrap();
    assert_eq!(metric(&to, "zk_stale_sessions_expired").await, 0);
    let deadline = tokio::time::Instant::now() + 6 * PATIENCE;
    let shown = loop {
        let (status, shown) = get(server.http_addr().unwrap(), "/commands/wchc").await;
        if status == 200 {
            break shown;
        }
        // Not ready in time: the server is busy.
        assert_eq!(status, 503);
        assert!(tokio::time::Instant::now() < deadline, "{shown}");
    };
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let paths = &shown["session_id_to_watched_paths"][watcher.session.session_id.to_string()];
    assert_eq!(paths.as_array().unwrap().len(), WATCHES);
}

/// The answer has to wait for its reader, because the kernel's buffers do not take it whole.
#[tokio::test]
async fn an_answer_of_many_megabytes_is_read_whole_however_late() {
    let server = with_words().start().await.unwrap();
    let to = server.connect_string();
    let mut watcher = watcher(&to).await;
    watch(&mut watcher, &format!("/{}-", "long".repeat(25)), 50_000).await;
    let mut slow = slow_reader(server.local_addr().unwrap()).await;
    slow.write_all(b"wchp").await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut shown = Vec::new();
    let read = tokio::time::timeout(PATIENCE, slow.read_to_end(&mut shown));
    read.await.unwrap().unwrap();
    assert!(shown.len() > 5 << 20, "{}", shown.len());
    assert_eq!(shown.iter().filter(|byte| **byte == b'\n').count(), 100_001);
    assert!(shown.ends_with(b"\n\n"));
}

async fn slow_reader(to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_meets_a_broken_connection_and_no_end() {
    let server = with_words()
        .with(|options| options.handshake_timeout = Duration::from_millis(300))
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut watcher = watcher(&to).await;
    watch(&mut watcher, &format!("/{}-", "long".repeat(25)), 50_000).await;
    let mut slow = slow_reader(server.local_addr().unwrap()).await;
    slow.write_all(b"wchp").await.unwrap();
    let closed = async {
        while metric(&to, "zk_baton_slow_readers_closed").await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.unwrap();
    let mut shown = Vec::new();
    let read = tokio::time::timeout(PATIENCE, slow.read_to_end(&mut shown)).await;
    let error = read.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_listing_that_would_be_too_long_is_refused_in_one_line() {
    let server = with_words()
        .http("127.0.0.1:0")
        .with(|options| {
            options.max_outbound_bytes = 64 << 10;
            options.max_outbound_bytes_in_all = 1 << 20;
        })
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut watcher = watcher(&to).await;
    watch(&mut watcher, "/some/longer/path-", 10_000).await;
    for name in ["wchp", "wchc"] {
        let shown = word(&to, name).await;
        let begin =
            format!("{name} is not executed because its answer would have over 262144 bytes");
        assert!(shown.starts_with(&begin), "{shown}");
        assert!(shown.contains("raise max_outbound_bytes_in_all"), "{shown}");
        let http = server.http_addr().unwrap();
        let (status, shown) = get(http, &format!("/commands/{name}")).await;
        assert_eq!(status, 503, "{shown}");
        assert!(shown.contains("would have over 262144 bytes"), "{shown}");
    }
    assert!(word(&to, "wchs").await.ends_with("Total watches:10000\n"));
}

/// Names that a client chose stand in a line of their own, and command no terminal.
#[tokio::test]
async fn no_name_of_a_client_forges_a_line_of_an_answer() {
    let server: Server = with_words().http("127.0.0.1:0").start().await.unwrap();
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    let forged = "/a\n/b\n\t0x1\u{1b}[2J";
    let exists = Request::Exists {
        path: forged,
        watch: true,
    };
    assert!(wire.call(exists).await.is_err());
    let escaped = "/a\\n/b\\n\\t0x1\\u{1b}[2J";
    let session = format!("0x{:x}", wire.session.session_id);
    assert_eq!(
        word(&to, "wchp").await,
        format!("{escaped}\n\t{session}\n\n")
    );
    assert_eq!(
        word(&to, "wchc").await,
        format!("{session}\n\t{escaped}\n\n")
    );
    let (_, shown) = get(server.http_addr().unwrap(), "/commands/wchp").await;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert!(
        shown["path_to_session_ids"].get(forged).is_some(),
        "{shown}"
    );
}
