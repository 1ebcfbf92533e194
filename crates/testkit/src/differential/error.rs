//! The error of the oracle.

use crate::launch::LaunchError;
use crate::raw::RawError;

/// Reason why servers could not be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OracleError {
    /// A server did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A server did not let a program begin.
    #[error("a server takes no program: {0}")]
    Raw(RawError),
}

impl From<RawError> for OracleError {
    fn from(error: RawError) -> Self {
        Self::Raw(error)
    }
}
