//! Cost of a znode: memory beyond its data, and processor time for each operation.
//!
//! `cargo run --release -p baton-locks-tree --example footprint -- 1000000`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use std::time::Duration;

use baton_proto::{Acl, Create, CreateMode, Request};
use baton_tree::{Command, Identity, MAX_CHUNK_BYTES, Restore, Tree};

const SESSION: i64 = 1;
const DATA_BYTES: usize = 100;
const FANOUT: usize = 1000;

fn main() {
    let znodes: usize = std::env::args().nth(1).map_or(1_000_000, |count| {
        count.parse().expect("a number of znodes")
    });
    let identity = Identity::from_ip("127.0.0.1".parse().unwrap());
    let mut tree = Tree::new();
    let open = Command::OpenSession {
        session_id: SESSION,
        password: [7; 16],
        timeout_ms: 10_000,
    };
    apply(&mut tree, &identity, open);
    let resident_before = resident_bytes();

    let mut paths = Vec::with_capacity(znodes);
    let mut dir = String::new();
    for number in 0..znodes {
        if number % FANOUT == 0 {
            dir = format!("/d{:06}", number / FANOUT);
            paths.push(dir.clone());
        } else {
            paths.push(format!("{dir}/n{number:08}"));
        }
    }
    let bodies: Vec<Vec<u8>> = paths.iter().map(|path| create_body(path)).collect();
    let resident_paths = resident_bytes();
    let create = time(&bodies, |body| {
        let op = baton_proto::OpCode::Create2;
        apply(&mut tree, &identity, Command::Write { op, body });
    });
    let resident = resident_bytes() - resident_paths;
    drop(bodies);
    println!(
        "{znodes} znodes of {DATA_BYTES} bytes, {} in the tree",
        tree.node_count()
    );
    println!(
        "resident: {} MB, of which {} bytes a znode beyond its data (the name included)",
        resident / 1_000_000,
        resident / znodes - DATA_BYTES
    );
    println!("resident before: {} MB", resident_before / 1_000_000);
    println!("create: {create:?}");

    // A stride that is coprime to most counts: the next znode is never in the cache by luck.
    let scattered: Vec<&String> = (0..znodes).map(|at| &paths[at * 7919 % znodes]).collect();
    let sets: Vec<Vec<u8>> = scattered.iter().map(|path| set_body(path)).collect();
    let set = time(&sets, |body| {
        let op = baton_proto::OpCode::SetData;
        apply(&mut tree, &identity, Command::Write { op, body });
    });
    println!("set, scattered: {set:?}");
    let hot = time(&sets, |_| {
        let op = baton_proto::OpCode::SetData;
        let body = &sets[0];
        apply(&mut tree, &identity, Command::Write { op, body });
    });
    println!("set, one znode: {hot:?}");
    let mut read_bytes = 0;
    let get = time(&scattered, |path| {
        let (data, _) = tree.get_data(path, &identity).unwrap();
        read_bytes += data.map_or(0, <[u8]>::len);
    });
    println!("get, scattered: {get:?} ({read_bytes} bytes)");
    drop(sets);

    let mut chunks = Vec::new();
    let started = cpu_time();
    tree.begin_snapshot().unwrap();
    while let Some(chunk) = tree.snapshot_slice(MAX_CHUNK_BYTES) {
        chunks.push(chunk);
    }
    let bytes: usize = chunks.iter().map(Vec::len).sum();
    println!(
        "snapshot: {:?}, {} MB in {} chunks",
        cpu_time() - started,
        bytes / 1_000_000,
        chunks.len()
    );
    let started = cpu_time();
    let mut restore = Restore::new();
    for chunk in &chunks {
        restore.chunk(chunk).unwrap();
    }
    let restored = restore.finish().unwrap();
    println!("restore: {:?}", cpu_time() - started);
    assert_eq!(restored.digest(), tree.digest());
}

fn apply(tree: &mut Tree, identity: &Identity, command: Command<'_>) {
    let outcome = tree.apply(1, SESSION, identity, command, &mut ());
    assert!(outcome.result.is_ok(), "{command:?}: {outcome:?}");
}

fn time<T>(inputs: &[T], mut operation: impl FnMut(&T)) -> Duration {
    let started = cpu_time();
    for input in inputs {
        operation(input);
    }
    (cpu_time() - started) / inputs.len() as u32
}

fn create_body(path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let acl = vec![Acl::open_unsafe()];
    Create::new(path, Some(&[1; DATA_BYTES]), acl, CreateMode::Persistent).encode(&mut body);
    body
}

fn set_body(path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let request = Request::SetData {
        path,
        data: Some(&[2; DATA_BYTES]),
        version: -1,
    };
    request.encode(&mut body);
    body
}

/// Time that this thread has had on a processor, which other processes disturb less than the clock.
/// Linux only; elsewhere 0, and the numbers mean nothing.
fn cpu_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = schedstat
        .split(' ')
        .next()
        .and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Linux only; elsewhere 0, and the number means nothing.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
