//! How far the steps of `figure_eight` are.

use baton_consensus::Position;

/// What the nodes are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing. The next scene begins when all nodes have the same log.
    Rest,
    /// The first node is alone, with an entry that nobody else has.
    FirstAlone,
    /// The second node is alone, with an entry of its term that nobody else has.
    SecondAlone,
    /// The first node is alone again; the third has the old entry, and none of the first one's new
    /// term.
    FirstAloneAgain,
}

/// A scene that is being played.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) step: Step,
    /// When the step ends, whether or not its aim is met.
    pub(crate) limit_us: u64,
    pub(crate) cut: Option<u64>,
    pub(crate) first: u64,
    pub(crate) second: u64,
    /// The first node's entry.
    pub(crate) entry: Position,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene {
            step: Step::Rest,
            limit_us: 0,
            cut: None,
            first: 0,
            second: 0,
            entry: Position { index: 0, term: 0 },
        }
    }
}
