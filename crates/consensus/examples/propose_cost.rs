//! Measures what a proposal costs: in consensus alone, and with the log on a disk in memory and on
//! a real one.
//!
//! `cargo run --release -p baton-locks-consensus --example propose_cost [FOLDER]`; without FOLDER a
//! temporary one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use baton_consensus::{Config, Consensus, Entry, Recovered};
use baton_wal::{DirStorage, MemoryStorage, Record, Storage, Wal, WalOptions};
use bytes::Bytes;

fn leader() -> Consensus {
    let mut node = Consensus::new(&Config::sole_voter(1), Recovered::default()).unwrap();
    node.campaign().unwrap();
    node
}

fn stored(entry: Entry) -> Record {
    Record::Entry(baton_wal::Entry {
        index: entry.index,
        term: entry.term,
        kind: entry.kind.as_byte(),
        payload: entry.payload,
    })
}

/// Nanoseconds that this thread has spent on a processor, which other programs disturb less than
/// the clock on the wall; where the system does not tell, the clock on the wall.
fn spent(started: Instant) -> f64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or_else(|| started.elapsed().as_secs_f64() * 1e9)
}

/// Proposes `entries` in batches; gives the processor's nanoseconds an entry and the syncs'
/// microseconds in order of size.
fn run(entries: usize, batch: usize, bytes: usize, mut wal: Option<Wal>) -> (f64, Vec<f64>) {
    let mut node = leader();
    let payload = Bytes::from(vec![7; bytes]);
    let mut syncs = Vec::new();
    let started = Instant::now();
    let before = spent(started);
    for _ in 0..entries / batch {
        for _ in 0..batch {
            node.propose(payload.clone()).unwrap();
        }
        while let Some(effects) = node.drain() {
            if let Some(wal) = &mut wal {
                let mut records: Vec<Record> = effects.append.into_iter().map(stored).collect();
                records.extend(effects.commit.map(|index| Record::Commit { index }));
                wal.append(&records).unwrap();
                if effects.must_sync {
                    let report = wal.sync().unwrap();
                    syncs.push(report.sync_time.as_secs_f64() * 1e6);
                }
            }
            node.persisted(effects.token);
            if let Some(last) = effects.committed.last() {
                node.applied(last.index).unwrap();
            }
        }
    }
    let each = (spent(started) - before) / entries as f64;
    syncs.sort_by(f64::total_cmp);
    (each, syncs)
}

/// The median of a sync after the same writes to a file of zeros that is never made longer.
fn bare_disk(folder: &Path, bytes: usize) -> f64 {
    let path = folder.join("bare");
    let file = File::create_new(&path).unwrap();
    file.write_all_at(&vec![0; 1000 * bytes], 0).unwrap();
    file.sync_all().unwrap();
    let mut syncs = Vec::new();
    for at in 0..1000 {
        file.write_all_at(&vec![7; bytes], (at * bytes) as u64)
            .unwrap();
        let started = Instant::now();
        file.sync_data().unwrap();
        syncs.push(started.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(&path).unwrap();
    syncs.sort_by(f64::total_cmp);
    syncs[500]
}

fn open(storage: Arc<dyn Storage>) -> Wal {
    Wal::open(storage, WalOptions::default()).unwrap().0
}

fn main() {
    println!("consensus alone, 100-byte entries, processor time:");
    for batch in [1, 16, 256] {
        let (each, _) = run(400_000, batch, 100, None);
        println!("  batch {batch:>3}: {each:>6.0} ns an entry, propose to commit");
    }
    println!("with the log in memory, 100-byte entries, processor time:");
    for batch in [1, 16, 256] {
        let wal = open(Arc::new(MemoryStorage::new()));
        let (each, _) = run(400_000, batch, 100, Some(wal));
        println!("  batch {batch:>3}: {each:>6.0} ns an entry");
    }
    let temporary = std::env::temp_dir().join(format!("baton-propose-cost-{}", std::process::id()));
    let folder = std::env::args().nth(1).map_or(temporary, Into::into);
    println!("with the log in {}, one sync an entry:", folder.display());
    for bytes in [150, 5_000, 60_000] {
        let at = folder.join(bytes.to_string());
        let wal = open(Arc::new(DirStorage::create(&at).unwrap()));
        let (each, syncs) = run(2_000, 1, bytes, Some(wal));
        let at_share = |share: f64| syncs[(syncs.len() as f64 * share) as usize];
        println!(
            "  {bytes:>6} bytes: {:>5.1} µs of processor an entry; fdatasync p50 {:.0} µs, p99 {:.0} µs; bare disk p50 {:.0} µs",
            each / 1e3,
            at_share(0.5),
            at_share(0.99),
            bare_disk(&at, bytes)
        );
        let started = Instant::now();
        let storage: Arc<dyn Storage> = Arc::new(DirStorage::open(&at).unwrap());
        let (_, found) = Wal::open(storage, WalOptions::default()).unwrap();
        println!(
            "          start: {} entries read back in {:.1} ms",
            found.entries.len(),
            started.elapsed().as_secs_f64() * 1e3
        );
        std::fs::remove_dir_all(&at).unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
