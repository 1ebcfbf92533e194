//! Reason why a value or a counter was not read or written as asked.

use baton_client::Error;

use super::counter_layout::CounterLayout;
use crate::cache::CacheError;
use crate::common_error::{CommonError, RecipeError, recipe_error};

recipe_error! {
    /// Reason why a value or a counter was not read or written as asked.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum ValueError {
        shared {
            BadPath("not a legal path for a value"),
            Connect,
            /// Nothing was changed.
            Client,
        }

        /// Another recipe is at the path, which counts on what is there. Nothing was changed.
        #[error("{path}: refused: {what} is there; use another path")]
        Foreign {
            /// Path of the value.
            path: String,
            /// The recipe that is there.
            what: String,
        },
        /// The session ended before it was known whether the write was applied. It was not tried
        /// twice.
        #[error(
            "{path}: it is not known whether the value was written: {source}; read it before writing again"
        )]
        Unknown {
            /// Path of the value.
            path: String,
            /// Error of the client.
            r#source: Error,
        },
        /// The node's data is not a number of this layout. Nothing was changed.
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
            /// Number that it would have come to.
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
        /// The value cannot be watched.
        #[error(transparent)]
        View(#[from] CacheError),
    }
}

impl RecipeError for ValueError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Unknown { path, source } => Some(CommonError::OutcomeUnknown { path, source }),
            Self::View(error) => error.common(),
            _ => self.shared_variant(),
        }
    }
}
