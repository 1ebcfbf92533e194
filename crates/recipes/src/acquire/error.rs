//! Why a lock was not acquired.

use std::time::Duration;

use baton_client::{ConnectError, Error, LeaseError};

use crate::guard::LostReason;
use crate::naming::Refusal;
use crate::time_limit::WaitedFor;

/// Why a lock was not acquired. Whichever it is, no waiter node of this attempt stays behind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The time was up.
    #[error("{path}: not acquired within {limit:?}: {}", .waited_for.because("somebody else holds it"))]
    TimedOut {
        /// The lock's path.
        path: String,
        /// The time that was allowed.
        limit: Duration,
        /// What was still lacking.
        waited_for: WaitedFor,
    },
    /// A child of the path cannot be ordered against ours.
    #[error(
        "{path}: refused, because of its child {child:?}: {why}; use one library's names per path (here: {dialect}), or another path"
    )]
    Foreign {
        /// The lock's path.
        path: String,
        /// The child's name.
        child: String,
        /// The names that we use.
        dialect: &'static str,
        /// What is wrong with the child.
        why: Refusal,
    },
    /// What was held is held no longer.
    #[error("{path}: {reason}; acquire it again")]
    Lost {
        /// The lock's path.
        path: String,
        /// How it ended.
        reason: LostReason,
    },
    /// A reader cannot become the writer now, and waiting for it might never end: two readers that
    /// did so would wait for each other.
    #[error(
        "{path}: a reader cannot become the writer while others read or wait; release the read lock and acquire the write lock"
    )]
    WouldDeadlock {
        /// The lock's path.
        path: String,
    },
    /// The lock delay is longer than one program may ask of the others.
    #[error("{path}: a lock delay of {asked:?} is too long; ask for {longest:?} or less")]
    LockDelay {
        /// The lock's path.
        path: String,
        /// The delay that was asked for.
        asked: Duration,
        /// The longest that there is.
        longest: Duration,
    },
    /// The path is no legal lock path.
    #[error("{path:?}: not a legal path for a lock: {why}")]
    BadPath {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The session's timeout allows no sound lease.
    #[error("{path}: not acquired: {source}")]
    Lease {
        /// The lock's path.
        path: String,
        /// What the client says.
        source: LeaseError,
    },
    /// No session could be had.
    #[error("{path}: not acquired: {source}")]
    Connect {
        /// The lock's path.
        path: String,
        /// What the client says.
        source: ConnectError,
    },
    /// The server refused something that acquiring needs, or the client could not send it.
    #[error("{path}: not acquired: {source}")]
    Client {
        /// The lock's path.
        path: String,
        /// What the client says.
        source: Error,
    },
}
