//! Backups: a file is one only when it is whole, and what is not is refused by name; a folder made
//! from one says for how long its server has to wait.

use std::sync::Arc;

use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{
    BackupReader, BackupWriter, Hold, Storage, WalError, read_hold, remove_hold, write_hold,
};

use super::support::{all_files, open, options, save_snapshot};

const NAME: &str = "today.backup";
const SNAPSHOT: &str = "snap-0000000000000004-0000000001";

/// The bytes of a snapshot's file.
fn snapshot() -> Vec<u8> {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, options()).unwrap();
    let records = [baton_wal::Record::Snapshot { index: 4, term: 1 }];
    wal.append(&records).unwrap();
    save_snapshot(&mut wal, 4);
    disk.content(SNAPSHOT).unwrap()
}

fn begin(disk: &FaultStorage) -> Result<BackupWriter, WalError> {
    BackupWriter::begin(Arc::new(disk.clone()), NAME)
}

/// Makes a backup of these bytes, in pieces. Returns how many chunks were read back.
fn back_up(disk: &FaultStorage, bytes: &[u8]) -> Result<usize, WalError> {
    let mut writer = begin(disk)?;
    for piece in bytes.chunks(100) {
        writer.write(piece)?;
    }
    let checked = writer.finish(|reader| {
        let mut chunks = 0;
        while reader.next_chunk()?.is_some() {
            chunks += 1;
        }
        Ok::<_, WalError>(chunks)
    });
    checked.map(|(_, chunks)| chunks)
}

fn read(disk: &FaultStorage) -> Result<u64, WalError> {
    let reader = BackupReader::open(disk, NAME)?;
    assert_eq!((reader.cluster_id(), reader.meta().zxid), (7, 5));
    reader.verify().map(|info| info.chunks)
}

#[test]
fn a_backup_is_the_snapshots_file_under_another_name() {
    let (disk, bytes) = (FaultStorage::new(), snapshot());
    assert_eq!(back_up(&disk, &bytes).unwrap(), 2);
    assert_eq!(all_files(&disk), [(NAME.to_owned(), bytes)]);
    assert_eq!(read(&disk).unwrap(), 2);
}

#[test]
fn a30_a_backup_that_is_cut_off_or_has_a_changed_byte_or_more_behind_it_is_refused_by_name() {
    let bytes = snapshot();
    let disk = FaultStorage::new();
    let refused = |damaged: &[u8]| {
        let unwritten = back_up(&disk, damaged).unwrap_err();
        assert!(disk.list().unwrap().is_empty(), "{unwritten}");
        disk.put(NAME, damaged);
        let unread = BackupReader::open(&disk, NAME).and_then(BackupReader::verify);
        let unread = unread.unwrap_err();
        assert!(unread.to_string().contains(NAME), "{unread}");
        disk.take(NAME);
        unread
    };
    for length in 0..bytes.len() {
        let error = refused(&bytes[..length]);
        assert!(error.to_string().ends_with("take one again"), "{error}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        let error = refused(&changed);
        let is_version = (8..12).contains(&at);
        assert_eq!(
            matches!(error, WalError::FormatVersion { .. }),
            is_version,
            "{at}: {error}"
        );
    }
    refused(&[&bytes[..], b"x"].concat());
    let foreign = refused(
        b"-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUXg7O0g==\n-----END CERTIFICATE-----",
    );
    assert!(foreign.to_string().contains("does not begin as a snapshot"));
}

#[test]
fn a30_a_taken_name_is_refused_and_what_has_it_stays() {
    let (disk, bytes) = (FaultStorage::new(), snapshot());
    disk.put(NAME, b"yesterday's");
    let error = begin(&disk).unwrap_err();
    assert!(matches!(error, WalError::BackupExists { .. }), "{error}");
    disk.take(NAME);
    // Of two to one name, the second one is refused; the first one is not disturbed.
    let mut first = begin(&disk).unwrap();
    let error = back_up(&disk, &bytes).unwrap_err();
    assert!(
        matches!(error, WalError::BackupUnfinished { .. }),
        "{error}"
    );
    first.write(&bytes).unwrap();
    // Somebody else took the name meanwhile.
    disk.put(NAME, b"mine");
    let error = first.finish(|_| Ok::<_, WalError>(())).unwrap_err();
    assert!(matches!(error, WalError::BackupExists { .. }), "{error}");
    assert_eq!(all_files(&disk), [(NAME.to_owned(), b"mine".to_vec())]);
}

#[test]
fn a_backup_that_its_owner_refuses_or_drops_leaves_nothing() {
    let (disk, bytes) = (FaultStorage::new(), snapshot());
    let mut writer = begin(&disk).unwrap();
    writer.write(&bytes).unwrap();
    assert_eq!(writer.written(), bytes.len() as u64);
    drop(writer);
    assert!(disk.list().unwrap().is_empty());
    let mut writer = begin(&disk).unwrap();
    writer.write(&bytes).unwrap();
    let refused = WalError::MissingLog {
        folder: "of another kind".to_owned(),
    };
    assert!(writer.finish(|_| Err::<(), _>(refused)).is_err());
    assert!(disk.list().unwrap().is_empty());
}

#[test]
fn a_full_disk_ends_a_backup_and_gets_its_room_back() {
    let bytes = snapshot();
    let disk = FaultStorage::new();
    disk.set_capacity(Some(bytes.len() as u64 - 1));
    let error = back_up(&disk, &bytes).unwrap_err();
    assert!(matches!(error, WalError::NoSpace { .. }), "{error}");
    assert!(disk.list().unwrap().is_empty());
    disk.set_capacity(Some(bytes.len() as u64));
    back_up(&disk, &bytes).unwrap();
}

#[test]
fn a_backup_that_failed_leaves_nothing_whatever_the_disk_refused() {
    let bytes = snapshot();
    let whole = FaultStorage::new();
    back_up(&whole, &bytes).unwrap();
    let mut failed = 0;
    for operation in 0..whole.operations() {
        let disk = FaultStorage::new();
        disk.fail_at(operation, Fault::Error);
        if back_up(&disk, &bytes).is_err() {
            failed += 1;
            assert_eq!(all_files(&disk), [], "operation {operation}");
        }
    }
    assert!(failed >= 4, "{failed}");
    // The last operation makes the name durable: without it there is no backup.
    let disk = FaultStorage::new();
    disk.fail_at(whole.operations() - 1, Fault::Full);
    let error = back_up(&disk, &bytes).unwrap_err();
    let is_full = matches!(
        error,
        WalError::NoSpace {
            needed_bytes: 0,
            ..
        }
    );
    assert!(is_full, "{error}");
    assert!(read(&whole.crash(Loss::Everything)).is_ok());
}

/// A name on the disk is that of a whole backup, wherever the machine stopped.
#[test]
fn a_crash_at_any_operation_leaves_a_whole_backup_or_none_of_its_name() {
    let bytes = snapshot();
    let whole = FaultStorage::new();
    back_up(&whole, &bytes).unwrap();
    for operation in 0..whole.operations() {
        for loss in [Loss::Nothing, Loss::Everything] {
            let disk = FaultStorage::new();
            disk.fail_at(operation, Fault::Crash);
            let done = back_up(&disk, &bytes);
            let after = disk.crash(loss);
            match read(&after) {
                Ok(chunks) => assert_eq!(chunks, 2),
                Err(error) => {
                    assert!(after.content(NAME).is_none(), "{operation}: {error}");
                    assert!(done.is_err(), "{operation}");
                }
            }
        }
    }
}

#[test]
fn a_restored_folder_says_for_how_long_to_wait_until_it_is_removed() {
    let disk = FaultStorage::new();
    assert_eq!(read_hold(&disk).unwrap(), None);
    let hold = Hold {
        longest_timeout_ms: 90_000,
        made_ms: 7,
    };
    write_hold(&disk, hold).unwrap();
    assert_eq!(read_hold(&disk).unwrap(), Some(hold));
    let text = String::from_utf8(disk.content("RESTORED").unwrap()).unwrap();
    assert!(
        text.starts_with("baton-restored format=1 longest_timeout_ms=90000 made_ms=7 "),
        "{text}"
    );
    for at in 0..text.len() as u64 {
        disk.flip_bit("RESTORED", at, 3);
        let error = read_hold(&disk).unwrap_err();
        assert!(error.to_string().contains("stopped for longer"), "{error}");
        disk.flip_bit("RESTORED", at, 3);
    }
    remove_hold(&disk).unwrap();
    assert_eq!(read_hold(&disk).unwrap(), None);
    remove_hold(&disk).unwrap();
}
