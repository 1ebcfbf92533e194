//! Entries that other nodes prove to be committed, or acknowledged by this node's own folder,
//! though its log lacks them: the folder was rolled back (R19). Owns who neither votes nor leads
//! for that, and which leader is not followed. Never decides what is committed.

use std::collections::BTreeMap;

use raft::StateRole;
use raft::eraftpb::{Message, MessageType};

use super::Consensus;
use crate::error::StepError;
use crate::message::{MessageKind, PeerMessage};
use crate::types::{LogGap, Position};

/// Log positions that other nodes have shown.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    /// The newest entry that this node's folder is known to have acknowledged; 0 for none.
    acknowledged: u64,
    /// Newest entry that each node knows to be committed, where this log lacked it.
    committed: BTreeMap<u64, Position>,
    /// Ticks for which this node still neither votes nor leads.
    held_ticks: u32,
    /// A leader that lacks entries which are committed here.
    refused: Option<RefusedLeader>,
}

#[derive(Debug, Clone, Copy)]
struct RefusedLeader {
    id: u64,
    term: u64,
    /// The first entry that it has not, or has otherwise.
    index: u64,
}

impl Consensus {
    /// From now on this node neither votes nor leads for this number of ticks, unless
    /// [`release_votes`](Consensus::release_votes) ends that: for a node that has just started, and
    /// has not heard yet what the others have committed.
    pub fn hold_votes(&mut self, ticks: u32) {
        self.proofs.held_ticks = ticks;
    }

    /// Every voter was heard: this node may vote.
    pub fn release_votes(&mut self) {
        self.proofs.held_ticks = 0;
    }

    /// Whether this node neither votes nor leads because it has just started.
    pub fn holds_votes(&self) -> bool {
        self.proofs.held_ticks > 0
    }

    /// The node `from` knows this entry to be committed; a term of 0 is not known. While the log
    /// lacks it, this node does not lead, and votes for nobody whose log is too short for it.
    pub fn note_commit(&mut self, from: u64, commit: Position) {
        if self.has(commit) {
            return;
        }
        let known = self.proofs.committed.entry(from).or_insert(commit);
        if known.index < commit.index {
            *known = commit;
        }
        self.step_down_if_barred();
    }

    /// Another node knows that this node's folder has acknowledged this committed entry. Until the
    /// entry is committed here again, this node neither votes nor leads.
    pub fn note_acknowledged(&mut self, index: u64) {
        self.proofs.acknowledged = self.proofs.acknowledged.max(index);
        self.step_down_if_barred();
    }

    /// The process of the node `id` has started again, with a log that ends at `last`. A leader
    /// that counts on more of it sends the rest again.
    pub fn log_restarted(&mut self, id: u64, last: u64) {
        if self.node.raft.state != StateRole::Leader {
            return;
        }
        if let Some(progress) = self.node.raft.mut_prs().get_mut(id)
            && progress.matched > last
        {
            progress.matched = 0;
            progress.become_probe();
            progress.next_idx = last + 1;
        }
    }

    /// Why this node neither votes nor leads, or follows nobody, where entries are missing.
    pub fn log_gap(&self) -> Option<LogGap> {
        if let Some(RefusedLeader { id, term, index }) = self.proofs.refused {
            return Some(LogGap::LeaderLacks {
                leader: id,
                term,
                index,
            });
        }
        if self.is_rolled_back() {
            return Some(LogGap::RolledBack {
                acknowledged: self.proofs.acknowledged,
                last: self.last_index(),
            });
        }
        let mut lacked = self.lacked();
        let (node, commit) = lacked.next()?;
        Some(LogGap::Lacks { node, commit })
    }

    /// The newest committed entry that this node has acknowledged, while it lacks it.
    pub fn lost_acknowledgement(&self) -> Option<u64> {
        self.is_rolled_back().then_some(self.proofs.acknowledged)
    }

    /// The newest entry that is known to be committed.
    pub fn commit_position(&self) -> Position {
        let (index, term) = self.node.raft.raft_log.commit_info();
        Position { index, term }
    }

    /// Whether this node has acknowledged committed entries that it has not received again.
    fn is_rolled_back(&self) -> bool {
        self.commit_index() < self.proofs.acknowledged
    }

    /// Committed entries that this log lacks, each with the node that knows of it.
    fn lacked(&self) -> impl Iterator<Item = (u64, Position)> + '_ {
        let known = self.proofs.committed.iter();
        let known = known.map(|(node, commit)| (*node, *commit));
        known.filter(|(_, commit)| !self.has(*commit))
    }

    fn may_vote(&self) -> bool {
        !self.holds_votes() && !self.is_rolled_back()
    }

    /// Whether this node may campaign and lead.
    pub(super) fn may_lead(&self) -> bool {
        self.may_vote() && self.lacked().next().is_none()
    }

    pub(super) fn pass_held_tick(&mut self) {
        self.proofs.held_ticks = self.proofs.held_ticks.saturating_sub(1);
    }

    fn has(&self, entry: Position) -> bool {
        let is_same = || {
            let known = self.known_term(entry.index);
            known.is_none_or(|term| term == entry.term)
        };
        entry.index <= self.last_index() && (entry.term == 0 || is_same())
    }

    /// The term of an entry of the log, where it is still known.
    fn known_term(&self, index: u64) -> Option<u64> {
        let term = self.node.raft.raft_log.term(index).ok()?;
        (term != 0).then_some(term)
    }

    fn step_down_if_barred(&mut self) {
        if self.node.raft.state != StateRole::Follower && !self.may_lead() {
            self.become_follower_of_nobody();
        }
    }

    /// Judges a message before the engine has it, and takes from it what the engine would believe
    /// wrongly.
    ///
    /// # Errors
    /// [`StepError::LeaderLacks`]: the engine may not have it.
    pub(super) fn check_proofs(&mut self, message: &mut PeerMessage) -> Result<(), StepError> {
        let is_of_leader = matches!(
            message.kind,
            MessageKind::Append | MessageKind::Heartbeat | MessageKind::Snapshot
        );
        if is_of_leader {
            if message.term < self.node.raft.term {
                return Ok(());
            }
            self.check_leader(message)?;
        }
        if message.kind == MessageKind::Heartbeat {
            if message.commit > self.last_index() {
                // It says at most what this node has acknowledged to it.
                self.note_acknowledged(message.commit);
                message.commit = self.commit_index();
            }
            return Ok(());
        }
        let commit = Position {
            index: message.commit,
            term: message.commit_term,
        };
        self.note_commit(message.from, commit);
        let is_request = matches!(message.kind, MessageKind::Vote | MessageKind::PreVote);
        if is_request && !(self.may_vote() && self.could_lead(message)) {
            // The engine refuses a log that ends before its first entry, and says what is
            // committed.
            (message.index, message.log_term) = (0, 0);
        }
        Ok(())
    }

    /// Whether the log of this candidate reaches to all that is known to be committed.
    fn could_lead(&self, candidate: &PeerMessage) -> bool {
        let known = self.proofs.committed.values().map(|commit| commit.index);
        let newest = known.fold(self.commit_index(), u64::max);
        candidate.index >= newest
    }

    /// Refuses a leader whose entries are not those that are committed here.
    fn check_leader(&mut self, message: &PeerMessage) -> Result<(), StepError> {
        let is_refused =
            |refused: &RefusedLeader| (refused.id, refused.term) == (message.from, message.term);
        let known = self.proofs.refused.filter(is_refused);
        let found = || self.other_entry(message);
        let Some(index) = known.map(|refused| refused.index).or_else(found) else {
            if message.kind != MessageKind::Heartbeat {
                self.proofs.refused = None;
            }
            return Ok(());
        };
        self.proofs.refused = Some(RefusedLeader {
            id: message.from,
            term: message.term,
            index,
        });
        if self.leader() == Some(message.from) {
            self.become_follower_of_nobody();
        }
        let Position {
            index: commit,
            term: commit_term,
        } = self.commit_position();
        let mut answer = Message {
            from: self.node_id,
            to: message.from,
            term: message.term,
            index: message.index,
            reject: true,
            reject_hint: message.index,
            commit,
            commit_term,
            ..Default::default()
        };
        answer.set_msg_type(MessageType::MsgAppendResponse);
        self.node.raft.msgs.push(answer);
        Err(StepError::LeaderLacks {
            leader: message.from,
            index,
            commit,
        })
    }

    /// The first entry of a message that is another one than what is committed here at its index.
    fn other_entry(&self, message: &PeerMessage) -> Option<u64> {
        let commit = self.commit_index();
        let before = [(message.index, message.log_term)].into_iter();
        let entries = message
            .entries
            .iter()
            .map(|entry| (entry.index, entry.term));
        let snapshot = message
            .snapshot
            .iter()
            .map(|point| (point.index, point.term));
        let positions = before.chain(entries).chain(snapshot);
        let is_other = |(index, term): &(u64, u64)| {
            *index != 0
                && *index <= commit
                && self.known_term(*index).is_some_and(|own| own != *term)
        };
        positions
            .filter(|_| message.kind != MessageKind::Heartbeat)
            .find(is_other)
            .map(|(index, _)| index)
    }
}
