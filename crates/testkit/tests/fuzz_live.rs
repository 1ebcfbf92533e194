//! Broken frames at a live server, on many sockets, while a well-behaved session works beside them:
//! the server never panics, never hangs, takes no memory without bound, and the session notices
//! nothing.
//!
//! Seeded. `BATON_FUZZ_ROUNDS=100000 cargo test -p baton-testkit --test fuzz_live` runs for long; a
//! failure names its round, and `BATON_FUZZ_SEED` begins elsewhere.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use baton_proto::{Acl, AuthPacket, ConnectRequest, Create, CreateMode, Request, Response, frame};
use baton_server::Server;
use baton_testkit::differential::{Differences, Generator, Random};
use baton_testkit::{RawClient, four_letter_word};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than anything here takes; anyone who waits so long hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time that a socket that does not read goes on writing to a server that no longer reads from it.
const STUCK: Duration = Duration::from_millis(100);
const SOCKETS: usize = 16;
const FRAMES: usize = 40;
/// Growth that the process is allowed, over any number of rounds: the server's buffers have bounds
/// far below.
const GROWTH_BYTES: usize = 128 << 20;

const STEPS_BETWEEN_CLEANINGS: u64 = 5;

const EXTREMES: [i32; 9] = [-1, 0, 1, -2, i32::MAX, i32::MIN, 0x00ff_ffff, 1 << 20, 11];

/// Attack on a socket.
#[derive(Debug, Clone, Copy)]
enum Attack {
    GarbageFirst,
    HalfHandshake,
    BrokenHandshake,
    BrokenFrames,
    WrongLengths,
    HalfFrame,
    NeverReads,
}

fn random_bytes(random: &mut Random, most: usize) -> Vec<u8> {
    let count = random.below(most);
    (0..count).map(|_| random.next_u64() as u8).collect()
}

/// One of the ways in which bytes go wrong.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>, from: usize) {
    if bytes.len() <= from {
        return;
    }
    let at = from + random.below(bytes.len() - from);
    match random.below(6) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next_u64() as u8,
        2 => bytes.truncate(at.max(from)),
        3 => {
            let more = random_bytes(random, 40);
            bytes.splice(at..at, more);
        }
        4 => {
            let extreme = random.pick(&EXTREMES).to_be_bytes();
            let end = (at + 4).min(bytes.len());
            bytes[at..end].copy_from_slice(&extreme[..end - at]);
        }
        _ => bytes.extend(random_bytes(random, 200)),
    }
}

fn handshake() -> Vec<u8> {
    let mut bytes = Vec::new();
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 4_000,
        session_id: 0,
        password: &[0; 16],
        read_only: Some(false),
    };
    frame::write_connect_request(&mut bytes, &request);
    bytes
}

/// Makes the length in front right again.
fn framed(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(body) = bytes.len().checked_sub(4) {
        bytes[..4].copy_from_slice(&(body as u32).to_be_bytes());
    }
    bytes
}

fn hostile_bytes(random: &mut Random, attack: Attack) -> Vec<u8> {
    let frames = Generator::new(random.next_u64(), 1, Differences::meant())
        .program(FRAMES)
        .frames();
    let mut bytes = handshake();
    match attack {
        Attack::GarbageFirst => bytes = random_bytes(random, 400),
        Attack::HalfHandshake => bytes.truncate(1 + random.below(bytes.len() - 1)),
        Attack::BrokenHandshake => {
            for _ in 0..=random.below(3) {
                mutate(random, &mut bytes, 4);
            }
            bytes = framed(bytes);
            bytes.extend(frames.concat());
        }
        Attack::BrokenFrames => {
            for mut frame in frames {
                if random.one_in(3) {
                    // Also the header, so that the op code becomes another's.
                    let from = if random.one_in(4) { 4 } else { 12 };
                    mutate(random, &mut frame, from);
                    frame = framed(frame);
                }
                bytes.extend(frame);
            }
        }
        Attack::WrongLengths => {
            for mut frame in frames {
                if random.one_in(8) {
                    let length = random.pick(&EXTREMES).to_be_bytes();
                    frame[..4].copy_from_slice(&length);
                }
                bytes.extend(frame);
            }
        }
        Attack::HalfFrame => {
            bytes.extend(frames.concat());
            bytes.truncate(bytes.len() - 1 - random.below(60));
        }
        Attack::NeverReads => {
            for _ in 0..20 {
                bytes.extend(frames.concat());
            }
        }
    }
    bytes
}

/// One socket's life. Ends when the server has ended the connection, or has taken all and answered
/// what it wants.
async fn attack(server: SocketAddr, seed: u64, round: u64) {
    let mut random = Random::new(seed ^ round.wrapping_mul(0x9e37_79b9));
    let attack = random.pick(&[
        Attack::GarbageFirst,
        Attack::HalfHandshake,
        Attack::BrokenHandshake,
        Attack::BrokenFrames,
        Attack::BrokenFrames,
        Attack::BrokenFrames,
        Attack::WrongLengths,
        Attack::HalfFrame,
        Attack::NeverReads,
    ]);
    let bytes = hostile_bytes(&mut random, attack);
    let socket = TcpStream::connect(server).await.unwrap();
    let (mut from, mut to) = socket.into_split();
    let pieces = 1 + random.below(6);
    let write = async {
        for piece in bytes.chunks(bytes.len() / pieces + 1) {
            if to.write_all(piece).await.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
    };
    if matches!(attack, Attack::NeverReads) {
        let _ = timeout(STUCK, write).await;
        return;
    }
    let read = async {
        let mut answer = Vec::new();
        let _ = from.read_to_end(&mut answer).await;
    };
    // A server that sees the end of its input ends the connection.
    timeout(PATIENCE, async { tokio::join!(write, read) })
        .await
        .unwrap_or_else(|_| {
            panic!("seed {seed}, round {round}: {attack:?} left a connection hanging")
        });
}

/// A session that counts in a znode of its own and must find what it wrote.
async fn bystander(server: SocketAddr, done: Arc<AtomicBool>) -> u64 {
    let mut client = RawClient::connect(server, PATIENCE).await.unwrap();
    let session = client.session().session_id;
    let auth = AuthPacket {
        kind: 0,
        scheme: "digest",
        auth: Some(b"bystander:secret"),
    };
    let root = AuthPacket {
        auth: Some(b"super:test"),
        ..auth
    };
    client.call(&Request::Auth(auth)).await.unwrap();
    let own = vec![Acl::creator_all()];
    let create = Create::new("/bystander", None, own, CreateMode::Ephemeral);
    client.call(&Request::Create(create)).await.unwrap();
    client.call(&Request::Auth(root)).await.unwrap();
    let mut count = 0_u64;
    while !done.load(Ordering::Relaxed) {
        count += 1;
        let written = count.to_be_bytes();
        let set = Request::SetData {
            path: "/bystander",
            data: Some(&written),
            version: (count - 1) as i32,
        };
        let get = Request::GetData {
            path: "/bystander",
            watch: false,
        };
        let step = async {
            client.call(&set).await.unwrap();
            client.call(&get).await.unwrap()
        };
        match timeout(PATIENCE, step).await.expect("it is answered") {
            Response::Data { data, stat } => {
                assert_eq!(data.unwrap(), &written[..]);
                assert_eq!(stat.ephemeral_owner, session);
            }
            other => panic!("{other:?}"),
        }
        if count.is_multiple_of(STEPS_BETWEEN_CLEANINGS) {
            clean(&mut client).await;
        }
    }
    client.close().await.unwrap();
    count
}

/// Deletes what the attackers made: only what nobody could delete counts as memory lost.
async fn clean(client: &mut RawClient) {
    let mut found = vec!["/".to_owned()];
    let mut at = 0;
    while at < found.len() {
        let path = found[at].clone();
        at += 1;
        let children = Request::GetChildren {
            path: &path,
            watch: false,
        };
        // It may be gone: its owner's session has ended.
        let Ok(Response::Children(names)) = client.call(&children).await else {
            continue;
        };
        let names = names
            .iter()
            .filter(|name| !["zookeeper", "bystander"].contains(&name.as_str()));
        found.extend(names.map(|name| format!("{}/{name}", path.trim_end_matches('/'))));
    }
    for path in found.iter().skip(1).rev() {
        let _ = client.call(&Request::Delete { path, version: -1 }).await;
    }
}

/// A watch ends with its connection, however that ended.
async fn no_watch_is_left(server: SocketAddr) {
    let mut again = tokio::time::interval(Duration::from_millis(20));
    let left = async {
        loop {
            again.tick().await;
            let mntr = four_letter_word(server, "mntr").await.unwrap();
            if mntr.lines().any(|line| line == "zk_watch_count\t0") {
                break;
            }
        }
    };
    timeout(PATIENCE, left)
        .await
        .expect("a watch outlived its connection");
}

fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = status.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_frames_harm_nobody_but_who_sends_them() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        usual(info);
    }));
    let seed = number("BATON_FUZZ_SEED", 1);
    let rounds = number("BATON_FUZZ_ROUNDS", 600);

    let server = Server::builder()
        .in_memory()
        .listen("127.0.0.1:0")
        .with(|options| {
            options.snapshot_every_bytes = 4 << 20;
            options.super_digest = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned());
        })
        .start()
        .await
        .unwrap();
    let addr = server.local_addr().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let beside = tokio::spawn(bystander(addr, Arc::clone(&done)));

    let before = resident_bytes();
    let mut sockets = tokio::task::JoinSet::new();
    for round in 0..rounds {
        if sockets.len() >= SOCKETS {
            sockets.join_next().await.unwrap().unwrap();
        }
        sockets.spawn(attack(addr, seed, round));
    }
    while let Some(ended) = sockets.join_next().await {
        ended.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    let steps = beside.await.unwrap();
    no_watch_is_left(addr).await;
    assert!(steps > 0);
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        let growth = after.saturating_sub(before);
        assert!(growth < GROWTH_BYTES, "grew by {growth} bytes");
        println!(
            "{rounds} sockets, {steps} steps beside them, grew by {} KiB",
            growth >> 10
        );
    }
    server.shutdown().await.unwrap();
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "something panicked");
}
