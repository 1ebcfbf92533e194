//! Proofs by other nodes of committed and acknowledged entries (R19), and what follows for votes:
//! pure decisions over what a log says of itself. `rollback` asks them for the engine, and the
//! model for every schedule of three nodes.

#[cfg(test)]
mod model;

use std::collections::BTreeMap;

use crate::types::Position;

/// View of a log that the decisions need.
pub(super) trait LogView {
    /// The newest entry that is known to be committed.
    fn commit(&self) -> Position;
    fn last_index(&self) -> u64;
    /// The term of an entry, where it is still known.
    fn term_at(&self, index: u64) -> Option<u64>;
}

/// Log positions that other nodes have shown.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub(super) struct Proofs {
    /// The newest entry that this node's folder is known to have acknowledged; 0 for none.
    acknowledged: u64,
    /// Newest entry that each node knows to be committed, where this log lacked it.
    committed: BTreeMap<u64, Position>,
    /// Ticks for which this node still neither votes nor leads.
    held_ticks: u32,
}

impl Proofs {
    pub(super) fn hold(&mut self, ticks: u32) {
        self.held_ticks = ticks;
    }

    pub(super) fn release(&mut self) {
        self.held_ticks = 0;
    }

    pub(super) fn pass_tick(&mut self) {
        self.held_ticks = self.held_ticks.saturating_sub(1);
    }

    pub(super) fn is_held(&self) -> bool {
        self.held_ticks > 0
    }

    pub(super) fn note_commit(&mut self, log: &impl LogView, from: u64, commit: Position) {
        if has(log, commit) {
            return;
        }
        let known = self.committed.entry(from).or_insert(commit);
        if known.index < commit.index {
            *known = commit;
        }
    }

    pub(super) fn note_acknowledged(&mut self, index: u64) {
        self.acknowledged = self.acknowledged.max(index);
    }

    /// The newest entry that this node has acknowledged, while it is not committed here again.
    pub(super) fn lost(&self, log: &impl LogView) -> Option<u64> {
        (log.commit().index < self.acknowledged).then_some(self.acknowledged)
    }

    /// Committed entries that this log lacks, each with the node that knows of it.
    pub(super) fn lacked(&self, log: &impl LogView) -> impl Iterator<Item = (u64, Position)> {
        let known = self.committed.iter();
        let known = known.map(|(node, commit)| (*node, *commit));
        known.filter(|(_, commit)| !has(log, *commit))
    }

    pub(super) fn may_vote(&self, log: &impl LogView) -> bool {
        !self.is_held() && self.lost(log).is_none()
    }

    /// Returns whether this node may campaign and lead.
    pub(super) fn may_lead(&self, log: &impl LogView) -> bool {
        self.may_vote(log) && self.lacked(log).next().is_none()
    }

    /// Returns whether the log of a candidate, which ends so, can have all that is known to be
    /// committed.
    pub(super) fn could_lead(&self, log: &impl LogView, candidate: Position) -> bool {
        let own = log.commit();
        let mut known = self.committed.values().chain([&own]);
        known.all(|commit| candidate.index >= commit.index && candidate.term >= commit.term)
    }
}

/// Returns whether a log has an entry; a term of 0 is not known.
fn has(log: &impl LogView, entry: Position) -> bool {
    let is_same = || {
        let known = log.term_at(entry.index);
        known.is_none_or(|term| term == entry.term)
    };
    entry.index <= log.last_index() && (entry.term == 0 || is_same())
}

/// The first of these entries of a leader that is another one than what is committed here.
pub(super) fn other_entry(
    log: &impl LogView,
    mut entries: impl Iterator<Item = Position>,
) -> Option<u64> {
    let commit = log.commit().index;
    let is_other = |entry: &Position| {
        entry.index != 0
            && entry.index <= commit
            && log
                .term_at(entry.index)
                .is_some_and(|own| own != entry.term)
    };
    entries.find(is_other).map(|entry| entry.index)
}
