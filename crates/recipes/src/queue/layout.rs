//! The layouts of other libraries' queues: names of items, their order, and how a node holds items.
//!
//! Owns the naming scheme of items (`docs/internals/hazards.md` §2.1). Must treat a name as an item
//! exactly where the library of that layout does: an item that one of the two skips must not be
//! delivered by the other.

use bytes::Bytes;

use super::curator_envelope;
use super::error::QueueError;
use crate::naming::sequence_number;

/// The library whose names and bytes a queue has on the tree. All users of one path must use the
/// same layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum QueueLayout {
    /// `qn-#`, the item as it is: zookeeper-recipes' `DistributedQueue`, Curator's
    /// `SimpleDistributedQueue`.
    #[default]
    Recipes,
    /// `queue-…#`, items in Curator's envelope: Curator's `DistributedQueue` and its kin.
    Curator,
    /// `entry-<priority>-#`, the item as it is: kazoo's `Queue` and `LockingQueue`.
    Kazoo,
}

impl QueueLayout {
    /// The library whose queue has an item of this name.
    pub(crate) fn of_item(name: &str) -> Option<Self> {
        let kinds = [
            QueueKind::Recipes,
            QueueKind::Kazoo,
            QueueKind::CuratorPriority,
            QueueKind::CuratorDelay,
            QueueKind::CuratorId,
        ];
        let mut kinds = kinds.into_iter();
        let kind = kinds.find(|kind| kind.key(name).is_some())?;
        Some(kind.layout())
    }

    /// The layout's name as messages and options spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recipes => "qn",
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
        }
    }
}

impl std::fmt::Display for QueueLayout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The names of a queue's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum QueueKind {
    /// `qn-#`: [`DistributedQueue`](crate::DistributedQueue), zookeeper-recipes'
    /// `DistributedQueue`, Curator's `SimpleDistributedQueue`.
    #[default]
    Recipes,
    /// `queue-#`: Curator's `DistributedQueue`.
    Curator,
    /// `queue-<priority>#`: [`PriorityQueue`](crate::queue::PriorityQueue), Curator's
    /// `DistributedPriorityQueue`.
    CuratorPriority,
    /// `queue-|<time>|#`: [`DelayQueue`](crate::queue::DelayQueue), Curator's
    /// `DistributedDelayQueue`.
    CuratorDelay,
    /// `queue-|<id>|#`: [`IdQueue`](crate::queue::IdQueue), Curator's `DistributedIdQueue`.
    CuratorId,
    /// `entry-<priority>-#`: kazoo's `Queue`.
    Kazoo,
}

/// The position of an item: by class first, then in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The field before the number: a priority, or the time at which the item is due; else 0.
    pub class: i64,
    /// The number that the server appended.
    pub number: i64,
}

/// The priority of an item in kazoo where none is given.
pub(super) const KAZOO_PRIORITY: i32 = 100;

/// The largest priority that a kazoo name holds.
pub(super) const KAZOO_LEAST: i32 = 999;

const CURATOR: &str = "queue-";

impl QueueKind {
    pub(super) fn layout(self) -> QueueLayout {
        match self {
            Self::Recipes => QueueLayout::Recipes,
            Self::Curator | Self::CuratorPriority | Self::CuratorDelay | Self::CuratorId => {
                QueueLayout::Curator
            }
            Self::Kazoo => QueueLayout::Kazoo,
        }
    }

    /// The position of an item of this name; `None` where the name is not one of this format.
    pub(crate) fn key(self, name: &str) -> Option<Key> {
        let (stem, class) = self.split(name)?;
        let number = sequence_number(name.get(stem.len()..)?)?;
        Some(Key { class, number })
    }

    /// The name without the number, with which the item can be created again (H71).
    pub(super) fn stem(self, name: &str) -> Option<&str> {
        self.split(name).map(|(stem, _)| stem)
    }

    /// The part before the number, and its class.
    fn split(self, name: &str) -> Option<(&str, i64)> {
        let plain = |stem: &'static str| name.starts_with(stem).then_some((stem, 0));
        match self {
            Self::Recipes => plain("qn-"),
            Self::Curator => plain(CURATOR),
            Self::CuratorPriority => {
                let stem = name.get(..CURATOR.len() + 9)?;
                let (sign, bits) = stem.strip_prefix(CURATOR)?.split_at_checked(1)?;
                let bits = i64::from(u32::from_str_radix(bits, 16).ok()?);
                // Curator compares the text, so the digit of the sign decides even where the bits
                // differ from it.
                match sign {
                    "0" => Some((stem, bits - (1 << 32))),
                    "1" => Some((stem, bits)),
                    _ => None,
                }
            }
            Self::CuratorDelay => {
                let Some(stem) = until_bar(name) else {
                    // Without a time: due at once, as Curator has it.
                    return plain(CURATOR);
                };
                let due = stem.strip_prefix(CURATOR)?.strip_prefix('|')?;
                let due = i64::from_str_radix(due.strip_suffix('|')?, 16).ok()?;
                Some((stem, due))
            }
            Self::CuratorId => match until_bar(name) {
                Some(stem) => stem
                    .strip_prefix(CURATOR)?
                    .starts_with('|')
                    .then_some((stem, 0)),
                None => plain(CURATOR),
            },
            Self::Kazoo => {
                let stem = name.get(.."entry-000-".len())?;
                let priority = stem.strip_prefix("entry-")?.strip_suffix('-')?;
                let digits = priority.bytes().all(|byte| byte.is_ascii_digit());
                digits
                    .then(|| priority.parse().ok())?
                    .map(|class| (stem, class))
            }
        }
    }

    /// Returns whether an item that is offered later always comes after the ones that are there.
    pub(super) fn is_fifo(self) -> bool {
        matches!(self, Self::Recipes | Self::Curator | Self::CuratorId)
    }

    /// The bytes of a node with these items. Layouts without an envelope hold one item.
    pub(super) fn encode(self, items: &[Bytes]) -> Bytes {
        match self.layout() {
            QueueLayout::Curator => curator_envelope::encode(items),
            QueueLayout::Recipes | QueueLayout::Kazoo => items.first().cloned().unwrap_or_default(),
        }
    }

    /// The items in a node's data.
    ///
    /// # Errors
    /// What is wrong with the data.
    pub(super) fn decode(self, data: Bytes) -> Result<Vec<Bytes>, String> {
        match self.layout() {
            QueueLayout::Curator => curator_envelope::decode(&data),
            QueueLayout::Recipes | QueueLayout::Kazoo => Ok(vec![data]),
        }
    }
}

/// The start of a name without a field before the number.
pub(super) fn plain_prefix(layout: QueueLayout) -> String {
    match layout {
        QueueLayout::Recipes => "qn-".to_owned(),
        QueueLayout::Curator => CURATOR.to_owned(),
        QueueLayout::Kazoo => kazoo_prefix(KAZOO_PRIORITY),
    }
}

/// The start of a kazoo name with this priority.
///
/// # Errors
/// [`QueueError::BadArgument`].
pub(super) fn kazoo_stem(path: &str, priority: i32) -> Result<String, QueueError> {
    if (0..=KAZOO_LEAST).contains(&priority) {
        Ok(kazoo_prefix(priority))
    } else {
        Err(QueueError::BadArgument {
            path: path.to_owned(),
            why: format!("{priority} is not a priority of kazoo's; use 0 (first) to {KAZOO_LEAST}"),
        })
    }
}

/// `entry-100-`.
pub(super) fn kazoo_prefix(priority: i32) -> String {
    format!("entry-{priority:03}-")
}

/// `queue-100000005`: the bits of the number, behind a digit that puts the negative ones first.
pub(super) fn curator_priority_prefix(priority: i32) -> String {
    let sign = u8::from(priority >= 0);
    format!("{CURATOR}{sign}{:08X}", priority.cast_unsigned())
}

/// `queue-|19AB2C3D4E5|`.
pub(super) fn curator_delay_prefix(due_ms: i64) -> String {
    format!("{CURATOR}|{due_ms:08X}|")
}

/// `queue-|id|`.
pub(super) fn curator_id_prefix(id: &str) -> String {
    format!("{CURATOR}|{}|", written_id(id))
}

/// An id as names hold it: Curator replaces what a name cannot hold.
pub(super) fn written_id(id: &str) -> String {
    id.replace(['/', '|'], "_")
}

/// The id in a name.
pub(super) fn id_of(name: &str) -> Option<&str> {
    until_bar(name)?
        .strip_prefix(CURATOR)?
        .strip_prefix('|')?
        .strip_suffix('|')
}

/// A name up to the last `|` in it.
fn until_bar(name: &str) -> Option<&str> {
    name.rfind('|').and_then(|bar| name.get(..=bar))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [QueueKind; 6] = [
        QueueKind::Recipes,
        QueueKind::Curator,
        QueueKind::CuratorPriority,
        QueueKind::CuratorDelay,
        QueueKind::CuratorId,
        QueueKind::Kazoo,
    ];

    fn key(format: QueueKind, name: &str) -> Option<(i64, i64)> {
        format.key(name).map(|key| (key.class, key.number))
    }

    #[test]
    fn names_are_those_of_the_other_libraries() {
        // As Curator 5.4's priorityToString and epochToString, and kazoo's format strings, print
        // them.
        assert_eq!(curator_priority_prefix(5), "queue-100000005");
        assert_eq!(curator_priority_prefix(0), "queue-100000000");
        assert_eq!(curator_priority_prefix(-1), "queue-0FFFFFFFF");
        assert_eq!(curator_priority_prefix(i32::MAX), "queue-17FFFFFFF");
        assert_eq!(curator_priority_prefix(i32::MIN), "queue-080000000");
        assert_eq!(
            curator_delay_prefix(1_700_000_000_000),
            "queue-|18BCFE56800|"
        );
        assert_eq!(curator_delay_prefix(1), "queue-|00000001|");
        assert_eq!(curator_id_prefix("a/b|c"), "queue-|a_b_c|");
        assert_eq!(kazoo_prefix(7), "entry-007-");
        assert_eq!(plain_prefix(QueueLayout::Kazoo), "entry-100-");
        assert_eq!(plain_prefix(QueueLayout::Recipes), "qn-");
        assert_eq!(plain_prefix(QueueLayout::Curator), "queue-");
    }

    #[test]
    fn each_format_reads_what_it_emits_and_h71_makes_the_same_name_again() {
        for (format, stem, class) in [
            (QueueKind::Recipes, plain_prefix(QueueLayout::Recipes), 0),
            (QueueKind::Curator, plain_prefix(QueueLayout::Curator), 0),
            (QueueKind::CuratorPriority, curator_priority_prefix(-3), -3),
            (QueueKind::CuratorPriority, curator_priority_prefix(12), 12),
            (
                QueueKind::CuratorDelay,
                curator_delay_prefix(1_700_000_000_123),
                1_700_000_000_123,
            ),
            (QueueKind::CuratorId, curator_id_prefix("a-0000000001"), 0),
            (QueueKind::Kazoo, kazoo_prefix(999), 999),
        ] {
            for (digits, number) in [("0000000042", 42), ("-2147483648", -2_147_483_648)] {
                let name = format!("{stem}{digits}");
                assert_eq!(key(format, &name), Some((class, number)), "{name}");
                assert_eq!(format.stem(&name), Some(&*stem), "{name}");
            }
        }
    }

    #[test]
    fn what_is_no_item_is_left_alone() {
        for name in [
            "",
            "config",
            "qn-",
            "qn-7",
            "xqn-0000000007",
            "qn-0000000007x",
            "lock-0000000001",
            "é-0000000001",
        ] {
            for format in ALL {
                assert_eq!(key(format, name), None, "{format:?} {name}");
            }
        }
        assert_eq!(key(QueueKind::Recipes, "queue-0000000007"), None);
        assert_eq!(key(QueueKind::Curator, "qn-0000000007"), None);
        assert_eq!(key(QueueKind::Curator, "queue-|id|0000000007"), None);
        assert_eq!(key(QueueKind::CuratorPriority, "queue-0000000007"), None);
        assert_eq!(
            key(QueueKind::CuratorPriority, "queue-2000000050000000007"),
            None
        );
        assert_eq!(key(QueueKind::CuratorDelay, "queue-|soon|0000000007"), None);
        assert_eq!(key(QueueKind::Kazoo, "entry-7-0000000007"), None);
        assert_eq!(key(QueueKind::Kazoo, "entry-1000-0000000007"), None);
        assert_eq!(key(QueueKind::Kazoo, "entry-+10-0000000007"), None);
        // Curator hands these out too.
        assert_eq!(
            key(QueueKind::CuratorDelay, "queue-0000000007"),
            Some((0, 7))
        );
        assert_eq!(key(QueueKind::CuratorId, "queue-0000000007"), Some((0, 7)));
    }

    #[test]
    fn classes_sort_as_curators_text_does() {
        let mut priorities = [3, -1, i32::MIN, 0, i32::MAX, -100, 70];
        let class = |priority: &i32| {
            let name = format!("{}0000000001", curator_priority_prefix(*priority));
            key(QueueKind::CuratorPriority, &name)
        };
        priorities.sort_by_key(|priority| curator_priority_prefix(*priority));
        assert!(priorities.is_sorted_by_key(class));
        assert!(priorities.is_sorted());
    }
}
