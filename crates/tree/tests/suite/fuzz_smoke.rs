//! The fuzz targets of `fuzz/src/tree_targets.rs`, on a stable toolchain, for a bounded number of
//! rounds from fixed seeds: bytes at random, and payloads mutated. What fails here fails again.

use std::num::NonZeroU64;

use baton_proto::{Acl, Create, CreateMode, Request};
use baton_tree::{BatchBuilder, CloseReason, Command, FormatLevel, Identity, Stamp};

#[path = "../../../../fuzz/src/tree_targets.rs"]
mod tree_targets;

const SESSION: i64 = 0x0100_0000_0000_0001;

/// A session's life in one entry.
fn seed(level: FormatLevel) -> Vec<u8> {
    let mut builder = BatchBuilder::new(level, 1_000);
    let identity = Identity::from_ip("10.0.0.1".parse().unwrap());
    let stamp = |sequence| {
        let nonce = NonZeroU64::new(5).unwrap();
        Some(Stamp { nonce, sequence })
    };
    builder.begin(SESSION, &identity, stamp(0));
    builder.push(
        0,
        Command::OpenSession {
            session_id: SESSION,
            password: [7; 16],
            timeout_ms: 10_000,
        },
    );
    for (path, mode) in [
        ("/a", CreateMode::Persistent),
        ("/a/e", CreateMode::Ephemeral),
        ("/a/s", CreateMode::PersistentSequential),
        ("/c", CreateMode::Container),
    ] {
        let acl = vec![Acl::open_unsafe()];
        let request = Request::Create(Create::new(path, Some(b"x"), acl, mode));
        let mut body = Vec::new();
        request.encode(&mut body);
        let op = request.op();
        builder.push(1, Command::Write { op, body: &body });
    }
    let close = |reason| Command::CloseSession {
        session_id: SESSION,
        reason,
    };
    builder.push(2, close(CloseReason::Client));
    builder.begin(SESSION, &identity, None);
    builder.push(0, close(CloseReason::Expired));
    let path = "/c";
    builder.push(0, Command::DeleteContainer { path, czxid: 5 });
    builder.finish().to_vec()
}

fn mutated(seed: &[u8], rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.u64(..6) {
        let at = rng.usize(..bytes.len().max(1));
        match rng.u64(..8) {
            0 => bytes.truncate(at),
            1 | 2 => {
                let piece = bytes[at..(at + 60).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                for byte in bytes.iter_mut().skip(at).take(10) {
                    *byte = 0xff;
                }
            }
            4 | 5 => {
                for byte in bytes.iter_mut().skip(at).take(1) {
                    *byte = byte.wrapping_add(1);
                }
            }
            _ => {
                for byte in bytes.iter_mut().skip(at).take(1) {
                    *byte = rng.u8(..);
                }
            }
        }
    }
    bytes
}

#[test]
fn a64_texts_of_identities_let_nobody_else_in() {
    const PARTS: [&str; 16] = [
        "bob",
        "CN=",
        "CN=bob,O=Example",
        "10.0.0.1",
        "/8",
        "::1",
        ":",
        "=",
        ",",
        "\\",
        "\"",
        "\n",
        "\0",
        "\u{e9}",
        "hash",
        " ",
    ];
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..20_000 {
        let mut bytes = vec![rng.u8(..4)];
        for _ in 0..rng.usize(..8) {
            bytes.extend_from_slice(PARTS[rng.usize(..PARTS.len())].as_bytes());
        }
        tree_targets::identity(&bytes);
    }
}

#[test]
fn any_bytes_as_the_payload_of_a_log_entry() {
    let mut rng = fastrand::Rng::with_seed(1);
    for level in [FormatLevel::Initial, FormatLevel::Attachments] {
        let seed = seed(level);
        tree_targets::batch(&seed);
        for _ in 0..2_000 {
            tree_targets::batch(&mutated(&seed, &mut rng));
        }
    }
    for _ in 0..2_000 {
        let noise: Vec<u8> = (0..rng.u64(..300)).map(|_| rng.u8(..)).collect();
        tree_targets::batch(&noise);
    }
}
