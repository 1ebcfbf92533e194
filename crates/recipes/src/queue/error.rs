//! The error of queue operations.

use std::time::Duration;

use baton_client::{ConnectError, Error, LeaseError};
use bytes::Bytes;

use crate::guard::LostReason;
use crate::time_limit::WaitedFor;

/// Why a queue operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// There is no item, and the operation requires one.
    #[error("{path}: the queue is empty; offer an item, or use peek, poll or take")]
    Empty {
        /// The queue's path.
        path: String,
    },
    /// The time limit has passed.
    #[error("{path}: no item within {limit:?}: {}", .waited_for.because("the queue has none to take"))]
    TimedOut {
        /// The queue's path.
        path: String,
        /// The limit.
        limit: Duration,
        /// What was still lacking.
        waited_for: WaitedFor,
    },
    /// The session ended before it was known whether the item was queued. It was not offered twice.
    #[error(
        "{path}: it is not known whether the item was queued: {source}; list the queue before offering it again"
    )]
    OfferUnknown {
        /// The queue's path.
        path: String,
        /// The client's error.
        source: Error,
    },
    /// The session ended before it was known whether the item was taken. This error contains the
    /// item, which may still be in the queue.
    #[error(
        "{node}: it is not known whether the item was taken: {source}; if the node still exists, somebody else will get it too"
    )]
    TakeUnknown {
        /// Full path of the item.
        node: String,
        /// The item.
        item: Bytes,
        /// The client's error.
        source: Error,
    },
    /// The session ended before it was known whether a change to an item was applied.
    #[error(
        "{node}: it is not known whether the change was applied: {source}; check whether the node exists"
    )]
    Unknown {
        /// Full path of the item.
        node: String,
        /// The client's error.
        source: Error,
    },
    /// The lock on the item was lost. Nothing was changed.
    #[error(
        "{node}: the lock on the item was lost: {reason}; another consumer has the item or gets it"
    )]
    ClaimLost {
        /// Full path of the item.
        node: String,
        /// How the claim ended.
        reason: LostReason,
    },
    /// The session's timeout allows no sound lease, so no item can be locked.
    #[error("{path}: {source}")]
    Lease {
        /// The queue's path.
        path: String,
        /// The client's error.
        source: LeaseError,
    },
    /// The queue holds only items that cannot be read. They were left in place.
    #[error(
        "{node}: the item cannot be read: {why}; it is left there: move or delete it, or use the layout that it was written in"
    )]
    Undecodable {
        /// Full path of the item.
        node: String,
        /// What is wrong with it.
        why: String,
    },
    /// The layout cannot express an argument. Nothing was sent.
    #[error("{path}: {why}")]
    BadArgument {
        /// The queue's path.
        path: String,
        /// What is wrong, and what is right.
        why: String,
    },
    /// The path is not a legal path for a queue.
    #[error("{path:?}: not a legal path for a queue: {why}")]
    BadPath {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// No session could be established.
    #[error("{path}: {source}")]
    Connect {
        /// The queue's path.
        path: String,
        /// The client's error.
        source: ConnectError,
    },
    /// The server refused the change, or the client could not send it. Nothing was changed.
    #[error("{path}: {source}")]
    Client {
        /// The queue's path.
        path: String,
        /// The client's error.
        source: Error,
    },
}
