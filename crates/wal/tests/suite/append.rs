//! Entries that the log takes and refuses while it runs.

use std::sync::Arc;

use baton_wal::testing::{FaultStorage, Loss};
use baton_wal::{
    Entry, HardState, MAX_CHUNK_BYTES, MAX_PAYLOAD_BYTES, MemoryStorage, Record, SnapshotMeta,
    Storage, Wal, WalError, WalOptions,
};
use bytes::Bytes;

use super::support::segments;

fn entry(index: u64, term: u64) -> Record {
    Record::Entry(Entry {
        index,
        term,
        kind: 1,
        payload: Bytes::from_static(b"payload"),
    })
}

fn terms(disk: &FaultStorage) -> Vec<(u64, u64)> {
    let found = Wal::open(
        Arc::new(disk.crash(Loss::Everything)),
        WalOptions::default(),
    )
    .unwrap()
    .1;
    found.entries.iter().map(|e| (e.index, e.term)).collect()
}

fn meta(index: u64) -> SnapshotMeta {
    SnapshotMeta {
        index,
        term: 1,
        zxid: 0,
        time_ms: 0,
        membership: Bytes::new(),
    }
}

#[test]
fn an_entry_that_leaves_a_gap_is_refused_and_the_log_goes_on() {
    let disk = FaultStorage::new();
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), WalOptions::default()).unwrap();
    let error = wal.append(&[entry(1, 1), entry(3, 1)]).unwrap_err();
    assert!(
        matches!(error, WalError::OutOfOrder { last: 1, found: 3 }),
        "{error}"
    );
    wal.append(&[entry(2, 1)]).unwrap();
    wal.sync().unwrap();
    assert_eq!(terms(&disk), [(1, 1), (2, 1)]);
}

#[test]
fn a_committed_entry_can_be_neither_replaced_nor_truncated() {
    let disk = FaultStorage::new();
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), WalOptions::default()).unwrap();
    wal.append(&[
        entry(1, 1),
        entry(2, 1),
        entry(3, 1),
        Record::Commit { index: 2 },
    ])
    .unwrap();
    for refused in [
        entry(2, 2),
        Record::Truncate { from: 2 },
        Record::Truncate { from: 4 },
        Record::Commit { index: 1 },
        Record::Commit { index: 4 },
    ] {
        assert!(matches!(
            wal.append(&[refused]),
            Err(WalError::OutOfOrder { .. })
        ));
    }
    wal.append(&[entry(3, 2)]).unwrap();
    wal.sync().unwrap();
    assert_eq!(terms(&disk), [(1, 1), (2, 1), (3, 2)]);
}

#[test]
fn a_replaced_tail_stays_replaced_across_segments_and_restarts() {
    let disk = FaultStorage::new();
    let options = || WalOptions {
        segment_bytes: 4096,
        extend_bytes: 4096,
        ..WalOptions::default()
    };
    for term in 1..=40 {
        let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options()).unwrap();
        let from = wal.last_index().saturating_sub(2).max(1);
        let records: Vec<Record> = (from..from + 12).map(|index| entry(index, term)).collect();
        wal.append(&records).unwrap();
        wal.sync().unwrap();
    }
    let found = terms(&disk);
    assert!(
        found
            .iter()
            .enumerate()
            .all(|(at, (index, _))| *index == at as u64 + 1)
    );
    assert!(found.is_sorted_by_key(|(_, term)| *term));
    assert_eq!(found.last().unwrap().1, 40);
}

#[test]
fn nothing_is_written_before_sync_and_nothing_twice() {
    let disk = FaultStorage::new();
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), WalOptions::default()).unwrap();
    let before = disk.operations();
    wal.append(&[
        entry(1, 1),
        Record::HardState(HardState { term: 1, vote: 1 }),
    ])
    .unwrap();
    assert_eq!(disk.operations(), before);
    let report = wal.sync().unwrap();
    // Once a process: the end mark that says that the log is open. Then growth, one write, one
    // sync, and the end mark of a file that has grown.
    let opened = before + 5 + 3 + 2;
    assert_eq!(disk.operations(), opened);
    // The two records that begin every segment come with the first batch.
    assert_eq!(report.records, 4);
    assert!(report.bytes > 0);
    assert_eq!(wal.sync().unwrap().bytes, 0);
    wal.append(&[entry(2, 1)]).unwrap();
    wal.sync().unwrap();
    assert_eq!(disk.operations(), opened + 2);
}

#[test]
fn what_is_too_large_is_refused() {
    let (mut wal, _) = Wal::open(Arc::new(MemoryStorage::new()), WalOptions::default()).unwrap();
    let record = Record::Entry(Entry {
        index: 1,
        term: 1,
        kind: 1,
        payload: Bytes::from(vec![0; MAX_PAYLOAD_BYTES + 1]),
    });
    assert!(matches!(
        wal.append(&[record]),
        Err(WalError::TooLarge { .. })
    ));
    let mut writer = wal.snapshots().writer(meta(1)).unwrap();
    let chunk = vec![0; MAX_CHUNK_BYTES + 1];
    assert!(matches!(
        writer.chunk(1, &chunk),
        Err(WalError::TooLarge { .. })
    ));
    assert!(matches!(
        writer.chunk(255, b""),
        Err(WalError::Option { .. })
    ));
}

#[test]
fn options_out_of_range_are_refused() {
    for options in [
        WalOptions {
            segment_bytes: 4095,
            ..WalOptions::default()
        },
        WalOptions {
            extend_bytes: (1 << 30) + 1,
            ..WalOptions::default()
        },
        WalOptions {
            keep_snapshots: 0,
            ..WalOptions::default()
        },
    ] {
        assert!(matches!(
            Wal::open(Arc::new(MemoryStorage::new()), options),
            Err(WalError::Option { .. })
        ));
    }
}

#[test]
fn a_folder_in_memory_is_a_data_folder_like_any_other() {
    let storage = Arc::new(MemoryStorage::new());
    let options = || WalOptions {
        segment_bytes: 4096,
        keep_snapshots: 1,
        ..WalOptions::default()
    };
    let (mut wal, _) = Wal::open(storage.clone(), options()).unwrap();
    assert!(matches!(
        Wal::open(storage.clone(), options()),
        Err(WalError::InUse { pid: Some(_), .. })
    ));
    for index in 1..=500 {
        wal.append(&[entry(index, 1), Record::Commit { index }])
            .unwrap();
        wal.sync().unwrap();
        if index % 100 == 0 {
            let info = wal
                .snapshots()
                .writer(meta(index))
                .unwrap()
                .finish()
                .unwrap();
            wal.snapshot_saved(&info).unwrap();
        }
    }
    let segments = segments(&*storage);
    assert!(segments.len() <= 2, "the log is not purged: {segments:?}");
    wal.append(&[entry(501, 1)]).unwrap();
    wal.close().unwrap();
    let (_, found) = Wal::open(storage.clone(), options()).unwrap();
    assert_eq!(found.snapshot.unwrap().meta.index, 500);
    assert_eq!(found.entries.len(), 1);
    assert_eq!(
        storage
            .list()
            .unwrap()
            .iter()
            .filter(|n| n.starts_with("snap-"))
            .count(),
        1
    );
}

#[test]
fn a_tail_that_was_replaced_before_a_snapshot_of_its_middle_is_read_back() {
    let disk = FaultStorage::new();
    let options = WalOptions {
        segment_bytes: 4096,
        extend_bytes: 4096,
        ..WalOptions::default()
    };
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options).unwrap();
    let large = |index| {
        Record::Entry(Entry {
            index,
            term: 1,
            kind: 1,
            payload: Bytes::from(vec![0; 500]),
        })
    };
    wal.append(&(1..=10).map(large).collect::<Vec<_>>())
        .unwrap();
    wal.sync().unwrap();
    // Another segment begins with entry 11; then all from 8 on is replaced, committed, and covered
    // up to 10.
    wal.append(&[entry(11, 1), entry(12, 1)]).unwrap();
    wal.append(&(8..=12).map(|index| entry(index, 2)).collect::<Vec<_>>())
        .unwrap();
    wal.append(&[Record::Commit { index: 12 }]).unwrap();
    wal.sync().unwrap();
    assert_eq!(segments(&disk).len(), 2);
    let point = SnapshotMeta {
        term: 2,
        ..meta(10)
    };
    let mut writer = wal.snapshots().writer(point).unwrap();
    writer.chunk(1, b"state").unwrap();
    writer.finish().unwrap();
    drop(wal);
    assert_eq!(terms(&disk), [(11, 2), (12, 2)]);
}

#[test]
fn an_unfinished_snapshot_is_no_snapshot_and_is_cleared_away() {
    let disk = FaultStorage::new();
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), WalOptions::default()).unwrap();
    wal.append(&[entry(1, 1)]).unwrap();
    wal.sync().unwrap();
    let mut writer = wal.snapshots().writer(meta(1)).unwrap();
    writer.chunk(1, &[1; 400_000]).unwrap();
    // The process is killed in the middle of it.
    let disk = disk.kill();
    assert!(
        disk.list()
            .unwrap()
            .iter()
            .any(|name| name.ends_with(".tmp"))
    );
    let (wal, found) = Wal::open(Arc::new(disk.clone()), WalOptions::default()).unwrap();
    assert!(found.snapshot.is_none() && wal.snapshots().names().unwrap().is_empty());
    assert!(
        !disk
            .list()
            .unwrap()
            .iter()
            .any(|name| name.ends_with(".tmp"))
    );
}
