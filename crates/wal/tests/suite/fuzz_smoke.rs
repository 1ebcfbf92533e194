//! The fuzz targets of `fuzz/src/wal_targets.rs`, on a stable toolchain, for a bounded number of
//! rounds from fixed seeds: bytes at random, and the records of a real folder, mutated. What fails
//! here fails again.

#[path = "../../../../fuzz/src/wal_targets.rs"]
mod wal_targets;

use std::fs;
use std::path::Path;

use baton_wal::testing::Rng;

fn fixture(name: &str, from: usize) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1");
    fs::read(folder.join(name)).unwrap()[from..].to_vec()
}

fn mutated(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.below(8) {
        if bytes.is_empty() {
            bytes.push(rng.next_u64() as u8);
        }
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(5) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = [0, 1, 2, 3, 32, 64, 127, 255][rng.below(8) as usize],
            2 => bytes.truncate(at),
            3 => {
                let piece = bytes[at..(at + 40).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => bytes[at] = rng.next_u64() as u8,
        }
    }
    bytes
}

/// Records without a payload, with small numbers; entries mostly in order.
fn small_records(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = 1;
    for _ in 0..rng.below(12) {
        let mut record = [0; 32];
        record[4] = if rng.percent(70) {
            bytes.len() as u8
        } else {
            0
        };
        record[8] = rng.below(4) as u8;
        record[24] = if rng.percent(60) {
            1
        } else {
            1 + rng.below(6) as u8
        };
        record[16] = if rng.percent(80) {
            next
        } else {
            rng.below(8) as u8
        };
        if record[24] == 1 {
            next = record[16] + 1;
        }
        bytes.extend_from_slice(&record);
    }
    bytes.resize(bytes.len().max(200 * rng.below(2) as usize), 0);
    bytes
}

fn rounds(target: fn(&[u8]), seed: &[u8], count: u64) {
    let mut rng = Rng::new(count);
    target(seed);
    for _ in 0..count {
        target(&mutated(seed, &mut rng));
        let noise: Vec<u8> = (0..rng.below(400)).map(|_| rng.next_u64() as u8).collect();
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
fn any_bytes_as_end_marks() {
    // No change first, then marks with a few bytes changed.
    rounds(wal_targets::end_marks, &[0; 208], 400);
}

#[test]
fn any_bytes_as_a_marker() {
    rounds(wal_targets::marker, &fixture("FORMAT", 0), 2_000);
}
