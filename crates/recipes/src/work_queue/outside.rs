//! Nodes of a work queue, for readers that take no part in it.
//!
//! Owns no form: names belong to `layout`, data to `envelope` and `context`.

use bytes::Bytes;
use serde::Serialize;

use super::context::Terms;
use super::envelope::Envelope;
use super::layout::{
    CLAIM_PREFIX, DEAD_PREFIX, ItemName, Layout, Shard, queue_of_dead_letter, queue_of_item,
};
use crate::naming;
use crate::rendering;

/// The most items that a queue's own data allows; `None`: no work queue's data.
pub(crate) fn capacity_in(data: &[u8]) -> Option<Option<u64>> {
    Terms::from_bytes(data).map(|terms| terms.capacity)
}

/// The number that a server has appended to the name of an item or a dead letter.
pub(crate) fn item_number(name: &str) -> Option<i64> {
    if let Some(number) = name.strip_prefix(DEAD_PREFIX) {
        return naming::sequence_number(number);
    }
    match ItemName::parse(name)? {
        ItemName::Ready { number } => Some(number),
        ItemName::Later { .. } => None,
    }
}

/// A number that grows from the older items and dead letters of a folder to the newer ones.
pub(crate) fn item_age(name: &str) -> Option<i64> {
    match ItemName::parse(name) {
        Some(ItemName::Later { due_ms, .. }) => Some(due_ms),
        _ => item_number(name),
    }
}

/// The folders of a work queue, for programs that read it node by node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkFolders {
    /// The folder of shards, which are folders of items.
    pub items: String,
    /// The folder of dead letters.
    pub dead: String,
    /// The folder of those who wait for an item.
    pub waiters: String,
}

impl WorkFolders {
    /// The folders of the work queue at `path`.
    #[must_use]
    pub fn new(path: &str) -> Self {
        let layout = Layout::new(path);
        Self {
            items: layout.items,
            dead: layout.dead,
            waiters: layout.waiters,
        }
    }
}

/// Content of the node of an item or of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ItemNote {
    /// The item's id.
    pub id: String,
    /// The priority, 0 first.
    pub priority: u16,
    /// Number of times that it was claimed.
    pub attempts: u32,
    /// Time at which it was put, where that is noted; else it is the time of its node.
    pub since_ms: Option<i64>,
    /// Reason why the last attempt failed, or why it is a dead letter.
    pub reason: Option<String>,
    /// The payload, where it is a short text.
    pub text: Option<String>,
}

impl ItemNote {
    /// Reads a node's data; `None` for data of another form.
    #[must_use]
    pub fn from_bytes(data: &Bytes) -> Option<Self> {
        let (envelope, payload) = Envelope::open(data)?;
        Some(Self {
            text: rendering::short_text(&payload).map(str::to_owned),
            id: envelope.id,
            priority: envelope.priority,
            attempts: envelope.attempts,
            since_ms: envelope.since_ms,
            reason: envelope.reason,
        })
    }
}

/// Returns whether a child of an item is a claim on it.
#[must_use]
pub fn is_claim(name: &str) -> bool {
    name.starts_with(CLAIM_PREFIX)
}

/// Returns the role of the node at `path` in a work queue, and the path of the queue, by names
/// alone.
pub(crate) fn part_of_queue(path: &str, is_owned: bool) -> Option<(QueueNode, &str)> {
    if is_owned {
        let (item, claim) = path.rsplit_once('/')?;
        let queue = is_claim(claim).then(|| queue_of_item(item))??;
        return Some((QueueNode::Claim, queue));
    }
    if let Some(queue) = queue_of_item(path) {
        return Some((QueueNode::Item, queue));
    }
    Some((QueueNode::DeadLetter, queue_of_dead_letter(path)?))
}

/// A node of a work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueNode {
    Item,
    Claim,
    DeadLetter,
}

/// Returns when the item of this name became available, or will, in milliseconds since 1970: of a
/// delayed item when it falls due, of another when its node was created. `None` for names that are
/// not those of an item and of its shard.
#[must_use]
pub fn available_since_ms(shard: &str, item: &str, created_ms: i64) -> Option<i64> {
    Shard::parse(shard)?;
    Some(match ItemName::parse(item)? {
        ItemName::Ready { .. } => created_ms,
        ItemName::Later { due_ms, .. } => due_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_queue_are_known_by_their_paths_and_nothing_else_is_one() {
        let later = "/q/items/t0029395600/1763736000123-007-5c1b0f546d3c4f0b9d0e0a4b7d3f2e11";
        let claim = "/a/q/items/p007-0000000001/i-0000000012/claim-5c1b0f54";
        for (path, is_owned, expected) in [
            (
                "/q/items/p007-0000000001/i-0000000012",
                false,
                Some((QueueNode::Item, "/q")),
            ),
            (later, false, Some((QueueNode::Item, "/q"))),
            (claim, true, Some((QueueNode::Claim, "/a/q"))),
            (
                "/q/dead/d-0000000003",
                false,
                Some((QueueNode::DeadLetter, "/q")),
            ),
            // An item is never an ephemeral, a claim always is.
            ("/q/items/p007-0000000001/i-0000000012", true, None),
            (claim, false, None),
            ("/items/p007-0000000001/i-0000000012", false, None),
            ("/q/items/p7-1/i-0000000012", false, None),
            ("/q/dead/letter", false, None),
            ("/dead/d-0000000003", false, None),
            ("/", false, None),
        ] {
            assert_eq!(part_of_queue(path, is_owned), expected, "{path}");
        }
    }

    #[test]
    fn an_item_is_available_once_it_is_due() {
        let later = "1763736000123-007-5c1b0f546d3c4f0b9d0e0a4b7d3f2e11";
        let since = |shard, item| available_since_ms(shard, item, 9);
        assert_eq!(since("p000-0000000001", "i-0000000001"), Some(9));
        assert_eq!(since("t0029395600", later), Some(1_763_736_000_123));
        assert_eq!(since("t0029395600", "x"), None);
        assert_eq!(since("x", "i-0000000001"), None);
    }
}
