//! Measures what a proposal costs: in consensus alone, and with the log on a disk in memory and on a real one.
//!
//! `cargo run --release -p baton-consensus --example propose_cost [FOLDER]`; without FOLDER a temporary one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

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

/// Proposes `entries` in batches; gives nanoseconds an entry and the syncs' microseconds in order of size.
fn run(entries: usize, batch: usize, bytes: usize, mut wal: Option<Wal>) -> (f64, Vec<f64>) {
    let mut node = leader();
    let payload = Bytes::from(vec![7; bytes]);
    let mut syncs = Vec::new();
    let started = Instant::now();
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
    let each = started.elapsed().as_secs_f64() * 1e9 / entries as f64;
    syncs.sort_by(f64::total_cmp);
    (each, syncs)
}

fn open(storage: Arc<dyn Storage>) -> Wal {
    Wal::open(storage, WalOptions::default()).unwrap().0
}

fn main() {
    println!("consensus alone, 100-byte entries:");
    for batch in [1, 16, 256] {
        let (each, _) = run(400_000, batch, 100, None);
        println!("  batch {batch:>3}: {each:>6.0} ns an entry, propose to commit");
    }
    println!("with the log in memory, 100-byte entries:");
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
            "  {bytes:>6} bytes: {:>5.0} µs an entry; fdatasync p50 {:.0} µs, p99 {:.0} µs, max {:.0} µs",
            each / 1e3,
            at_share(0.5),
            at_share(0.99),
            syncs[syncs.len() - 1]
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
