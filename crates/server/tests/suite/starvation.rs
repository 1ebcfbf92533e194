//! A client whose requests are costly: others are served meanwhile, and lose no session.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use baton_proto::{ConnectRequest, MultiOp, Request, frame};
use baton_server::Server;

use crate::support::{PATIENCE, Wire, create, in_memory, no_session, set, start, word};

const CHILDREN: usize = 20_000;

/// A server on one thread of its own, so that a task that keeps the thread keeps it from all
/// others.
async fn serve() -> (Server, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let builder = in_memory().tick(Duration::from_millis(50));
    let server = runtime.spawn(builder.start()).await.unwrap().unwrap();
    (server, runtime)
}

async fn many_children(to: &str) {
    let mut wire = Wire::open(to).await;
    wire.create("/many", b"", 0).await.unwrap();
    let paths: Vec<String> = (0..CHILDREN)
        .map(|place| format!("/many/child-with-a-name-{place:010}"))
        .collect();
    for paths in paths.chunks(5000) {
        let parts = paths.iter().map(|path| match create(path, b"", 0) {
            Request::Create(create) => MultiOp::Create(create),
            _ => unreachable!(),
        });
        wire.call(Request::Multi(parts.collect())).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_listings_let_others_be_heard_between_them() {
    const LISTINGS: usize = 300;
    let (server, runtime) = serve().await;
    let to = server.connect_string();
    many_children(&to).await;
    let mut bystander = open_short(&to).await;
    let listed = Arc::new(AtomicUsize::new(0));
    let greedy = tokio::spawn({
        let (to, listed) = (to.clone(), Arc::clone(&listed));
        async move {
            let mut wire = Wire::open(&to).await;
            let list = Request::GetChildren {
                path: "/many",
                watch: false,
            };
            wire.send(&vec![list; LISTINGS]).await;
            for _ in 0..LISTINGS {
                wire.reply().await;
                listed.fetch_add(1, SeqCst);
            }
        }
    });
    // How many listings were answered while one ping waited for its answer.
    let mut most = 0;
    while !greedy.is_finished() {
        let before = listed.load(SeqCst);
        bystander.send(&[Request::Ping]).await;
        bystander.reply().await;
        most = most.max(listed.load(SeqCst) - before);
    }
    greedy.await.unwrap();
    assert!(
        most <= LISTINGS / 10,
        "a ping waited for {most} listings of another connection"
    );
    assert!(bystander.exists("/many").await);
    drop(server);
    runtime.shutdown_background();
}

/// A session of one second.
async fn open_short(to: &str) -> Wire {
    let short = ConnectRequest {
        timeout_ms: 1000,
        ..no_session()
    };
    Wire::open_with(to, &short).await.unwrap()
}

async fn metric(to: &str, name: &str) -> f64 {
    let mntr = word(to, "mntr").await;
    let line = mntr
        .lines()
        .find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
    line.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_in_which_nobody_reads_the_sockets_is_measured_and_no_session_is_charged_with_it() {
    let (server, runtime) = serve().await;
    let to = server.connect_string();
    let mut pinging = open_short(&to).await;
    let mut silent = open_short(&to).await;
    // A program that embeds a server can do this to it by mistake: its one thread does something
    // else.
    let blocking = runtime.spawn(async { std::thread::sleep(Duration::from_millis(1700)) });
    let mut pings = 0;
    while !blocking.is_finished() {
        pinging.send(&[Request::Ping]).await;
        pings += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for _ in 0..pings {
        assert_eq!(pinging.reply().await.0.xid, -2);
    }
    assert!(metric(&to, "baton_lag_forgiven_seconds").await > 1.0);
    assert!(metric(&to, "max_baton_socket_lag_seconds").await > 1.0);
    assert!(metric(&to, "stale_sessions_expired").await < 0.1);
    // Whose client is silent still ends.
    assert!(silent.is_closed().await);
    drop(server);
    runtime.shutdown_background();
}

#[tokio::test]
async fn a_request_that_comes_byte_by_byte_keeps_no_session_alive() {
    let server = start().await;
    let mut wire = open_short(&server.connect_string()).await;
    let mut bytes = Vec::new();
    frame::write_request(&mut bytes, 1, &set("/a", &[7; 1000]));
    let mut sent = 0;
    let ended = async {
        for byte in &bytes {
            if server.active_sessions() == 0 || wire.try_send_bytes(&[*byte]).await.is_err() {
                break;
            }
            sent += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    assert!(sent < bytes.len(), "a byte each 10 ms kept it alive");
    assert!(wire.is_closed().await);
}
