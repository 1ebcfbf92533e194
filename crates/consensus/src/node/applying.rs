//! Committed entries: which are handed out to be applied, and which the log in memory keeps.

use raft::eraftpb::{Entry as RaftEntry, EntryType};
use raft::{GetEntriesContext, StateRole, Storage};

use super::Consensus;
use crate::entry::{Entry, from_raft};

/// Entries after a snapshot on its way may take as many times the window's bytes.
const KEPT_WINDOWS: u64 = 4;

/// Writes to its own disk that a leader does not wait for before it applies their entries.
const MOST_UNSYNCED_OF_LEADER: usize = 4;

impl Consensus {
    /// Entries to apply: those of the engine, and those that a majority has stored before this
    /// node's disk has. Whoever reads here sees what was acknowledged elsewhere, however slow the
    /// disk is. A change of the members waits for the disk, and what is behind it with it.
    pub(super) fn take_committed(&mut self, durable: Vec<RaftEntry>) -> Vec<Entry> {
        let mut entries = durable;
        entries.retain(|entry| entry.index > self.handed_out);
        let first = entries.last().map_or(self.handed_out, |last| last.index) + 1;
        let end = self.commit_index() + 1;
        if first < end && self.may_apply_unsynced() {
            let context = GetEntriesContext::empty(false);
            let ahead = self.node.store().entries(first, end, None, context);
            let is_command = |it: &RaftEntry| it.get_entry_type() == EntryType::EntryNormal;
            entries.extend(ahead.unwrap_or_default().into_iter().take_while(is_command));
        }
        if let Some(last) = entries.last() {
            self.handed_out = last.index;
        }
        entries.into_iter().map(from_raft).collect()
    }

    /// A leader whose disk lags goes on for a few writes only, so that what waits for it stays
    /// bounded.
    fn may_apply_unsynced(&self) -> bool {
        let is_bounded = self.node.raft.state != StateRole::Leader
            || self.syncing.len() <= MOST_UNSYNCED_OF_LEADER;
        is_bounded && !self.is_installing()
    }

    /// The engine counts an entry as applied once it is durable here, too.
    pub(super) fn advance_engine(&mut self) {
        let log = &self.node.raft.raft_log;
        let applied = self.applied.min(log.persisted);
        if applied > log.applied() {
            self.node.advance_apply_to(applied);
            self.forget_entries();
        }
    }

    /// Applied entries are kept while another node lacks them, as far as the window goes. A node
    /// that follows keeps the window full: it may lead next, and then has to serve the others.
    fn forget_entries(&mut self) {
        let applied = self.node.raft.raft_log.applied();
        let unneeded = self.needed_by_nobody().min(applied);
        let log = self.node.mut_store();
        log.drop_up_to(unneeded);
        let kept_after = self.kept_after.unwrap_or(u64::MAX);
        log.drop_down_to(self.window_bytes, applied.min(kept_after));
        let most_bytes = self.window_bytes.saturating_mul(KEPT_WINDOWS);
        log.drop_down_to(most_bytes, applied);
    }

    /// From now on, applied entries after `index` stay in memory for nodes that lag, up to four
    /// times the window's bytes: a snapshot of `index` is on its way to a node, which needs what
    /// follows (R22). `None` ends that.
    pub fn keep_after(&mut self, index: Option<u64>) {
        self.kept_after = index;
    }

    /// The newest index that every other node has, as far as this one knows.
    fn needed_by_nobody(&self) -> u64 {
        if self.node.raft.state == StateRole::Leader {
            let peers = self.node.raft.prs().iter();
            let others = peers.filter(|(id, _)| **id != self.node_id);
            let matched = others.map(|(_, progress)| progress.matched);
            matched.min().unwrap_or(self.applied)
        } else if self.membership.is_sole_voter(self.node_id) {
            self.applied
        } else {
            0
        }
    }
}
