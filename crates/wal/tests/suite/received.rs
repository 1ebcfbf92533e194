//! A snapshot from another server takes the place of the log, and a crash at any operation leaves
//! the log before or the log after, never less.

use std::sync::Arc;

use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{HardState, Recovered, SnapshotInfo, SnapshotMeta, Wal, WalError};
use bytes::Bytes;

use super::support::{entry, log_of, open, options, recovered};

fn receive(wal: &Wal, index: u64) -> Result<SnapshotInfo, WalError> {
    let mut writer = wal.snapshots().receiver(SnapshotMeta {
        index,
        term: 3,
        zxid: 0,
        time_ms: 0,
        membership: Bytes::from_static(b"members"),
    })?;
    writer.chunk(1, &[5; 700])?;
    writer.finish()
}

fn install(disk: &FaultStorage, index: u64) -> Result<(), WalError> {
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options())?;
    let received = receive(&wal, index)?;
    wal.append_received(&received)?;
    wal.append(&[entry(index + 1, 3)])?;
    wal.sync()?;
    wal.finish_received(&received)?;
    Ok(())
}

fn shape(found: &Recovered) -> (u64, Vec<(u64, u64)>) {
    let base = found.snapshot.as_ref().map_or(0, |info| info.meta.index);
    let entries = found.entries.iter().map(|e| (e.index, e.term)).collect();
    (base, entries)
}

#[test]
fn a_received_snapshot_takes_the_place_of_the_log_and_the_log_goes_on_after_it() {
    for (last, index) in [(5, 9), (12, 9), (9, 9)] {
        let disk = log_of(last);
        install(&disk, index).unwrap();
        let found = recovered(&disk, options()).unwrap();
        assert_eq!(
            shape(&found),
            (index, vec![(index + 1, 3)]),
            "log of {last}"
        );
        assert_eq!(found.commit, index);
        assert_eq!(found.hard_state, HardState { term: 1, vote: 2 });
    }
}

#[test]
fn r23_a_crash_within_the_installation_leaves_either_half_and_no_acknowledged_entry_is_lost() {
    for (last, index) in [(5_u64, 9_u64), (12, 9)] {
        let probe = log_of(last);
        let before = probe.operations();
        install(&probe, index).unwrap();
        let operations = probe.operations() - before;
        let old: Vec<_> = (1..=last).map(|index| (index, 1)).collect();
        // What contradicts the snapshot may go before it comes: no majority ever had it.
        let cut: Vec<_> = (1..index.min(last + 1)).map(|index| (index, 1)).collect();
        let mut seen = [0; 4];
        for at in 0..operations {
            for fault in [Fault::Crash, Fault::CrashAfter, Fault::TornWrite] {
                for loss in [Loss::Nothing, Loss::Everything]
                    .into_iter()
                    .chain((0..5).map(Loss::Random))
                {
                    let disk = log_of(last);
                    disk.fail_at(disk.operations() + at, fault);
                    let _ = install(&disk, index);
                    let after = disk.crash(loss);
                    let found = recovered(&after, options())
                        .unwrap_or_else(|error| panic!("{at} {fault:?} {loss:?}: {error}"));
                    let shape = shape(&found);
                    let which = [
                        (0, old.clone()),
                        (0, cut.clone()),
                        (index, vec![]),
                        (index, vec![(index + 1, 3)]),
                    ]
                    .iter()
                    .position(|state| *state == shape);
                    seen[which.unwrap_or_else(|| panic!("{at} {fault:?} {loss:?}: {shape:?}"))] +=
                        1;
                    let again = recovered(&after, options()).unwrap();
                    assert_eq!(super::received::shape(&again), shape, "a second start");
                    assert!(after.content("recv-0000000000000009-0000000003").is_none());
                }
            }
        }
        assert!(seen[0] > 0 && seen[3] > 0, "{seen:?}");
    }
}

#[test]
fn a_received_snapshot_without_its_mark_in_the_log_counts_for_nothing() {
    let disk = log_of(5);
    let (wal, _) = open(&disk, options()).unwrap();
    let received = receive(&wal, 9).unwrap();
    assert!(wal.snapshots().names().unwrap().is_empty());
    let kept = disk.content(&received.name).unwrap();
    drop(wal);
    let found = recovered(&disk, options()).unwrap();
    assert_eq!((found.snapshot, found.entries.len()), (None, 5));
    assert!(disk.content(&received.name).is_none());
    // Nor does one whose log is another's.
    disk.put(&received.name, &kept);
    let (wal, _) = open(&disk, options()).unwrap();
    assert_eq!(wal.last_index(), 5);
}

#[test]
fn a_received_snapshot_of_what_is_committed_here_is_refused() {
    let disk = log_of(5);
    let (mut wal, _) = open(&disk, options()).unwrap();
    let received = receive(&wal, 2).unwrap();
    let refused = wal.append_received(&received);
    assert!(matches!(
        refused,
        Err(WalError::OutOfOrder { last: 2, found: 2 })
    ));
    wal.snapshots().discard_received(&received).unwrap();
    assert!(disk.content(&received.name).is_none());
}
