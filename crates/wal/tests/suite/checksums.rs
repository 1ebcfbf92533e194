//! Changes, moves and exchanges records and whole segments, each alone: whatever its kind, a record
//! that is not as it was written is never taken for one, and a segment of another log is never
//! taken for this log's.

use std::collections::BTreeSet;
use std::sync::Arc;

use baton_wal::testing::{FaultStorage, Loss};
use baton_wal::{DumpItem, DumpRecord, Entry, HardState, Record, Wal, WalError, dump};
use bytes::Bytes;

use super::support::{options, recovered, save_snapshot, segments};

/// Bytes of a record before its payload.
const RECORD_HEADER_BYTES: u64 = 32;

fn entry(index: u64, term: u64, fill: u8) -> Record {
    Record::Entry(Entry {
        index,
        term,
        kind: 1,
        payload: Bytes::from(vec![fill; 300]),
    })
}

fn write(wal: &mut Wal, records: &[Record]) {
    wal.append(records).unwrap();
    wal.sync().unwrap();
}

/// A log of several segments with every kind of record in it, closed in good order. Its entries
/// carry `fill`.
fn log_of(fill: u8) -> FaultStorage {
    let disk = FaultStorage::new();
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options()).unwrap();
    write(
        &mut wal,
        &[Record::HardState(HardState { term: 1, vote: 1 })],
    );
    for index in 1..=30 {
        write(&mut wal, &[entry(index, 1, fill)]);
        if index % 4 == 3 {
            // What another leader has put in place of the last entry.
            write(&mut wal, &[entry(index, 1, fill ^ 0xff)]);
            write(
                &mut wal,
                &[Record::HardState(HardState {
                    term: index,
                    vote: 1,
                })],
            );
        }
        write(&mut wal, &[Record::Commit { index }]);
        if index == 6 {
            save_snapshot(&mut wal, index);
        }
    }
    wal.close().unwrap();
    disk.crash(Loss::Nothing)
}

/// Every record of one file up to the first damage.
fn records(disk: &FaultStorage, file: &str) -> Vec<(u64, u64, Record)> {
    dump(Arc::new(disk.clone()))
        .unwrap()
        .map_while(Result::ok)
        .filter(|found| found.file == file)
        .filter_map(
            |DumpRecord {
                 offset,
                 bytes,
                 item,
                 ..
             }| match item {
                DumpItem::Record(record) => Some((offset, bytes, record)),
                _ => None,
            },
        )
        .collect()
}

/// The record at `offset` is damaged: nothing from there on is handed out, and the start is
/// refused. The seal is the one record that nothing acknowledged depends on: without it the start
/// goes on with all that was there.
fn assert_no_record_at(damaged: &FaultStorage, file: &str, offset: u64, whole: &FaultStorage) {
    let before = records(whole, file);
    let what = format!("{file}, byte {offset}");
    let shown = records(damaged, file);
    let expected: Vec<_> = before.iter().filter(|(at, ..)| *at < offset).collect();
    assert_eq!(shown.iter().collect::<Vec<_>>(), expected, "{what}");
    let is_seal = before
        .iter()
        .any(|(at, _, record)| *at == offset && matches!(record, Record::Sealed { .. }));
    match recovered(damaged, options()) {
        Ok(found) if is_seal => {
            let sound = recovered(&whole.crash(Loss::Nothing), options()).unwrap();
            assert_eq!(found.entries, sound.entries, "{what}");
            assert_eq!(found.hard_state, sound.hard_state, "{what}");
            assert_eq!(found.commit, sound.commit, "{what}");
        }
        Err(WalError::Corrupt { file: named, .. }) => assert!(named.contains(file), "{what}"),
        other => panic!("{what}: {:?}", other.map(|found| found.commit)),
    }
}

#[test]
fn a_record_of_any_kind_with_one_bit_changed_is_no_record() {
    let disk = log_of(0x55);
    let mut kinds = BTreeSet::new();
    for file in segments(&disk) {
        for (offset, bytes, record) in records(&disk, &file) {
            kinds.insert(
                format!("{record:?}")
                    .split([' ', '('])
                    .next()
                    .unwrap()
                    .to_owned(),
            );
            let header = offset..offset + RECORD_HEADER_BYTES;
            for at in header.chain([offset + bytes - 1]) {
                let damaged = disk.crash(Loss::Nothing);
                damaged.flip_bit(&file, at, (at % 8) as u8);
                assert_no_record_at(&damaged, &file, offset, &disk);
            }
        }
    }
    let all = [
        "Commit",
        "Entry",
        "HardState",
        "Sealed",
        "Snapshot",
        "Truncate",
    ];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn a_record_in_the_place_of_another_of_its_kind_is_no_record() {
    let disk = log_of(0x55);
    let files = segments(&disk);
    let (here, elsewhere) = (&files[2], &files[3]);
    let of = |file: &str, record: &Record, bytes: u64| {
        let content = disk.content(file).unwrap();
        let found = records(&disk, file).into_iter().find(|(_, size, other)| {
            *size == bytes
                && std::mem::discriminant(other) == std::mem::discriminant(record)
                && other != record
        });
        found.map(|(at, size, _)| content[at as usize..(at + size) as usize].to_vec())
    };
    let mut moved = 0;
    for (offset, bytes, record) in records(&disk, here) {
        for file in [here, elsewhere] {
            let Some(other) = of(file, &record, bytes) else {
                continue;
            };
            let damaged = disk.crash(Loss::Nothing);
            let mut content = damaged.content(here).unwrap();
            content[offset as usize..(offset + bytes) as usize].copy_from_slice(&other);
            damaged.put(here, &content);
            assert_no_record_at(&damaged, here, offset, &disk);
            moved += 1;
        }
    }
    assert!(moved > 20, "{moved}");
}

#[test]
fn a_segment_of_another_log_of_the_same_shape_is_refused() {
    let (disk, other) = (log_of(0x55), log_of(0x33));
    let files = segments(&disk);
    assert_eq!(files, segments(&other));
    assert!(files.len() >= 4);
    for file in &files[1..] {
        // With the end mark and without it: the segments vouch for each other.
        for marked in [true, false] {
            let mixed = disk.crash(Loss::Nothing);
            mixed.put(file, &other.content(file).unwrap());
            if !marked {
                mixed.take("SYNCED");
            }
            let error = match recovered(&mixed, options()) {
                Err(error) => error,
                Ok(found) => panic!("{file} of another log: {} entries", found.entries.len()),
            };
            assert!(matches!(error, WalError::Corrupt { .. }), "{error}");
        }
    }
}

#[test]
fn a_segment_header_with_one_bit_changed_is_refused() {
    let disk = log_of(0x55);
    for file in segments(&disk) {
        for at in 0..64 {
            let damaged = disk.crash(Loss::Nothing);
            damaged.flip_bit(&file, at, (at % 8) as u8);
            match recovered(&damaged, options()) {
                Err(WalError::Corrupt { file: named, .. }) => assert!(named.contains(&file)),
                Err(WalError::FormatVersion { .. }) => assert!((8..12).contains(&at)),
                other => panic!("{file}, byte {at}: {:?}", other.map(|found| found.notes)),
            }
        }
    }
}

#[test]
fn a_last_segment_that_went_on_in_another_way_is_refused() {
    let disk = log_of(0x55);
    let last = segments(&disk).pop().unwrap();
    // Two copies of one folder, each of which has been written to: the same records, but for their
    // content.
    let [one, other] = [1, 2].map(|fill| {
        let copy = disk.crash(Loss::Nothing);
        let (mut wal, _) = Wal::open(Arc::new(copy.clone()), options()).unwrap();
        write(&mut wal, &[entry(31, 1, fill)]);
        wal.close().unwrap();
        copy.crash(Loss::Nothing)
    });
    assert_eq!(segments(&one).last(), Some(&last));
    one.put(&last, &other.content(&last).unwrap());
    assert!(matches!(
        recovered(&one, options()),
        Err(WalError::Corrupt { .. })
    ));
}
