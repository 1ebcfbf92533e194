//! Why a cache is not up to date.

use baton_client::{ConnectError, Error};

/// Why a cache could not be made, or is not up to date just now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The path is no legal path.
    #[error("{path:?}: not a legal path to cache: {why}")]
    BadPath {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The subtree is larger than the limits allow. The view stays as it was before.
    #[error(
        "{path}: the subtree has more than {max_nodes} nodes or {max_bytes} bytes; raise the cache's limits, or cache a smaller part"
    )]
    TooLarge {
        /// Root of the subtree.
        path: String,
        /// The limit on nodes.
        max_nodes: usize,
        /// The limit on bytes of paths and data together.
        max_bytes: usize,
    },
    /// No session could be had.
    #[error("{path}: {source}")]
    Connect {
        /// Root of the subtree.
        path: String,
        /// What the client says.
        source: ConnectError,
    },
    /// The server refused a read or the watch.
    #[error("{path}: {source}")]
    Client {
        /// Root of the subtree.
        path: String,
        /// What the client says.
        source: Error,
    },
    /// The cache has been stopped, or the runtime it ran on.
    #[error("{path}: the cache has stopped; make a new one")]
    Stopped {
        /// Root of the subtree.
        path: String,
    },
}
