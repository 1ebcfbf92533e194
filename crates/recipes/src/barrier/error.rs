//! Errors of barriers and latches.

use crate::common_error::{CommonError, RecipeError, recipe_error};

recipe_error! {
    /// Reason why an operation on a barrier or a latch failed. No node of this process stays
    /// behind, in any case.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum BarrierError {
        shared {
            /// Or a participant's name was, which is not a legal name of a node.
            BadPath("not a legal path for a barrier or a latch"),
            /// This participant belonged to no meeting yet.
            TimedOut("not passed", "others had not done their part"),
            Connect,
            Client,
        }

        /// A member's time was up before all had come. Every member of the round receives this
        /// error; nobody has entered.
        #[error(
            "{path}: round {round} was cancelled because {by} timed out; nobody entered: try again"
        )]
        Aborted {
            /// The barrier's path.
            path: String,
            /// The round.
            round: u64,
            /// Member that gave up.
            by: String,
        },
        /// A member's time was up before all had left. Every member that leaves receives this
        /// error.
        #[error(
            "{path}: {by} did not wait until all had left round {round}; somebody may still be inside"
        )]
        Broken {
            /// The barrier's path.
            path: String,
            /// The round.
            round: u64,
            /// Member that gave up.
            by: String,
        },
        /// Our membership ended before we left: the session was lost, or somebody deleted our node.
        /// The others count us as lost.
        #[error(
            "{node}: the membership was lost before the end of the round; check what the others did"
        )]
        Lost {
            /// Full path of our node.
            node: String,
        },
        /// Others meet here in another number.
        #[error(
            "{path}: the number there is {theirs}, not {ours}; give all participants the same number"
        )]
        CountMismatch {
            /// The path.
            path: String,
            /// The number we were given.
            ours: u32,
            /// The number in the tree.
            theirs: u32,
        },
        /// No barrier or latch is for this number.
        #[error("{path}: the number cannot be {count}; it must be from 1 to {most}")]
        BadCount {
            /// The path.
            path: String,
            /// The number we were given.
            count: u32,
            /// The greatest that is allowed.
            most: u32,
        },
        /// The node holds something else, or another layout.
        #[error("{node}: {what}; move away what is there, or use another path")]
        Foreign {
            /// The node.
            node: String,
            /// The error.
            what: String,
        },
    }
}

impl RecipeError for BarrierError {
    fn common(&self) -> Option<CommonError<'_>> {
        self.shared_variant()
    }
}
