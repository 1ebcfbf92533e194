//! The rules that a history must keep. Pure: it takes records and returns what
//! contradicts them.
//!
//! 1. What was acknowledged is there, as it was acknowledged. What was not sent is not there.
//!    Nothing is there twice.
//! 2. The numbers of sequential znodes follow the order of the zxids, from 0, without a gap.
//! 3. The writes of one client are applied in the order in which it sent them.
//! 4. A write that began after another had been acknowledged has the higher zxid: the order of
//!    zxids is a linearization.
//! 5. The versions of a register grow by one with each set, in the order of the zxids, and no
//!    version was acknowledged twice or has two values. No value has two versions, and no version
//!    is beyond the last one.
//! 6. A client never reads an older version than it knows. A read behind a `sync` shows every
//!    version that any client knew before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Act, EndState, Operation, Outcome, Version, Zxid};

/// More of them help nobody.
const MOST_PROBLEMS: usize = 20;

/// Returns what contradicts the rules.
#[must_use]
pub fn check(operations: &[Operation], ending: &EndState) -> Vec<String> {
    let mut problems = Vec::new();
    refusals(operations, &mut problems);
    created(operations, ending, &mut problems);
    numbers(ending, &mut problems);
    let writes = placed(operations, ending);
    order_of_clients(&writes, &mut problems);
    order_in_time(&writes, &mut problems);
    registers(operations, ending, &mut problems);
    values(operations, ending, &mut problems);
    reads(operations, &mut problems);
    problems.truncate(MOST_PROBLEMS);
    problems
}

/// A write whose place in the order of all writes is known: from its answer, from a read that shows
/// it, or from the ending.
struct PlacedWrite<'a> {
    zxid: Zxid,
    operation: &'a Operation,
    /// Time at which it was acknowledged; `None` for one that never was.
    acknowledged: Option<Duration>,
}

fn name(operation: &Operation) -> String {
    format!("operation {}", operation.value)
}

fn refusals(operations: &[Operation], problems: &mut Vec<String>) {
    for operation in operations {
        let refused = match &operation.act {
            Act::Create(Outcome::Refused(why))
            | Act::Set {
                outcome: Outcome::Refused(why),
                ..
            }
            | Act::Read {
                outcome: Outcome::Refused(why),
                ..
            } => why,
            _ => continue,
        };
        problems.push(format!("{} was refused: {refused}", name(operation)));
    }
}

/// Rule 1, for creates.
fn created(operations: &[Operation], ending: &EndState, problems: &mut Vec<String>) {
    let mut there: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for (created, value) in &ending.created {
        there.entry(value).or_default().push(created);
    }
    for (value, twice) in there.iter().filter(|(_, all)| all.len() > 1) {
        problems.push(format!("operation {value} was done twice: {twice:?}"));
    }
    let mut issued = BTreeSet::new();
    for operation in operations {
        let Act::Create(outcome) = &operation.act else {
            continue;
        };
        let value = &operation.value;
        let found = there.get(value.as_str()).and_then(|all| all.first());
        match (outcome, found) {
            (Outcome::Done(created), None) => {
                problems.push(format!(
                    "{} was acknowledged as {created:?} and is lost",
                    name(operation)
                ));
            }
            (Outcome::Done(created), Some(found)) if created != *found => {
                problems.push(format!(
                    "{} was acknowledged as {created:?} and is {found:?}",
                    name(operation)
                ));
            }
            (Outcome::NotDone, Some(found)) => {
                problems.push(format!("{} was not sent and is {found:?}", name(operation)));
            }
            _ => {}
        }
        issued.insert(value.as_str());
    }
    for value in there.keys().filter(|value| !issued.contains(**value)) {
        problems.push(format!("{value:?} is there, and nobody wrote it"));
    }
}

/// Rule 2.
fn numbers(ending: &EndState, problems: &mut Vec<String>) {
    let mut in_order: Vec<_> = ending.created.iter().map(|(created, _)| created).collect();
    in_order.sort_by_key(|created| created.zxid);
    for (expected, created) in (0_u64..).zip(in_order) {
        let number = created
            .name
            .rsplit('-')
            .next()
            .and_then(|text| text.parse().ok());
        if number != Some(expected) {
            problems.push(format!("{created:?} should have number {expected}"));
            return;
        }
    }
}

/// All writes whose zxid is known, in the order of the zxids.
fn placed<'a>(operations: &'a [Operation], ending: &EndState) -> Vec<PlacedWrite<'a>> {
    let created = ending
        .created
        .iter()
        .map(|(created, value)| (&**value, created.zxid));
    let set = ending
        .registers
        .iter()
        .map(|(value, version)| (&**value, version.zxid));
    let read = operations.iter().filter_map(|operation| {
        let Act::Read { outcome, .. } = &operation.act else {
            return None;
        };
        let (version, value) = outcome.done()?;
        Some((&**value, version.zxid))
    });
    let shown: BTreeMap<&str, Zxid> = read.chain(created).chain(set).collect();
    let mut all = Vec::new();
    for operation in operations {
        if let Some(zxid) = operation.act.zxid() {
            all.push(PlacedWrite {
                zxid,
                operation,
                acknowledged: Some(operation.ended),
            });
        } else if !matches!(operation.act, Act::Read { .. })
            && let Some(zxid) = shown.get(operation.value.as_str())
        {
            all.push(PlacedWrite {
                zxid: *zxid,
                operation,
                acknowledged: None,
            });
        }
    }
    all.sort_by_key(|write| write.zxid);
    all
}

/// Rule 3.
fn order_of_clients(writes: &[PlacedWrite<'_>], problems: &mut Vec<String>) {
    let mut last: BTreeMap<usize, &PlacedWrite<'_>> = BTreeMap::new();
    for write in writes {
        let before = last.insert(write.operation.client, write);
        if let Some(before) = before
            && before.operation.number > write.operation.number
        {
            problems.push(format!(
                "{} (zxid 0x{:x}) was applied before {} (zxid 0x{:x}), which was sent first",
                name(before.operation),
                before.zxid,
                name(write.operation),
                write.zxid
            ));
        }
    }
}

/// Rule 4, and that no zxid was given twice.
fn order_in_time(writes: &[PlacedWrite<'_>], problems: &mut Vec<String>) {
    for pair in writes.windows(2) {
        if let [one, next] = pair
            && one.zxid == next.zxid
        {
            problems.push(format!(
                "{} and {} have the same zxid 0x{:x}",
                name(one.operation),
                name(next.operation),
                one.zxid
            ));
        }
    }
    // The one with a higher zxid that was acknowledged first.
    let mut earliest: Option<(&PlacedWrite<'_>, Duration)> = None;
    for write in writes.iter().rev() {
        if let Some((later, acknowledged)) = earliest
            && acknowledged < write.operation.begun
        {
            problems.push(format!(
                "{} (zxid 0x{:x}) began {:?} after {} (zxid 0x{:x}) had been acknowledged",
                name(write.operation),
                write.zxid,
                write.operation.begun - acknowledged,
                name(later.operation),
                later.zxid
            ));
        }
        if let Some(acknowledged) = write.acknowledged
            && earliest.is_none_or(|(_, before)| acknowledged < before)
        {
            earliest = Some((write, acknowledged));
        }
    }
}

/// Rule 5, and rule 1 for sets.
fn registers(operations: &[Operation], ending: &EndState, problems: &mut Vec<String>) {
    for (register, (value, at_the_end)) in ending.registers.iter().enumerate() {
        let sets = operations
            .iter()
            .filter_map(|operation| match &operation.act {
                Act::Set {
                    register: other,
                    outcome,
                } if *other == register => Some((operation, outcome)),
                _ => None,
            });
        let mut done: Vec<(Version, &Operation)> = Vec::new();
        let mut unknown = 0;
        let mut last_is_issued = at_the_end.number == 0;
        for (operation, outcome) in sets {
            let is_last = operation.value == *value;
            match outcome {
                Outcome::Done(version) => done.push((*version, operation)),
                Outcome::Unknown => unknown += 1,
                Outcome::NotDone if is_last => {
                    problems.push(format!("{} was not sent and is there", name(operation)));
                }
                Outcome::NotDone | Outcome::Refused(_) => {}
            }
            last_is_issued |= is_last;
        }
        if !last_is_issued {
            problems.push(format!(
                "register {register} has {value:?}, which nobody wrote"
            ));
        }
        done.sort_by_key(|(version, _)| version.number);
        for pair in done.windows(2) {
            if let [(one, first), (next, second)] = pair
                && (one.number == next.number || one.zxid >= next.zxid)
            {
                problems.push(format!(
                    "register {register}: {} was acknowledged as {one:?}, {} as {next:?}",
                    name(first),
                    name(second)
                ));
            }
        }
        let applied = usize::try_from(at_the_end.number).unwrap_or(0);
        if applied < done.len() || applied > done.len() + unknown {
            problems.push(format!(
                "register {register} was set {applied} times: {} sets were acknowledged, the outcome of {unknown} is unknown",
                done.len()
            ));
        }
        if let Some((version, operation)) = done.last() {
            let is_lost = at_the_end.number < version.number;
            let is_it = operation.value == *value && at_the_end == version;
            if is_lost || (at_the_end.number == version.number && !is_it) {
                problems.push(format!(
                    "register {register}: {} was acknowledged as {version:?}, {value:?} is there as {at_the_end:?}",
                    name(operation)
                ));
            }
        }
    }
}

/// Rule 5, for values.
fn values(operations: &[Operation], ending: &EndState, problems: &mut Vec<String>) {
    let shown = operations
        .iter()
        .filter_map(|operation| match &operation.act {
            Act::Set {
                register,
                outcome: Outcome::Done(version),
            } => Some((*register, version.number, operation.value.as_str())),
            Act::Read {
                register,
                outcome: Outcome::Done((version, value)),
                ..
            } => Some((*register, version.number, value.as_str())),
            _ => None,
        });
    let last = ending.registers.iter().enumerate();
    let last = last.map(|(register, (value, version))| (register, version.number, value.as_str()));
    let mut values: BTreeMap<(usize, i32), &str> = BTreeMap::new();
    let mut versions: BTreeMap<(usize, &str), i32> = BTreeMap::new();
    for (register, version, value) in shown.chain(last) {
        let other = *values.entry((register, version)).or_insert(value);
        if other != value {
            problems.push(format!(
                "version {version} of register {register} is {other:?} and {value:?}"
            ));
        }
        let other = *versions.entry((register, value)).or_insert(version);
        if other != version {
            problems.push(format!(
                "{value:?} is version {other} and version {version} of register {register}"
            ));
        }
    }
    for (register, (_, last)) in ending.registers.iter().enumerate() {
        let all = (register, i32::MIN)..=(register, i32::MAX);
        if let Some(((_, seen), _)) = values.range(all).next_back()
            && *seen > last.number
        {
            problems.push(format!(
                "register {register} ends at version {}, and was seen at version {seen}",
                last.number
            ));
        }
    }
}

/// Rule 6.
fn reads(operations: &[Operation], problems: &mut Vec<String>) {
    // Versions of each register in the order in which clients knew them, each with the highest
    // until then.
    let mut acknowledged: BTreeMap<usize, Vec<(Duration, i32)>> = BTreeMap::new();
    for operation in operations {
        if let Some((register, version, _)) = known_version(&operation.act) {
            let all = acknowledged.entry(register).or_default();
            all.push((operation.ended, version));
        }
    }
    for all in acknowledged.values_mut() {
        all.sort_unstable();
        let mut highest = 0;
        for (_, version) in all {
            highest = highest.max(*version);
            *version = highest;
        }
    }
    let mut by_client: Vec<&Operation> = operations.iter().collect();
    by_client.sort_by_key(|operation| (operation.client, operation.number));
    let mut known: BTreeMap<(usize, usize), i32> = BTreeMap::new();
    for operation in by_client {
        let Some((register, seen, is_synced)) = known_version(&operation.act) else {
            continue;
        };
        let known = known.entry((operation.client, register)).or_default();
        if seen < *known {
            problems.push(format!(
                "{} saw version {seen} of register {register}; its client knew version {known}",
                name(operation)
            ));
        }
        *known = seen.max(*known);
        let Some(all) = acknowledged.get(&register).filter(|_| is_synced) else {
            continue;
        };
        let before = all.partition_point(|(ended, _)| *ended < operation.begun);
        if let Some((_, due)) = before.checked_sub(1).and_then(|last| all.get(last))
            && seen < *due
        {
            problems.push(format!(
                "{} saw version {seen} of register {register} behind a sync; version {due} was known before",
                name(operation)
            ));
        }
    }
}

/// The register and the version that an operation makes known, and whether it is a read behind a
/// `sync`.
fn known_version(act: &Act) -> Option<(usize, i32, bool)> {
    match act {
        Act::Set {
            register,
            outcome: Outcome::Done(version),
        } => Some((*register, version.number, false)),
        Act::Read {
            register,
            is_synced,
            outcome: Outcome::Done((version, _)),
        } => Some((*register, version.number, *is_synced)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::CreatedZnode;
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn operation(client: usize, number: u64, times: (u64, u64), act: Act) -> Operation {
        Operation {
            client,
            number,
            value: format!("{client}-{number}"),
            begun: ms(times.0),
            ended: ms(times.1),
            act,
        }
    }

    fn node(number: u64, zxid: Zxid) -> CreatedZnode {
        CreatedZnode {
            name: format!("n-{number:010}"),
            zxid,
        }
    }

    fn version(number: i32, zxid: Zxid) -> Version {
        Version { number, zxid }
    }

    fn set(outcome: Outcome<Version>) -> Act {
        Act::Set {
            register: 0,
            outcome,
        }
    }

    fn read(is_synced: bool, seen: Version) -> Act {
        let value = format!("1-{}", seen.number - 1);
        Act::Read {
            register: 0,
            is_synced,
            outcome: Outcome::Done((seen, value)),
        }
    }

    /// Two clients, of which one does not know what became of its second create.
    fn sound() -> (Vec<Operation>, EndState) {
        let operations = vec![
            operation(0, 0, (0, 10), Act::Create(Outcome::Done(node(0, 5)))),
            operation(0, 1, (1, 40), Act::Create(Outcome::Unknown)),
            operation(0, 2, (2, 40), Act::Create(Outcome::NotDone)),
            operation(1, 0, (12, 20), set(Outcome::Done(version(1, 6)))),
            operation(1, 1, (21, 30), set(Outcome::Done(version(2, 9)))),
            operation(1, 2, (31, 32), read(true, version(2, 9))),
            operation(0, 3, (50, 60), Act::Create(Outcome::Done(node(2, 11)))),
        ];
        let ending = EndState {
            created: vec![
                (node(0, 5), "0-0".to_owned()),
                (node(1, 7), "0-1".to_owned()),
                (node(2, 11), "0-3".to_owned()),
            ],
            registers: vec![("1-1".to_owned(), version(2, 9))],
        };
        (operations, ending)
    }

    #[test]
    fn a_sound_history_is_accepted_whatever_became_of_what_is_unknown() {
        let (operations, ending) = sound();
        assert_eq!(check(&operations, &ending), [""; 0]);
        let mut without = ending;
        without.created = vec![
            (node(0, 5), "0-0".to_owned()),
            (node(1, 11), "0-3".to_owned()),
        ];
        let mut operations = operations;
        operations[6].act = Act::Create(Outcome::Done(node(1, 11)));
        assert_eq!(check(&operations, &without), [""; 0]);
    }

    /// The problem that is found when `spoil` has changed the sound history.
    fn found(spoil: impl FnOnce(&mut Vec<Operation>, &mut EndState)) -> String {
        let (mut operations, mut ending) = sound();
        spoil(&mut operations, &mut ending);
        check(&operations, &ending).join("\n")
    }

    #[test]
    fn a_write_that_is_lost_changed_doubled_or_invented_is_found() {
        let lost = found(|_, ending| {
            ending.created.remove(0);
        });
        assert!(lost.contains("operation 0-0 was acknowledged as"), "{lost}");
        assert!(lost.contains("and is lost"), "{lost}");
        let moved = found(|_, ending| ending.created[0].0.zxid = 4);
        assert!(moved.contains("and is Created"), "{moved}");
        let twice = found(|_, ending| ending.created.push((node(3, 12), "0-1".to_owned())));
        assert!(twice.contains("operation 0-1 was done twice"), "{twice}");
        let invented = found(|_, ending| ending.created[1].1 = "7-7".to_owned());
        assert!(invented.contains("nobody wrote it"), "{invented}");
        let unsent = found(|_, ending| ending.created[1].1 = "0-2".to_owned());
        assert!(
            unsent.contains("operation 0-2 was not sent and is"),
            "{unsent}"
        );
    }

    #[test]
    fn a_gap_and_a_number_out_of_order_are_found() {
        let gap = found(|_, ending| ending.created[1].0 = node(4, 7));
        assert!(gap.contains("should have number 1"), "{gap}");
        let swapped = found(|_, ending| ending.created[1].0.zxid = 12);
        assert!(swapped.contains("should have number"), "{swapped}");
    }

    #[test]
    fn writes_that_overtake_each_other_are_found() {
        let of_one_client = found(|operations, ending| {
            ending.created[1].0.zxid = 4;
            operations[1].begun = ms(0);
        });
        assert!(
            of_one_client.contains("which was sent first"),
            "{of_one_client}"
        );
        let in_time = found(|operations, _| operations[6].ended = ms(5));
        assert!(in_time.contains("had been acknowledged"), "{in_time}");
        let same = found(|operations, _| operations[3].act = set(Outcome::Done(version(1, 5))));
        assert!(same.contains("the same zxid"), "{same}");
    }

    #[test]
    fn versions_that_are_given_twice_or_lost_are_found() {
        let twice = found(|operations, _| operations[3].act = set(Outcome::Done(version(2, 6))));
        assert!(twice.contains("was acknowledged as Version"), "{twice}");
        let lost = found(|_, ending| ending.registers[0].1 = version(1, 6));
        assert!(lost.contains("was set 1 times"), "{lost}");
        let other = found(|_, ending| ending.registers[0].0 = "1-0".to_owned());
        assert!(other.contains("\"1-0\" is there"), "{other}");
        let nobody = found(|_, ending| ending.registers[0].0 = "8-8".to_owned());
        assert!(nobody.contains("which nobody wrote"), "{nobody}");
        let too_many = found(|_, ending| ending.registers[0].1 = version(3, 9));
        assert!(too_many.contains("was set 3 times"), "{too_many}");
    }

    #[test]
    fn a_version_with_two_values_is_found() {
        let of_read = Act::Read {
            register: 0,
            is_synced: false,
            outcome: Outcome::Done((version(2, 9), "1-0".to_owned())),
        };
        let two = found(|operations, _| operations[5].act = of_read);
        assert!(two.contains("is \"1-1\" and \"1-0\""), "{two}");
    }

    /// A read shows a write whose answer was lost.
    fn shown(value: &str, seen: Version) -> Act {
        Act::Read {
            register: 0,
            is_synced: false,
            outcome: Outcome::Done((seen, value.to_owned())),
        }
    }

    #[test]
    fn a_value_with_two_versions_is_found() {
        let two = found(|operations, _| {
            operations.push(operation(2, 0, (0, 1), shown("1-1", version(3, 12))));
        });
        assert!(
            two.contains("\"1-1\" is version 2 and version 3 of register 0"),
            "{two}"
        );
    }

    #[test]
    fn a_version_beyond_the_last_one_is_found() {
        let beyond = found(|operations, _| {
            operations[4].act = set(Outcome::Unknown);
            operations[5].act = shown("1-9", version(3, 12));
        });
        assert!(
            beyond.contains("ends at version 2, and was seen at version 3"),
            "{beyond}"
        );
    }

    #[test]
    fn a_write_without_an_answer_has_the_place_that_a_read_shows() {
        let overtaken = found(|operations, ending| {
            operations[3].act = set(Outcome::Unknown);
            operations.push(operation(2, 0, (0, 9), shown("1-0", version(1, 10))));
            ending.registers[0].1 = version(2, 9);
        });
        assert!(
            overtaken.contains("operation 1-0 (zxid 0xa), which was sent first"),
            "{overtaken}"
        );
    }

    #[test]
    fn what_another_client_has_read_is_known_too() {
        let stale = found(|operations, ending| {
            operations[4].act = set(Outcome::Unknown);
            operations[5].act = read(false, version(2, 9));
            let mut behind = operations[5].clone();
            (behind.client, behind.begun) = (2, ms(33));
            behind.act = read(true, version(1, 6));
            operations.push(behind);
            ending.registers[0].1 = version(2, 9);
        });
        assert!(stale.contains("behind a sync"), "{stale}");
    }

    #[test]
    fn reads_of_the_past_are_found() {
        let own = found(|operations, _| operations[5].act = read(false, version(1, 6)));
        assert!(own.contains("its client knew version 2"), "{own}");
        let behind_a_sync = found(|operations, _| {
            operations[5].act = read(true, version(1, 6));
            operations[5].client = 2;
        });
        assert!(behind_a_sync.contains("behind a sync"), "{behind_a_sync}");
        let without = found(|operations, _| {
            operations[5].act = read(false, version(1, 6));
            operations[5].client = 2;
        });
        assert_eq!(without, "", "another client may read the past");
    }

    #[test]
    fn a_refusal_is_found() {
        let refused = Outcome::Refused("no such node".to_owned());
        let problem = found(|operations, _| operations[1].act = Act::Create(refused));
        assert!(problem.contains("was refused: no such node"), "{problem}");
    }
}
