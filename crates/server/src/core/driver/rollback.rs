//! Data folders that were rolled back (R19): what other servers show of entries that this server's
//! log lacks, what follows for its vote, and what operators see of it.

use std::time::Instant;

use baton_consensus::{LogGap, Position};
use baton_peers::codec::{Hello, Refusal};
use baton_wal::Acknowledged;

use super::CoreDriver;
use crate::core::lost_entries::LostEntries;

/// Ticks for which a server that has started waits for the handshakes of all voters before it
/// votes: 3 s with the usual ticks.
const HOLD_TICKS: u32 = 120;

impl CoreDriver {
    /// Goes on with what the folder says of acknowledged entries.
    pub(crate) fn begin_with_acknowledged(&mut self, stored: Acknowledged) {
        self.consensus.note_acknowledged(stored.lost);
        self.links.wire.update_local(&mut |local| {
            for known in &mut local.members {
                let is_it = |it: &&(u64, u128, u64)| (it.0, it.1) == (known.id, known.incarnation);
                if let Some((_, _, index)) = stored.members.iter().find(is_it) {
                    known.acknowledged_index = known.acknowledged_index.max(*index);
                }
            }
        });
        self.lost_entries = LostEntries::new(stored, self.state.time.now());
    }

    /// A server that has just started may lack what others have committed: it votes when it has
    /// heard of every voter, or when that has taken too long.
    pub(crate) fn hold_votes(&mut self) {
        self.consensus.hold_votes(HOLD_TICKS);
        self.release_votes_when_all_are_heard();
    }

    fn release_votes_when_all_are_heard(&mut self) {
        let membership = self.consensus.membership();
        let mut voters = membership.members.iter().map(|it| it.id);
        if voters.all(|id| id == self.links.id || !membership.votes(id) || self.peers.is_known(id))
        {
            self.consensus.release_votes();
        }
    }

    /// Another server has said this of itself.
    pub(crate) fn heard_hello(&mut self, hello: &Hello) {
        if self.peers.has_restarted(hello.from, hello.run) {
            self.consensus.log_restarted(hello.from, hello.last_index);
        }
        if hello.cluster != 0 {
            self.consensus.note_term(hello.term);
        }
        if hello.cluster != 0 && hello.proof.commit_index != 0 {
            let commit = Position {
                index: hello.proof.commit_index,
                term: hello.proof.commit_term,
            };
            self.consensus.note_commit(hello.from, commit);
        }
        if self.consensus.holds_votes() {
            self.release_votes_when_all_are_heard();
        }
    }

    /// Another server refuses this one because of entries that it has acknowledged and does not
    /// have.
    pub(crate) fn refused_as_older_copy(&mut self, refusal: &Refusal) {
        let Refusal::OlderCopy {
            id, acknowledged, ..
        } = *refusal
        else {
            return;
        };
        // The handshake may have said of the log what it was a moment ago.
        if id == self.links.id && acknowledged > self.consensus.last_index() {
            self.consensus.note_acknowledged(acknowledged);
        }
        self.next_announcement = self.state.time.now();
    }

    /// Has operators see which entries are missing, and a line of the log at each change.
    pub(crate) fn show_log_gap(&mut self, now: Instant) {
        let gap = self.consensus.log_gap();
        let lost = self.consensus.lost_acknowledgement().unwrap_or(0);
        let lost_entries = lost.saturating_sub(self.consensus.commit_index());
        let was = self.lost_entries.gap().is_some();
        let is_long = self.leadership.is_long_without_leader(was, now);
        // A server that lags behind its leader receives what it lacks.
        let gap = gap.filter(|gap| !matches!(gap, LogGap::Lacks { .. }) || is_long);
        if self.lost_entries.update(gap, lost_entries, self.links.id)
            && let Some(shown) = &self.state.ensemble
        {
            let mut shown = shown.lock();
            shown.lost_entries = lost_entries;
            shown.log_gap = self.lost_entries.gap().cloned();
        }
    }
}
