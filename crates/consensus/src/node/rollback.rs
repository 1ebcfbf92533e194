//! Entries that other nodes prove to be committed, or acknowledged by this node's own folder,
//! though its log lacks them: the folder was rolled back (R19). Owns who neither votes nor leads
//! for that, and which leader is not followed. Never decides what is committed.

use raft::eraftpb::{Message, MessageType};
use raft::{RawNode, StateRole};

use super::Consensus;
use super::proofs::{LogView, other_entry};
use crate::error::StepError;
use crate::log::MemoryLog;
use crate::message::{MessageKind, PeerMessage};
use crate::types::{LogGap, Position};

/// The log of this node, as the engine has it.
struct EngineLog<'a>(&'a RawNode<MemoryLog>);

impl LogView for EngineLog<'_> {
    fn commit(&self) -> Position {
        let (index, term) = self.0.raft.raft_log.commit_info();
        Position { index, term }
    }

    fn last_index(&self) -> u64 {
        self.0.raft.raft_log.last_index()
    }

    fn term_at(&self, index: u64) -> Option<u64> {
        let term = self.0.raft.raft_log.term(index).ok()?;
        (term != 0).then_some(term)
    }
}

/// A leader that lacks entries which are committed here.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefusedLeader {
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
        self.proofs.hold(ticks);
    }

    /// Every voter was heard: this node may vote.
    pub fn release_votes(&mut self) {
        self.proofs.release();
    }

    /// Returns whether this node neither votes nor leads because it has just started.
    pub fn holds_votes(&self) -> bool {
        self.proofs.is_held()
    }

    /// Another node has reached this term. This node may have voted in it, for a leader whose
    /// entries others have, and its folder may have forgotten that. So while it follows nobody, it
    /// goes on to that term and gives no vote there.
    pub fn note_term(&mut self, term: u64) {
        let raft = &mut self.node.raft;
        let may_have_voted =
            term > raft.term || (term == raft.term && raft.vote == raft::INVALID_ID);
        if raft.leader_id != raft::INVALID_ID || !may_have_voted {
            return;
        }
        if term > raft.term {
            raft.become_follower(term, raft::INVALID_ID);
        }
        // A vote for itself that asks for no other one counts for nobody.
        raft.vote = self.node_id;
        self.put_timeout(false);
    }

    /// The node `from` knows this entry to be committed; a term of 0 is not known. While the log
    /// lacks it, this node does not lead, and votes for nobody whose log is too short for it.
    pub fn note_commit(&mut self, from: u64, commit: Position) {
        let log = EngineLog(&self.node);
        self.proofs.note_commit(&log, from, commit);
        self.step_down_if_barred();
    }

    /// Another node knows that this node's folder has acknowledged this committed entry. Until the
    /// entry is committed here again, this node neither votes nor leads.
    pub fn note_acknowledged(&mut self, index: u64) {
        self.proofs.note_acknowledged(index);
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

    /// Returns why this node neither votes nor leads, or follows nobody, where entries are missing.
    pub fn log_gap(&self) -> Option<LogGap> {
        if let Some(RefusedLeader { id, term, index }) = self.refused_leader {
            return Some(LogGap::LeaderLacks {
                leader: id,
                term,
                index,
            });
        }
        if let Some(acknowledged) = self.lost_acknowledgement() {
            return Some(LogGap::RolledBack {
                acknowledged,
                last: self.last_index(),
            });
        }
        let log = EngineLog(&self.node);
        let (node, commit) = self.proofs.lacked(&log).next()?;
        Some(LogGap::Lacks { node, commit })
    }

    /// The newest committed entry that this node has acknowledged, while it lacks it.
    pub fn lost_acknowledgement(&self) -> Option<u64> {
        self.proofs.lost(&EngineLog(&self.node))
    }

    /// The newest entry that is known to be committed.
    pub fn commit_position(&self) -> Position {
        EngineLog(&self.node).commit()
    }

    /// Returns whether this node may campaign and lead.
    pub(super) fn may_lead(&self) -> bool {
        self.proofs.may_lead(&EngineLog(&self.node))
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
        Ok(())
    }

    /// Returns whether this is a request for a vote that this node does not give.
    pub(super) fn refuses_vote(&self, message: &PeerMessage) -> bool {
        let is_request = matches!(message.kind, MessageKind::Vote | MessageKind::PreVote);
        let end_of_log = Position {
            index: message.index,
            term: message.log_term,
        };
        let log = EngineLog(&self.node);
        is_request && !(self.proofs.may_vote(&log) && self.proofs.could_lead(&log, end_of_log))
    }

    /// Refuses a leader whose entries are not those that are committed here.
    fn check_leader(&mut self, message: &PeerMessage) -> Result<(), StepError> {
        let is_refused =
            |refused: &RefusedLeader| (refused.id, refused.term) == (message.from, message.term);
        let known = self.refused_leader.filter(is_refused);
        let found = || self.other_entry(message);
        let Some(index) = known.map(|refused| refused.index).or_else(found) else {
            if message.kind != MessageKind::Heartbeat {
                self.refused_leader = None;
            }
            return Ok(());
        };
        self.refused_leader = Some(RefusedLeader {
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
        if message.kind == MessageKind::Heartbeat {
            return None;
        }
        let before = [(message.index, message.log_term)].into_iter();
        let entries = message.entries.iter();
        let entries = entries.map(|entry| (entry.index, entry.term));
        let snapshot = message.snapshot.iter();
        let snapshot = snapshot.map(|point| (point.index, point.term));
        let positions = before.chain(entries).chain(snapshot);
        let positions = positions.map(|(index, term)| Position { index, term });
        other_entry(&EngineLog(&self.node), positions)
    }
}
