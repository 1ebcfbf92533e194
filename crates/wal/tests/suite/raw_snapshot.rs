//! A snapshot's file as it travels: the copy is the same file, anything else is refused and leaves
//! nothing behind, and what is being sent is not removed.

use std::sync::Arc;

use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{
    Chunk, HardState, RawSnapshotReader, RawSnapshotWriter, Record, SnapshotFileId, SnapshotInfo,
    SnapshotMeta, SnapshotPin, SnapshotStore, Storage, Wal, WalError, WalOptions,
};
use bytes::Bytes;

use super::support::{all_files, entry, log_of, open, options, recovered, save_snapshot, segments};

const INDEX: u64 = 9;
const TERM: u64 = 3;
const RECEIVED: &str = "recv-0000000000000009-0000000003";

/// A server with a snapshot, which it reads to send it.
struct Sender {
    disk: FaultStorage,
    store: SnapshotStore,
    pin: SnapshotPin,
    name: String,
}

impl Sender {
    fn new() -> Sender {
        let disk = FaultStorage::new();
        let (wal, _) = open(&disk, options()).unwrap();
        let store = wal.snapshots();
        let mut writer = store
            .writer(SnapshotMeta {
                index: INDEX,
                term: TERM,
                zxid: 77,
                time_ms: 5,
                membership: Bytes::from(vec![4; 45]),
            })
            .unwrap();
        for (kind, length) in [(0, 1), (3, 500), (0, 0), (254, 799)] {
            writer.chunk(kind, &vec![kind; length]).unwrap();
        }
        let name = writer.finish().unwrap().name;
        let pin = store.pin(INDEX, TERM);
        Sender {
            disk,
            store,
            pin,
            name,
        }
    }

    fn reader(&self) -> Result<RawSnapshotReader, WalError> {
        self.store.raw_reader(&self.pin)
    }
}

/// Copies a file in pieces of this size, and finishes it.
fn copy(
    reader: &RawSnapshotReader,
    store: &SnapshotStore,
    id: SnapshotFileId,
    piece_bytes: usize,
) -> Result<SnapshotInfo, WalError> {
    let mut writer = store.raw_writer(id)?;
    while writer.written() < id.bytes {
        let piece = reader.read(writer.written(), piece_bytes)?;
        if piece.is_empty() {
            break;
        }
        writer.write(&piece)?;
    }
    writer.finish(|_| Ok(()))
}

#[test]
fn the_copy_is_the_same_file_whatever_the_pieces() {
    let sender = Sender::new();
    let reader = sender.reader().unwrap();
    let original = sender.disk.content(&sender.name).unwrap();
    let id = reader.id();
    assert_eq!((id.index, id.term), (INDEX, TERM));
    assert_eq!(id.bytes, original.len() as u64);
    assert_eq!(id.crc, crc32c::crc32c(&original));
    assert_eq!(reader.read(id.bytes, 8).unwrap(), "");
    assert_eq!(reader.read(u64::MAX, 8).unwrap(), "");
    let verified = sender.store.verify_pinned(&sender.pin).unwrap();
    for piece_bytes in [1, 7, 64, 700, usize::MAX] {
        let disk = log_of(5);
        let (mut wal, _) = open(&disk, options()).unwrap();
        let mut writer = wal.snapshots().raw_writer(id).unwrap();
        let mut chunks = Vec::new();
        while writer.written() < id.bytes {
            let piece = reader.read(writer.written(), piece_bytes).unwrap();
            writer.write(&piece).unwrap();
        }
        assert_eq!(writer.meta(), Some(&verified.meta));
        assert!(disk.content(RECEIVED).is_none(), "not finished");
        let received = writer
            .finish(|chunk: &Chunk| {
                chunks.push((chunk.kind, chunk.payload.len()));
                Ok::<(), WalError>(())
            })
            .unwrap();
        assert_eq!(chunks, [(0, 1), (3, 500), (0, 0), (254, 799)]);
        assert_eq!(received.name, RECEIVED);
        assert_eq!(disk.content(RECEIVED).unwrap(), original);
        assert_eq!(
            SnapshotInfo {
                name: sender.name.clone(),
                ..received.clone()
            },
            verified
        );
        wal.append_received(&received).unwrap();
        wal.sync().unwrap();
        wal.finish_received(&received).unwrap();
        drop(wal);
        let found = recovered(&disk, options()).unwrap();
        assert_eq!(found.snapshot.unwrap().meta.index, INDEX);
    }
}

/// Names in the folder that a transfer has made.
fn left_behind(disk: &FaultStorage) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.starts_with("recv-"));
    names
}

#[test]
fn what_is_not_the_announced_file_is_refused_and_removed() {
    let sender = Sender::new();
    let reader = sender.reader().unwrap();
    let id = reader.id();
    let disk = log_of(5);
    let (wal, _) = open(&disk, options()).unwrap();
    let store = wal.snapshots();
    let refused = |id: SnapshotFileId, expected: &str| {
        let error = copy(&reader, &store, id, 100).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(left_behind(&disk), [] as [&str; 0], "{expected}");
    };
    let SnapshotFileId { bytes, crc, .. } = id;
    refused(SnapshotFileId { crc: !crc, ..id }, "is not the announced");
    refused(
        SnapshotFileId {
            bytes: bytes + 8,
            ..id
        },
        "is not the announced",
    );
    refused(
        SnapshotFileId {
            bytes: bytes - 8,
            ..id
        },
        "more bytes have come than were announced",
    );
    refused(SnapshotFileId { index: 8, ..id }, "it says it is of entry");
    refused(SnapshotFileId { term: 8, ..id }, "it says it is of entry");
    // Size and checksum are right, the format is not.
    let original = sender.disk.content(&sender.name).unwrap();
    for at in [0, 9, 100, 200, original.len() - 10] {
        let mut wrong = original.clone();
        wrong[at] ^= 1;
        let id = SnapshotFileId {
            crc: crc32c::crc32c(&wrong),
            ..id
        };
        let mut writer = store.raw_writer(id).unwrap();
        let outcome = writer.write(&wrong);
        let outcome = outcome.and_then(|()| writer.finish(|_| Ok(())));
        assert!(outcome.is_err(), "byte {at}");
        assert_eq!(left_behind(&disk), [] as [&str; 0]);
    }
    // The caller may refuse, too.
    let mut writer = store.raw_writer(id).unwrap();
    writer.write(&original).unwrap();
    let refused = writer.finish(|_| Err(WalError::OutOfOrder { last: 1, found: 2 }));
    assert!(matches!(refused, Err(WalError::OutOfOrder { .. })));
    assert_eq!(left_behind(&disk), [] as [&str; 0]);
}

#[test]
fn a_file_of_another_cluster_is_refused_at_its_first_bytes() {
    let sender = Sender::new();
    let reader = sender.reader().unwrap();
    let disk = FaultStorage::new();
    let other = WalOptions {
        cluster_id: Some(8),
        ..options()
    };
    let (wal, _) = open(&disk, other).unwrap();
    let mut writer = wal.snapshots().raw_writer(reader.id()).unwrap();
    let refused = writer.write(&reader.read(0, 150).unwrap());
    assert!(matches!(
        refused,
        Err(WalError::WrongCluster {
            found: 7,
            expected: 8,
            ..
        })
    ));
    assert!(writer.meta().is_none());
}

#[test]
fn a_long_file_is_synced_as_it_comes() {
    let disk = log_of(2);
    let (wal, _) = open(&disk, options()).unwrap();
    let id = SnapshotFileId {
        index: INDEX,
        term: TERM,
        bytes: 64 << 20,
        crc: 0,
    };
    let header = Sender::new().reader().unwrap().read(0, 64 + 48).unwrap();
    let mut writer = wal.snapshots().raw_writer(id).unwrap();
    writer.write(&header).unwrap();
    let piece = vec![0; 1 << 20];
    let mut syncs = Vec::new();
    for number in 1..=20 {
        let before = disk.operations();
        writer.write(&piece).unwrap();
        // A write, and sometimes a sync.
        if disk.operations() - before == 2 {
            syncs.push(number);
        }
    }
    assert_eq!(syncs, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]);
}

#[test]
fn an_own_snapshot_is_synced_as_it_is_written() {
    let disk = log_of(2);
    let (wal, _) = open(&disk, options()).unwrap();
    let meta = SnapshotMeta {
        index: 1,
        term: TERM,
        zxid: 1,
        time_ms: 1,
        membership: Bytes::new(),
    };
    let mut writer = wal.snapshots().writer(meta).unwrap();
    let chunk = vec![0; 256 << 10];
    let before = disk.operations();
    for _ in 0..32 {
        writer.chunk(0, &chunk).unwrap();
    }
    // 32 writes, and a sync with each eighth.
    assert_eq!(disk.operations() - before, 36);
}

#[test]
fn a_damaged_or_missing_file_is_not_sent() {
    let sender = Sender::new();
    let original = sender.disk.content(&sender.name).unwrap();
    let reader = sender.reader().unwrap();
    sender
        .disk
        .put(&sender.name, &original[..original.len() - 1]);
    assert!(sender.reader().unwrap_err().to_string().contains("footer"));
    for at in [20, 70, original.len() - 5, original.len() - 30] {
        let mut wrong = original.clone();
        wrong[at] ^= 1;
        sender.disk.put(&sender.name, &wrong);
        assert!(sender.reader().is_err(), "byte {at}");
    }
    sender.disk.take(&sender.name);
    assert!(matches!(sender.reader(), Err(WalError::Io { .. })));
    assert!(sender.store.verify_pinned(&sender.pin).is_err());
    // What is open already is read to its end.
    assert_eq!(reader.read(0, usize::MAX).unwrap(), original);
}

#[test]
fn r22_a_pinned_snapshot_stays_with_the_log_after_it() {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, options()).unwrap();
    let fill = |wal: &mut Wal, from: u64| {
        for index in from..from + 100 {
            wal.append(&[entry(index, 1), Record::Commit { index }])
                .unwrap();
            wal.sync().unwrap();
        }
        save_snapshot(wal, from + 99);
        wal.sync().unwrap();
    };
    fill(&mut wal, 1);
    let store = wal.snapshots();
    let (pin, again) = (store.pin(100, 1), store.pin(100, 1));
    assert_eq!((pin.index(), pin.term()), (100, 1));
    for from in [101, 201, 301, 401] {
        fill(&mut wal, from);
    }
    let names = |wal: &Wal| wal.snapshots().names().unwrap();
    assert_eq!(names(&wal).len(), 3, "two are kept, and the pinned one");
    assert!(wal.first_index() <= 101);
    assert!(store.raw_reader(&pin).is_ok());
    let pinned_segments = segments(&disk).len();
    drop(pin);
    fill(&mut wal, 501);
    assert_eq!(names(&wal).len(), 3, "it was pinned twice");
    drop(again);
    fill(&mut wal, 601);
    assert_eq!(names(&wal).len(), 2);
    assert!(wal.first_index() > 400);
    assert!(segments(&disk).len() < pinned_segments);
    // A start does not know of pins.
    drop(wal);
    assert!(recovered(&disk, options()).is_ok());
}

fn install(disk: &FaultStorage, reader: &RawSnapshotReader) -> Result<(), WalError> {
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options())?;
    let received = copy(reader, &wal.snapshots(), reader.id(), 700)?;
    wal.append(&[Record::HardState(HardState { term: 3, vote: 0 })])?;
    wal.append_received(&received)?;
    wal.append(&[entry(INDEX + 1, TERM)])?;
    wal.sync()?;
    wal.finish_received(&received)?;
    Ok(())
}

#[test]
fn r23_b15_a_crash_at_any_step_of_a_transfer_leaves_the_old_log_or_the_new_one() {
    let sender = Sender::new();
    let reader = sender.reader().unwrap();
    for last in [5_u64, 12] {
        let probe = log_of(last);
        let before = probe.operations();
        install(&probe, &reader).unwrap();
        let operations = probe.operations() - before;
        let mut seen = [0; 2];
        for at in 0..operations {
            for fault in [Fault::Crash, Fault::CrashAfter, Fault::TornWrite] {
                for loss in [Loss::Nothing, Loss::Everything]
                    .into_iter()
                    .chain((0..4).map(Loss::Random))
                {
                    let disk = log_of(last);
                    disk.fail_at(disk.operations() + at, fault);
                    let _ = install(&disk, &reader);
                    let after = disk.crash(loss);
                    let case = format!("{at} {fault:?} {loss:?}");
                    let found = recovered(&after, options())
                        .unwrap_or_else(|error| panic!("{case}: {error}"));
                    match &found.snapshot {
                        None => {
                            // What was committed is there; what contradicts the snapshot may go.
                            assert!(found.entries.len() >= 2, "{case}");
                            assert!(found.entries.iter().all(|entry| entry.term == 1), "{case}");
                            seen[0] += 1;
                        }
                        Some(info) => {
                            assert_eq!((info.meta.index, info.meta.term), (INDEX, TERM), "{case}");
                            assert_eq!(found.commit, INDEX, "{case}");
                            assert_eq!(found.hard_state.term, 3, "{case}");
                            assert!(found.entries.len() <= 1, "{case}");
                            seen[1] += 1;
                        }
                    }
                    assert_eq!(left_behind(&after), [] as [&str; 0], "{case}");
                }
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    }
}

#[test]
fn an_error_of_the_disk_at_any_step_of_a_copy_leaves_the_log_usable_and_no_file() {
    let sender = Sender::new();
    let reader = sender.reader().unwrap();
    let probe = log_of(5);
    let (wal, _) = open(&probe, options()).unwrap();
    let before = probe.operations();
    copy(&reader, &wal.snapshots(), reader.id(), 700).unwrap();
    let operations = probe.operations() - before;
    for at in 0..operations {
        for fault in [
            Fault::Error,
            Fault::PartialWrite,
            Fault::SyncLost,
            Fault::Full,
        ] {
            let disk = log_of(5);
            let (mut wal, _) = open(&disk, options()).unwrap();
            disk.fail_at(disk.operations() + at, fault);
            let outcome = copy(&reader, &wal.snapshots(), reader.id(), 700);
            disk.clear_fault();
            let case = format!("{at} {fault:?}");
            if let Ok(received) = outcome {
                panic!("{case}: {received:?}");
            }
            // Only the sync of the finished file's name can leave the file, which is whole then.
            let left = left_behind(&disk);
            assert!(left.is_empty() || left == [RECEIVED], "{case}: {left:?}");
            wal.append(&[entry(6, 1)]).unwrap();
            wal.sync().unwrap();
            let received = copy(&reader, &wal.snapshots(), reader.id(), 700).unwrap();
            wal.append_received(&received).unwrap();
            wal.sync().unwrap();
            wal.finish_received(&received).unwrap();
        }
    }
}

#[test]
fn any_bytes_are_refused_without_a_panic_and_without_a_trace() {
    let sender = Sender::new();
    let original = sender.disk.content(&sender.name).unwrap();
    let disk = log_of(2);
    let (wal, _) = open(&disk, options()).unwrap();
    let store = wal.snapshots();
    let before = all_files(&disk);
    let mut rng = fastrand::Rng::with_seed(14);
    for round in 0..2_000 {
        let mut bytes = original.clone();
        for _ in 0..rng.u8(..6) {
            let at = rng.usize(..bytes.len());
            match rng.u8(..4) {
                0 => bytes[at] ^= 1 << rng.u8(..8),
                1 => bytes[at] = rng.u8(..),
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let piece = bytes[at..(at + 40).min(bytes.len())].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        let mut id = SnapshotFileId {
            index: INDEX,
            term: TERM,
            bytes: bytes.len() as u64,
            crc: crc32c::crc32c(&bytes),
        };
        if rng.u8(..10) == 0 {
            id.bytes = rng.u64(..);
        }
        let outcome = (|| {
            let mut writer: RawSnapshotWriter = store.raw_writer(id)?;
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rng.usize(1..=rest.len()));
                writer.write(piece)?;
                rest = after;
            }
            writer.finish(|_| Ok::<(), WalError>(()))
        })();
        match outcome {
            Ok(received) => {
                assert_eq!(bytes, original, "round {round}");
                store.discard_received(&received).unwrap();
            }
            Err(_) => assert!(bytes != original || id.bytes != bytes.len() as u64),
        }
        assert_eq!(all_files(&disk), before, "round {round}");
    }
}
