//! What the nodes of a work queue say to somebody who takes no part.
//!
//! Owns no form: names belong to `layout`, data to `envelope` and `context`.

use bytes::Bytes;
use serde::Serialize;

use super::context::Terms;
use super::envelope::Envelope;
use super::layout::{CLAIM_PREFIX, DEAD_PREFIX, ItemName, Layout};
use crate::naming;

/// The most items that a queue's own data allows; `None`: no work queue's data.
pub(crate) fn capacity_in(data: &[u8]) -> Option<Option<u64>> {
    Terms::from_bytes(data).map(|terms| terms.capacity)
}

/// A number that grows from the older items and dead letters of a folder to the newer ones.
pub(crate) fn item_age(name: &str) -> Option<i64> {
    if let Some(number) = name.strip_prefix(DEAD_PREFIX) {
        return naming::sequence_number(number);
    }
    Some(match ItemName::parse(name)? {
        ItemName::Ready { number } => number,
        ItemName::Later { due_ms, .. } => due_ms,
    })
}

/// The folders of a work queue, for callers that read it node by node.
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

/// What the node of an item or of a dead letter says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ItemNote {
    /// The item's id.
    pub id: String,
    /// The priority, 0 first.
    pub priority: u16,
    /// How often it was claimed.
    pub attempts: u32,
    /// When it was put, where that is noted; else it is the time of its node.
    pub since_ms: Option<i64>,
    /// Why the last attempt failed, or why it is a dead letter.
    pub reason: Option<String>,
}

impl ItemNote {
    /// Reads a node's data; `None` for data of another form.
    #[must_use]
    pub fn from_bytes(data: &Bytes) -> Option<Self> {
        let (envelope, _) = Envelope::open(data)?;
        Some(Self {
            id: envelope.id,
            priority: envelope.priority,
            attempts: envelope.attempts,
            since_ms: envelope.since_ms,
            reason: envelope.reason,
        })
    }
}

/// Whether a child of an item is a claim on it.
#[must_use]
pub fn is_claim(name: &str) -> bool {
    name.starts_with(CLAIM_PREFIX)
}
