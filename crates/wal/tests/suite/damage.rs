//! Damages a sound data folder in every way and checks what a start says. The promise: what was
//! acknowledged comes back whole, or the start refuses, names the file and the remedy, and changes
//! nothing.

use std::sync::Arc;

use baton_wal::testing::{FaultStorage, Loss};
use baton_wal::{
    DirStorage, Entry, FileReport, HardState, Record, RecoveryNote, Storage, Wal, WalError,
    WalOptions, verify,
};
use bytes::Bytes;
use proptest::prelude::*;

use super::support::{all_files, open, options, recovered, save_snapshot, segments};

fn entry(index: u64, len: usize) -> Record {
    Record::Entry(Entry {
        index,
        term: 1,
        kind: 1,
        payload: Bytes::from(vec![index as u8 | 0x80; len]),
    })
}

/// Twelve entries of 700 bytes, each synced alone, in several segments; closed in good order.
fn sound() -> FaultStorage {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, options()).unwrap();
    wal.append(&[Record::HardState(HardState { term: 1, vote: 1 })])
        .unwrap();
    for index in 1..=12 {
        wal.append(&[entry(index, 700)]).unwrap();
        wal.sync().unwrap();
    }
    wal.close().unwrap();
    disk.crash(Loss::Nothing)
}

/// Either everything is there, or a typed refusal that names the file and left all as it was.
fn assert_whole_or_refused(disk: &FaultStorage, entries: usize, what: &str) {
    let before = all_files(disk);
    match recovered(disk, options()) {
        Ok(found) => {
            let base = found.snapshot.as_ref().map_or(0, |s| s.meta.index);
            assert_eq!(
                found.entries.len() as u64 + base,
                entries as u64,
                "{what}: acknowledged entries are gone without a word ({:?})",
                found.notes
            );
            assert_eq!(found.hard_state, HardState { term: 1, vote: 1 }, "{what}");
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains('\n'), "{what}: {text}");
            assert!(text.contains("disk:"), "{what}: names no file: {text}");
            assert_eq!(before, all_files(disk), "{what}: a refusal changed files");
        }
    }
}

#[test]
fn one_flipped_bit_anywhere_is_harmless_or_refused() {
    let disk = sound();
    for (name, content) in all_files(&disk) {
        for offset in 0..content.len() as u64 {
            let damaged = disk.crash(Loss::Nothing);
            damaged.flip_bit(&name, offset, (offset % 8) as u8);
            assert_whole_or_refused(&damaged, 12, &format!("bit of byte {offset} of {name}"));
        }
    }
}

#[test]
fn a_file_cut_at_any_byte_is_harmless_or_refused() {
    let disk = sound();
    for (name, content) in all_files(&disk) {
        for length in 0..content.len() {
            let damaged = disk.crash(Loss::Nothing);
            damaged.put(&name, &content[..length]);
            assert_whole_or_refused(&damaged, 12, &format!("{name} cut to {length} bytes"));
        }
    }
}

#[test]
fn any_missing_file_is_refused() {
    let disk = sound();
    assert!(segments(&disk).len() >= 3);
    for (name, _) in all_files(&disk) {
        let damaged = disk.crash(Loss::Nothing);
        damaged.take(&name);
        if name == "SYNCED" {
            // Nothing that was acknowledged is in it.
            let found = recovered(&damaged, options()).unwrap();
            assert!(matches!(found.notes[..], [RecoveryNote::NoEndMark { .. }]));
            continue;
        }
        let error = recovered(&damaged, options()).expect_err(&name);
        assert!(
            matches!(
                error,
                WalError::SegmentGap { .. }
                    | WalError::MissingSnapshot { .. }
                    | WalError::MissingMarker { .. }
            ),
            "{name}: {error}"
        );
    }
}

#[test]
fn damage_before_a_later_synced_record_is_distinguished_from_a_torn_write() {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, options()).unwrap();
    for index in 1..=3 {
        wal.append(&[entry(index, 100)]).unwrap();
        wal.sync().unwrap();
    }
    drop(wal);
    let name = segments(&disk).pop().unwrap();
    let content = disk.content(&name).unwrap();
    let second = content.windows(8).position(|w| w == [0x82; 8]).unwrap() as u64;
    let third = content.windows(8).position(|w| w == [0x83; 8]).unwrap() as u64;

    let damaged = disk.crash(Loss::Nothing);
    damaged.flip_bit(&name, second, 0);
    let error = recovered(&damaged, options()).unwrap_err();
    assert!(
        matches!(&error, WalError::Corrupt { offset, .. } if *offset == second - 32),
        "{error}"
    );

    let torn = disk.crash(Loss::Nothing);
    torn.flip_bit(&name, third, 0);
    let found = recovered(&torn, options()).unwrap();
    assert_eq!(found.entries.len(), 2);
    assert!(found.notes.iter().any(
        |note| matches!(note, RecoveryNote::TornTail { offset, bytes, .. } if *offset == third - 32 && *bytes == 132)
    ));
}

#[test]
fn one_write_that_lost_its_middle_is_a_torn_write() {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, options()).unwrap();
    wal.append(&[entry(1, 100)]).unwrap();
    wal.sync().unwrap();
    let batch: Vec<Record> = (2..=5).map(|index| entry(index, 100)).collect();
    wal.append(&batch).unwrap();
    wal.sync().unwrap();
    drop(wal);
    let name = segments(&disk).pop().unwrap();
    let content = disk.content(&name).unwrap();
    let third = content.windows(8).position(|w| w == [0x83; 8]).unwrap() as u64;
    disk.flip_bit(&name, third, 3);
    let (mut wal, found) = open(&disk, options()).unwrap();
    assert_eq!(found.entries.len(), 2);
    // Entry 3 in the very place of the torn one must not bring the old entry 4 back to life.
    wal.append(&[entry(3, 100)]).unwrap();
    wal.sync().unwrap();
    drop(wal);
    assert_eq!(recovered(&disk, options()).unwrap().entries.len(), 3);
}

#[test]
fn a_closed_log_does_not_take_damage_to_its_last_batch_for_a_torn_write() {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, options()).unwrap();
    wal.append(&[entry(1, 100)]).unwrap();
    wal.sync().unwrap();
    wal.close().unwrap();
    let name = segments(&disk).pop().unwrap();
    let content = disk.content(&name).unwrap();
    let first = content.windows(8).position(|w| w == [0x81; 8]).unwrap() as u64;
    disk.flip_bit(&name, first, 3);
    assert!(matches!(
        recovered(&disk, options()),
        Err(WalError::Corrupt { .. })
    ));
}

#[test]
fn another_format_version_is_refused_by_name() {
    let disk = sound();
    let marker = String::from_utf8(disk.content("FORMAT").unwrap()).unwrap();
    let later = disk.crash(Loss::Nothing);
    later.put("FORMAT", marker.replace("format=1", "format=2").as_bytes());
    let error = recovered(&later, options()).unwrap_err();
    assert!(
        matches!(
            error,
            WalError::FormatVersion {
                found: 2,
                supported: 1,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("later version"), "{error}");

    let name = segments(&disk).pop().unwrap();
    let mut content = disk.content(&name).unwrap();
    content[8] = 9;
    disk.put(&name, &content);
    assert!(matches!(
        recovered(&disk, options()),
        Err(WalError::FormatVersion {
            found: 9,
            supported: 1,
            ..
        })
    ));
}

#[test]
fn a_dump_shows_each_byte_of_a_segment_once() {
    let disk = sound();
    let mut ends = std::collections::BTreeMap::new();
    for found in baton_wal::dump(Arc::new(disk.clone())).unwrap() {
        let found = found.unwrap();
        if segments(&disk).contains(&found.file) {
            let end = ends.entry(found.file.clone()).or_insert(0);
            assert_eq!(found.offset, *end, "{found:?}");
            assert!(found.bytes > 0, "{found:?}");
            *end += found.bytes;
        }
    }
    for name in segments(&disk) {
        let length = disk.content(&name).unwrap().len() as u64;
        assert_eq!(ends.get(&name), Some(&length), "{name}");
    }
}

#[test]
fn a_marker_that_was_edited_is_refused() {
    let disk = sound();
    let marker = String::from_utf8(disk.content("FORMAT").unwrap()).unwrap();
    let (text, sum) = marker.split_once(" crc32c=").unwrap();
    for edited in [
        format!("{} crc32c={sum}", text.replace("cluster=0", "cluster=1")),
        format!("{text} crc32c=00000000\n"),
        format!("{marker}\n"),
        format!("{text} \n"),
    ] {
        disk.put("FORMAT", edited.as_bytes());
        let error = recovered(&disk, options()).unwrap_err();
        assert!(
            matches!(&error, WalError::Corrupt { file, .. } if file.ends_with("FORMAT")),
            "{edited}: {error}"
        );
    }
}

#[test]
fn files_of_another_cluster_are_refused() {
    let disk = sound();
    let other = Wal::open(
        Arc::new(disk.crash(Loss::Nothing)),
        WalOptions {
            cluster_id: Some(8),
            ..options()
        },
    );
    assert!(matches!(
        other,
        Err(WalError::WrongCluster {
            found: 7,
            expected: 8,
            ..
        })
    ));

    let foreign = FaultStorage::new();
    let _ = Wal::open(
        Arc::new(foreign.clone()),
        WalOptions {
            cluster_id: Some(8),
            ..options()
        },
    )
    .unwrap();
    let name = segments(&foreign).pop().unwrap();
    disk.put(&name, &foreign.content(&name).unwrap());
    assert!(matches!(
        recovered(&disk, options()),
        Err(WalError::WrongCluster {
            found: 8,
            expected: 7,
            ..
        })
    ));
}

#[test]
fn a_snapshot_of_another_cluster_is_refused() {
    let foreign = with_snapshots_of(WalOptions {
        cluster_id: Some(8),
        ..options()
    });
    let disk = with_snapshots();
    let name = "snap-0000000000000018-0000000001";
    disk.put(name, &foreign.content(name).unwrap());
    match recovered(&disk, options()) {
        Err(WalError::WrongCluster {
            file,
            found: 8,
            expected: 7,
        }) => assert!(file.ends_with(name), "{file}"),
        other => panic!("{other:?}"),
    }
    let report = verify(&disk).unwrap();
    assert!(!report.is_sound(), "{report:?}");
}

#[test]
fn a_folder_in_use_says_by_whom() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Arc::new(DirStorage::open(folder.path()).unwrap());
    let (_wal, _) = Wal::open(storage.clone(), options()).unwrap();
    let again = Arc::new(DirStorage::open(folder.path()).unwrap());
    let error = Wal::open(again, options()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains(&format!("in use by process {}", std::process::id())),
        "{text}"
    );
    assert!(text.contains(folder.path().to_str().unwrap()), "{text}");
}

#[test]
fn a_new_folder_gets_a_cluster_of_its_own_and_keeps_it() {
    let options = || WalOptions::default();
    let folders: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let ids: Vec<u64> = folders
        .iter()
        .map(|folder| {
            let storage = Arc::new(DirStorage::create(folder.path().join("a/b")).unwrap());
            let (wal, _) = Wal::open(storage.clone(), options()).unwrap();
            let id = wal.cluster_id();
            drop(wal);
            assert_eq!(Wal::open(storage, options()).unwrap().0.cluster_id(), id);
            id
        })
        .collect();
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn a_real_folder_keeps_what_was_synced() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Arc::new(DirStorage::open(folder.path()).unwrap());
    let (mut wal, _) = Wal::open(storage.clone(), options()).unwrap();
    for index in 1..=20 {
        wal.append(&[entry(index, 700)]).unwrap();
        let report = wal.sync().unwrap();
        assert!(report.bytes >= 732 && report.records >= 1);
    }
    wal.append(&[Record::Commit { index: 20 }]).unwrap();
    wal.sync().unwrap();
    save_snapshot(&mut wal, 15);
    save_snapshot(&mut wal, 18);
    wal.close().unwrap();
    let report = verify(storage.as_ref()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let (wal, found) = Wal::open(storage, options()).unwrap();
    assert_eq!(found.snapshot.unwrap().meta.index, 18);
    assert_eq!(
        found.entries.iter().map(|e| e.index).collect::<Vec<_>>(),
        [19, 20]
    );
    assert_eq!((found.commit, wal.last_index()), (20, 20));
}

/// Entries 1..=20 committed, snapshots at 8, 14 and 18, of which two are kept.
fn with_snapshots() -> FaultStorage {
    with_snapshots_of(options())
}

fn with_snapshots_of(options: WalOptions) -> FaultStorage {
    let disk = FaultStorage::new();
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options).unwrap();
    wal.append(&[Record::HardState(HardState { term: 1, vote: 1 })])
        .unwrap();
    for index in 1..=20 {
        wal.append(&[entry(index, 700), Record::Commit { index }])
            .unwrap();
        wal.sync().unwrap();
        if [8, 14, 18].contains(&index) {
            save_snapshot(&mut wal, index);
        }
    }
    wal.close().unwrap();
    disk.crash(Loss::Nothing)
}

#[test]
fn old_snapshots_and_the_segments_that_only_they_need_are_removed() {
    let disk = with_snapshots();
    let snapshots: Vec<String> = disk
        .list()
        .unwrap()
        .into_iter()
        .filter(|name| name.starts_with("snap-"))
        .collect();
    assert_eq!(
        snapshots,
        [
            "snap-0000000000000014-0000000001",
            "snap-0000000000000018-0000000001"
        ]
    );
    assert_ne!(segments(&disk)[0], "log-0000000000000001");
}

#[test]
fn a_damaged_newest_snapshot_is_passed_over_while_the_log_reaches_back() {
    let disk = with_snapshots();
    let newest = "snap-0000000000000018-0000000001";
    for offset in (0..disk.content(newest).unwrap().len() as u64).step_by(7) {
        let damaged = disk.crash(Loss::Nothing);
        damaged.flip_bit(newest, offset, 1);
        match recovered(&damaged, options()) {
            Ok(found) => {
                assert_eq!(found.snapshot.unwrap().meta.index, 14, "byte {offset}");
                assert_eq!(found.entries[0].index, 15);
                assert_eq!(found.entries.len(), 6);
                assert!(matches!(
                    found.notes[..],
                    [RecoveryNote::DamagedSnapshot { .. }]
                ));
            }
            Err(WalError::FormatVersion { .. }) => assert!((8..12).contains(&offset)),
            Err(error) => panic!("byte {offset}: {error}"),
        }
    }
}

#[test]
fn without_a_usable_snapshot_a_log_that_begins_later_is_refused() {
    let disk = with_snapshots();
    disk.flip_bit("snap-0000000000000018-0000000001", 200, 1);
    disk.flip_bit("snap-0000000000000014-0000000001", 200, 1);
    let error = recovered(&disk, options()).unwrap_err();
    assert!(
        matches!(&error, WalError::MissingSnapshot { damaged, .. } if damaged.len() == 2),
        "{error}"
    );
}

#[test]
fn a_log_that_ends_before_its_own_snapshot_is_refused() {
    let disk = with_snapshots();
    let later = FaultStorage::new();
    let (mut wal, _) = open(&later, options()).unwrap();
    wal.append(&[entry(1, 10)]).unwrap();
    wal.sync().unwrap();
    save_snapshot(&mut wal, 1);
    drop(wal);
    later.put(
        "snap-0000000000000018-0000000001",
        &disk.content("snap-0000000000000018-0000000001").unwrap(),
    );
    assert!(matches!(
        recovered(&later, options()),
        Err(WalError::LogBehindSnapshot {
            log_ends: 1,
            snapshot_index: 18,
            ..
        })
    ));
}

#[test]
fn a_snapshot_under_another_name_is_not_taken_for_what_the_name_says() {
    let disk = with_snapshots();
    let content = disk.content("snap-0000000000000018-0000000001").unwrap();
    disk.put("snap-0000000000000099-0000000001", &content);
    assert_eq!(
        recovered(&disk, options())
            .unwrap()
            .snapshot
            .unwrap()
            .meta
            .index,
        18
    );
}

#[test]
fn verify_names_every_damaged_file_and_changes_nothing() {
    let disk = with_snapshots();
    assert!(verify(&disk).unwrap().is_sound());
    let first = segments(&disk)[0].clone();
    disk.flip_bit(&first, 300, 2);
    disk.flip_bit("snap-0000000000000014-0000000001", 100, 2);
    let before = all_files(&disk);
    let report = verify(&disk).unwrap();
    assert!(!report.is_sound());
    let damaged: Vec<&str> = report
        .files
        .iter()
        .filter_map(|file| match file {
            FileReport::Damaged { file, .. } => Some(file.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        damaged,
        ["snap-0000000000000014-0000000001", first.as_str()]
    );
    // A start does not need either of them: the newest snapshot covers both.
    assert!(report.start.is_ok(), "{:?}", report.start);
    assert_eq!(before, all_files(&disk));
}

#[test]
fn any_number_of_damaged_bytes_never_panics_and_never_gives_back_what_was_not_written() {
    let disk = with_snapshots();
    let files = all_files(&disk);
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..2_000 {
        let damaged = disk.crash(Loss::Nothing);
        for _ in 0..=rng.u64(..6) {
            let (name, content) = &files[rng.usize(..files.len())];
            let start = rng.usize(..content.len());
            let mut now = damaged.content(name).unwrap();
            match rng.u64(..4) {
                0 => now.truncate(start),
                1 => now
                    .iter_mut()
                    .skip(start)
                    .take(64)
                    .for_each(|byte| *byte = rng.u8(..)),
                2 => now
                    .iter_mut()
                    .skip(start)
                    .take(600)
                    .for_each(|byte| *byte = 0),
                _ => {
                    let other = &files[rng.usize(..files.len())].1;
                    let piece: Vec<u8> = other.iter().skip(start & !7).take(512).copied().collect();
                    for (target, byte) in now.iter_mut().skip(start & !7).zip(piece) {
                        *target = byte;
                    }
                }
            }
            damaged.put(name, &now);
        }
        let _ = verify(&damaged);
        let _ = baton_wal::dump(Arc::new(damaged.clone())).map(|dump| dump.take(10_000).count());
        if let Ok(found) = recovered(&damaged, options()) {
            let base = found.snapshot.as_ref().map_or(0, |s| s.meta.index);
            for (at, found) in found.entries.iter().enumerate() {
                let index = base + 1 + at as u64;
                assert!(
                    Record::Entry(found.clone()) == entry(index, 700) && index <= 20,
                    "round {round}: entry {index}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Entries come back the same, in whatever pieces they were appended and synced.
    #[test]
    fn what_is_synced_comes_back(
        batches in prop::collection::vec(prop::collection::vec(0_usize..2_500, 1..5), 1..25),
        segment in 4_096_u64..20_000,
        extend in 4_096_u64..9_000,
    ) {
        let disk = FaultStorage::new();
        let options = WalOptions { segment_bytes: segment, extend_bytes: extend, ..options() };
        let mut written = Vec::new();
        for batch in &batches {
            // Opened again for each batch: going on must be the same as never having stopped.
            let (mut wal, found) = Wal::open(Arc::new(disk.clone()), options.clone()).unwrap();
            prop_assert_eq!(&found.entries, &written);
            for len in batch {
                let record = entry(wal.last_index() + 1, *len);
                wal.append(std::slice::from_ref(&record)).unwrap();
                if let Record::Entry(entry) = record {
                    written.push(entry);
                }
            }
            wal.sync().unwrap();
        }
        let found = Wal::open(Arc::new(disk.crash(Loss::Everything)), options).unwrap().1;
        prop_assert_eq!(found.entries, written);
    }
}
