//! Reason why a member is not registered, or a group cannot be seen.

use crate::cache::CacheError;
use crate::common_error::{CommonError, RecipeError, recipe_error};

recipe_error! {
    /// Reason why a member is not registered, or a group cannot be seen.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum MemberError {
        shared {
            BadPath("not a legal path for a group or a registration"),
            Connect,
            Client,
        }

        /// The member's id cannot be part of a node's name.
        #[error("{id:?}: not a legal id for a member: {why}")]
        BadId {
            /// The id as given.
            id: String,
            /// The error.
            why: String,
        },
        /// The layout has no room for data.
        #[error(
            "{path}: members of this layout carry no data; join without any, or use another layout"
        )]
        NoRoom {
            /// The group's path.
            path: String,
        },
        /// Somebody else's node is at the path.
        #[error(
            "{path}: registered by session 0x{session_id:x}, which is not ours; use another id, or wait until it leaves"
        )]
        Taken {
            /// Full path of the node.
            path: String,
            /// Session that owns it; 0 for a persistent node.
            session_id: i64,
        },
        /// Another process registered with our instance id, so this one has stopped.
        #[error(
            "{path}: session 0x{session_id:x} has registered as this same instance; only one process may use an instance id"
        )]
        Superseded {
            /// Full path of the node.
            path: String,
            /// Session that owns it now.
            session_id: i64,
        },
        /// The registration has been closed, its client too, or the runtime is gone.
        #[error("{path}: not registered any more: closed; register again")]
        Closed {
            /// Full path of the node.
            path: String,
        },
        /// The group cannot be seen.
        #[error(transparent)]
        View(#[from] CacheError),
    }
}

impl RecipeError for MemberError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::View(error) => error.common(),
            _ => self.shared_variant(),
        }
    }
}
