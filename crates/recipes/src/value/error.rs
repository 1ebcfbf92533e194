//! Why a value or a counter was not read or written as asked.

use baton_client::{ConnectError, Error};

use super::counter_layout::CounterLayout;
use crate::cache::CacheError;

/// Why a value or a counter was not read or written as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The session ended before it was known whether the write was applied. It was not tried twice.
    #[error(
        "{path}: it is not known whether the value was written: {source}; read it before writing again"
    )]
    Unknown {
        /// Path of the value.
        path: String,
        /// What the client knows.
        source: Error,
    },
    /// The node's data is no number of this layout. Nothing was changed.
    #[error(
        "{path}: its {bytes} bytes are not a number as {layout} stores it; use the counter's own layout, or set it"
    )]
    NotANumber {
        /// Path of the counter.
        path: String,
        /// The layout in which it was read.
        layout: CounterLayout,
        /// Length of the data.
        bytes: usize,
    },
    /// The number would not fit. Nothing was changed.
    #[error(
        "{path}: {number} does not fit what {layout} can hold; nothing was changed: use a smaller number, or a wider layout"
    )]
    OutOfRange {
        /// Path of the counter.
        path: String,
        /// Its layout.
        layout: CounterLayout,
        /// What it would have come to.
        number: i128,
    },
    /// The node's version is −1, which the protocol cannot ask for. Only after 2³² writes by
    /// programs that do not skip it.
    #[error(
        "{path}: its version is -1, so no conditional write is possible; one unconditional set moves it on"
    )]
    VersionUnusable {
        /// Path of the value.
        path: String,
    },
    /// The path is not a legal path for a value.
    #[error("{path:?}: not a legal path for a value: {why}")]
    BadPath {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// No session could be had.
    #[error("{path}: {source}")]
    Connect {
        /// Path of the value.
        path: String,
        /// What the client says.
        source: ConnectError,
    },
    /// The server refused something, or the client could not send it. Nothing was changed.
    #[error("{path}: {source}")]
    Client {
        /// Path of the value.
        path: String,
        /// What the client says.
        source: Error,
    },
    /// The value cannot be watched.
    #[error(transparent)]
    View(#[from] CacheError),
}
