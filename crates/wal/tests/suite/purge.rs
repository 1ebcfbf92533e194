//! Removes segments and snapshots at every index that they can begin or end at, and checks what a
//! start finds. The promise: the oldest snapshot that is kept, and the log alone while fewer are
//! there, are enough to start from.

use std::sync::Arc;

use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{
    DumpItem, Entry, HardState, Record, Recovered, SnapshotInfo, SnapshotMeta, Wal, WalError,
    WalOptions, dump,
};
use bytes::Bytes;

use super::support::{self, segments};

const ENTRIES: u64 = 40;

fn options(keep_snapshots: usize) -> WalOptions {
    WalOptions {
        keep_snapshots,
        ..support::options()
    }
}

fn open(disk: &FaultStorage, keep: usize) -> Result<(Wal, Recovered), WalError> {
    Wal::open(Arc::new(disk.clone()), options(keep))
}

fn entry(index: u64) -> Record {
    Record::Entry(Entry {
        index,
        term: 1,
        kind: 1,
        payload: Bytes::from(vec![index as u8; 600]),
    })
}

/// Committed entries, several in each segment.
fn log() -> FaultStorage {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, 3).unwrap();
    wal.append(&[Record::HardState(HardState { term: 1, vote: 1 })])
        .unwrap();
    for index in 1..=ENTRIES {
        wal.append(&[entry(index), Record::Commit { index }])
            .unwrap();
        wal.sync().unwrap();
    }
    disk.crash(Loss::Everything)
}

fn snapshot(wal: &Wal, index: u64) -> SnapshotInfo {
    let mut writer = wal
        .snapshots()
        .writer(SnapshotMeta {
            index,
            term: 1,
            zxid: 0,
            time_ms: 0,
            membership: Bytes::new(),
        })
        .unwrap();
    writer.chunk(1, b"state").unwrap();
    writer.finish().unwrap()
}

/// The first entry that each segment was begun for.
fn first_indices(disk: &FaultStorage) -> Vec<u64> {
    dump(Arc::new(disk.clone()))
        .unwrap()
        .filter_map(|found| match found.unwrap().item {
            DumpItem::SegmentHeader(header) => Some(header.first_index),
            _ => None,
        })
        .collect()
}

fn assert_starts_after(disk: &FaultStorage, base: u64, what: &str) {
    let (_, found) = open(disk, 3).unwrap_or_else(|error| panic!("{what}: {error}"));
    let snapshot = found.snapshot.map_or(0, |info| info.meta.index);
    assert_eq!(snapshot, base, "{what}");
    let expected: Vec<u64> = (base + 1..=ENTRIES).collect();
    let entries: Vec<u64> = found.entries.iter().map(|entry| entry.index).collect();
    assert_eq!(entries, expected, "{what}");
    assert_eq!(found.hard_state, HardState { term: 1, vote: 1 }, "{what}");
    assert_eq!(found.commit, ENTRIES, "{what}");
}

#[test]
fn a_purge_at_any_index_keeps_every_entry_after_it_and_no_segment_more() {
    let log = log();
    let firsts = first_indices(&log);
    assert!(firsts.len() >= 5, "{firsts:?}");
    for index in 0..=ENTRIES {
        let disk = log.crash(Loss::Nothing);
        let (mut wal, _) = open(&disk, 3).unwrap();
        wal.purge(index).unwrap();
        drop(wal);
        let left = first_indices(&disk);
        // The segment that has the entry after `index`, and all behind it.
        let at = firsts.iter().rposition(|first| *first <= index + 1);
        assert_eq!(left, firsts[at.unwrap()..], "purged up to {index}");
    }
}

#[test]
fn what_the_disk_refused_to_remove_goes_with_the_next_removal_and_leaves_no_gap() {
    let disk = log().crash(Loss::Nothing);
    let (mut wal, _) = open(&disk, 1).unwrap();
    let before = segments(&disk);
    snapshot(&wal, 20);
    let outdated = wal.outdated().unwrap();
    assert_eq!(segments(&disk), before, "nothing goes before it is removed");
    disk.fail_at(disk.operations(), Fault::Error);
    outdated.remove().unwrap_err();
    assert_eq!(segments(&disk), before);
    disk.clear_fault();
    let newest = snapshot(&wal, 30);
    wal.outdated().unwrap().remove().unwrap();
    wal.mark_snapshot(&newest).unwrap();
    let left = first_indices(&disk);
    assert!(left[0] > 20 && left[0] <= 31, "{left:?}");
    wal.close().unwrap();
    assert_starts_after(&disk.crash(Loss::Everything), 30, "a removal that failed");
}

#[test]
fn removals_that_overlap_leave_nothing_behind_in_either_order() {
    for is_reversed in [false, true] {
        let disk = log().crash(Loss::Nothing);
        let (mut wal, _) = open(&disk, 1).unwrap();
        let old = [snapshot(&wal, 8), snapshot(&wal, 10)];
        snapshot(&wal, 20);
        let earlier = wal.outdated().unwrap();
        snapshot(&wal, 30);
        let later = wal.outdated().unwrap();
        let (first, second) = match is_reversed {
            true => (later, earlier),
            false => (earlier, later),
        };
        first.remove().unwrap();
        second.remove().unwrap();
        for info in &old {
            assert_eq!(disk.content(&info.name), None, "{}", info.name);
        }
        let left = first_indices(&disk);
        assert!(left[0] > 20 && left[0] <= 31, "{left:?}");
        assert_starts_after(&disk.crash(Loss::Everything), 30, "two removals");
    }
}

#[test]
fn a_start_from_the_oldest_snapshot_kept_needs_no_entry_that_was_purged() {
    let log = log();
    for older in 1..ENTRIES {
        for newer in [older + 1, (older + 7).min(ENTRIES), ENTRIES] {
            let disk = log.crash(Loss::Nothing);
            let (mut wal, _) = open(&disk, 2).unwrap();
            for index in [older, newer] {
                let info = snapshot(&wal, index);
                wal.snapshot_saved(&info).unwrap();
            }
            wal.close().unwrap();
            let what = format!("snapshots {older} and {newer}");
            assert_starts_after(&disk.crash(Loss::Everything), newer, &what);
            let damaged = disk.crash(Loss::Everything);
            damaged.flip_bit(&format!("snap-{newer:016}-0000000001"), 100, 1);
            assert_starts_after(&damaged, older, &format!("{what}, the newer one damaged"));
        }
    }
}

#[test]
fn while_fewer_snapshots_are_there_than_are_kept_the_log_alone_is_enough() {
    let log = log();
    for index in 1..=ENTRIES {
        let disk = log.crash(Loss::Nothing);
        let (mut wal, _) = open(&disk, 2).unwrap();
        let info = snapshot(&wal, index);
        wal.snapshot_saved(&info).unwrap();
        wal.close().unwrap();
        let disk = disk.crash(Loss::Everything);
        assert_starts_after(&disk, index, &format!("snapshot {index}"));
        disk.flip_bit(&info.name, 100, 1);
        assert_starts_after(&disk, 0, &format!("snapshot {index} damaged"));
    }
}

#[test]
fn a_purge_beside_a_segment_without_records_forgets_no_vote() {
    let vote = HardState { term: 3, vote: 1 };
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, 1).unwrap();
    wal.append(&[Record::HardState(vote)]).unwrap();
    for index in 1..=6 {
        wal.append(&[entry(index), Record::Commit { index }])
            .unwrap();
        wal.sync().unwrap();
    }
    assert_eq!(segments(&disk).len(), 1);
    // Begins another segment. What is to go into it is not synced: it has its header only.
    wal.append(&[entry(7)]).unwrap();
    assert_eq!(segments(&disk).len(), 2);
    let disk = disk.crash(Loss::Nothing);
    let (mut wal, _) = open(&disk, 1).unwrap();
    let info = snapshot(&wal, 6);
    wal.snapshot_saved(&info).unwrap();
    drop(wal);
    let (_, found) = open(&disk.crash(Loss::Everything), 1).unwrap();
    assert_eq!(found.snapshot.unwrap().meta.index, 6);
    assert_eq!(found.hard_state, vote);
}

#[test]
fn a_log_that_was_truncated_goes_on_at_the_index_it_was_truncated_at() {
    for from in 2..=6 {
        let disk = FaultStorage::new();
        let (mut wal, _) = open(&disk, 3).unwrap();
        wal.append(&(1..=6).map(entry).collect::<Vec<_>>()).unwrap();
        wal.append(&[Record::Truncate { from }]).unwrap();
        assert_eq!(wal.last_index(), from - 1);
        assert!(matches!(
            wal.append(&[entry(from + 1)]),
            Err(WalError::OutOfOrder { .. })
        ));
        wal.sync().unwrap();
        let (mut again, found) = open(&disk.crash(Loss::Everything), 3).unwrap();
        assert_eq!(found.entries.len() as u64, from - 1);
        for wal in [&mut wal, &mut again] {
            wal.append(&[entry(from)]).unwrap();
            wal.sync().unwrap();
            assert_eq!(wal.last_index(), from);
        }
        let (_, found) = open(&disk.crash(Loss::Everything), 3).unwrap();
        let indices: Vec<u64> = found.entries.iter().map(|entry| entry.index).collect();
        assert_eq!(indices, (1..=from).collect::<Vec<_>>());
    }
}

#[test]
fn a_log_goes_on_behind_a_snapshot_of_later_entries_and_needs_it_from_then_on() {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, 3).unwrap();
    wal.append(&(1..=3).map(entry).collect::<Vec<_>>()).unwrap();
    wal.sync().unwrap();
    // A replica that was far behind is given a snapshot, and the entries after it.
    let info = snapshot(&wal, 10);
    wal.snapshot_saved(&info).unwrap();
    assert_eq!(wal.last_index(), 10);
    wal.append(&[entry(11), entry(12)]).unwrap();
    wal.close().unwrap();
    let disk = disk.crash(Loss::Everything);
    let (_, found) = open(&disk, 3).unwrap();
    let indices: Vec<u64> = found.entries.iter().map(|entry| entry.index).collect();
    assert_eq!((found.commit, indices), (10, vec![11, 12]));
    disk.take(&info.name);
    assert!(matches!(
        open(&disk, 3),
        Err(WalError::MissingSnapshot { needed: 10, .. })
    ));
}

#[test]
fn a_snapshot_of_another_term_than_the_logs_is_refused() {
    let disk = log();
    let (wal, _) = open(&disk, 3).unwrap();
    let mut writer = wal
        .snapshots()
        .writer(SnapshotMeta {
            index: 20,
            term: 2,
            zxid: 0,
            time_ms: 0,
            membership: Bytes::new(),
        })
        .unwrap();
    writer.chunk(1, b"state").unwrap();
    let name = writer.finish().unwrap().name;
    drop(wal);
    match open(&disk, 3) {
        Err(WalError::Corrupt { file, .. }) => assert!(file.contains(&name), "{file}"),
        other => panic!("{:?}", other.map(|(_, found)| found.snapshot)),
    }
}
