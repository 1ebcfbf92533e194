//! Why an operation on a work queue did not end as asked.

use crate::acquire::LockError;
use crate::guard::LostReason;
use crate::time_limit::WaitedFor;
use baton_client::{ConnectError, Error, LeaseError};
use std::time::Duration;

/// Why an operation on a [`WorkQueue`](super::WorkQueue) did not end as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The path is no legal path for a queue.
    #[error("{path:?}: not a legal path for a work queue: {why}")]
    BadPath {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// An item cannot be queued as it is. Nothing was sent.
    #[error("{path}: the item cannot be queued: {why}")]
    BadItem {
        /// The queue's path.
        path: String,
        /// What is wrong, and what would do.
        why: String,
    },
    /// The node at the path is something else.
    #[error("{path}: the node there is not a known kind of work queue: {found}; use another path")]
    NotAWorkQueue {
        /// The queue's path.
        path: String,
        /// What is there.
        found: String,
    },
    /// Somebody has deleted a node of the queue's layout, and the call needs it: nothing was
    /// changed. [`WorkQueue::repair`](super::WorkQueue::repair) makes it again.
    #[error(
        "{path}: the queue is damaged: somebody deleted its node {node}; WorkQueue::repair makes it again"
    )]
    Damaged {
        /// The queue's path.
        path: String,
        /// Full path of the missing node.
        node: String,
    },
    /// The queue was made with another capacity than the one given.
    #[error(
        "{path}: the queue was made with {}, and {} was asked for; ask for the same, or for none; WorkQueue::set_capacity changes it",
        capacity(*agreed), capacity(*asked)
    )]
    CapacityDiffers {
        /// The queue's path.
        path: String,
        /// The one in the tree; `None` for no limit.
        agreed: Option<u64>,
        /// The one of this handle.
        asked: Option<u64>,
    },
    /// The queue is at its capacity. Nothing was queued.
    #[error("{path}: the queue is full ({capacity} items); try again when some are done")]
    Full {
        /// The queue's path.
        path: String,
        /// Its capacity, in items.
        capacity: u64,
    },
    /// The time was up.
    #[error("{path}: no item within {limit:?}: {}", .waited_for.because("the queue has none to take"))]
    TimedOut {
        /// The queue's path.
        path: String,
        /// The time that was allowed.
        limit: Duration,
        /// What was still lacking.
        waited_for: WaitedFor,
    },
    /// An item with this id is in the queue, claimed, delayed or dead. Nothing was queued.
    #[error("{path}: an item with the id {id:?} is in the queue already; it was not queued again")]
    Duplicate {
        /// The queue's path.
        path: String,
        /// The id.
        id: String,
    },
    /// The session ended before it was known whether the items were queued. They were not queued
    /// twice.
    #[error(
        "{path}: it is not known whether the item was queued: {source}; list the queue, or offer it again under an id"
    )]
    OfferUnknown {
        /// The queue's path.
        path: String,
        /// What the client knows.
        source: Error,
    },
    /// The claim had ended before. The item goes, or went, to another consumer; nothing was changed
    /// by this call (H67).
    #[error("{item}: no longer ours: {reason}; another consumer gets the item")]
    ClaimLost {
        /// Full path of the item.
        item: String,
        /// How the claim ended.
        reason: LostReason,
    },
    /// No such claim stands: the item was settled, or its claim has ended, or there never was one.
    /// Nothing was changed by this call.
    #[error(
        "{path}: no claim has the token {token}: its item was settled, or it ended and the item goes to another; see the claims that there are"
    )]
    NotClaimed {
        /// The queue's path, or the full path of the item that was meant.
        path: String,
        /// The token as given.
        token: u64,
    },
    /// The item was changed by somebody who is no consumer while it was claimed. It is given back
    /// as it is now.
    #[error("{item}: changed by somebody while it was claimed; it was given back to the queue")]
    Changed {
        /// Full path of the item.
        item: String,
    },
    /// The session ended before the outcome was known: the item is settled, or goes to another
    /// consumer.
    #[error(
        "{item}: it is not known whether the item was settled: {source}; if it was not, another consumer gets it"
    )]
    SettleUnknown {
        /// Full path of the item.
        item: String,
        /// What the client knows.
        source: Error,
    },
    /// There is no such dead letter.
    #[error("{path}: no dead letter {name:?}; see the list of them")]
    NoDeadLetter {
        /// The queue's path.
        path: String,
        /// The name as given.
        name: String,
    },
    /// No session could be had.
    #[error("{path}: {source}")]
    Connect {
        /// The queue's path.
        path: String,
        /// What the client says.
        source: ConnectError,
    },
    /// Nothing can be claimed soundly with this session's timeout.
    #[error("{path}: nothing can be claimed soundly: {source}")]
    Lease {
        /// The queue's path.
        path: String,
        /// What the client says.
        source: LeaseError,
    },
    /// The line of waiting consumers cannot be joined.
    #[error("{path}: {source}")]
    Line {
        /// The queue's path.
        path: String,
        /// What the line says.
        source: LockError,
    },
    /// The server refused something, or the client could not send it. Nothing was changed.
    #[error("{path}: {source}")]
    Client {
        /// The queue's path.
        path: String,
        /// What the client says.
        source: Error,
    },
}

fn capacity(items: Option<u64>) -> String {
    items.map_or("no limit".to_owned(), |items| {
        format!("a capacity of {items}")
    })
}
