//! Recognition of a recipe in a folder of the tree, by its own data and by its children as they
//! were read.
//!
//! Owns only which recipe is asked first. What each recipe's names and data are is decided by that
//! recipe; a folder that none of them reads is nothing.

use baton_client::Data;
use serde::Serialize;

use super::children::Children;
use super::lock::{KAZOO_WAITERS, permits_in};
use super::node_info::NodeInfo;
use crate::barrier::{Count, Newest, READY};
use crate::election::Term;
use crate::kind::LOCKING_QUEUE;
use crate::membership::GroupLayout;
use crate::naming::{self, Child, NamingScheme, is_kazoo_lease};
use crate::queue::QueueLayout;
use crate::receipt::RECEIPTS_SUFFIX;
use crate::record::Record;
use crate::semaphore::LEASES;
use crate::work_queue::outside;

/// The folder of the claims of kazoo's locking queue.
pub(super) const KAZOO_CLAIMS: &str = LOCKING_QUEUE[1];

/// Kind of a folder of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FolderKind {
    /// The wait queue of a lock or an election: at least one child has the name of a waiter node.
    WaitQueue,
    /// A semaphore of Baton or Curator.
    Semaphore,
    /// A semaphore of kazoo.
    KazooSemaphore,
    /// Items in the layout of another library.
    Queue(QueueLayout),
    /// kazoo's `LockingQueue`: items in `entries`, claims in `taken`.
    LockingQueue,
    /// A work queue, with the most items that it holds.
    WorkQueue {
        /// The most items; `None` for no limit.
        capacity: Option<u64>,
    },
    /// A double barrier.
    DoubleBarrier,
    /// A countdown latch.
    Latch,
    /// A closed gate of Baton. Gates of other libraries look like any other node.
    Gate,
    /// Members of a group: children that sessions own and that no lock's name fits.
    Members(GroupLayout),
}

/// Returns the kind of the folder with this data and these children; `None` for one that is not a
/// recipe's.
///
/// Where names of several recipes fit, the recipe with the more specific layout is returned.
/// Children whose data is not known count with empty data.
#[must_use]
pub fn recognise(data: &[u8], children: &[(&str, Data)]) -> Option<FolderKind> {
    if let Some(capacity) = outside::capacity_in(data) {
        return Some(FolderKind::WorkQueue { capacity });
    }
    if Count::from_bytes(data).is_some() {
        return Some(FolderKind::Latch);
    }
    if Newest::from_bytes(data).is_some() {
        return Some(FolderKind::DoubleBarrier);
    }
    let has = |wanted: &str| children.iter().any(|(name, _)| *name == wanted);
    if has(LEASES) {
        return Some(FolderKind::Semaphore);
    }
    if LOCKING_QUEUE.into_iter().all(has) {
        return Some(FolderKind::LockingQueue);
    }
    let is_owned = |data: &Data| data.stat.ephemeral_owner != 0;
    let is_waiter = |(name, data): &(&str, Data)| {
        is_owned(data)
            && !Children::of_lock("/", vec![(*name).to_owned()])
                .candidates
                .is_empty()
    };
    if children.iter().any(is_waiter) {
        return Some(FolderKind::WaitQueue);
    }
    if permits_in(data).is_some() && children.iter().any(|(name, _)| is_kazoo_lease(name)) {
        return Some(FolderKind::KazooSemaphore);
    }
    if let Some(layout) = children
        .iter()
        .find_map(|(name, _)| QueueLayout::of_item(name))
    {
        return Some(FolderKind::Queue(layout));
    }
    if children.iter().any(|(_, data)| is_owned(data)) {
        return Some(if has(READY) {
            FolderKind::DoubleBarrier
        } else {
            FolderKind::Members(GroupLayout::of_names(
                children.iter().map(|(name, _)| *name),
            ))
        });
    }
    (children.is_empty() && Record::from_bytes(data).is_some()).then_some(FolderKind::Gate)
}

/// The number by which items of one folder are ordered by age.
fn age(name: &str) -> Option<i64> {
    if let Some(age) = outside::item_age(name) {
        return Some(age);
    }
    QueueLayout::of_item(name)?;
    naming::trailing_number(name)
}

/// The number that a server has appended to the name of a recipe's node: a waiter's, a permit's, an
/// item's. `None` for any other name, whatever digits it ends with: random names do so by chance.
#[must_use]
pub fn sequence_number(name: &str) -> Option<i64> {
    if let (Some(_), Child::Waiter { number, .. }) = NamingScheme::classify_any(name) {
        return Some(number);
    }
    naming::lease_number(name)
        .or_else(|| outside::item_number(name))
        .or_else(|| QueueLayout::of_item(name).and_then(|_| naming::trailing_number(name)))
}

/// Returns the oldest `most` names of a folder of items, oldest first. `None` where most of the
/// names are not those of items. For callers that read a few of many items.
#[must_use]
pub fn oldest_items(names: &[String], most: usize) -> Option<Vec<String>> {
    let mut items: Vec<(i64, &String)> = names
        .iter()
        .filter_map(|name| Some((age(name)?, name)))
        .collect();
    if items.is_empty() || items.len() * 2 < names.len() {
        return None;
    }
    if items.len() > most {
        items.select_nth_unstable(most);
        items.truncate(most);
    }
    items.sort_unstable();
    Some(items.into_iter().map(|(_, name)| name.clone()).collect())
}

/// Returns whether a node of this name may be a part of kazoo's locking queue.
#[must_use]
pub fn is_part_of_locking_queue(name: &str) -> bool {
    LOCKING_QUEUE.contains(&name)
}

/// The folders of items and of claims of kazoo's locking queue at `path`.
#[must_use]
pub fn locking_queue_folders(path: &str) -> [String; 2] {
    LOCKING_QUEUE.map(|name| baton_proto::path::join(path, name))
}

/// Returns whether `path` is a folder in which recipes of Baton keep the receipts of their changes.
#[must_use]
pub fn is_receipts(path: &str) -> bool {
    path.ends_with(RECEIPTS_SUFFIX)
}

/// The path of the recipe that the node at `path` stands beside: that of an election's terms, or of
/// the waiters of kazoo's semaphore. By the name alone; there need not be such a recipe.
#[must_use]
pub fn beside(path: &str) -> Option<&str> {
    let suffixes = [KAZOO_WAITERS, crate::election::TERM_SUFFIX];
    suffixes
        .into_iter()
        .find_map(|suffix| path.strip_suffix(suffix))
}

/// Path of the node that counts the terms of the election at `path`. Its presence shows that a wait
/// queue is an election of Baton.
#[must_use]
pub fn term_path(path: &str) -> String {
    crate::election::term_node(path)
}

/// The term that the data of the node at [`term_path`] names.
#[must_use]
pub fn term_in(data: &[u8]) -> Option<Term> {
    crate::election::term_in(data)
}

/// Content of a double barrier's data and of its newest round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RoundInfo {
    /// The name of the newest round's node; `None` before the first round, and in the layout of
    /// Curator and kazoo.
    pub node: Option<String>,
    /// The newest round.
    pub number: u64,
}

/// The newest round that the data of a double barrier names.
#[must_use]
pub fn newest_round_in(data: &[u8]) -> Option<RoundInfo> {
    let number = Newest::from_bytes(data)?.double_barrier_round;
    Some(RoundInfo {
        node: (number > 0).then(|| crate::barrier::round_name(number)),
        number,
    })
}

/// Returns the number of members that meet in the round with this data, and its phase in one word.
#[must_use]
pub fn round_in(data: &[u8]) -> Option<(u32, &'static str)> {
    use crate::barrier::{Phase, Round};

    let round = Round::from_bytes(data)?;
    let phase = match round.phase {
        Phase::Gathering => "gathering",
        Phase::Entered { .. } => "entered",
        Phase::Aborted { .. } => "aborted",
        Phase::Left { .. } => "left",
        Phase::Broken { .. } => "broken",
    };
    Some((round.count, phase))
}

/// The count of a latch's data: how many, and how many are still to come.
#[must_use]
pub fn latch_in(data: &[u8]) -> Option<(u32, u32)> {
    Count::from_bytes(data).map(|count| (count.latch_count, count.left))
}

/// Returns whether a child of a double barrier is not a member's, but says that all have entered.
#[must_use]
pub fn is_ready_mark(name: &str) -> bool {
    name == READY
}

impl NodeInfo {
    /// Returns the summary of a node that was read before.
    #[must_use]
    pub fn of_read(path: &str, read: &Data) -> Self {
        Self::new(path, read)
    }
}

#[cfg(test)]
mod tests {
    use baton_proto::Stat;
    use bytes::Bytes;

    use super::*;

    fn child(name: &str, owner: i64) -> (&str, Data) {
        let stat = Stat {
            ephemeral_owner: owner,
            ..Stat::default()
        };
        let data = Bytes::new();
        (name, Data { data, stat })
    }

    #[test]
    fn a_folder_is_known_by_its_data_and_its_children() {
        let lock = "_c_5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11-lock-0000000007";
        let lease = "5c1b0f546d3c4f0b9d0e0a4b7d3f2e11";
        let members = FolderKind::Members(GroupLayout::Native);
        for (data, children, expected) in [
            ("", vec![], None),
            ("", vec![child("config", 0)], None),
            ("", vec![child(lock, 7)], Some(FolderKind::WaitQueue)),
            // A folder that somebody named like a waiter node.
            ("", vec![child(lock, 0)], None),
            ("3", vec![child("leases", 0)], Some(FolderKind::Semaphore)),
            ("3", vec![child(lease, 7)], Some(FolderKind::KazooSemaphore)),
            ("", vec![child(lease, 7)], Some(members)),
            (
                "",
                vec![child("qn-0000000001", 0)],
                Some(FolderKind::Queue(QueueLayout::Recipes)),
            ),
            (
                "",
                vec![child("queue-0000000001", 0)],
                Some(FolderKind::Queue(QueueLayout::Curator)),
            ),
            (
                "",
                vec![child("queue-|12ab|0000000001", 0)],
                Some(FolderKind::Queue(QueueLayout::Curator)),
            ),
            (
                "",
                vec![child("entries", 0), child("taken", 0)],
                Some(FolderKind::LockingQueue),
            ),
            (
                r#"{"work_queue":1,"capacity":null}"#,
                vec![child("items", 0)],
                Some(FolderKind::WorkQueue { capacity: None }),
            ),
            (
                r#"{"latch_count":3,"left":2}"#,
                vec![child("done-a", 0)],
                Some(FolderKind::Latch),
            ),
            (
                r#"{"double_barrier_round":2}"#,
                vec![],
                Some(FolderKind::DoubleBarrier),
            ),
            (
                "",
                vec![child("ready", 0), child("a", 7)],
                Some(FolderKind::DoubleBarrier),
            ),
            ("", vec![child("web-1", 7)], Some(members)),
            (
                "",
                vec![child("ab__party__", 7)],
                Some(FolderKind::Members(GroupLayout::Party)),
            ),
            (
                "",
                vec![child("5c1b0f546d3c4f0b9d0e0a4b7d3f2e11-web", 7)],
                Some(FolderKind::Members(GroupLayout::ShallowParty)),
            ),
        ] {
            let found = recognise(data.as_bytes(), &children);
            assert_eq!(found, expected, "{data} {children:?}");
        }
    }

    /// A claim and a member have random names. About one in a hundred ends with ten digits.
    #[test]
    fn a_name_of_no_recipe_has_no_number_whatever_it_ends_with() {
        for (name, number) in [
            ("lock-0000000007", Some(7)),
            (
                "_c_0123456789abcdef0123456789abcdef-lock-2147483647",
                Some(2_147_483_647),
            ),
            ("lock--2147483648", Some(-2_147_483_648)),
            ("lease-0000000003", Some(3)),
            ("qn-0000000004", Some(4)),
            ("i0000000005", None),
            ("9f3c5e1b2a7d4c8890ab3e6767570925", None),
            ("claim-2147483647", None),
            ("2147483647x", None),
            ("lock-7", None),
            ("", None),
        ] {
            assert_eq!(sequence_number(name), number, "{name}");
        }
    }

    #[test]
    fn the_oldest_items_come_first_and_other_folders_have_none() {
        let names = |all: &[&str]| {
            all.iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let items = names(&["qn-0000000012", "x", "qn-0000000003", "qn-0000000007"]);
        let oldest = oldest_items(&items, 2).unwrap();
        assert_eq!(oldest, ["qn-0000000003", "qn-0000000007"]);
        let work = names(&["i-0000000002", "i-0000000001"]);
        assert_eq!(oldest_items(&work, 1).unwrap(), ["i-0000000001"]);
        assert_eq!(oldest_items(&names(&["a", "b", "qn-0000000001"]), 9), None);
        assert_eq!(oldest_items(&[], 9), None);
    }
}
