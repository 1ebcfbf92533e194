//! Errors of an election.

use super::term::Term;
use crate::acquire::LockError;
use crate::common_error::{CommonError, RecipeError, recipe_error};
use crate::guard::LostReason;

recipe_error! {
    /// Reason why an election failed for this participant.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum ElectionError {
        shared {
            TimedOut("not elected", "somebody else leads"),
            Client,
        }

        /// The offer did not come to lead.
        #[error(transparent)]
        Lock(#[from] LockError),
        /// The term ended before the work was done. The work was stopped.
        #[error("{path}: term {} ended: {reason}; the work was stopped: check what it has done, and stand for election again", .term.epoch)]
        TermEnded {
            /// The election's path.
            path: String,
            /// The term that ended.
            term: Term,
            /// Cause of the end.
            reason: LostReason,
        },
        /// Somebody asked the leader to resign. The work was stopped, and then the offer withdrawn.
        #[error("{path}: term {} ended: asked to resign; the work was stopped: stand for election again when others have led", .term.epoch)]
        AskedToResign {
            /// The election's path.
            path: String,
            /// The term that ended.
            term: Term,
        },
        /// The node that counts the terms holds something else.
        #[error("{node}: not a record of terms; move away what is there, or elect at another path")]
        TermNode {
            /// The node.
            node: String,
        },
    }
}

impl RecipeError for ElectionError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Lock(error) => error.common(),
            Self::TermEnded { path, reason, .. } => Some(CommonError::Lost {
                path,
                reason: *reason,
            }),
            _ => self.shared_variant(),
        }
    }
}
