//! The shared register: who held when, by one clock, and whether more held at once than may.
//!
//! A holding lasts from `enter` to `leave`. A killed process held until it was killed. Baton's own
//! members claim less: each claim is an instant at which the guard said yes, and the holding lasts
//! until the last of them; so a member that was paused holds only if its guard says so afterwards.

use std::collections::BTreeMap;

use super::Event;

/// Limit on holders at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// This number.
    AtMost(u32),
    /// One that writes, or any number that read.
    ReadWrite,
}

const ALL: u32 = 1_000_000;

impl Rule {
    fn capacity(self) -> u32 {
        match self {
            Self::AtMost(capacity) => capacity,
            Self::ReadWrite => ALL,
        }
    }

    fn weight(self, recipe: &str) -> u32 {
        let reads = recipe
            .split(':')
            .next()
            .unwrap_or_default()
            .ends_with("-read");
        if self == Self::ReadWrite && !reads {
            ALL
        } else {
            1
        }
    }
}

/// Counts of the register.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Turns of each library.
    pub(crate) turns: BTreeMap<String, usize>,
    /// Times that the turn went from one library to another.
    pub(crate) hand_overs: usize,
    /// Turns that began while too many held already.
    pub(crate) overlaps: usize,
    /// The longest of them.
    pub(crate) longest_overlap_nanos: u64,
    /// Guards that ended before they were released.
    pub(crate) lost: usize,
    /// Times that a library hung or failed while it waited, as its process found.
    pub(crate) stuck: usize,
}

#[derive(Debug)]
struct HoldInterval {
    peer: usize,
    from: u64,
    to: u64,
    weight: u32,
}

pub(super) fn tally(events: &[Event], recipes: &[String], rule: Rule) -> Tally {
    let recipe = |peer: usize| recipes.get(peer).map_or("", String::as_str);
    let mut holdings = holdings(events, |peer| recipe(peer).starts_with("baton-"));
    holdings.sort_by_key(|holding| holding.from);
    let said = |what: &str| events.iter().filter(|event| event.what == what).count();
    let mut tally = Tally {
        lost: said("lost"),
        stuck: said("stuck"),
        ..Tally::default()
    };
    let mut last_library = None;
    let mut begun: Vec<HoldInterval> = Vec::new();
    for mut holding in holdings {
        let name = recipe(holding.peer);
        holding.weight = rule.weight(name);
        let library = name.split('-').next().unwrap_or(name);
        *tally.turns.entry(library.to_owned()).or_default() += 1;
        tally.hand_overs += usize::from(last_library.is_some_and(|last| last != library));
        last_library = Some(library);
        begun.retain(|earlier| earlier.to > holding.from);
        let weight: u32 = begun.iter().map(|earlier| earlier.weight).sum();
        if weight.saturating_add(holding.weight) > rule.capacity() {
            tally.overlaps += 1;
            let until = begun.iter().map(|earlier| earlier.to.min(holding.to)).max();
            let length = until.unwrap_or(holding.from).saturating_sub(holding.from);
            tally.longest_overlap_nanos = tally.longest_overlap_nanos.max(length);
        }
        begun.push(holding);
    }
    tally
}

fn holdings(events: &[Event], claims_less: impl Fn(usize) -> bool) -> Vec<HoldInterval> {
    let mut open: BTreeMap<(usize, String), HoldInterval> = BTreeMap::new();
    let mut closed = Vec::new();
    let end = events.iter().map(|event| event.nanos).max().unwrap_or(0);
    for event in events {
        let lane = (event.peer, event.rest.clone());
        match event.what.as_str() {
            "enter" => {
                let holding = HoldInterval {
                    peer: event.peer,
                    from: event.nanos,
                    to: event.nanos,
                    weight: 1,
                };
                closed.extend(open.insert(lane, holding));
            }
            "act" => {
                if let Some(holding) = open.get_mut(&lane) {
                    holding.to = event.nanos;
                }
            }
            "leave" | "lost" => {
                if let Some(mut holding) = open.remove(&lane) {
                    if event.what == "leave" {
                        holding.to = event.nanos;
                    }
                    closed.push(holding);
                }
            }
            _ => {}
        }
    }
    // What a process said before it was killed may arrive after that, so its end is read, not
    // awaited.
    let killed = |peer: usize| {
        let mut ends = events.iter().filter(|event| event.peer == peer);
        ends.find(|event| event.what == "killed" || event.what == "ended")
            .map(|event| event.nanos)
    };
    closed.extend(open.into_values().map(|mut holding| {
        if !claims_less(holding.peer) {
            holding.to = holding.to.max(killed(holding.peer).unwrap_or(end));
        }
        holding
    }));
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(peer: usize, what: &str, nanos: u64) -> Event {
        Event {
            peer,
            what: what.to_owned(),
            nanos,
            rest: "0".to_owned(),
        }
    }

    fn recipes(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn turns_one_after_the_other_do_not_overlap() {
        let events = [
            event(0, "enter", 1),
            event(0, "leave", 5),
            event(1, "enter", 5),
            event(1, "leave", 9),
        ];
        let tally = tally(
            &events,
            &recipes(&["baton-lock", "curator-mutex"]),
            Rule::AtMost(1),
        );
        assert_eq!((tally.overlaps, tally.hand_overs), (0, 1));
        assert_eq!(tally.turns.len(), 2);
    }

    #[test]
    fn a_holder_that_was_killed_held_until_then() {
        let names = recipes(&["curator-mutex", "kazoo-lock"]);
        let mut events = vec![
            event(0, "enter", 1),
            event(0, "killed", 5),
            event(1, "enter", 4),
        ];
        let found = tally(&events, &names, Rule::AtMost(1));
        assert_eq!((found.overlaps, found.longest_overlap_nanos), (1, 1));
        events[2].nanos = 6;
        assert_eq!(tally(&events, &names, Rule::AtMost(1)).overlaps, 0);
    }

    #[test]
    fn a_member_of_ours_holds_for_as_long_as_its_guard_says_so() {
        let names = recipes(&["baton-lock", "kazoo-lock"]);
        let mut events = vec![
            event(0, "enter", 1),
            event(0, "act", 3),
            event(1, "enter", 5),
            event(0, "lost", 7),
            event(1, "leave", 8),
        ];
        assert_eq!(tally(&events, &names, Rule::AtMost(1)).overlaps, 0);
        events.insert(3, event(0, "act", 6));
        assert_eq!(tally(&events, &names, Rule::AtMost(1)).overlaps, 1);
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let names = recipes(&["curator-read", "baton-read:curator", "baton-write:curator"]);
        let mut events = vec![
            event(0, "enter", 1),
            event(1, "enter", 2),
            event(0, "leave", 4),
            event(1, "leave", 5),
            event(2, "enter", 5),
            event(2, "leave", 7),
        ];
        assert_eq!(tally(&events, &names, Rule::ReadWrite).overlaps, 0);
        events[4].nanos = 4;
        assert_eq!(tally(&events, &names, Rule::ReadWrite).overlaps, 1);
        assert_eq!(tally(&events[..4], &names, Rule::AtMost(2)).overlaps, 0);
        assert_eq!(tally(&events[..4], &names, Rule::AtMost(1)).overlaps, 1);
    }
}
