//! Reason why a wait in the queue ended without a grant.
//!
//! Owns the distinction between what a new attempt overcomes and what the caller receives.

use baton_client::Error;

use crate::naming::Refusal;

/// Reason why a wait in the queue ended without a grant. The waiter node is deleted, or was gone
/// already, in each case (H12).
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
