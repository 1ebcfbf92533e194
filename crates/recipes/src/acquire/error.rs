//! Reason why a lock was not acquired.

use std::time::Duration;

use crate::common_error::{CommonError, RecipeError, recipe_error};
use crate::guard::LostReason;
use crate::naming::Refusal;

recipe_error! {
    /// Reason why a lock was not acquired. No waiter node of the attempt stays behind, in any case.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum LockError {
        shared {
            BadPath("not a legal path for a lock"),
            TimedOut("not acquired", "somebody else holds it"),
            Lease("not acquired: "),
            Connect("not acquired: "),
            Client("not acquired: "),
        }

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
            /// Defect of the child.
            why: Refusal,
        },
        /// The hold has ended.
        #[error("{path}: {reason}; acquire it again")]
        Lost {
            /// The lock's path.
            path: String,
            /// Cause of the end.
            reason: LostReason,
        },
        /// A reader cannot become the writer now, and waiting for it might never end: two readers
        /// that did so would wait for each other.
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
    }
}

impl RecipeError for LockError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Lost { path, reason } => Some(CommonError::Lost {
                path,
                reason: *reason,
            }),
            _ => self.shared_variant(),
        }
    }
}
