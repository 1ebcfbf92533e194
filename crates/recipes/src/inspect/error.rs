//! Reason why something could not be read or changed.

use baton_client::{ConnectError, Error};

use crate::common_error::{CommonError, RecipeError};
use crate::work_queue::WorkError;

/// Reason why an [`Inspector`](super::Inspector) failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// There is no session, and none could be opened.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A server refused an operation. The error names the operation and the node.
    #[error(transparent)]
    Client(#[from] Error),
    /// A work queue could not be read.
    #[error(transparent)]
    Work(#[from] WorkError),
}

impl InspectError {
    /// Returns whether the server refused because an ACL does not allow this client to read the
    /// node.
    #[must_use]
    pub fn is_no_auth(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_no_auth())
    }
}

impl RecipeError for InspectError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Client(source) => Some(CommonError::of_client(source.path(), source)),
            Self::Work(error) => error.common(),
            // Of no path.
            Self::Connect(_) => None,
        }
    }
}
