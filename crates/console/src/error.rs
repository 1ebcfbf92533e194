//! Errors of a survey and of an action on a tree.

use baton::inspect::InspectError;
use baton::work_queue::WorkError;
use baton_client::{ConnectError, Error};

/// Error of a survey or an action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// There is no session, and none could be opened.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A server refused an operation, or the connection was lost.
    #[error(transparent)]
    Client(#[from] Error),
    /// A recipe could not be read or changed.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// A work queue could not be changed.
    #[error(transparent)]
    Work(#[from] WorkError),
}
