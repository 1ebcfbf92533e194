//! The data folder of a server of several: which steps it takes, that a crash or a failing disk
//! leaves a whole step, and which folders are refused to whom.

use std::sync::Arc;

use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{
    DumpItem, Entry, FileReport, HardState, Identity, MemberFolder, Record, Recovered, Wal,
    WalError, WalOptions, dump, verify,
};
use bytes::Bytes;

use super::support::{all_files, options};

const SERVER: u64 = 3;
const INCARNATION: u128 = 0xdead_beef << 96;
const LOWEST: u128 = 0x1111;
const CLUSTER: u64 = 0xc1;
const MEMBERS: &[u8] = b"three members";
const MEMBER_FILE: &str = "MEMBER";
const FIRST_STATE: &[u8] = b"an empty tree";

fn open(disk: &FaultStorage) -> Result<MemberFolder, WalError> {
    MemberFolder::open(Arc::new(disk.clone()), SERVER, INCARNATION)
}

fn open_log(folder: MemberFolder) -> Result<(Wal, Recovered), WalError> {
    folder.open_log(options(), |writer| writer.chunk(0, FIRST_STATE))
}

/// The whole way of a new member.
fn join(disk: &FaultStorage) -> Result<(Wal, Recovered), WalError> {
    let mut folder = open(disk)?;
    if folder.identity().cluster == 0 {
        if folder.identity().promise == 0 {
            folder.promise(LOWEST)?;
        }
        folder.store_birth(CLUSTER, Bytes::from_static(MEMBERS))?;
    }
    open_log(folder)
}

/// Stage of the folder.
fn step(disk: &FaultStorage) -> usize {
    let Ok(folder) = open(disk) else {
        panic!("the folder is refused");
    };
    let identity = folder.identity();
    assert_eq!(
        (identity.server, identity.incarnation),
        (SERVER, INCARNATION)
    );
    match identity {
        Identity { promise: 0, .. } => 0,
        Identity { cluster: 0, .. } => 1,
        Identity {
            is_founded, birth, ..
        } => {
            assert_eq!(&birth[..], MEMBERS);
            2 + usize::from(*is_founded)
        }
    }
}

fn assert_is_new_member(found: &Recovered) {
    let snapshot = found.snapshot.as_ref().unwrap();
    assert_eq!(snapshot.name, "snap-0000000000000001-0000000001");
    assert_eq!((snapshot.meta.index, snapshot.meta.term), (1, 1));
    assert_eq!(&snapshot.meta.membership[..], MEMBERS);
    assert_eq!(found.hard_state, HardState { term: 1, vote: 0 });
    assert_eq!((found.commit, found.entries.len()), (1, 0));
    assert_eq!(found.cluster_id, CLUSTER);
}

#[test]
fn an_empty_folder_becomes_that_of_a_member_and_its_log_goes_on_after_the_first_membership() {
    let disk = FaultStorage::new();
    let (mut wal, found) = join(&disk).unwrap();
    assert_is_new_member(&found);
    wal.append(&[Record::Entry(Entry {
        index: 2,
        term: 1,
        kind: 0,
        payload: Bytes::new(),
    })])
    .unwrap();
    wal.sync().unwrap();
    let mut reader = wal
        .snapshots()
        .reader("snap-0000000000000001-0000000001")
        .unwrap();
    assert_eq!(
        &reader.next_chunk().unwrap().unwrap().payload[..],
        FIRST_STATE
    );
    drop(wal);
    let folder = open(&disk).unwrap();
    assert_eq!(
        folder.identity(),
        &Identity {
            server: SERVER,
            incarnation: INCARNATION,
            promise: LOWEST,
            cluster: CLUSTER,
            birth: Bytes::from_static(MEMBERS),
            is_founded: true,
        }
    );
    let (_, found) = folder
        .open_log(options(), |_| panic!("the log has its first state"))
        .unwrap();
    assert_eq!(found.entries.len(), 1);
}

#[test]
fn r17_an_incarnation_stays_the_same_from_the_first_start_on() {
    let disk = FaultStorage::new();
    drop(open(&disk).unwrap());
    let again = MemberFolder::open(Arc::new(disk.clone()), SERVER, 77).unwrap();
    assert_eq!(again.identity().incarnation, INCARNATION);
    drop(again);
    let after = disk.crash(Loss::Everything);
    let again = MemberFolder::open(Arc::new(after), SERVER, 77).unwrap();
    assert_eq!(again.identity().incarnation, INCARNATION);
}

#[test]
fn r18_a_promise_that_was_stored_is_never_forgotten_and_never_given_twice() {
    let disk = FaultStorage::new();
    let mut folder = open(&disk).unwrap();
    folder.promise(LOWEST).unwrap();
    let after = disk.crash(Loss::Everything);
    let again = open(&after).unwrap();
    assert_eq!(again.identity().promise, LOWEST);
    let refused = folder.promise(LOWEST + 1);
    assert!(matches!(refused, Err(WalError::Identity { .. })));
    assert_eq!(folder.identity().promise, LOWEST);
    folder
        .store_birth(CLUSTER, Bytes::from_static(MEMBERS))
        .unwrap();
    let refused = folder.store_birth(CLUSTER + 1, Bytes::from_static(MEMBERS));
    assert!(matches!(refused, Err(WalError::Identity { .. })));
    assert_eq!(folder.identity().cluster, CLUSTER);
}

#[test]
fn r18_a_crash_or_an_error_at_any_operation_leaves_a_whole_step_and_the_next_start_goes_on() {
    let probe = FaultStorage::new();
    drop(join(&probe).unwrap());
    let operations = probe.operations();
    let losses = [Loss::Nothing, Loss::Everything]
        .into_iter()
        .chain((0..4).map(Loss::Random));
    let mut seen = [0; 4];
    for at in 0..operations {
        for fault in Fault::ALL {
            let disk = FaultStorage::new();
            disk.fail_at(at, fault);
            // What was acknowledged before the fault.
            let mut stored = 0;
            let outcome = open(&disk).and_then(|mut folder| {
                folder.promise(LOWEST)?;
                stored = 1;
                folder.store_birth(CLUSTER, Bytes::from_static(MEMBERS))?;
                stored = 2;
                let log = open_log(folder)?;
                stored = 3;
                Ok(log)
            });
            drop(outcome);
            for loss in losses.clone() {
                let what = format!("operation {at}, {fault:?}, {loss:?}");
                let after = disk.crash(loss);
                let found = match open(&after) {
                    Ok(folder) => {
                        drop(folder);
                        step(&after)
                    }
                    Err(error) => panic!("{what}: {error}"),
                };
                assert!(found >= stored, "{what}: {found} of {stored}");
                seen[found] += 1;
                assert!(verify(&after).unwrap().is_sound(), "{what}");
                let (wal, found) = join(&after).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_is_new_member(&found);
                drop(wal);
                assert_eq!(step(&after), 3, "{what}");
                assert!(verify(&after).unwrap().is_sound(), "{what}");
                let names: Vec<String> = all_files(&after)
                    .into_iter()
                    .map(|(name, _)| name)
                    .collect();
                let left_over =
                    |name: &&String| name.ends_with(".tmp") || name.starts_with("recv-");
                assert_eq!(names.iter().find(left_over), None, "{what}");
            }
            // The process is started again on a machine that ran on.
            let again = disk.kill();
            let (_, found) = join(&again).unwrap();
            assert_is_new_member(&found);
            assert_is_new_member(
                &open_log(open(&again.crash(Loss::Everything)).unwrap())
                    .unwrap()
                    .1,
            );
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn a_full_disk_refuses_each_step_and_lets_the_next_start_take_it() {
    let probe = FaultStorage::new();
    drop(join(&probe).unwrap());
    let needed = probe.used_bytes();
    let mut refused = 0;
    for room in (0..needed).step_by(24) {
        let disk = FaultStorage::new();
        disk.set_capacity(Some(room));
        match join(&disk) {
            Err(WalError::NoSpace { .. }) => refused += 1,
            Err(error) => panic!("{room} bytes: {error}"),
            Ok(_) => {}
        }
        disk.set_capacity(None);
        let (_, found) = join(&disk).unwrap();
        assert_is_new_member(&found);
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn r17_a_member_without_its_log_is_refused_and_nothing_is_made_again() {
    let disk = FaultStorage::new();
    drop(join(&disk).unwrap());
    let whole = all_files(&disk);
    let forget = |kept: &dyn Fn(&str) -> bool| {
        let after = FaultStorage::new();
        for (name, content) in whole.iter().filter(|(name, _)| kept(name)) {
            after.put(name, content);
        }
        let before = all_files(&after);
        let refused = match open(&after) {
            Ok(folder) => open_log(folder).unwrap_err(),
            Err(error) => error,
        };
        assert!(!verify(&after).unwrap().is_sound());
        (refused, before == all_files(&after))
    };
    let (refused, is_unchanged) = forget(&|name| name == MEMBER_FILE);
    let text = refused.to_string();
    assert!(text.contains("has lost its log"), "{text}");
    assert!(text.contains("`baton server replace 3`"), "{text}");
    assert!(is_unchanged);
    let (refused, is_unchanged) = forget(&|name| !name.starts_with("log-"));
    assert!(matches!(
        refused,
        WalError::SegmentGap { .. } | WalError::MissingLog { .. }
    ));
    assert!(is_unchanged);
    let (refused, _) = forget(&|name| !name.starts_with("snap-"));
    assert!(!refused.to_string().is_empty());
    // A log of the same cluster that is as good as new, put in the place of the lost one.
    let options = WalOptions {
        cluster_id: Some(CLUSTER),
        ..options()
    };
    let other = FaultStorage::new();
    drop(Wal::open(Arc::new(other.clone()), options).unwrap());
    other.put(MEMBER_FILE, &disk.content(MEMBER_FILE).unwrap());
    let refused = open(&other).and_then(open_log).unwrap_err();
    assert!(
        matches!(refused, WalError::MemberLogLost { .. }),
        "{refused}"
    );
}

#[test]
fn a_server_that_stands_alone_and_a_member_refuse_each_others_folders() {
    let alone = FaultStorage::new();
    drop(Wal::open(Arc::new(alone.clone()), options()).unwrap());
    let before = all_files(&alone);
    let refused = open(&alone).unwrap_err();
    assert!(
        matches!(refused, WalError::NotAMemberFolder { .. }),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("start the server alone"),
        "{refused}"
    );
    assert_eq!(all_files(&alone), before);
    drop(Wal::open(Arc::new(alone), options()).unwrap());

    for until in 0..3 {
        let disk = FaultStorage::new();
        let mut folder = open(&disk).unwrap();
        if until >= 1 {
            folder.promise(LOWEST).unwrap();
        }
        if until >= 2 {
            folder
                .store_birth(CLUSTER, Bytes::from_static(MEMBERS))
                .unwrap();
            drop(open_log(folder).unwrap());
        } else {
            drop(folder);
        }
        let before = all_files(&disk);
        let refused = Wal::open(Arc::new(disk.clone()), WalOptions::default()).unwrap_err();
        assert!(matches!(
            refused,
            WalError::MemberFolder { server: SERVER, .. }
        ));
        assert!(
            refused
                .to_string()
                .contains("list of the ensemble's servers"),
            "{refused}"
        );
        let refused = MemberFolder::open(Arc::new(disk.clone()), 2, 5).unwrap_err();
        assert!(matches!(
            refused,
            WalError::OtherServer {
                found: SERVER,
                expected: 2,
                ..
            }
        ));
        assert_eq!(all_files(&disk), before);
        drop(open(&disk).unwrap());
    }
}

#[test]
fn one_process_has_a_members_folder() {
    let disk = FaultStorage::new();
    let folder = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(WalError::InUse { .. })));
    drop(folder);
    let (wal, _) = join(&disk).unwrap();
    assert!(matches!(open(&disk), Err(WalError::InUse { .. })));
    drop(wal);
    drop(open(&disk).unwrap());
}

#[test]
fn an_identity_that_is_damaged_is_refused_and_named() {
    let disk = FaultStorage::new();
    drop(join(&disk).unwrap());
    disk.flip_bit(MEMBER_FILE, 30, 2);
    let refused = open(&disk).unwrap_err().to_string();
    assert!(
        refused.contains("disk:MEMBER is damaged at byte 12"),
        "{refused}"
    );
    assert!(refused.contains("baton server replace"), "{refused}");
    assert!(Wal::open(Arc::new(disk.clone()), options()).is_err());
    let report = verify(&disk).unwrap();
    assert!(!report.is_sound());
    let is_named =
        |file: &FileReport| matches!(file, FileReport::Damaged { file, .. } if file == MEMBER_FILE);
    assert!(report.files.iter().any(is_named));
    let items = dump(Arc::new(disk)).unwrap();
    assert_eq!(items.filter(Result::is_err).count(), 1);
}

#[test]
fn dump_and_verify_show_the_identity_at_each_step_and_change_nothing() {
    let disk = FaultStorage::new();
    let mut folder = open(&disk).unwrap();
    let shown = |disk: &FaultStorage| {
        let before = all_files(disk);
        let report = verify(disk).unwrap();
        assert!(report.is_sound());
        let reported = report.files.iter().find_map(|file| match file {
            FileReport::Identity { identity, .. } => Some(identity.clone()),
            _ => None,
        });
        let dumped = dump(Arc::new(disk.clone())).unwrap().find_map(|found| {
            let found = found.unwrap();
            match found.item {
                DumpItem::Identity(identity) => {
                    let length = disk.content(&found.file).unwrap().len() as u64;
                    assert_eq!(found.bytes, length);
                    Some(identity)
                }
                _ => None,
            }
        });
        assert_eq!(reported, dumped);
        assert_eq!(all_files(disk), before);
        let identity = reported.unwrap();
        assert_eq!(report.cluster_id, identity.cluster);
        identity
    };
    assert_eq!(&shown(&disk), folder.identity());
    folder.promise(LOWEST).unwrap();
    assert_eq!(shown(&disk).promise, LOWEST);
    folder
        .store_birth(CLUSTER, Bytes::from_static(MEMBERS))
        .unwrap();
    assert_eq!(&shown(&disk), folder.identity());
    drop(open_log(folder).unwrap());
    assert!(shown(&disk).is_founded);
}

#[test]
fn a_membership_that_no_snapshot_takes_is_refused_before_anything_is_stored() {
    let disk = FaultStorage::new();
    let mut folder = open(&disk).unwrap();
    let before = all_files(&disk);
    let large = Bytes::from(vec![1; (64 << 10) + 1]);
    assert!(matches!(
        folder.store_birth(CLUSTER, large),
        Err(WalError::TooLarge { .. })
    ));
    for (cluster, membership) in [(0, MEMBERS), (CLUSTER, &[][..])] {
        let refused = folder.store_birth(cluster, Bytes::from_static(membership));
        assert!(matches!(refused, Err(WalError::Identity { .. })));
    }
    assert!(matches!(folder.promise(0), Err(WalError::Identity { .. })));
    assert_eq!(all_files(&disk), before);
    assert!(matches!(open_log(folder), Err(WalError::Identity { .. })));
    assert_eq!(all_files(&disk), before);
    let largest = Bytes::from(vec![1; 64 << 10]);
    let mut folder = open(&disk).unwrap();
    folder.store_birth(CLUSTER, largest.clone()).unwrap();
    let (_, found) = open_log(folder).unwrap();
    assert_eq!(found.snapshot.unwrap().meta.membership, largest);
}
