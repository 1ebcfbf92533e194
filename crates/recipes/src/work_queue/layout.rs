//! Names and paths of a work queue, and the order that names give.
//!
//! Owns every path below the queue's own node. Items are kept in *shards*, folders of bounded size,
//! so that no listing grows with the depth of the queue (H75): a sequence of shards for each
//! priority, and one shard for each minute in which delayed items fall due. A name never grows,
//! however often an item comes back (H71).

use std::sync::Arc;

use baton_proto::path::join;

/// Number of items that a shard of ready items takes before a new shard is made.
pub(super) const SHARD_ITEMS: usize = 1024;

/// Milliseconds of due times that share a shard.
const MINUTE_MS: i64 = 60_000;

/// The largest priority number, which is the least urgent.
pub(super) const MAX_PRIORITY: u16 = 999;

/// The names of the folder of shards, and of that of dead letters.
const ITEMS: &str = "items";
const DEAD: &str = "dead";

/// Full paths of the nodes of one queue.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The queue's own node.
    pub root: Arc<str>,
    /// The folder of shards.
    pub items: String,
    /// The folder of dead letters.
    pub dead: String,
    /// The folder of reserved ids.
    pub ids: String,
    /// The capacity counter, called `gate` on the tree.
    pub counter: String,
    /// The wait queue of consumers that find no item.
    pub waiters: String,
    /// The folder of settlement notices, called `verdicts` on the tree.
    pub notices: String,
    /// The folder of nodes by which the servers' clock is read.
    pub clock: String,
}

impl Layout {
    pub(super) fn new(root: &str) -> Self {
        Self {
            items: join(root, ITEMS),
            dead: join(root, DEAD),
            ids: join(root, "ids"),
            counter: join(root, "gate"),
            waiters: join(root, "waiters"),
            notices: join(root, "verdicts"),
            clock: join(root, "clock"),
            root: Arc::from(root),
        }
    }

    pub(super) fn shard(&self, shard: &str) -> String {
        join(&self.items, shard)
    }

    /// The notice node of the claim whose node has this name.
    pub(super) fn notice(&self, claim: &str) -> String {
        join(&self.notices, claim)
    }

    /// The node that reserves an id while an item has it.
    pub(super) fn id(&self, id: &str) -> String {
        join(&self.ids, &escape(id))
    }
}

/// A shard, as its name says. The order is the one in which shards are scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shard {
    /// Items that fall due in one minute since 1970, by the servers' clock.
    Later { minute: i64 },
    /// Ready items of one priority, in order of arrival.
    Ready { priority: u16, number: i64 },
}

impl Shard {
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

    /// The shard of items due at `due_ms`.
    pub(super) fn of_due(due_ms: i64) -> Self {
        Self::Later {
            minute: due_ms.div_euclid(MINUTE_MS),
        }
    }

    /// The name; for ready items without the number, which the server appends.
    pub(super) fn name(self) -> String {
        match self {
            Self::Later { minute } => format!("t{minute:010}"),
            Self::Ready { priority, .. } => format!("p{priority:03}-"),
        }
    }

    /// The earliest due time of its items.
    pub(super) fn begins_ms(self) -> i64 {
        match self {
            Self::Later { minute } => minute.saturating_mul(MINUTE_MS),
            Self::Ready { .. } => 0,
        }
    }
}

/// An item's name in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemName {
    Ready { number: i64 },
    Later { due_ms: i64, priority: u16 },
}

/// The start of a ready item's name; the server appends a number.
pub(super) const READY_PREFIX: &str = "i-";

/// The start of a dead letter's name; the server appends a number.
pub(super) const DEAD_PREFIX: &str = "d-";

/// The start of the name of a claim's node, which is a child of its item.
pub(super) const CLAIM_PREFIX: &str = "claim-";

impl ItemName {
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

    /// A unique name for a delayed item. Sequential numbers would start again when a shard is
    /// removed and made again (H09).
    pub(super) fn later(due_ms: i64, priority: u16) -> String {
        let marker = uuid::Uuid::new_v4();
        format!("{due_ms:013}-{priority:03}-{}", marker.simple())
    }
}

/// The queue of the item at `path`, by its names alone; `None` for another path.
pub(super) fn queue_of_item(path: &str) -> Option<&str> {
    let (shard_path, item) = path.rsplit_once('/')?;
    ItemName::parse(item)?;
    let (folder, shard) = shard_path.rsplit_once('/')?;
    Shard::parse(shard)?;
    below(folder, ITEMS)
}

/// The queue of the dead letter at `path`, by its names alone; `None` for another path.
pub(super) fn queue_of_dead_letter(path: &str) -> Option<&str> {
    let (folder, letter) = path.rsplit_once('/')?;
    digits(letter.strip_prefix(DEAD_PREFIX)?, 10)?;
    below(folder, DEAD)
}

/// The queue whose folder of this name is at `path`.
fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let (queue, name) = path.rsplit_once('/')?;
    (name == folder && !queue.is_empty()).then_some(queue)
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let plain = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// An id as a node's name: bytes other than letters, digits, `-` and `_` become `%` and two hex
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
    fn shards_and_names_are_read_as_they_are_written() {
        let ready = format!(
            "{}0000000017",
            Shard::Ready {
                priority: 7,
                number: 0
            }
            .name()
        );
        assert_eq!(
            Shard::parse(&ready),
            Some(Shard::Ready {
                priority: 7,
                number: 17
            })
        );
        let due_ms = 1_763_736_000_123;
        let shard = Shard::of_due(due_ms);
        assert_eq!(Shard::parse(&shard.name()), Some(shard));
        assert!(shard.begins_ms() <= due_ms && due_ms < shard.begins_ms() + MINUTE_MS);
        let later = ItemName::later(due_ms, 42);
        assert_eq!(
            ItemName::parse(&later),
            Some(ItemName::Later {
                due_ms,
                priority: 42
            })
        );
        assert_eq!(
            ItemName::parse("i-0000000003"),
            Some(ItemName::Ready { number: 3 })
        );
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
            assert_eq!(Shard::parse(foreign), None, "{foreign}");
            assert_eq!(ItemName::parse(foreign), None, "{foreign}");
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
