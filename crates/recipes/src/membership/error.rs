//! Why a member is not registered, or a group cannot be seen.

use baton_client::{ConnectError, Error};

use crate::cache::CacheError;

/// Why a member is not registered, or a group cannot be seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemberError {
    /// The path is not a legal path for a group or a node.
    #[error("{path:?}: not a legal path for a group or a registration: {why}")]
    BadPath {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The member's id cannot be part of a node's name.
    #[error("{id:?}: not a legal id for a member: {why}")]
    BadId {
        /// The id as given.
        id: String,
        /// What is wrong with it.
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
        /// Who owns it; 0 for a persistent node.
        session_id: i64,
    },
    /// Another process registered with our instance id, so this one has stopped.
    #[error(
        "{path}: session 0x{session_id:x} has registered as this same instance; only one process may use an instance id"
    )]
    Superseded {
        /// Full path of the node.
        path: String,
        /// Who owns it now.
        session_id: i64,
    },
    /// The registration has been closed, its client too, or the runtime is gone.
    #[error("{path}: not registered any more: closed; register anew")]
    Closed {
        /// Full path of the node.
        path: String,
    },
    /// No session could be had.
    #[error("{path}: {source}")]
    Connect {
        /// Path of the node or group.
        path: String,
        /// What the client says.
        source: ConnectError,
    },
    /// The server refused something.
    #[error("{path}: {source}")]
    Client {
        /// Path of the node or group.
        path: String,
        /// What the client says.
        source: Error,
    },
    /// The group cannot be seen.
    #[error(transparent)]
    View(#[from] CacheError),
}
