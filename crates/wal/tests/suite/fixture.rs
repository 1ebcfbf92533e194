//! The bytes of format version 1 as they were on the day they were fixed, kept in
//! `fixtures/format-1`, and the same with the end marks that came later, in
//! `fixtures/format-1-marked`; the folder of a member is in `fixtures/format-1-member`. This build
//! must read all, and must write the very same for the same work. A later format gets a folder of
//! its own; these stay as they are.
//!
//! `BATON_WRITE_FIXTURE=1 cargo test -p baton-locks-wal --test suite fixture::` writes the later
//! folders where they are missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_wal::testing::FaultStorage;
use baton_wal::{
    DumpItem, Entry, FORMAT_VERSION, HardState, Identity, MemberFolder, Record, Recovered,
    RecoveryNote, SnapshotMeta, Storage, Wal, WalOptions, dump, verify,
};
use bytes::Bytes;

/// Without end marks, as builds before them wrote it.
const UNMARKED: &str = "format-1";
const MARKED: &str = "format-1-marked";
const MEMBER: &str = "format-1-member";
const MARKS: &str = "SYNCED";
const INCARNATION: u128 = 0x4041_4243_4445_4647_4849_4a4b_4c4d_4e4f;
/// A membership record of three voters without addresses.
const BIRTH: &[u8] = &[1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn options() -> WalOptions {
    WalOptions {
        cluster_id: Some(0x0123_4567_89ab_cdef),
        segment_bytes: 4096,
        extend_bytes: 4096,
        keep_snapshots: 3,
    }
}

fn entry(index: u64, term: u64, kind: u8, text: &str) -> Record {
    Record::Entry(Entry {
        index,
        term,
        kind,
        payload: Bytes::copy_from_slice(text.as_bytes()),
    })
}

/// Every kind of record, two segments, one snapshot.
fn write(disk: &FaultStorage) {
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options()).unwrap();
    wal.append(&[
        Record::HardState(HardState { term: 1, vote: 1 }),
        entry(1, 1, 0, ""),
    ])
    .unwrap();
    wal.sync().unwrap();
    wal.append(&[
        Record::Commit { index: 1 },
        entry(2, 1, 1, "a batch of commands"),
        entry(3, 1, 1, "never committed"),
    ])
    .unwrap();
    wal.sync().unwrap();
    wal.append(&[
        Record::HardState(HardState { term: 2, vote: 1 }),
        entry(3, 2, 0, ""),
        entry(4, 2, 1, &"x".repeat(4000)),
    ])
    .unwrap();
    wal.sync().unwrap();
    wal.append(&[Record::Commit { index: 4 }, entry(5, 2, 1, "last")])
        .unwrap();
    wal.sync().unwrap();
    let mut writer = wal
        .snapshots()
        .writer(SnapshotMeta {
            index: 4,
            term: 2,
            zxid: 17,
            time_ms: 1_700_000_000_000,
            membership: Bytes::from_static(&[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        })
        .unwrap();
    writer.chunk(1, b"sessions").unwrap();
    writer.chunk(2, b"nodes, not a multiple of 8").unwrap();
    let info = writer.finish().unwrap();
    wal.snapshot_saved(&info).unwrap();
    wal.close().unwrap();
}

fn names(disk: &FaultStorage) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.sort();
    names
}

#[test]
fn format_1_is_still_written_byte_by_byte() {
    assert_eq!(FORMAT_VERSION, 1, "a new format needs a fixture of its own");
    let disk = FaultStorage::new();
    write(&disk);
    keep_if_asked(&disk, MARKED);
    assert!(names(&disk).contains(&MARKS.to_owned()));
    for kept_in in [UNMARKED, MARKED] {
        assert_same(&disk, kept_in, |name| (kept_in, name) != (UNMARKED, MARKS));
    }
}

#[test]
fn format_1_of_a_member_is_still_written_byte_by_byte_and_read() {
    let disk = FaultStorage::new();
    let log = write_member(&disk);
    log.close().unwrap();
    keep_if_asked(&disk, MEMBER);
    assert!(names(&disk).contains(&"MEMBER".to_owned()));
    assert_same(&disk, MEMBER, |_| true);

    let disk = kept(MEMBER);
    assert!(verify(&disk).unwrap().is_sound());
    let folder = MemberFolder::open(Arc::new(disk), 3, 1).unwrap();
    assert_eq!(
        folder.identity(),
        &Identity {
            server: 3,
            incarnation: INCARNATION,
            promise: 0x77,
            cluster: 0x0123_4567_89ab_cdef,
            birth: Bytes::from_static(BIRTH),
            is_founded: true,
        }
    );
    let (_, found) = folder.open_log(options(), |_| Ok(())).unwrap();
    assert_eq!(found.notes, []);
    let snapshot = found.snapshot.unwrap();
    assert_eq!((snapshot.meta.index, snapshot.chunks), (1, 1));
    assert_eq!(&snapshot.meta.membership[..], BIRTH);
}

/// A member that has just joined its cluster.
fn write_member(disk: &FaultStorage) -> Wal {
    let mut folder = MemberFolder::open(Arc::new(disk.clone()), 3, INCARNATION).unwrap();
    folder.promise(0x77).unwrap();
    let birth = Bytes::from_static(BIRTH);
    folder.store_birth(0x0123_4567_89ab_cdef, birth).unwrap();
    let opened = folder.open_log(options(), |writer| writer.chunk(0, b"an empty tree"));
    opened.unwrap().0
}

fn keep_if_asked(disk: &FaultStorage, kept_in: &str) {
    if std::env::var_os("BATON_WRITE_FIXTURE").is_some() && !folder(kept_in).exists() {
        fs::create_dir_all(folder(kept_in)).unwrap();
        for name in names(disk) {
            fs::write(folder(kept_in).join(&name), disk.content(&name).unwrap()).unwrap();
        }
    }
}

fn assert_same(disk: &FaultStorage, kept_in: &str, is_compared: impl Fn(&str) -> bool) {
    for name in names(disk).iter().filter(|name| is_compared(name)) {
        let kept = fs::read(folder(kept_in).join(name)).unwrap();
        let now = disk.content(name).unwrap();
        assert_eq!(kept.len(), now.len(), "{name}");
        if let Some(at) = (0..kept.len()).find(|at| kept[*at] != now[*at]) {
            panic!("{name} differs from byte {at} on");
        }
    }
}

fn kept(kept_in: &str) -> FaultStorage {
    let disk = FaultStorage::new();
    for item in fs::read_dir(folder(kept_in)).unwrap() {
        let item = item.unwrap();
        let name = item.file_name().into_string().unwrap();
        disk.put(&name, &fs::read(item.path()).unwrap());
    }
    disk
}

#[test]
fn format_1_is_still_read() {
    let found = read(UNMARKED);
    assert!(
        matches!(found.notes[..], [RecoveryNote::NoEndMark { .. }]),
        "{:?}",
        found.notes
    );
    let found = read(MARKED);
    assert_eq!(found.notes, []);
}

fn read(kept_in: &str) -> Recovered {
    let disk = kept(kept_in);
    assert!(verify(&disk).unwrap().is_sound());

    let items: Vec<(String, u64, DumpItem)> = dump(Arc::new(disk.clone()))
        .unwrap()
        .map(|found| found.map(|found| (found.file, found.offset, found.item)))
        .collect::<Result<_, _>>()
        .unwrap();
    let first = "log-0000000000000001";
    assert!(items.contains(&(
        first.to_owned(),
        64,
        DumpItem::Record(Record::HardState(HardState::default()))
    )));
    assert!(
        items.iter().any(|(file, _, item)| file == first
            && *item == DumpItem::Record(Record::Truncate { from: 3 }))
    );
    assert!(
        items.iter().any(|(file, _, item)| file == first
            && *item == DumpItem::Record(Record::Sealed { next: 2 }))
    );
    assert!(items.iter().any(|(_, _, item)| matches!(
        item,
        DumpItem::Chunk {
            kind: 2,
            payload_bytes: 26
        }
    )));

    let (wal, found) = Wal::open(Arc::new(disk), options()).unwrap();
    let snapshot = found.snapshot.clone().unwrap();
    assert_eq!(
        (snapshot.meta.index, snapshot.meta.term, snapshot.meta.zxid),
        (4, 2, 17)
    );
    assert_eq!(found.hard_state, HardState { term: 2, vote: 1 });
    assert_eq!(found.commit, 4);
    assert_eq!(
        found
            .entries
            .clone()
            .into_iter()
            .map(Record::Entry)
            .collect::<Vec<_>>(),
        [entry(5, 2, 1, "last")]
    );
    let mut reader = wal.snapshots().reader(&snapshot.name).unwrap();
    assert_eq!(
        &reader.next_chunk().unwrap().unwrap().payload[..],
        b"sessions"
    );
    assert_eq!(reader.next_chunk().unwrap().unwrap().kind, 2);
    assert!(reader.next_chunk().unwrap().is_none());
    found
}
