//! Errors of a work queue.
//!
//! Owns the public error, and the error of one step, which says whether it may be tried again.

use baton_client::Error;

use crate::acquire::LockError;
use crate::common_error::{CommonError, RecipeError, recipe_error};
use crate::guard::LostReason;

recipe_error! {
    /// Reason why an operation on a [`WorkQueue`](super::WorkQueue) failed.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum WorkError {
        shared {
            BadPath("not a legal path for a work queue"),
            TimedOut("no item", "the queue has none to take"),
            /// Nothing can be claimed.
            Lease("nothing can be claimed soundly: "),
            Connect,
            /// Nothing was changed.
            Client,
        }

        /// An option of the handle, or an argument, cannot be. Nothing was sent.
        #[error("{path}: {option} cannot be {value}: {why}")]
        BadOption {
            /// The queue's path.
            path: String,
            /// Its name.
            option: &'static str,
            /// The rejected value.
            value: String,
            /// The violated rule and the remedy.
            why: &'static str,
        },
        /// An item cannot be queued as it is. Nothing was sent.
        #[error("{path}: the item cannot be queued: {why}")]
        BadItem {
            /// The queue's path.
            path: String,
            /// The error and the remedy.
            why: String,
        },
        /// The node at the path is not a work queue.
        #[error("{path}: the node there is no work queue of a known kind: {found}; use another path")]
        NotAWorkQueue {
            /// The queue's path.
            path: String,
            /// Content of the node.
            found: String,
        },
        /// Somebody has deleted a node of the queue's layout that the call needs. Nothing was
        /// changed. [`WorkQueue::repair`](super::WorkQueue::repair) makes the node again.
        #[error(
            "{path}: the queue is damaged: somebody deleted its node {node}; WorkQueue::repair makes it again"
        )]
        Damaged {
            /// The queue's path.
            path: String,
            /// Full path of the missing node.
            node: String,
        },
        /// The queue has another capacity than the one that this handle asks for.
        #[error(
            "{path}: the queue was made with {}, and {} was asked for; ask for the same, or for none; WorkQueue::set_capacity changes it",
            capacity(*agreed), capacity(*asked)
        )]
        CapacityDiffers {
            /// The queue's path.
            path: String,
            /// The capacity in the tree; `None` for no limit.
            agreed: Option<u64>,
            /// The capacity that this handle asks for.
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
        /// An item or a dead letter with this id is in the queue. Nothing was queued.
        #[error("{path}: an item with the id {id:?} is in the queue already; it was not queued again")]
        Duplicate {
            /// The queue's path.
            path: String,
            /// The id.
            id: String,
        },
        /// The session ended before it was known whether the items were queued. They were not
        /// queued twice.
        #[error(
            "{path}: it is not known whether the item was queued: {source}; list the queue, or offer it again under an id"
        )]
        OfferUnknown {
            /// The queue's path.
            path: String,
            /// The client's error.
            r#source: Error,
        },
        /// The claim was lost before the call. Another consumer gets the item, or has it. This call
        /// changed nothing.
        #[error("{item}: the claim was lost: {reason}; another consumer gets the item")]
        ClaimLost {
            /// Full path of the item.
            item: String,
            /// Cause of the claim's end.
            reason: LostReason,
        },
        /// No claim has this token: the item was settled, the claim has ended, or it never existed.
        /// This call changed nothing.
        #[error(
            "{path}: no claim has the token {token}: its item was settled, or it ended and the item goes to another; see the claims that there are"
        )]
        NotClaimed {
            /// The queue's path, or the full path of the item that was meant.
            path: String,
            /// The token as given.
            token: u64,
        },
        /// Somebody who is not a consumer has changed the item while it was claimed. The item was
        /// given back as it is now.
        #[error("{item}: changed by somebody while it was claimed; it was given back to the queue")]
        Changed {
            /// Full path of the item.
            item: String,
        },
        /// The session ended before the outcome was known. Either the item is settled, or another
        /// consumer gets it.
        #[error(
            "{item}: it is not known whether the item was settled: {source}; if it was not, another consumer gets it"
        )]
        SettleUnknown {
            /// Full path of the item.
            item: String,
            /// The client's error.
            r#source: Error,
        },
        /// There is no such dead letter.
        #[error("{path}: no dead letter {name:?}; see the list of them")]
        NoDeadLetter {
            /// The queue's path.
            path: String,
            /// The name as given.
            name: String,
        },
        /// The wait queue of consumers cannot be joined.
        #[error("{path}: {source}")]
        Line {
            /// The queue's path.
            path: String,
            /// The error of its lock.
            r#source: LockError,
        },
    }
}

impl RecipeError for WorkError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Line { source, .. } => source.common(),
            Self::OfferUnknown { path, source } | Self::SettleUnknown { item: path, source } => {
                Some(CommonError::OutcomeUnknown { path, source })
            }
            Self::ClaimLost { item, reason } => Some(CommonError::Lost {
                path: item,
                reason: *reason,
            }),
            _ => self.shared_variant(),
        }
    }
}

fn capacity(items: Option<u64>) -> String {
    items.map_or("no limit".to_owned(), |items| {
        format!("a capacity of {items}")
    })
}

/// Reason why one step of an operation failed.
#[derive(Debug)]
pub(super) enum StepError {
    /// The client or the server failed; another attempt may succeed.
    Client(Error),
    /// The folder of items does not exist.
    ItemsMissing,
    /// Another attempt would fail in the same way.
    Final(WorkError),
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<WorkError> for StepError {
    fn from(error: WorkError) -> Self {
        Self::Final(error)
    }
}
