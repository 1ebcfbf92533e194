//! Errors of a semaphore.

use std::time::Duration;

use crate::acquire::LockError;
use crate::common_error::{CommonError, RecipeError};
use crate::time_limit::WaitReason;

/// Reason why permits were not acquired, or the semaphore not changed. No lease of the attempt
/// stays behind, in any case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SemaphoreError {
    /// The time was up.
    #[error("{path}: {permits} permit(s) not acquired within {limit:?}: {}", .waited_for.because("others hold them"))]
    TimedOut {
        /// The semaphore's path.
        path: String,
        /// Number of permits asked for.
        permits: u32,
        /// The time that was allowed.
        limit: Duration,
        /// The missing thing.
        waited_for: WaitReason,
    },
    /// More permits than can ever be held at once were asked for; or none.
    #[error("{path}: {asked} permit(s) asked for: ask for 1 to {most}, or resize the semaphore")]
    BadPermits {
        /// The semaphore's path.
        path: String,
        /// Number of permits asked for.
        asked: u32,
        /// The most that one acquire can have.
        most: u32,
    },
    /// The number in the tree is not the one that this participant was made with.
    #[error(
        "{path}: refused: its number of permits is {stored}, not {ours}; use the same number everywhere, or resize it"
    )]
    MaximumDiffers {
        /// The semaphore's path.
        path: String,
        /// The number that we were made with.
        ours: u32,
        /// The number in the tree.
        stored: u32,
    },
    /// There is no number in the tree, and we were made without one.
    #[error("{path}: no semaphore there yet; say how many permits it is to have")]
    NoMaximum {
        /// The semaphore's path.
        path: String,
    },
    /// A semaphore needs at least one permit.
    #[error("{path}: a semaphore of no permits would let nobody in; use 1 or more")]
    BadMaximum {
        /// The semaphore's path.
        path: String,
    },
    /// The node's data is not a number.
    #[error(
        "{path}: refused: its data is {data:?}, not a number of permits; use another path, or delete that node"
    )]
    ForeignData {
        /// The semaphore's path.
        path: String,
        /// The data's beginning, as text.
        data: String,
    },
    /// Another recipe is at the path. Nothing was changed.
    #[error("{path}: refused: {what} is there; use another path")]
    OtherRecipe {
        /// The semaphore's path.
        path: String,
        /// The recipe that is there.
        what: String,
    },
    /// A child of the path belongs to a semaphore of another kind, which does not count ours.
    #[error(
        "{path}: refused, because of its child {child:?}: it is {whose}, which does not count ours; use another path"
    )]
    Foreign {
        /// The semaphore's path.
        path: String,
        /// The child's name.
        child: String,
        /// Owner of the data.
        whose: &'static str,
    },
    /// Error of any lock.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl RecipeError for SemaphoreError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Lock(error) => error.common(),
            // Not the shared variant: it says how many permits were asked for.
            Self::TimedOut {
                path,
                limit,
                waited_for,
                ..
            } => Some(CommonError::TimedOut {
                path,
                limit: *limit,
                waited_for,
            }),
            _ => None,
        }
    }
}
