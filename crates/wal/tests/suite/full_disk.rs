//! Remains of a failure of the disk: no unfinished file that takes room until the next start, and a
//! log that goes on, and snapshots that succeed again, as soon as there is room.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{
    DirStorage, Entry, Record, SnapshotInfo, SnapshotMeta, Storage, Wal, WalError, WalOptions,
};
use bytes::Bytes;

use super::support;

const LIMITED_FOLDER: &str = "BATON_WAL_LIMITED_FOLDER";

fn options() -> WalOptions {
    WalOptions {
        keep_snapshots: 1,
        ..support::options()
    }
}

fn open(disk: &FaultStorage) -> Wal {
    Wal::open(Arc::new(disk.clone()), options()).unwrap().0
}

fn entry(index: u64, len: usize) -> Record {
    Record::Entry(Entry {
        index,
        term: 1,
        kind: 1,
        payload: Bytes::from(vec![index as u8; len]),
    })
}

fn write_entry(wal: &mut Wal, len: usize) -> Result<(), WalError> {
    wal.append(&[entry(wal.last_index() + 1, len)])?;
    wal.sync().map(drop)
}

/// A snapshot of the log so far, with `content` bytes in chunks of at most 100 kB.
fn save_snapshot(wal: &mut Wal, content: usize) -> Result<SnapshotInfo, WalError> {
    let mut writer = wal.snapshots().writer(SnapshotMeta {
        index: wal.last_index(),
        term: 1,
        zxid: 5,
        time_ms: 6,
        membership: Bytes::new(),
    })?;
    let mut left = content;
    while left > 0 {
        let chunk = left.min(100_000);
        writer.chunk(1, &vec![9; chunk])?;
        left -= chunk;
    }
    let info = writer.finish()?;
    wal.snapshot_saved(&info)?;
    Ok(info)
}

fn unfinished(names: Vec<String>) -> Vec<String> {
    names
        .into_iter()
        .filter(|name| name.ends_with(".tmp"))
        .collect()
}

fn used_bytes(disk: &FaultStorage) -> u64 {
    let names = disk.list().unwrap();
    names
        .iter()
        .map(|name| disk.content(name).unwrap().len() as u64)
        .sum()
}

#[test]
fn snapshots_that_find_no_room_take_none_and_succeed_once_there_is_some() {
    let disk = FaultStorage::new();
    let mut wal = open(&disk);
    write_entry(&mut wal, 700).unwrap();
    let before = used_bytes(&disk);
    disk.set_capacity(Some(before + 600_000));
    for _ in 0..5 {
        let error = save_snapshot(&mut wal, 1_000_000).unwrap_err();
        let text = error.to_string();
        let WalError::NoSpace {
            needed_bytes,
            retryable,
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert!(retryable && !text.contains("start again"), "{text}");
        // More than there was, and no more than the whole snapshot.
        assert!((600_000..1_100_000).contains(&needed_bytes), "{text}");
        assert_eq!(unfinished(disk.list().unwrap()), [""; 0]);
        assert_eq!(used_bytes(&disk), before);
    }
    // The room that they gave back is the log's.
    for _ in 0..100 {
        write_entry(&mut wal, 700).unwrap();
    }
    disk.set_capacity(None);
    save_snapshot(&mut wal, 1_000_000).unwrap();
    write_entry(&mut wal, 700).unwrap();
    drop(wal);
    assert_eq!(open(&disk.crash(Loss::Everything)).last_index(), 102);
}

#[test]
fn a_snapshot_that_is_given_up_leaves_no_file() {
    let disk = FaultStorage::new();
    let wal = open(&disk);
    let mut writer = wal
        .snapshots()
        .writer(SnapshotMeta {
            index: 0,
            term: 1,
            zxid: 0,
            time_ms: 0,
            membership: Bytes::new(),
        })
        .unwrap();
    writer.chunk(1, &[1; 500_000]).unwrap();
    assert_eq!(unfinished(disk.list().unwrap()).len(), 1);
    drop(writer);
    assert_eq!(unfinished(disk.list().unwrap()), [""; 0]);
}

/// Everything that makes files: a new folder, segments, snapshots.
fn workload(disk: &FaultStorage) -> Result<(), WalError> {
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options())?;
    for round in 0..6 {
        for _ in 0..4 {
            write_entry(&mut wal, 900)?;
        }
        if round % 2 == 1 {
            save_snapshot(&mut wal, 3_000)?;
        }
    }
    wal.close()
}

#[test]
fn no_failed_operation_leaves_an_unfinished_file() {
    let clean = FaultStorage::new();
    workload(&clean).unwrap();
    let mut failed = 0;
    for operation in 0..clean.operations() {
        for fault in [
            Fault::Error,
            Fault::PartialWrite,
            Fault::Full,
            Fault::SyncLost,
        ] {
            let disk = FaultStorage::new();
            disk.fail_at(operation, fault);
            let outcome = workload(&disk);
            failed += usize::from(outcome.is_err());
            assert_eq!(
                unfinished(disk.list().unwrap()),
                [""; 0],
                "{fault:?} at operation {operation}: {outcome:?}"
            );
        }
    }
    assert!(failed > 100, "{failed}");
}

#[test]
fn a_write_or_a_seal_that_finds_no_room_can_be_repeated() {
    // A segment filled to its last byte: the seal behind it needs room of its own.
    let fill = |disk: &FaultStorage| {
        let mut wal = open(disk);
        // Header, hard state and commit, then one entry up to the end of the first step.
        write_entry(&mut wal, 4096 - 64 - 2 * 32 - 32).unwrap();
        let segment = disk.content("log-0000000000000001").unwrap();
        assert_eq!((segment.len(), *segment.last().unwrap()), (4096, 1));
        wal
    };
    let clean = FaultStorage::new();
    let mut wal = fill(&clean);
    let before = clean.operations();
    write_entry(&mut wal, 10).unwrap();
    let (mut lasting, mut unharmed) = (0, 0);
    for operation in before..clean.operations() {
        let disk = FaultStorage::new();
        let mut wal = fill(&disk);
        disk.fail_at(operation, Fault::Full);
        let Err(error) = write_entry(&mut wal, 10) else {
            unharmed += 1;
            continue;
        };
        if matches!(
            error,
            WalError::NoSpace {
                retryable: true,
                ..
            }
        ) {
            if wal.last_index() == 1 {
                wal.append(&[entry(2, 10)]).unwrap();
            }
            wal.sync().unwrap();
            drop(wal);
            let after = disk.crash(Loss::Everything);
            assert_eq!(open(&after).last_index(), 2, "operation {operation}");
        } else {
            assert!(error.to_string().contains("start again"), "{error}");
            assert!(matches!(error, WalError::NoSpace { .. }), "{error}");
            lasting += 1;
        }
    }
    // The syncs of the seal and of the batch: what a failed sync left on the disk is not known. The
    // write and the sync of an end mark: the mark before still holds.
    assert_eq!((lasting, unharmed), (2, 2));
}

#[test]
fn a_segment_that_cannot_grow_gives_back_what_it_took() {
    if let Some(folder) = std::env::var_os(LIMITED_FOLDER) {
        grow_beyond_the_limit(Path::new(&folder));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The limit is in units of 512 or 1024 bytes, by the shell.
    let script = r#"trap '' XFSZ; ulimit -f 600; exec "$0" --exact --nocapture full_disk::a_segment_that_cannot_grow_gives_back_what_it_took"#;
    let outcome = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(LIMITED_FOLDER, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned()
        + &String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{said}");
    assert!(said.contains("given back"), "{said}");
}

/// Runs under a limit on the size of files below the default step of growth.
fn grow_beyond_the_limit(folder: &Path) {
    let storage = Arc::new(DirStorage::open(folder).unwrap());
    let (mut wal, _) = Wal::open(storage.clone(), WalOptions::default()).unwrap();
    let segment = folder.join("log-0000000000000001");
    for _ in 0..3 {
        let error = match wal.last_index() {
            0 => write_entry(&mut wal, 10).unwrap_err(),
            _ => wal.sync().unwrap_err(),
        };
        assert!(
            matches!(
                error,
                WalError::NoSpace {
                    needed_bytes: 1_048_512,
                    retryable: true,
                    ..
                }
            ),
            "{error:?}"
        );
        assert_eq!(std::fs::metadata(&segment).unwrap().len(), 64);
    }
    let error = save_snapshot(&mut wal, 3_000_000).unwrap_err();
    assert!(matches!(error, WalError::NoSpace { .. }), "{error}");
    assert_eq!(unfinished(storage.list().unwrap()), [""; 0]);
    println!("given back");
}
