//! Errors: [`Error`] is any error of this library, for functions that use several recipes.
//!
//! Each recipe has an error type of its own, in its module, which says more. [`WaitedFor`] is part
//! of those that report a time-out. [`RecipeError`] yields what the errors of all recipes have in
//! common.

// Owns the rules by which a recipe's variant counts as a common one. The texts are the recipes'.

use std::time::Duration;

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

pub use crate::time_limit::WaitedFor;

/// Any error of this library.
///
/// Each recipe has an error type of its own, which says more. This one is for functions that use
/// several of them with `?`. Its text and its source are those of the error inside.
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
#[derive(Debug, thiserror::Error)]
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

/// What an error of any recipe says where it is one that recipes have in common: see
/// [`RecipeError::common`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommonError<'a> {
    /// A path was refused before anything was sent. Correct the path.
    BadPath {
        /// The path as given.
        path: &'a str,
        /// What is wrong with it.
        why: &'a str,
    },
    /// The time was up.
    TimedOut {
        /// The recipe's path.
        path: &'a str,
        /// The time that was allowed.
        limit: Duration,
        /// What was still lacking: other participants, or an answer of the servers.
        waited_for: &'a WaitedFor,
    },
    /// No session could be opened.
    Connect {
        /// The recipe's path.
        path: &'a str,
        /// Why not.
        source: &'a ConnectError,
    },
    /// The server refused an operation, or the client could not send it.
    Client {
        /// The recipe's path.
        path: &'a str,
        /// What the client says.
        source: &'a baton_client::Error,
    },
    /// It is not known whether a change was applied. Read before deciding.
    OutcomeUnknown {
        /// The path of what was to be changed.
        path: &'a str,
        /// Why there is no answer.
        source: &'a baton_client::Error,
    },
    /// The session's lease cannot be kept soundly.
    Lease {
        /// The recipe's path.
        path: &'a str,
        /// Why not.
        source: &'a LeaseError,
    },
    /// What was held is held no longer.
    Lost {
        /// The path of what was held.
        path: &'a str,
        /// How it ended.
        reason: LostReason,
    },
}

/// Implemented by the errors of all recipes, and by [`Error`].
///
/// ```
/// use baton::error::{CommonError, RecipeError};
///
/// /// Whether the caller may try again, whatever recipe has failed.
/// fn is_transient(error: &impl RecipeError) -> bool {
///     use CommonError::{Connect, Lost, TimedOut};
///     matches!(
///         error.common(),
///         Some(TimedOut { .. } | Connect { .. } | Lost { .. })
///     )
/// }
/// ```
pub trait RecipeError: std::error::Error {
    /// What the error says, where it is one that recipes have in common; `None` for what only this
    /// recipe can say.
    fn common(&self) -> Option<CommonError<'_>>;
}

/// The variant of a client's error: an operation whose outcome is open counts as that.
fn client<'a>(path: &'a str, source: &'a baton_client::Error) -> CommonError<'a> {
    if source.is_maybe_applied() {
        CommonError::OutcomeUnknown { path, source }
    } else {
        CommonError::Client { path, source }
    }
}

fn lost(path: &str, reason: LostReason) -> CommonError<'_> {
    CommonError::Lost { path, reason }
}

/// The common error of a variant that recipes spell alike, for those of the named variants that the
/// enum has.
macro_rules! shared {
    ($error:expr, $($variant:ident),+) => {
        None$(.or(shared!(@one $error, $variant)))+
    };
    (@one $error:expr, BadPath) => {
        match $error {
            Self::BadPath { path, why } => Some(CommonError::BadPath { path, why }),
            _ => None,
        }
    };
    (@one $error:expr, TimedOut) => {
        match $error {
            Self::TimedOut { path, limit, waited_for, .. } => {
                let limit = *limit;
                Some(CommonError::TimedOut { path, limit, waited_for })
            }
            _ => None,
        }
    };
    (@one $error:expr, Connect) => {
        match $error {
            Self::Connect { path, source } => Some(CommonError::Connect { path, source }),
            _ => None,
        }
    };
    (@one $error:expr, Client) => {
        match $error {
            Self::Client { path, source } => Some(client(path, source)),
            _ => None,
        }
    };
    (@one $error:expr, Lease) => {
        match $error {
            Self::Lease { path, source } => Some(CommonError::Lease { path, source }),
            _ => None,
        }
    };
}

impl RecipeError for LockError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Lost { path, reason } => Some(lost(path, *reason)),
            _ => shared!(self, BadPath, TimedOut, Connect, Client, Lease),
        }
    }
}

impl RecipeError for SemaphoreError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Lock(error) => error.common(),
            _ => shared!(self, TimedOut),
        }
    }
}

impl RecipeError for ElectionError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Lock(error) => error.common(),
            Self::TermEnded { path, reason, .. } => Some(lost(path, *reason)),
            _ => shared!(self, TimedOut, Client),
        }
    }
}

impl RecipeError for BarrierError {
    fn common(&self) -> Option<CommonError<'_>> {
        shared!(self, BadPath, TimedOut, Connect, Client)
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
            Self::ClaimLost { node, reason } => Some(lost(node, *reason)),
            _ => shared!(self, BadPath, TimedOut, Connect, Client, Lease),
        }
    }
}

impl RecipeError for WorkError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Line { source, .. } => source.common(),
            Self::OfferUnknown { path, source } | Self::SettleUnknown { item: path, source } => {
                Some(CommonError::OutcomeUnknown { path, source })
            }
            Self::ClaimLost { item, reason } => Some(lost(item, *reason)),
            _ => shared!(self, BadPath, TimedOut, Connect, Client, Lease),
        }
    }
}

impl RecipeError for ValueError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Unknown { path, source } => Some(CommonError::OutcomeUnknown { path, source }),
            Self::View(error) => error.common(),
            _ => shared!(self, BadPath, Connect, Client),
        }
    }
}

impl RecipeError for CacheError {
    fn common(&self) -> Option<CommonError<'_>> {
        shared!(self, BadPath, Connect, Client)
    }
}

impl RecipeError for MemberError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::View(error) => error.common(),
            _ => shared!(self, BadPath, Connect, Client),
        }
    }
}

impl RecipeError for PartitionError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Members(error) => error.common(),
            _ => None,
        }
    }
}

impl RecipeError for ReleaseError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Lost { node, reason } => Some(lost(node, *reason)),
            Self::Unknown { node, source } => {
                Some(CommonError::OutcomeUnknown { path: node, source })
            }
            Self::SessionEnded { .. } => None,
        }
    }
}

impl RecipeError for InspectError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Client(source) => Some(client(source.path(), source)),
            Self::Work(error) => error.common(),
            // Of no path.
            Self::Connect(_) => None,
        }
    }
}

impl RecipeError for Error {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Operation(source) => Some(client(source.path(), source)),
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
    fn the_text_and_the_source_are_those_of_the_error_inside() {
        let inside = || LockError::Connect {
            path: "/x".to_owned(),
            source: ConnectError::NoRuntime,
        };
        let error: Error = inside().into();
        assert_eq!(error.to_string(), inside().to_string());
        let source = |error: &dyn std::error::Error| error.source().map(ToString::to_string);
        assert!(source(&error).is_some());
        assert_eq!(source(&error), source(&inside()));
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
        }
    }
}
