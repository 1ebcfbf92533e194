//! The fuzz targets of `fuzz/src/wal_targets.rs`, on a stable toolchain, for a bounded number of
//! rounds from fixed seeds: bytes at random, and the records of a real folder, mutated. What fails
//! here fails again.

#[path = "../../../../fuzz/src/wal_targets.rs"]
mod wal_targets;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use baton_wal::testing::FaultStorage;
use baton_wal::{SnapshotMeta, Wal, WalOptions};
use bytes::Bytes;

fn fixture(name: &str, from: usize) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1");
    fs::read(folder.join(name)).unwrap()[from..].to_vec()
}

fn mutated(seed: &[u8], rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.u64(..8) {
        if bytes.is_empty() {
            bytes.push(rng.u8(..));
        }
        let at = rng.usize(..bytes.len());
        match rng.u64(..5) {
            0 => bytes[at] ^= 1 << rng.u64(..8),
            1 => bytes[at] = [0, 1, 2, 3, 32, 64, 127, 255][rng.usize(..8)],
            2 => bytes.truncate(at),
            3 => {
                let piece = bytes[at..(at + 40).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => bytes[at] = rng.u8(..),
        }
    }
    bytes
}

/// Records without a payload, with small numbers; entries mostly in order.
fn small_records(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = 1;
    for _ in 0..rng.u64(..12) {
        let mut record = [0; 32];
        record[4] = if rng.u8(..100) < 70 {
            bytes.len() as u8
        } else {
            0
        };
        record[8] = rng.u8(..4);
        record[24] = if rng.u8(..100) < 60 {
            1
        } else {
            1 + rng.u8(..6)
        };
        record[16] = if rng.u8(..100) < 80 {
            next
        } else {
            rng.u8(..8)
        };
        if record[24] == 1 {
            next = record[16] + 1;
        }
        bytes.extend_from_slice(&record);
    }
    bytes.resize(bytes.len().max(200 * rng.usize(..2)), 0);
    bytes
}

fn rounds(target: fn(&[u8]), seed: &[u8], count: u64) {
    let mut rng = fastrand::Rng::with_seed(count);
    target(seed);
    for _ in 0..count {
        target(&mutated(seed, &mut rng));
        let noise: Vec<u8> = (0..rng.u64(..400)).map(|_| rng.u8(..)).collect();
        target(&noise);
        target(&small_records(&mut rng));
    }
}

#[test]
fn any_bytes_as_a_log_segment() {
    let mut records = fixture("log-0000000000000001", 64);
    records.truncate(600);
    rounds(wal_targets::log_segment, &records, 3_000);
}

#[test]
fn any_bytes_as_a_snapshot() {
    let chunks = fixture("snap-0000000000000004-0000000002", 72);
    rounds(wal_targets::snapshot, &chunks, 2_000);
}

#[test]
fn any_bytes_as_a_snapshot_of_another_server() {
    let disk = FaultStorage::new();
    let options = WalOptions {
        cluster_id: Some(5),
        ..WalOptions::default()
    };
    let (wal, _) = Wal::open(Arc::new(disk.clone()), options).unwrap();
    let mut writer = wal
        .snapshots()
        .writer(SnapshotMeta {
            index: 3,
            term: 2,
            zxid: 0,
            time_ms: 0,
            membership: Bytes::from_static(b"members"),
        })
        .unwrap();
    writer.chunk(0, &[7; 100]).unwrap();
    writer.chunk(1, b"last").unwrap();
    let file = disk.content(&writer.finish().unwrap().name).unwrap();
    rounds(wal_targets::received_snapshot, &file, 1_500);
}

#[test]
fn any_bytes_as_end_marks() {
    // No change first, then marks with a few bytes changed.
    rounds(wal_targets::end_marks, &[0; 208], 400);
}

#[test]
fn any_bytes_as_a_marker() {
    rounds(wal_targets::marker, &fixture("FORMAT", 0), 2_000);
}

#[test]
fn any_bytes_as_the_identity_of_a_member() {
    // No change first, then an identity with a few bytes changed.
    rounds(wal_targets::identity, &[0; 160], 400);
}
