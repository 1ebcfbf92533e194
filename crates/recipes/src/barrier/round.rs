//! Content of the double barrier's nodes.
//!
//! Owns their JSON forms. A round's state changes only under its version, so the first decision is
//! valid for all.

use serde::{Deserialize, Serialize};

use super::BarrierError;

/// The barrier's own node: the newest round, 0 before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Newest {
    pub double_barrier_round: u64,
}

/// A round's node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Number of members that meet.
    pub count: u32,
    #[serde(flatten)]
    pub phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub(crate) enum Phase {
    /// Fewer have come than are to meet.
    Gathering,
    /// These have entered: the nodes of all of them existed at one instant.
    Entered { members: Vec<String> },
    /// Somebody's time was up first.
    Aborted { by: String },
    /// Nobody is inside any more.
    Left { lost: u32 },
    /// Somebody's time was up while others were inside.
    Broken { members: Vec<String>, by: String },
}

impl Newest {
    pub(crate) fn from_bytes(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        // A number always has a JSON form.
        serde_json::to_vec(&self).unwrap_or_default()
    }
}

impl Round {
    pub(crate) fn from_bytes(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    /// The bytes of this round in another phase.
    pub(super) fn to_bytes(&self, phase: Phase) -> Vec<u8> {
        let next = Self {
            count: self.count,
            phase,
        };
        // Strings and numbers always have a JSON form.
        serde_json::to_vec(&next).unwrap_or_default()
    }
}

/// A round as first read.
#[derive(Clone, Debug)]
pub(super) struct RoundNode {
    pub path: String,
    pub number: u64,
    pub czxid: i64,
}

/// The end of a round: nobody is inside any more. The same for all members that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoundEnd {
    /// Number of members that did not leave but were lost: crashed, dropped, or their session
    /// expired. Always 0 in the layout shared with Curator and kazoo, which cannot distinguish
    /// them.
    pub lost: u32,
}

/// A round's record.
pub(super) fn parse(node: &str, data: &[u8]) -> Result<Round, BarrierError> {
    Round::from_bytes(data).ok_or_else(|| BarrierError::Foreign {
        node: node.to_owned(),
        what: "it holds no record of a round".to_owned(),
    })
}

/// A round node's name.
pub(crate) fn round_name(number: u64) -> String {
    format!("round-{number:010}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_tree_and_other_data_is_none() {
        let newest = Newest {
            double_barrier_round: 7,
        };
        assert_eq!(Newest::from_bytes(&newest.to_bytes()), Some(newest));
        let round = Round {
            count: 3,
            phase: Phase::Gathering,
        };
        let phase = Phase::Broken {
            members: vec!["m-1".to_owned()],
            by: "host:1".to_owned(),
        };
        let read = Round::from_bytes(&round.to_bytes(phase.clone())).unwrap();
        assert_eq!((read.count, read.phase), (3, phase));
        for other in [&b""[..], b"10.0.0.1", b"{}", b"{\"count\":3}"] {
            assert_eq!(Newest::from_bytes(other), None);
            assert_eq!(Round::from_bytes(other), None);
        }
    }
}
