//! Errors: [`Error`] is any error of this library, for functions that use several recipes.
//!
//! Each recipe has an error type of its own, in its module, which says more. [`WaitReason`] is part
//! of those that report a time-out. [`RecipeError`] yields what the errors of all recipes have in
//! common.
//!
//! The text of an error is whole: it has the cause in it, and there is no `source()` that would
//! have it again. Match on the variants for the typed cause, or ask [`RecipeError::common`].

use std::fmt;

use baton_client::{CloseError, ConfigError, ConnectError, LeaseError};

use crate::acquire::LockError;
use crate::barrier::BarrierError;
use crate::cache::CacheError;
use crate::election::ElectionError;
use crate::fence::StaleToken;
use crate::guard::{LostReason, ReleaseError, TxnError};
use crate::inspect::InspectError;
use crate::membership::MemberError;
use crate::partition::PartitionError;
use crate::queue::QueueError;
use crate::semaphore::SemaphoreError;
use crate::value::ValueError;
use crate::work_queue::WorkError;

pub use crate::common_error::{CommonError, RecipeError};
pub use crate::time_limit::WaitReason;

/// Any error of this library.
///
/// Each recipe has an error type of its own, which says more. This one is for functions that use
/// several of them with `?`. Its text is that of the error inside, and its `Debug` form too, which
/// a `main` that returns it prints.
///
/// ```
/// async fn report(client: &baton::Client) -> Result<(), baton::Error> {
///     let guard = baton::Mutex::new(client, "/report")?.acquire().await?;
///     let queue = baton::DistributedQueue::new(client, "/reports")?;
///     let item = format!("written under token {}", guard.token());
///     queue.offer(item.as_bytes()).await?;
///     guard.release().await?;
///     Ok(())
/// }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation on the tree.
    #[error(transparent)]
    Operation(#[from] baton_client::Error),
    /// A session could not be opened.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A server list or an option of a session.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A session could not be closed in time.
    #[error(transparent)]
    Close(#[from] CloseError),
    /// The lease of a session does not allow what was asked.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// A mutex, a read/write lock or several locks at once.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A guard ended before the work under it did.
    #[error(transparent)]
    Lost(#[from] LostReason),
    /// The release of a guard.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// A transaction under a guard.
    #[error(transparent)]
    Txn(#[from] TxnError),
    /// A fencing token that is older than one seen before.
    #[error(transparent)]
    StaleToken(#[from] StaleToken),
    /// A semaphore.
    #[error(transparent)]
    Semaphore(#[from] SemaphoreError),
    /// An election.
    #[error(transparent)]
    Election(#[from] ElectionError),
    /// A barrier, a double barrier or a latch.
    #[error(transparent)]
    Barrier(#[from] BarrierError),
    /// A queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// A work queue.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// A counter or a shared value.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A membership or a persistent node.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A subtree kept in memory.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A recipe seen from outside.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// A partitioner.
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl RecipeError for Error {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Operation(source) => Some(CommonError::of_client(source.path(), source)),
            Self::Lock(error) => error.common(),
            Self::Release(error) => error.common(),
            Self::Semaphore(error) => error.common(),
            Self::Election(error) => error.common(),
            Self::Barrier(error) => error.common(),
            Self::Queue(error) => error.common(),
            Self::Work(error) => error.common(),
            Self::Value(error) => error.common(),
            Self::Member(error) => error.common(),
            Self::Cache(error) => error.common(),
            Self::Partition(error) => error.common(),
            Self::Inspect(error) => error.common(),
            // Of no path, or of no recipe: their variants say all.
            Self::Connect(_)
            | Self::Config(_)
            | Self::Close(_)
            | Self::Lease(_)
            | Self::Lost(_)
            | Self::Txn(_)
            | Self::StaleToken(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_error_is_the_text_of_the_error_inside() {
        let inside = || LockError::Connect {
            path: "/x".to_owned(),
            source: ConnectError::NoRuntime,
        };
        let error: Error = inside().into();
        assert_eq!(error.to_string(), inside().to_string());
        // As a `main` prints it.
        assert_eq!(format!("{error:?}"), inside().to_string());
    }

    /// The causes as programs print them that walk an error down to its root.
    fn chain(error: &dyn std::error::Error) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    fn connect() -> ConnectError {
        ConnectError::NoRuntime
    }

    #[test]
    fn what_recipes_have_in_common_is_found_in_every_family_and_through_every_layer() {
        let path = || "/x".to_owned();
        let families: Vec<Error> = vec![
            LockError::Connect {
                path: path(),
                source: connect(),
            }
            .into(),
            SemaphoreError::from(LockError::Connect {
                path: path(),
                source: connect(),
            })
            .into(),
            ElectionError::from(LockError::Connect {
                path: path(),
                source: connect(),
            })
            .into(),
            BarrierError::Connect {
                path: path(),
                source: connect(),
            }
            .into(),
            QueueError::Connect {
                path: path(),
                source: connect(),
            }
            .into(),
            WorkError::Connect {
                path: path(),
                source: connect(),
            }
            .into(),
            ValueError::Connect {
                path: path(),
                source: connect(),
            }
            .into(),
            PartitionError::from(MemberError::from(CacheError::Connect {
                path: path(),
                source: connect(),
            }))
            .into(),
        ];
        for error in &families {
            let common = CommonError::Connect {
                path: "/x",
                source: &connect(),
            };
            assert_eq!(error.common(), Some(common), "{error:?}");
            assert_eq!(chain(error).matches("no runtime").count(), 1, "{error}");
        }
    }

    #[test]
    fn a_change_whose_answer_was_lost_is_an_unknown_outcome_in_every_family() {
        let source = baton_client::Error::MaybeApplied {
            op: baton_client::OpCode::Create2,
            path: "/x".to_owned(),
            reason: baton_client::Reason::ConnectionLost,
        };
        let (path, item) = (|| "/x".to_owned(), || "/x".to_owned());
        let families: Vec<Error> = vec![
            source.clone().into(),
            LockError::Client {
                path: path(),
                source: source.clone(),
            }
            .into(),
            QueueError::OfferUnknown {
                path: path(),
                source: source.clone(),
            }
            .into(),
            WorkError::SettleUnknown {
                item: item(),
                source: source.clone(),
            }
            .into(),
            ValueError::Unknown {
                path: path(),
                source: source.clone(),
            }
            .into(),
            ReleaseError::Unknown {
                node: path(),
                source: source.clone(),
            }
            .into(),
        ];
        for error in &families {
            let common = CommonError::OutcomeUnknown {
                path: "/x",
                source: &source,
            };
            assert_eq!(error.common(), Some(common), "{error:?}");
            assert_eq!(chain(error).matches("maybe applied").count(), 1, "{error}");
        }
    }
}
