//! Fuzz targets of the data folder: any bytes as a file of it, with their checksums put right, so
//! that what lies behind the checksums is reached. A start never panics; it gives back a log
//! without a gap or refuses on one line and changes nothing; and what it gave back once, the next
//! start gives back again.

use std::sync::Arc;

use baton_wal::testing::FaultStorage;
use baton_wal::{
    Entry, MemberFolder, Record, SnapshotFileId, Storage, Wal, WalError, WalOptions, dump, verify,
};

const CLUSTER: u64 = 5;
const END_MARKS: &str = "SYNCED";
const IDENTITY: &str = "MEMBER";
const SEGMENT: &str = "log-0000000000000001";
const SNAPSHOT: &str = "snap-0000000000000003-0000000002";

/// The bytes behind a segment's header.
pub fn log_segment(bytes: &[u8]) {
    let disk = folder();
    let mut content = disk.content(SEGMENT).unwrap_or_default();
    content.truncate(64);
    content.extend_from_slice(bytes);
    let header_crc = crc32c::crc32c_append(0, &content[12..16]);
    let mut at = 64;
    while content.len() >= at + 32 {
        let length = u32_at(&content, at) as usize % 4096;
        content[at + 2..at + 4].fill(0);
        content[at + 24] = 1 + content[at + 24].wrapping_sub(1) % 6;
        content[at + 26..at + 28].fill(0);
        // Most records carry nothing, and most writes began where they may have.
        let length = if content[at + 24] == 1 { length } else { 0 };
        put_u32(&mut content, at, length as u32);
        let start = u32_at(&content, at + 4) % (at as u32 + 64);
        put_u32(&mut content, at + 4, start);
        // Small indexes, so that records follow each other more often than not.
        content[at + 16] %= 8;
        content[at + 17..at + 24].fill(0);
        let end = at + 32 + length.next_multiple_of(8);
        if end > content.len() {
            break;
        }
        content[at + 32 + length..end].fill(0);
        let crc = crc32c::crc32c_append(header_crc, &(at as u32).to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &content[at..at + 28]);
        let crc = crc32c::crc32c_append(crc, &content[at + 32..end]);
        put_u32(&mut content, at + 28, crc);
        at = end;
    }
    disk.put(SEGMENT, &content);
    hold(&disk);
    disk.put(SEGMENT, bytes);
    hold(&disk);
}

/// The bytes behind a snapshot's fixed header fields.
pub fn snapshot(bytes: &[u8]) {
    let disk = folder();
    let mut content = Vec::from(*b"BATONSNP");
    content.extend_from_slice(&1_u32.to_le_bytes());
    content.extend_from_slice(&[0; 4]);
    for field in [CLUSTER, 3, 2, 0, 0, 8, u64::from_le_bytes([1; 8])] {
        content.extend_from_slice(&field.to_le_bytes());
    }
    let crc = crc32c::crc32c(&content);
    put_u32(&mut content, 12, crc);
    content.extend_from_slice(bytes);
    let header_crc = crc32c::crc32c(&crc.to_le_bytes());
    let mut at = 72;
    let mut sequence = 0;
    while content.len() >= at + 16 {
        let length = u32_at(&content, at) as usize % 4096;
        put_u32(&mut content, at, length as u32);
        content[at + 5..at + 8].fill(0);
        put_u32(&mut content, at + 8, sequence);
        sequence += 1;
        let end = at + 16 + length.next_multiple_of(8);
        if end > content.len() {
            break;
        }
        content[at + 16 + length..end].fill(0);
        let crc = crc32c::crc32c_append(header_crc, &content[at..at + 12]);
        let crc = crc32c::crc32c_append(crc, &content[at + 16..at + 16 + length]);
        put_u32(&mut content, at + 12, crc);
        at = end;
    }
    disk.put(SNAPSHOT, &content);
    hold(&disk);
    disk.put(SNAPSHOT, bytes);
    hold(&disk);
}

/// The bytes of a snapshot's file that another server sends, in pieces as long as its first byte
/// says. They are announced with the right size and checksum. What is taken is a whole snapshot;
/// what is refused leaves nothing behind.
pub fn received_snapshot(bytes: &[u8]) {
    let disk = folder();
    let Ok((wal, _)) = Wal::open(Arc::new(disk.clone()), options()) else {
        return;
    };
    let before = files(&disk);
    let store = wal.snapshots();
    let id = SnapshotFileId {
        index: 3,
        term: 2,
        bytes: bytes.len() as u64,
        crc: crc32c::crc32c(bytes),
    };
    let piece_bytes = usize::from(bytes.first().copied().unwrap_or(0)) + 1;
    let outcome = store.raw_writer(id).and_then(|mut writer| {
        for piece in bytes.chunks(piece_bytes) {
            writer.write(piece)?;
        }
        writer.finish(|_| Ok::<(), WalError>(()))
    });
    match outcome {
        Ok(received) => {
            assert_eq!(disk.content(&received.name).as_deref(), Some(bytes));
            assert_eq!(store.verify(&received.name).ok(), Some(received.clone()));
            assert!(store.discard_received(&received).is_ok());
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
    assert_eq!(files(&disk), before);
}

/// The bytes of the file of end marks, beside a log of a few entries.
pub fn end_marks(bytes: &[u8]) {
    let disk = folder();
    let closed = Wal::open(Arc::new(disk.clone()), options()).and_then(|(mut wal, _)| {
        for index in 1..=3 {
            wal.append(&[Record::Entry(Entry {
                index,
                term: 1,
                kind: 1,
                payload: vec![7; 100].into(),
            })])?;
            wal.sync()?;
        }
        wal.close()
    });
    assert!(closed.is_ok());
    let mut content = disk.content(END_MARKS).unwrap_or_default();
    for (at, slot) in [0, 4096].into_iter().enumerate() {
        let half = bytes.len() / 2;
        let part = if at == 0 {
            &bytes[..half]
        } else {
            &bytes[half..]
        };
        // Magic, version and cluster stay; the rest is what it is, mostly near what is true.
        for (target, byte) in content[slot + 24..slot + 128].iter_mut().zip(part) {
            *target ^= *byte;
        }
        put_u32(&mut content, slot + 12, 0);
        let crc = crc32c::crc32c(&content[slot..slot + 128]);
        put_u32(&mut content, slot + 12, crc);
    }
    disk.put(END_MARKS, &content);
    hold(&disk);
    disk.put(END_MARKS, bytes);
    hold(&disk);
}

/// The bytes of the marker.
pub fn marker(bytes: &[u8]) {
    let disk = folder();
    disk.put("FORMAT", bytes);
    hold(&disk);
}

/// The bytes of a member's identity, alone and beside a log. The second half of the input changes
/// the fields of a whole one.
pub fn identity(bytes: &[u8]) {
    let member = FaultStorage::new();
    let joined = take(&member).and_then(|mut folder| {
        folder.promise(7)?;
        folder.store_birth(CLUSTER, vec![1; 24].into())?;
        open_log(folder)
    });
    assert!(joined.is_ok());
    drop(joined);
    let whole = member.content(IDENTITY).unwrap_or_default();
    let (raw, changes) = bytes.split_at(bytes.len() / 2);
    let mut changed = whole;
    for (target, byte) in changed[16..].iter_mut().zip(changes) {
        *target ^= *byte;
    }
    put_u32(&mut changed, 12, 0);
    let crc = crc32c::crc32c(&changed);
    put_u32(&mut changed, 12, crc);
    for content in [bytes, raw, &changed] {
        for disk in [FaultStorage::new(), folder(), copy(&member)] {
            disk.put(IDENTITY, content);
            let before = files(&disk);
            let _ = verify(&disk);
            if let Ok(dump) = dump(Arc::new(disk.clone())) {
                let _ = dump.take(10_000).count();
            }
            assert!(Wal::open(Arc::new(disk.clone()), options()).is_err());
            assert_eq!(files(&disk), before, "looking changed the folder");
            let Ok(taken) = take(&disk) else {
                assert_eq!(files(&disk), before, "a refusal changed the folder");
                continue;
            };
            let identity = taken.identity().clone();
            let opened = open_log(taken);
            assert!(identity.cluster != 0 || opened.is_err());
            drop(opened);
            if let Ok(again) = take(&disk) {
                assert_eq!(again.identity().incarnation, identity.incarnation);
            }
        }
    }
}

fn take(disk: &FaultStorage) -> Result<MemberFolder, WalError> {
    MemberFolder::open(Arc::new(disk.clone()), 3, 9)
}

fn open_log(folder: MemberFolder) -> Result<(), WalError> {
    let opened = folder.open_log(options(), |writer| writer.chunk(0, b"state"));
    opened.map(drop)
}

fn copy(disk: &FaultStorage) -> FaultStorage {
    let copy = FaultStorage::new();
    for (name, content) in files(disk) {
        copy.put(&name, &content.unwrap_or_default());
    }
    copy
}

fn options() -> WalOptions {
    WalOptions {
        cluster_id: None,
        segment_bytes: 4096,
        extend_bytes: 4096,
        keep_snapshots: 3,
    }
}

fn folder() -> FaultStorage {
    let disk = FaultStorage::new();
    let options = WalOptions {
        cluster_id: Some(CLUSTER),
        ..options()
    };
    drop(Wal::open(Arc::new(disk.clone()), options));
    disk
}

fn hold(disk: &FaultStorage) {
    let before = files(disk);
    let _ = verify(disk);
    if let Ok(dump) = dump(Arc::new(disk.clone())) {
        let _ = dump.take(10_000).count();
    }
    assert_eq!(files(disk), before, "looking changed the folder");
    match Wal::open(Arc::new(disk.clone()), options()) {
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            assert_eq!(files(disk), before, "a refusal changed the folder: {error}");
        }
        Ok((wal, found)) => {
            let base = found.snapshot.as_ref().map_or(0, |info| info.meta.index);
            for (at, entry) in found.entries.iter().enumerate() {
                assert_eq!(entry.index, base + 1 + at as u64);
            }
            assert_eq!(wal.last_index(), base + found.entries.len() as u64);
            assert!(found.commit <= wal.last_index());
            drop(wal);
            let again = Wal::open(Arc::new(disk.clone()), options()).map(|(_, found)| found);
            match again {
                Ok(again) => {
                    assert_eq!(again.entries, found.entries);
                    assert_eq!(again.hard_state, found.hard_state);
                    assert_eq!(again.commit, found.commit);
                }
                Err(error) => panic!("the second start refused: {error}"),
            }
        }
    }
}

fn files(disk: &FaultStorage) -> Vec<(String, Option<Vec<u8>>)> {
    let names = disk.list().unwrap_or_default();
    names
        .into_iter()
        .map(|name| (name.clone(), disk.content(&name)))
        .collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
