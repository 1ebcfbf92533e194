//! Reason why a cache is not up to date.

use crate::common_error::{CommonError, RecipeError, recipe_error};

recipe_error! {
    /// Reason why a cache could not be made, or is not up to date now.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum CacheError {
        shared {
            BadPath("not a legal path to cache"),
            Connect,
            Client,
        }

        /// An option of the cache cannot be. Nothing was started.
        #[error("{path}: {option} cannot be {value}; use 1 to {most}")]
        BadOption {
            /// Root of the subtree.
            path: String,
            /// Its name.
            option: &'static str,
            /// The rejected value.
            value: usize,
            /// The most that it can be.
            most: usize,
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
        /// The cache has been stopped, or the runtime it ran on.
        #[error("{path}: the cache has stopped; make a new one")]
        Stopped {
            /// Root of the subtree.
            path: String,
        },
    }
}

impl RecipeError for CacheError {
    fn common(&self) -> Option<CommonError<'_>> {
        self.shared_variant()
    }
}
