//! Errors of queue operations.

use baton_client::Error;
use bytes::Bytes;

use crate::common_error::{CommonError, RecipeError, recipe_error};
use crate::guard::LostReason;

recipe_error! {
    /// Reason why a queue operation failed.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum QueueError {
        shared {
            BadPath("not a legal path for a queue"),
            TimedOut("no item", "the queue has none to take"),
            /// No item can be locked.
            Lease,
            Connect,
            /// Nothing was changed.
            Client,
        }

        /// Something else is at the path: a queue of another layout, or another recipe. Nothing was
        /// changed.
        #[error("{path}: refused: {what} is there; use its own recipe and layout, or another path")]
        Foreign {
            /// The queue's path.
            path: String,
            /// The recipe that is there.
            what: String,
        },
        /// There is no item, and the operation requires one.
        #[error("{path}: the queue is empty; offer an item, or use peek, poll or take")]
        Empty {
            /// The queue's path.
            path: String,
        },
        /// The session ended before it was known whether the item was queued. It was not offered
        /// twice.
        #[error(
            "{path}: it is not known whether the item was queued: {source}; list the queue before offering it again"
        )]
        OfferUnknown {
            /// The queue's path.
            path: String,
            /// The client's error.
            r#source: Error,
        },
        /// The session ended before it was known whether the item was taken. This error contains
        /// the item, which may still be in the queue.
        #[error(
            "{node}: it is not known whether the item was taken: {source}; if the node still exists, somebody else will get it too"
        )]
        TakeUnknown {
            /// Full path of the item.
            node: String,
            /// The item.
            item: Bytes,
            /// The client's error.
            r#source: Error,
        },
        /// The session ended before it was known whether a change to an item was applied.
        #[error(
            "{node}: it is not known whether the change was applied: {source}; check whether the node exists"
        )]
        Unknown {
            /// Full path of the item.
            node: String,
            /// The client's error.
            r#source: Error,
        },
        /// The lock on the item was lost. Nothing was changed.
        #[error(
            "{node}: the lock on the item was lost: {reason}; another consumer has the item or gets it"
        )]
        ClaimLost {
            /// Full path of the item.
            node: String,
            /// Cause of the claim's end.
            reason: LostReason,
        },
        /// The queue holds only items that cannot be read. They were left in place.
        #[error(
            "{node}: the item cannot be read: {why}; it is left there: move or delete it, or use the layout that it was written in"
        )]
        Undecodable {
            /// Full path of the item.
            node: String,
            /// The error.
            why: String,
        },
        /// The layout cannot express an argument. Nothing was sent.
        #[error("{path}: {why}")]
        BadArgument {
            /// The queue's path.
            path: String,
            /// The error and the remedy.
            why: String,
        },
    }
}

impl RecipeError for QueueError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::OfferUnknown { path, source }
            | Self::TakeUnknown {
                node: path, source, ..
            }
            | Self::Unknown { node: path, source } => {
                Some(CommonError::OutcomeUnknown { path, source })
            }
            Self::ClaimLost { node, reason } => Some(CommonError::Lost {
                path: node,
                reason: *reason,
            }),
            _ => self.shared_variant(),
        }
    }
}
