//! A term: one uninterrupted leadership, numbered.
//!
//! Owns the record in the term node. Its number is decided by a multi that also checks the leader's
//! own offer, so a leader that has been succeeded can never number a term.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Identity of one term of leadership.
///
/// Both numbers grow with every later term of the same election. `token` is the fencing token (the
/// offer's `czxid`); `epoch` counts terms one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[non_exhaustive]
pub struct Term {
    /// Counts the terms of this election: 1, 2, 3 … A term that was claimed but never got to run
    /// leaves a gap.
    pub epoch: u64,
    /// The fencing token: pass it along with every side effect.
    pub token: u64,
}

impl std::fmt::Display for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "term {}, fencing token {}", self.epoch, self.token)
    }
}

/// Content of the term node: the newest term and who took it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TermRecord {
    pub epoch: u64,
    pub token: u64,
    pub offer: Uuid,
}

impl TermRecord {
    /// The record for the term after `last`, taken with `token` by the offer `offer`.
    pub(super) fn after(last: Option<&Self>, token: u64, offer: Uuid) -> Self {
        Self {
            epoch: last.map_or(0, |last| last.epoch).saturating_add(1),
            token,
            offer,
        }
    }

    pub(super) fn from_bytes(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // Numbers and a UUID always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The term that the data of a term node names.
pub(crate) fn term_in(data: &[u8]) -> Option<Term> {
    let record = TermRecord::from_bytes(data)?;
    Some(Term {
        epoch: record.epoch,
        token: record.token,
    })
}

/// Suffix of a term node's path behind that of its election.
pub(crate) const TERM_SUFFIX: &str = "-__term__";

/// Path of the node that counts the terms of the election at `path`: beside it, so that other
/// libraries never meet it in the wait queue.
pub(crate) fn term_node(path: &str) -> String {
    format!("{path}{TERM_SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_count_from_one_and_never_go_back() {
        let first = TermRecord::after(None, 10, Uuid::new_v4());
        let second = TermRecord::after(Some(&first), 12, Uuid::new_v4());
        assert_eq!((first.epoch, second.epoch), (1, 2));
        assert_eq!(TermRecord::from_bytes(&second.to_bytes()), Some(second));
        assert_eq!(TermRecord::from_bytes(b"host-a"), None);
    }
}
