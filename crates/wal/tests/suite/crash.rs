//! Stops a scripted workload at every single operation of the disk, with every kind of fault, and
//! checks what a start finds. The promise: everything that a sync acknowledged is there, or the
//! start refuses with a typed error; and where the disk only lost what was never synced, the start
//! succeeds.

use std::collections::BTreeSet;
use std::sync::Arc;

use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{Entry, HardState, Record, Recovered, SnapshotMeta, Wal, WalError};
use bytes::Bytes;

use super::support::options;

/// Content of a log at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    entries: Vec<Entry>,
    hard_state: HardState,
    commit: u64,
}

impl State {
    fn apply(&mut self, record: &Record, reached: &mut Vec<State>) {
        match record {
            Record::Entry(entry) => {
                if self.entries.len() as u64 >= entry.index {
                    self.entries.truncate(entry.index as usize - 1);
                    reached.push(self.clone());
                }
                self.entries.push(entry.clone());
            }
            Record::HardState(state) => self.hard_state = *state,
            Record::Commit { index } => self.commit = *index,
            Record::Truncate { from } => self.entries.truncate(*from as usize - 1),
            _ => {}
        }
        reached.push(self.clone());
    }
}

/// Knowledge of the outside: the states that a start may find, oldest (acknowledged) first.
#[derive(Debug, Clone)]
struct PossibleStates {
    possible: Vec<State>,
    snapshots: BTreeSet<u64>,
    maybe_snapshot: Option<u64>,
}

impl PossibleStates {
    fn new() -> PossibleStates {
        PossibleStates {
            possible: vec![State::default()],
            snapshots: BTreeSet::new(),
            maybe_snapshot: None,
        }
    }

    fn append(&mut self, records: &[Record]) {
        let mut state = self.possible.last().unwrap().clone();
        for record in records {
            state.apply(record, &mut self.possible);
        }
    }

    fn synced(&mut self) {
        self.possible.drain(..self.possible.len() - 1);
    }

    fn assert_allows(&self, found: &Recovered, what: &str) {
        let base = found.snapshot.as_ref().map_or(0, |info| info.meta.index);
        assert!(
            base == 0 || self.snapshots.contains(&base) || self.maybe_snapshot == Some(base),
            "{what}: snapshot {base} came from nowhere"
        );
        let allowed = self.possible.iter().any(|state| {
            let after: Vec<&Entry> = state.entries.iter().filter(|e| e.index > base).collect();
            after.iter().copied().eq(found.entries.iter())
                && state.hard_state == found.hard_state
                && state.commit.max(base) == found.commit
        });
        assert!(
            allowed,
            "{what}: found {:?} entries {:?} commit {}, acknowledged was {:?}",
            found.hard_state,
            found
                .entries
                .iter()
                .map(|e| (e.index, e.term))
                .collect::<Vec<_>>(),
            found.commit,
            self.possible
                .iter()
                .map(|s| (s.entries.len(), s.hard_state, s.commit))
                .collect::<Vec<_>>(),
        );
    }
}

fn entry(index: u64, term: u64, len: usize) -> Record {
    let payload: Vec<u8> = (0..len)
        .map(|at| (at as u64 * 31 + index * 7 + term) as u8)
        .collect();
    Record::Entry(Entry {
        index,
        term,
        kind: 1,
        payload: Bytes::from(payload),
    })
}

/// Seven segments' worth of everything that a server does with a log.
fn workload(disk: &FaultStorage, known: &mut PossibleStates) -> Result<(), WalError> {
    let (mut wal, found) = Wal::open(Arc::new(disk.clone()), options())?;
    known.assert_allows(&found, "first start");
    let mut next = 1;
    for round in 1..=14_u64 {
        let mut records = vec![];
        if round % 4 == 1 {
            records.push(Record::HardState(HardState {
                term: round,
                vote: 1,
            }));
        }
        let count = 1 + round % 3;
        for _ in 0..count {
            records.push(entry(next, round, (next as usize * 211) % 1500));
            next += 1;
        }
        if round % 5 == 0 {
            // The leader changed: the last entry is replaced.
            next -= 1;
            records.push(entry(next, round + 1, 300));
            next += 1;
        }
        known.append(&records);
        wal.append(&records)?;
        wal.sync()?;
        known.synced();
        if round % 3 == 0 {
            wal.mark_end()?;
        }

        let commit = [Record::Commit { index: next - 1 }];
        known.append(&commit);
        wal.append(&commit)?;
        if round % 4 == 0 {
            let index = next - 1;
            known.maybe_snapshot = Some(index);
            let mut writer = wal.snapshots().writer(SnapshotMeta {
                index,
                term: round,
                zxid: 99,
                time_ms: 1,
                membership: Bytes::from_static(b"members"),
            })?;
            writer.chunk(1, &vec![round as u8; 700])?;
            writer.chunk(2, b"end")?;
            let info = writer.finish()?;
            known.snapshots.insert(index);
            wal.snapshot_saved(&info)?;
        }
    }
    wal.close()?;
    known.synced();
    Ok(())
}

fn total_operations() -> u64 {
    let disk = FaultStorage::new();
    workload(&disk, &mut PossibleStates::new()).unwrap();
    disk.operations()
}

fn reopen(disk: &FaultStorage) -> Result<Recovered, WalError> {
    Wal::open(Arc::new(disk.clone()), options()).map(|(_, found)| found)
}

/// Goes on after a crash: what is written then must be there at the start after that.
fn go_on(disk: &FaultStorage, what: &str) {
    let (mut wal, found) = Wal::open(Arc::new(disk.clone()), options()).expect(what);
    let index = wal.last_index() + 1;
    let more = [
        entry(index, 50, 900),
        entry(index + 1, 50, 10),
        entry(index + 2, 50, 100),
    ];
    for record in &more {
        wal.append(std::slice::from_ref(record)).expect(what);
        wal.sync().expect(what);
    }
    drop(wal);
    let again = reopen(&disk.crash(Loss::Everything)).expect(what);
    let mut expected = found.entries;
    expected.extend(more.into_iter().map(|record| match record {
        Record::Entry(entry) => entry,
        _ => unreachable!(),
    }));
    assert_eq!(again.entries, expected, "{what}: after going on");
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    let total = total_operations();
    assert!(total > 120, "the workload shrank to {total} operations");
    for operation in 0..total {
        for fault in Fault::ALL {
            let disk = FaultStorage::new();
            disk.fail_at(operation, fault);
            let mut known = PossibleStates::new();
            let outcome = workload(&disk, &mut known);
            if matches!(fault, Fault::Crash | Fault::TornWrite) {
                assert!(outcome.is_err());
            }
            let mut losses = vec![Loss::Nothing, Loss::Everything];
            losses.extend((0..6).map(|seed| Loss::Random(operation * 31 + seed)));
            for loss in losses {
                let what = format!("{fault:?} at operation {operation}, then {loss:?}");
                let after = disk.crash(loss);
                let found = reopen(&after).unwrap_or_else(|error| panic!("{what}: {error}"));
                known.assert_allows(&found, &what);
                go_on(&after, &what);
            }
        }
    }
}

#[test]
fn a_killed_process_and_then_a_power_loss_lose_nothing_acknowledged() {
    let total = total_operations();
    for operation in 0..total {
        for fault in [Fault::Crash, Fault::TornWrite, Fault::SyncLost] {
            let disk = FaultStorage::new();
            disk.fail_at(operation, fault);
            let mut known = PossibleStates::new();
            let _ = workload(&disk, &mut known);
            let what = format!("{fault:?} at operation {operation}, killed");
            let killed = disk.kill();
            let found = reopen(&killed).unwrap_or_else(|error| panic!("{what}: {error}"));
            known.assert_allows(&found, &what);
            // Whatever this start has shown may have been acted upon: it must survive the power
            // loss.
            for seed in 0..4 {
                let what = format!("{what}, then power loss {seed}");
                let after = killed.crash(Loss::Random(seed));
                let again = reopen(&after).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(again.entries, found.entries, "{what}");
                assert_eq!(again.hard_state, found.hard_state, "{what}");
            }
        }
    }
}

#[test]
fn a_crash_during_recovery_loses_nothing_acknowledged() {
    let total = total_operations();
    let mut rng = fastrand::Rng::with_seed(3);
    for operation in 0..total {
        let disk = FaultStorage::new();
        disk.fail_at(operation, Fault::TornWrite);
        let mut known = PossibleStates::new();
        let _ = workload(&disk, &mut known);
        let torn = disk.crash(Loss::Random(operation));
        let probe = torn.crash(Loss::Nothing);
        reopen(&probe).unwrap();
        for at in 0..probe.operations() {
            for fault in [
                Fault::Crash,
                Fault::TornWrite,
                Fault::Error,
                Fault::SyncLost,
            ] {
                let what = format!("torn at {operation}, {fault:?} at {at} of recovery");
                let again = torn.crash(Loss::Nothing);
                again.fail_at(at, fault);
                let _ = reopen(&again);
                let after = again.crash(Loss::Random(rng.u64(..)));
                let found = reopen(&after).unwrap_or_else(|error| panic!("{what}: {error}"));
                known.assert_allows(&found, &what);
            }
        }
    }
}

#[test]
fn a_failed_sync_is_never_retried() {
    let disk = FaultStorage::new();
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options()).unwrap();
    wal.append(&[entry(1, 1, 10)]).unwrap();
    wal.sync().unwrap();
    wal.append(&[entry(2, 1, 10)]).unwrap();
    // The next operation is the write (no growth is due), the one after it the sync.
    disk.fail_at(disk.operations() + 1, Fault::SyncLost);
    assert!(matches!(
        wal.sync(),
        Err(WalError::Poisoned { action: "sync", .. })
    ));
    let before = disk.operations();
    for _ in 0..3 {
        assert!(matches!(wal.sync(), Err(WalError::Poisoned { .. })));
        assert!(matches!(
            wal.append(&[entry(3, 1, 1)]),
            Err(WalError::Poisoned { .. })
        ));
        assert!(matches!(wal.purge(9), Err(WalError::Poisoned { .. })));
    }
    assert_eq!(
        disk.operations(),
        before,
        "the disk was touched after a failed sync"
    );
    drop(wal);
    let found = reopen(&disk.crash(Loss::Everything)).unwrap();
    assert_eq!(found.entries.len(), 1);
}

#[test]
fn a_full_disk_is_reported_as_such_and_leaves_a_usable_log() {
    for capacity in (0..30_000).step_by(1_300) {
        let disk = FaultStorage::new();
        disk.set_capacity(Some(capacity));
        let mut known = PossibleStates::new();
        match workload(&disk, &mut known) {
            Err(WalError::NoSpace { .. }) => {}
            other => panic!("at {capacity} bytes: {other:?}"),
        }
        let after = disk.crash(Loss::Random(capacity));
        let found = reopen(&after).unwrap();
        known.assert_allows(&found, &format!("full at {capacity} bytes"));
        go_on(&after, &format!("full at {capacity} bytes"));
    }
}

#[test]
fn a_sync_that_found_the_disk_full_can_be_repeated_once_there_is_room() {
    let disk = FaultStorage::new();
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options()).unwrap();
    wal.append(&[entry(1, 1, 100)]).unwrap();
    disk.set_capacity(Some(1_000));
    for _ in 0..3 {
        assert!(matches!(
            wal.sync(),
            Err(WalError::NoSpace {
                retryable: true,
                ..
            })
        ));
    }
    disk.set_capacity(None);
    wal.sync().unwrap();
    drop(wal);
    assert_eq!(
        reopen(&disk.crash(Loss::Everything)).unwrap().entries.len(),
        1
    );
}
