//! Lengths and counts that lie take no memory: files of a few bytes, each with one number that
//! claims more than there is. One test in its file, because it measures what the whole process has
//! taken.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use std::io::{self, Read};

use baton_zkdata::{ZkDataError, read_snapshot, replay_log};

const EMPTY: &[u8] = include_bytes!("golden/snapshot.0");
const LOG: &[u8] = include_bytes!("golden/log.1");
const GZIP: &[u8] = include_bytes!("golden/snapshot.23.gz");
const LIES: [u32; 4] = [0x7fff_ffff, 0xffff_fffe, 0x0400_0000, SHORT_ENOUGH];
/// Some record might have this length.
const SHORT_ENOUGH: u32 = 0x0f00_0000;
const ALLOWED_KIB: u64 = 96 << 10;

/// The most address space that the process has had: memory that was reserved counts, also if it was
/// never touched.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmPeak:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// More follows than is read at once, so that the end is not known yet where the lie is met.
fn padded(bytes: &[u8], lie: u32) -> impl Read {
    let zeros = if lie == SHORT_ENOUGH { 260 << 10 } else { 0 };
    bytes.chain(io::repeat(0).take(zeros))
}

fn with_lie(bytes: &[u8], at: usize, lie: u32) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    for (to, from) in damaged.iter_mut().skip(at).zip(lie.to_be_bytes()) {
        *to = from;
    }
    damaged
}

fn all_lies() {
    let snappy = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x06\xff\xff\xff\xff\x0f\x00".as_slice();
    for lie in LIES {
        for at in 8..200 {
            let _ = read_snapshot("snapshot.0", 0, padded(&with_lie(EMPTY, at, lie), lie));
        }
        for at in 8..LOG.len().min(200) {
            let mut database = read_snapshot("snapshot.0", 0, EMPTY).unwrap();
            let _ = replay_log(&mut database, "log.1", padded(&with_lie(LOG, at, lie), lie));
        }
        for at in 0..GZIP.len().min(40) {
            let _ = read_snapshot("snapshot.23.gz", 0x23, &*with_lie(GZIP, at, lie));
        }
        for at in 8..snappy.len() {
            let file = with_lie(snappy, at, lie);
            assert!(read_snapshot("snapshot.1.snappy", 1, &*file).is_err());
        }
    }
}

/// A stream that goes on and on, as a few bytes of gzip can: it is given up when a record cannot be
/// so long.
fn endless_record() {
    let mut head = b"ZKSN\0\0\0\x02".to_vec();
    head.extend_from_slice(&[0; 8 + 4 + 4 + 4]);
    // The data of the first znode.
    head.extend_from_slice(&0x7fff_ffff_u32.to_be_bytes());
    let endless = head.as_slice().chain(io::repeat(7)).take(1 << 26);
    let refused = read_snapshot("snapshot.1", 1, endless).unwrap_err();
    assert!(
        matches!(refused, ZkDataError::Unfinished { .. }),
        "{refused}"
    );
}

#[test]
fn numbers_that_lie_reserve_nothing() {
    let before = peak_kib();
    all_lies();
    endless_record();
    if let (Some(before), Some(after)) = (before, peak_kib()) {
        assert!(
            after < before + ALLOWED_KIB,
            "{before} KiB before, {after} KiB after"
        );
    }
}
