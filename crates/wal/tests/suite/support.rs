//! Helpers of the suite's modules: one log's options, opening it, a snapshot in it, its files.

use std::sync::Arc;

use baton_wal::testing::FaultStorage;
use baton_wal::{
    Entry, HardState, Record, Recovered, SnapshotMeta, Storage, Wal, WalError, WalOptions,
};
use bytes::Bytes;

/// Segments of one page, so that a few entries fill several; two snapshots are kept.
pub fn options() -> WalOptions {
    WalOptions {
        cluster_id: Some(7),
        segment_bytes: 4096,
        extend_bytes: 4096,
        keep_snapshots: 2,
    }
}

pub fn open(disk: &FaultStorage, options: WalOptions) -> Result<(Wal, Recovered), WalError> {
    Wal::open(Arc::new(disk.clone()), options)
}

pub fn recovered(disk: &FaultStorage, options: WalOptions) -> Result<Recovered, WalError> {
    open(disk, options).map(|(_, found)| found)
}

/// Saves a snapshot of two chunks that ends with the entry `index`.
pub fn save_snapshot(wal: &mut Wal, index: u64) {
    let mut writer = wal
        .snapshots()
        .writer(SnapshotMeta {
            index,
            term: 1,
            zxid: 5,
            time_ms: 6,
            membership: Bytes::from_static(b"abc"),
        })
        .unwrap();
    writer.chunk(1, b"first chunk").unwrap();
    writer.chunk(2, &[9; 300]).unwrap();
    let info = writer.finish().unwrap();
    wal.snapshot_saved(&info).unwrap();
}

/// The names of the segments, oldest first.
pub fn segments(storage: &impl Storage) -> Vec<String> {
    let mut names = storage.list().unwrap();
    names.retain(|name| name.starts_with("log-"));
    names.sort();
    names
}

/// Name and content of every file.
pub fn all_files(disk: &FaultStorage) -> Vec<(String, Vec<u8>)> {
    disk.list()
        .unwrap()
        .into_iter()
        .map(|name| (name.clone(), disk.content(&name).unwrap()))
        .collect()
}

pub fn entry(index: u64, term: u64) -> Record {
    Record::Entry(Entry {
        index,
        term,
        kind: 1,
        payload: Bytes::from(vec![7; 40]),
    })
}

/// A log of the entries 1 to `last` of term 1, of which the first two are known to be committed.
pub fn log_of(last: u64) -> FaultStorage {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, options()).unwrap();
    let mut records = vec![Record::HardState(HardState { term: 1, vote: 2 })];
    records.extend((1..=last).map(|index| entry(index, 1)));
    records.push(Record::Commit { index: 2 });
    wal.append(&records).unwrap();
    wal.sync().unwrap();
    drop(wal);
    disk
}
