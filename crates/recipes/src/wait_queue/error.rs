//! Why a wait in the queue ended without a grant.
//!
//! Owns the distinction between what the caller can do nothing about and what it is told.

use crate::naming::Refusal;
use baton_client::Error;

/// Why a place in line came to nothing. Our node is deleted, or was already gone, whichever it is
/// (H12).
#[derive(Debug)]
pub(crate) enum AcquireError {
    /// Somebody deleted our node, or its directory (H14): join again.
    OwnNodeGone,
    /// A child that cannot be ordered against ours (H13).
    Foreign { child: String, why: Refusal },
    /// The session has ended, and our node with it.
    SessionLost,
    /// The client could not do what was needed.
    Client(Error),
}

impl From<Error> for AcquireError {
    fn from(error: Error) -> Self {
        if error.is_session_ended() {
            Self::SessionLost
        } else {
            Self::Client(error)
        }
    }
}
