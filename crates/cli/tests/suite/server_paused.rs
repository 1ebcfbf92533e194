//! The whole server stands still and goes on (SIGSTOP, SIGCONT): no session ends whose pings waited
//! on its socket meanwhile, however much else waits, and those of dead clients still end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use baton_proto::{Acl, ConnectRequest, Create, CreateMode, MultiOp, Request, frame, xid};
use baton_testkit::{RawClient, ServerOptions, Target, TestServer};

const PATIENCE: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_millis(1000);
/// Clients that do nothing but ping.
const QUIET: usize = 4;
/// Clients that ask for much while the server stands still, so that its threads have other work
/// when it goes on.
const GREEDY: usize = 4;
const LISTINGS: usize = 40;
const CHILDREN: usize = 10_000;
const STOPS: usize = 2;

/// A connection with a session, without any intelligence.
fn open(addr: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(addr).unwrap();
    socket.set_nodelay(true).unwrap();
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: i32::try_from(TIMEOUT.as_millis()).unwrap(),
        session_id: 0,
        password: &[0; 16],
        read_only: Some(false),
    };
    let mut bytes = Vec::new();
    frame::write_connect_request(&mut bytes, &request);
    socket.write_all(&bytes).unwrap();
    let mut answer = [0; 41];
    socket.read_exact(&mut answer).unwrap();
    socket
}

fn frames(xid: i32, request: &Request<'_>, times: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..times {
        frame::write_request(&mut bytes, xid, request);
    }
    bytes
}

/// Whether the server has closed the connection; throws away what it sent.
fn is_closed(socket: &mut TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let mut sink = [0; 4096];
    loop {
        match socket.read(&mut sink) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

async fn server() -> TestServer {
    TestServer::start_process(Target::Baton, ServerOptions::default())
        .await
        .unwrap()
}

/// A parent whose listing takes long.
async fn many_children(addr: SocketAddr) {
    let mut client = RawClient::connect(addr, PATIENCE).await.unwrap();
    let paths: Vec<String> = (0..CHILDREN).map(|n| format!("/many/{n:020}")).collect();
    let open = || vec![Acl::open_unsafe()];
    let create = |path| MultiOp::Create(Create::new(path, None, open(), CreateMode::Persistent));
    let all: Vec<&str> = std::iter::once("/many")
        .chain(paths.iter().map(String::as_str))
        .collect();
    for some in all.chunks(CHILDREN / 2) {
        let multi = Request::Multi(some.iter().copied().map(create).collect());
        client.call(&multi).await.unwrap();
    }
    client.close().await.unwrap();
}

/// Stops the server for nine tenths of the session timeout. How many quiet clients lost their
/// session, and the longest time that one of them went without a ping.
fn stop_once(server: &TestServer) -> (usize, Duration) {
    let addr = server.addr();
    let ping = frames(xid::PING, &Request::Ping, 1);
    let many = Request::GetChildren {
        path: "/many",
        watch: false,
    };
    let listings = frames(1, &many, LISTINGS);
    let greedy: Vec<TcpStream> = (0..GREEDY).map(|_| open(addr)).collect();
    let begun = Instant::now();
    let mut quiet: Vec<TcpStream> = (0..QUIET).map(|_| open(addr)).collect();
    let at = |share: f64| {
        let due = TIMEOUT.mul_f64(share);
        thread::sleep(due.saturating_sub(begun.elapsed()));
    };
    let mut longest = Duration::ZERO;
    let mut last = begun;
    let mut ping_all = || {
        for socket in &mut quiet {
            // One that the server has closed is found out at the end.
            let _ = socket.write_all(&ping);
        }
        longest = longest.max(last.elapsed());
        last = Instant::now();
    };
    at(0.25);
    server.pause().unwrap();
    let readers = greedy.into_iter().map(|mut socket| {
        socket.write_all(&listings).unwrap();
        thread::spawn(move || std::io::copy(&mut socket, &mut std::io::sink()))
    });
    let readers: Vec<_> = readers.collect();
    for share in [0.33, 0.66, 0.99] {
        at(share);
        ping_all();
    }
    at(1.15);
    server.resume().unwrap();
    for share in [1.32, 1.65, 1.98, 2.31] {
        at(share);
        ping_all();
    }
    let closed = quiet
        .iter_mut()
        .filter_map(|socket| is_closed(socket).then_some(()));
    let closed = closed.count();
    drop(quiet);
    // Their sessions expire.
    for reader in readers {
        let _ = reader.join().unwrap();
    }
    (closed, longest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stood_still_ends_no_session_whose_pings_came_on_schedule() {
    let server = server().await;
    many_children(server.addr()).await;
    for stop in 0..STOPS {
        // Pings that were late themselves, on a busy machine, say nothing: that attempt is made
        // again.
        let begun = Instant::now();
        loop {
            let (closed, longest) = tokio::task::block_in_place(|| stop_once(&server));
            if longest < TIMEOUT.mul_f64(0.6) {
                assert_eq!(closed, 0, "sessions ended after stop {stop}");
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "the machine is too busy");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_clients_session_ends_also_where_the_server_stood_still_and_its_last_bytes_wait() {
    let server = server().await;
    let mut dead = open(server.addr());
    server.pause().unwrap();
    // Half a ping: it is read, and keeps nobody alive.
    dead.write_all(&[0, 0, 0, 8, 0xff]).unwrap();
    tokio::time::sleep(TIMEOUT.mul_f64(0.9)).await;
    server.resume().unwrap();
    let ended = async {
        while !is_closed(&mut dead) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
}
