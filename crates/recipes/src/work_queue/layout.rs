//! The nodes of a work queue: their names, and the order that names give.
//!
//! Owns every path below the queue's own. Items stand in *lanes*, folders of bounded size, so that
//! no listing grows with the depth of the queue (H75): one row of lanes for each priority, and one
//! lane for each minute in which delayed items fall due. A name never grows, however often an item
//! comes back (H71).

use baton_proto::path::join;
use std::sync::Arc;

/// How many items a lane of ready items takes before the next one is begun.
pub(super) const LANE_ITEMS: usize = 1024;

/// Milliseconds of due times that share a lane.
const MINUTE_MS: i64 = 60_000;

/// The largest priority number, which is the least urgent.
pub(super) const MAX_PRIORITY: u16 = 999;

/// Where a queue keeps what.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub root: Arc<str>,
    pub items: String,
    pub dead: String,
    pub ids: String,
    pub gate: String,
    pub waiters: String,
    pub verdicts: String,
    pub clock: String,
}

impl Layout {
    pub(super) fn new(root: &str) -> Self {
        Self {
            items: join(root, "items"),
            dead: join(root, "dead"),
            ids: join(root, "ids"),
            gate: join(root, "gate"),
            waiters: join(root, "waiters"),
            verdicts: join(root, "verdicts"),
            clock: join(root, "clock"),
            root: Arc::from(root),
        }
    }

    pub(super) fn lane(&self, lane: &str) -> String {
        join(&self.items, lane)
    }

    /// The node for the word of whoever settles the claim of this name.
    pub(super) fn verdict(&self, claim: &str) -> String {
        join(&self.verdicts, claim)
    }

    /// The node that stands for an id while an item has it.
    pub(super) fn id(&self, id: &str) -> String {
        join(&self.ids, &escape(id))
    }
}

/// A lane, as its name says. The order is that in which lanes are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Items that fall due in one minute since 1970, by the servers' clock.
    Later { minute: i64 },
    /// Ready items of one priority, in order of arrival.
    Ready { priority: u16, number: i64 },
}

impl Lane {
    pub(super) fn parse(name: &str) -> Option<Self> {
        if let Some(minute) = name.strip_prefix('t') {
            let minute = digits(minute, 10)?;
            return Some(Self::Later { minute });
        }
        let (priority, number) = name.strip_prefix('p')?.split_once('-')?;
        Some(Self::Ready {
            priority: u16::try_from(digits(priority, 3)?).ok()?,
            number: digits(number, 10)?,
        })
    }

    /// The lane of items due at `due_ms`.
    pub(super) fn of_due(due_ms: i64) -> Self {
        Self::Later {
            minute: due_ms.div_euclid(MINUTE_MS),
        }
    }

    /// Its name, or for ready items its name without the number that the server gives.
    pub(super) fn name(self) -> String {
        match self {
            Self::Later { minute } => format!("t{minute:010}"),
            Self::Ready { priority, .. } => format!("p{priority:03}-"),
        }
    }

    /// When its first item can fall due.
    pub(super) fn begins_ms(self) -> i64 {
        match self {
            Self::Later { minute } => minute.saturating_mul(MINUTE_MS),
            Self::Ready { .. } => 0,
        }
    }
}

/// An item's name in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Ready { number: i64 },
    Later { due_ms: i64, priority: u16 },
}

/// What comes before the number of a ready item.
pub(super) const READY_PREFIX: &str = "i-";

/// The start of a claim's name, below its item.
pub(super) const CLAIM_PREFIX: &str = "claim-";

impl Name {
    pub(super) fn parse(name: &str) -> Option<Self> {
        if let Some(number) = name.strip_prefix(READY_PREFIX) {
            let number = digits(number, 10)?;
            return Some(Self::Ready { number });
        }
        let mut parts = name.splitn(3, '-');
        let due_ms = digits(parts.next()?, 13)?;
        let priority = u16::try_from(digits(parts.next()?, 3)?).ok()?;
        (parts.next()?.len() == 32).then_some(Self::Later { due_ms, priority })
    }

    /// A name that no item ever had: a lane of delayed items may be removed and made again, and
    /// numbers would start anew (H09).
    pub(super) fn later(due_ms: i64, priority: u16) -> String {
        let marker = uuid::Uuid::new_v4();
        format!("{due_ms:013}-{priority:03}-{}", marker.simple())
    }
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let plain = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// An id as a node's name: whatever could mean something to a path is written as `%` and two hex
/// digits.
fn escape(id: &str) -> String {
    let mut name = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            other => name.push_str(&format!("%{other:02X}")),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_names_are_read_as_they_are_written() {
        let ready = format!(
            "{}0000000017",
            Lane::Ready {
                priority: 7,
                number: 0
            }
            .name()
        );
        assert_eq!(
            Lane::parse(&ready),
            Some(Lane::Ready {
                priority: 7,
                number: 17
            })
        );
        let due_ms = 1_763_736_000_123;
        let lane = Lane::of_due(due_ms);
        assert_eq!(Lane::parse(&lane.name()), Some(lane));
        assert!(lane.begins_ms() <= due_ms && due_ms < lane.begins_ms() + MINUTE_MS);
        let later = Name::later(due_ms, 42);
        assert_eq!(
            Name::parse(&later),
            Some(Name::Later {
                due_ms,
                priority: 42
            })
        );
        assert_eq!(Name::parse("i-0000000003"), Some(Name::Ready { number: 3 }));
        for foreign in [
            "",
            "p7-1",
            "t",
            "tx",
            "p1000-0000000001",
            "i-3",
            "qn-0000000001",
            "x",
        ] {
            assert_eq!(Lane::parse(foreign), None, "{foreign}");
            assert_eq!(Name::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn ids_become_names_that_no_path_rule_minds_and_that_do_not_meet() {
        for id in ["..", ".", "a/b", "a%2Fb", "ü", "\0", "zookeeper"] {
            let path = Layout::new("/q").id(id);
            baton_proto::path::validate(&path).unwrap();
            assert_eq!(path.matches('/').count(), 3, "{path}");
        }
        assert_ne!(escape("a/b"), escape("a%2Fb"));
    }
}
