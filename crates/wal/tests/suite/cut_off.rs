//! Takes the end of a log away: cuts the file, zeroes its tail, puts an older copy in its place.
//! The promise: where an end mark vouches for what is gone, the start is refused and `verify` says
//! so; and where none does, both say that they could not decide.

use std::sync::Arc;

use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{
    DumpItem, Entry, FileReport, Record, RecoveryNote, Wal, WalError, WalOptions, dump, verify,
};
use bytes::Bytes;

use super::support::{self, all_files, open, recovered, segments};

const FIRST: &str = "log-0000000000000001";
const MARKS: &str = "SYNCED";
/// Position of the second of two marks.
const SECOND_SLOT: u64 = 4096;
const STEP: usize = 4096;

fn options() -> WalOptions {
    WalOptions {
        segment_bytes: 1 << 20,
        extend_bytes: STEP as u64,
        ..support::options()
    }
}

fn write_entry(wal: &mut Wal, len: usize) {
    let index = wal.last_index() + 1;
    wal.append(&[Record::Entry(Entry {
        index,
        term: 1,
        kind: 1,
        payload: Bytes::from(vec![index as u8 | 0x80; len]),
    })])
    .unwrap();
    wal.sync().unwrap();
}

/// Returns the position behind the last byte that is not zero.
fn used(content: &[u8]) -> usize {
    content.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

/// The start is refused, `verify` names the segment and the remedy, and nothing was changed.
fn assert_found(disk: &FaultStorage, what: &str) {
    let before = all_files(disk);
    let error = match recovered(disk, options()) {
        Err(error) => error,
        Ok(found) => panic!(
            "{what}: {} entries are taken for all, {:?}",
            found.entries.len(),
            found.notes
        ),
    };
    let text = error.to_string();
    assert!(matches!(error, WalError::Corrupt { .. }), "{what}: {text}");
    assert!(
        text.contains(FIRST) && text.contains("copy") && !text.contains('\n'),
        "{what}: {text}"
    );
    let report = verify(disk).unwrap();
    assert!(!report.is_sound(), "{what}");
    assert!(
        report
            .files
            .iter()
            .any(|file| matches!(file, FileReport::Damaged { file, .. } if file == FIRST)),
        "{what}: {report:?}"
    );
    assert_eq!(before, all_files(disk), "{what}: a refusal changed files");
}

/// Every way to take the end of the first segment away from byte `from` on: cut there and at each
/// step behind it, and zeroed with the length kept.
fn without_the_end(disk: &FaultStorage, from: usize) -> Vec<(String, FaultStorage)> {
    let content = disk.content(FIRST).unwrap();
    let mut ways = Vec::new();
    let mut cuts: Vec<usize> = (1..)
        .map(|steps| steps * STEP)
        .take_while(|at| *at < content.len())
        .collect();
    cuts.push(from);
    for at in cuts {
        let cut = disk.crash(Loss::Nothing);
        cut.put(FIRST, &content[..at]);
        ways.push((format!("cut at {at}"), cut));
    }
    let zeroed = disk.crash(Loss::Nothing);
    let mut now = content;
    now[from..].fill(0);
    zeroed.put(FIRST, &now);
    ways.push((format!("zeroed from {from} on"), zeroed));
    ways
}

#[test]
fn a_log_at_rest_or_stopped_that_loses_its_end_is_refused() {
    for stopped in [false, true] {
        let disk = FaultStorage::new();
        let (mut wal, _) = open(&disk, options()).unwrap();
        let mut ends = vec![64];
        for _ in 0..12 {
            write_entry(&mut wal, 900);
            ends.push(used(&disk.content(FIRST).unwrap()));
        }
        wal.mark_end().unwrap();
        assert!(wal.is_end_marked());
        if stopped {
            wal.close().unwrap();
        }
        let whole = disk.crash(Loss::Everything);
        assert_eq!(recovered(&whole, options()).unwrap().entries.len(), 12);
        for end in &ends[..ends.len() - 1] {
            for (what, damaged) in without_the_end(&whole, *end) {
                assert_found(&damaged, &format!("{what}, stopped: {stopped}"));
            }
        }
    }
}

#[test]
fn a_log_under_load_that_is_cut_at_a_step_is_refused() {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, options()).unwrap();
    for _ in 0..40 {
        write_entry(&mut wal, 700);
        // Power is lost here, with no rest before it.
        let crashed = disk.crash(Loss::Everything);
        let content = crashed.content(FIRST).unwrap();
        for steps in 1..content.len() / STEP {
            let cut = crashed.crash(Loss::Nothing);
            cut.put(FIRST, &content[..steps * STEP]);
            assert_found(&cut, &format!("cut to {steps} steps of {}", content.len()));
        }
    }
}

#[test]
fn what_no_mark_vouches_for_is_reported() {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, options()).unwrap();
    write_entry(&mut wal, 100);
    wal.mark_end().unwrap();
    let marked = used(&disk.content(FIRST).unwrap());
    write_entry(&mut wal, 100);
    let second = used(&disk.content(FIRST).unwrap());
    write_entry(&mut wal, 100);
    let mut content = disk.content(FIRST).unwrap();
    let disk = disk.crash(Loss::Everything);
    let not_closed = |disk: &FaultStorage| {
        let report = verify(disk).unwrap();
        assert!(report.is_sound());
        let notes = report.start.unwrap().notes;
        assert_eq!(recovered(disk, options()).unwrap().notes, notes);
        let [
            RecoveryNote::NotClosed {
                offset,
                unmarked_bytes,
                ..
            },
        ] = notes[..]
        else {
            panic!("{notes:?}");
        };
        let text = notes[0].to_string();
        assert!(text.contains(FIRST) && !text.contains('\n'), "{text}");
        (offset as usize, unmarked_bytes as usize)
    };
    // Records end at multiples of 8.
    let end = used(&content).next_multiple_of(8);
    let marked = marked.next_multiple_of(8);
    assert_eq!(not_closed(&disk), (end, end - marked));
    content[second..].fill(0);
    disk.put(FIRST, &content);
    let second = second.next_multiple_of(8);
    assert_eq!(not_closed(&disk), (second, second - marked));
}

#[test]
fn only_a_log_that_was_closed_starts_without_a_word() {
    let disk = FaultStorage::new();
    let (mut wal, found) = open(&disk, options()).unwrap();
    assert_eq!(found.notes, []);
    write_entry(&mut wal, 100);
    wal.close().unwrap();
    let (mut wal, found) = open(&disk.crash(Loss::Everything), options()).unwrap();
    assert_eq!(found.notes, []);
    // A start that writes nothing leaves it closed.
    drop(wal);
    let disk = disk.crash(Loss::Everything);
    (wal, _) = open(&disk, options()).unwrap();
    wal.mark_closed().unwrap();
    assert_eq!(recovered(&disk.kill(), options()).unwrap().notes, []);
    // The first write opens it again before it reaches the disk.
    let before = disk.operations();
    write_entry(&mut wal, 100);
    let total = disk.operations() - before;
    let closed = disk.kill();
    assert!(matches!(
        recovered(&closed, options()).unwrap().notes[..],
        [RecoveryNote::NotClosed { .. }]
    ));
    for operation in 0..total {
        let disk = FaultStorage::new();
        let (mut wal, _) = open(&disk, options()).unwrap();
        write_entry(&mut wal, 100);
        wal.mark_closed().unwrap();
        let content = disk.content(FIRST).unwrap();
        disk.fail_at(disk.operations() + operation, Fault::CrashAfter);
        let index = wal.last_index() + 1;
        let record = Record::Entry(Entry {
            index,
            term: 1,
            kind: 1,
            payload: Bytes::from(vec![1; 100]),
        });
        let _ = wal.append(&[record]).and_then(|()| wal.sync());
        let after = disk.crash(Loss::Everything);
        let found = recovered(&after, options()).unwrap();
        if after.content(FIRST).unwrap() != content {
            assert_ne!(found.notes, [], "operation {operation}");
        }
    }
}

#[test]
fn an_older_copy_of_the_last_segment_is_refused() {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, options()).unwrap();
    write_entry(&mut wal, 700);
    wal.mark_end().unwrap();
    let older = disk.content(FIRST).unwrap();
    for _ in 0..10 {
        write_entry(&mut wal, 700);
    }
    wal.close().unwrap();
    let whole = disk.crash(Loss::Everything);
    whole.put(FIRST, &older);
    assert_found(&whole, "an older copy");

    // One that went another way from some point on, and is longer.
    let other = FaultStorage::new();
    let (mut wal, _) = open(&other, options()).unwrap();
    for _ in 0..20 {
        write_entry(&mut wal, 705);
    }
    wal.close().unwrap();
    whole.put(FIRST, &other.content(FIRST).unwrap());
    assert_found(&whole, "a copy of another log");
}

#[test]
fn a_missing_last_segment_is_refused_though_the_record_of_it_is_gone_too() {
    let disk = FaultStorage::new();
    let small = WalOptions {
        segment_bytes: 4096,
        ..options()
    };
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), small).unwrap();
    // The first segment as it was before its seal.
    let mut unsealed = Vec::new();
    for _ in 0..12 {
        if segments(&disk).len() == 1 {
            unsealed = disk.content(FIRST).unwrap();
        }
        write_entry(&mut wal, 700);
    }
    wal.close().unwrap();
    let disk = disk.crash(Loss::Everything);
    let names = segments(&disk);
    assert!(names.len() > 2, "{names:?}");
    for name in &names[1..] {
        disk.take(name);
    }
    disk.put(FIRST, &unsealed);
    let error = recovered(&disk, options()).unwrap_err();
    assert!(
        matches!(error, WalError::SegmentGap { missing: 2, .. }),
        "{error}"
    );
    assert!(!verify(&disk).unwrap().is_sound());
}

#[test]
fn a_torn_or_damaged_mark_is_never_taken_and_the_other_one_is() {
    let disk = FaultStorage::new();
    let (mut wal, _) = open(&disk, options()).unwrap();
    for _ in 0..3 {
        write_entry(&mut wal, 100);
        wal.mark_end().unwrap();
    }
    let whole = disk.crash(Loss::Everything);
    let newest = dump(Arc::new(whole.clone()))
        .unwrap()
        .find_map(|item| match item.unwrap() {
            found if matches!(found.item, DumpItem::EndMark(_)) => Some(found),
            _ => None,
        })
        .unwrap();
    let other = if newest.offset == 0 { SECOND_SLOT } else { 0 };
    for bit in 0..128 * 8 {
        for (slot, is_expected) in [(newest.offset, true), (other, true)] {
            let damaged = whole.crash(Loss::Nothing);
            damaged.flip_bit(MARKS, slot + bit / 8, (bit % 8) as u8);
            match recovered(&damaged, options()) {
                Ok(found) => {
                    assert_eq!(found.entries.len(), 3);
                    let is_noted = found
                        .notes
                        .iter()
                        .any(|note| matches!(note, RecoveryNote::TornEndMark { .. }));
                    assert_eq!(is_noted, is_expected, "bit {bit}: {:?}", found.notes);
                }
                Err(error) => assert!(
                    matches!(error, WalError::FormatVersion { .. }) && (64..96).contains(&bit),
                    "bit {bit}: {error}"
                ),
            }
        }
    }
    // Both damaged: nothing vouches any more, which is more than a crash can do.
    whole.flip_bit(MARKS, 20, 0);
    whole.flip_bit(MARKS, SECOND_SLOT + 20, 0);
    let error = recovered(&whole, options()).unwrap_err();
    assert!(
        matches!(&error, WalError::Corrupt { file, .. } if file.ends_with(MARKS)),
        "{error}"
    );
    assert!(!verify(&whole).unwrap().is_sound());
    // Without the file it starts, and says what that means; the first write makes it again.
    whole.take(MARKS);
    let (mut wal, found) = open(&whole, options()).unwrap();
    assert!(matches!(found.notes[..], [RecoveryNote::NoEndMark { .. }]));
    write_entry(&mut wal, 100);
    wal.close().unwrap();
    assert_eq!(
        recovered(&whole.crash(Loss::Everything), options())
            .unwrap()
            .notes,
        []
    );
}

#[test]
fn marks_of_another_folder_are_refused() {
    let disk = FaultStorage::new();
    drop(open(&disk, options()).unwrap());
    let foreign = FaultStorage::new();
    let others = WalOptions {
        cluster_id: Some(8),
        ..options()
    };
    drop(Wal::open(Arc::new(foreign.clone()), others).unwrap());
    disk.put(MARKS, &foreign.content(MARKS).unwrap());
    let disk = disk.crash(Loss::Everything);
    assert!(matches!(
        recovered(&disk, options()),
        Err(WalError::WrongCluster {
            found: 8,
            expected: 7,
            ..
        })
    ));
    assert!(!verify(&disk).unwrap().is_sound());
}

/// Random crashes never make a mark cover what the disk does not have; and whatever the newest
/// mark covers is missed when it is gone.
#[test]
fn no_crash_makes_a_mark_lie_and_no_loss_before_it_goes_unseen() {
    let mut rng = fastrand::Rng::with_seed(17);
    for round in 0..300 {
        let disk = FaultStorage::new();
        disk.fail_at(
            20 + rng.u64(..60),
            [Fault::Crash, Fault::CrashAfter, Fault::TornWrite][rng.usize(..3)],
        );
        let mut acknowledged = 0;
        let mut wal = open(&disk, options()).map(|(wal, _)| wal);
        while let Ok(wal) = &mut wal {
            let index = wal.last_index() + 1;
            let record = Record::Entry(Entry {
                index,
                term: 1,
                kind: 1,
                payload: Bytes::from(vec![index as u8; rng.usize(..1_500)]),
            });
            if wal.append(&[record]).and_then(|()| wal.sync()).is_err() {
                break;
            }
            acknowledged = index;
            if rng.u8(..100) < 40 && wal.mark_end().is_err() {
                break;
            }
        }
        drop(wal);
        let crashed = disk.crash(Loss::Random(round));
        let found =
            recovered(&crashed, options()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(found.entries.len() as u64 >= acknowledged, "round {round}");
        let Some(mark) =
            dump(Arc::new(crashed.clone()))
                .unwrap()
                .find_map(|item| match item.unwrap().item {
                    DumpItem::EndMark(mark) => Some(mark),
                    _ => None,
                })
        else {
            continue;
        };
        let content = crashed.content(FIRST).unwrap();
        let from = 64 + rng.usize(..mark.offset as usize - 63);
        if content[from..mark.offset as usize]
            .iter()
            .all(|byte| *byte == 0)
        {
            continue;
        }
        for (what, damaged) in without_the_end(&crashed, from) {
            if damaged.content(FIRST).unwrap().len() as u64 >= mark.file_bytes
                && what.starts_with("cut")
            {
                continue;
            }
            assert_found(&damaged, &format!("round {round}: {what}"));
        }
    }
}

#[test]
fn a_last_segment_that_is_gone_is_missed_by_the_one_before_it_even_without_end_marks() {
    let disk = FaultStorage::new();
    let options = || WalOptions {
        segment_bytes: STEP as u64,
        ..options()
    };
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options()).unwrap();
    while segments(&disk).len() < 3 {
        write_entry(&mut wal, 900);
    }
    // Power is lost as soon as the third segment has its first record.
    let disk = disk.crash(Loss::Everything);
    disk.take(MARKS);
    let names = segments(&disk);
    assert_eq!(names.len(), 3);
    disk.take(names.iter().max().unwrap());
    assert!(matches!(
        Wal::open(Arc::new(disk.clone()), options()),
        Err(WalError::SegmentGap { missing: 3, .. })
    ));
    assert!(verify(&disk).unwrap().start.is_err());
}

#[test]
fn a_file_cut_within_the_room_made_ahead_is_refused() {
    // The last write begins and ends in one step of the file; and it ends in the next step, of
    // which only the end mark knows.
    for (writes, marked) in [(2, false), (2, true), (5, true)] {
        let disk = FaultStorage::new();
        let (mut wal, _) = open(&disk, options()).unwrap();
        for _ in 0..writes {
            write_entry(&mut wal, 900);
        }
        wal.mark_end().unwrap();
        let disk = disk.crash(Loss::Everything);
        if !marked {
            disk.take(MARKS);
        }
        let content = disk.content(FIRST).unwrap();
        let end = used(&content).next_multiple_of(8);
        assert!(end < content.len());
        for length in (end..content.len()).step_by(8) {
            let cut = disk.crash(Loss::Nothing);
            cut.put(FIRST, &content[..length]);
            assert_found(&cut, &format!("{writes} writes, cut to {length}"));
        }
        assert_eq!(recovered(&disk, options()).unwrap().entries.len(), writes);
    }
}
