//! One node of the consensus group: the engine, its log in memory, and the translation between the
//! engine's types and ours. Never a clock, a file, a socket; never a type of the engine in a
//! signature.

mod heartbeats;
mod progress;
mod proofs;
mod rollback;

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{
    Entry as RaftEntry, EntryType, HardState as RaftHardState, Message, MessageType,
};
use raft::{RawNode, SnapshotStatus, StateRole};

use self::proofs::Proofs;
use self::rollback::RefusedLeader;
use crate::entry::{Entry, EntryKind, engine_change, from_raft, to_raft};
use crate::error::{ChangeError, ConsensusError, ProposeError, ReadError, StepError};
use crate::log::MemoryLog;
use crate::membership::{Membership, MembershipChange};
use crate::message::{MessageKind, PeerMessage};
use crate::snapshot::{SnapshotPoint, point_of};
use crate::timeouts::{ElectionTimeouts, STRETCH};
use crate::types::{
    Config, Effects, HardState, PersistToken, Position, ReadId, ReadReady, Recovered, Role,
    RoleChange,
};

/// Entries after a snapshot on its way may take as many times the window's bytes.
const KEPT_WINDOWS: u64 = 4;

/// A node of the consensus group. See the crate's page for the loop that drives it.
pub struct Consensus {
    node: RawNode<MemoryLog>,
    node_id: u64,
    incarnation: Option<u128>,
    membership: Membership,
    max_uncommitted_bytes: u64,
    /// The newest index handed out in `Effects::committed`.
    handed_out: u64,
    /// Index up to which the caller has applied entries.
    applied: u64,
    /// Configuration entries that were handed out and are not applied, oldest first.
    changes: VecDeque<u64>,
    /// Effects that are not durable yet, oldest first; those with entries or a snapshot only.
    syncing: VecDeque<PersistToken>,
    /// The newest effects with a term or a vote that may not be durable yet.
    syncing_state: Option<PersistToken>,
    window_bytes: u64,
    /// Entries after this index are kept beyond the window.
    kept_after: Option<u64>,
    /// For how many ticks it has led though it was removed, and how many it may.
    removed_ticks: u32,
    election_ticks: u32,
    heartbeat_ticks: usize,
    timeouts: ElectionTimeouts,
    /// Role, term and leader for which the election timeout was drawn.
    timeout_of: Option<RoleChange>,
    stale_rejects: u64,
    /// The newest append that was acknowledged: to whom, in which term, up to which index.
    acknowledged: Option<(u64, u64, u64)>,
    next_read_id: u64,
    proofs: Proofs,
    /// A leader that is not followed.
    refused_leader: Option<RefusedLeader>,
    stored: HardState,
    reported_commit: u64,
    reported_role: Option<RoleChange>,
}

impl std::fmt::Debug for Consensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus")
            .field("node_id", &self.node_id)
            .field("status", &self.status())
            .field("applied", &self.applied)
            .finish_non_exhaustive()
    }
}

impl Consensus {
    /// A node that goes on from what its log gave back. Entries up to the stored commit index come
    /// out of the first [`drain`](Consensus::drain); the rest is committed again once this node
    /// leads.
    ///
    /// # Errors
    /// [`ConsensusError`] when a setting is out of range or the recovered parts do not fit
    /// together.
    pub fn new(config: &Config, recovered: Recovered) -> Result<Consensus, ConsensusError> {
        check_config(config)?;
        let membership = match &recovered.snapshot {
            Some(point) => point.membership.clone(),
            None if config.alone => Membership::sole_voter(config.node_id),
            None => Membership::default(),
        };
        let is_alone = membership.is_sole_voter(config.node_id)
            && membership.learners.is_empty()
            && membership.learners_next.is_empty();
        if config.alone && !is_alone {
            return Err(ConsensusError::Membership {
                node_id: config.node_id,
                voters: membership.voters,
            });
        }
        let (base_index, base_term) = recovered
            .snapshot
            .as_ref()
            .map_or((0, 0), |point| (point.index, point.term));
        let mut entries = VecDeque::with_capacity(recovered.entries.len());
        let mut last = base_index;
        let mut newest_term = base_term.max(recovered.hard_state.term);
        let (mut change, mut change_before) = (0, 0);
        for entry in recovered.entries {
            if entry.index != last + 1 {
                return Err(ConsensusError::LogGap {
                    expected: last + 1,
                    found: entry.index,
                });
            }
            if config.alone && entry.kind == EntryKind::Configuration {
                return Err(ConsensusError::NotAlone { index: entry.index });
            }
            last = entry.index;
            newest_term = newest_term.max(entry.term);
            if entry.kind == EntryKind::Configuration {
                (change_before, change) = (change, entry.index);
            }
            entries.push_back(to_raft(entry)?);
        }
        if recovered.commit > last {
            return Err(ConsensusError::CommitBeyondLog {
                commit: recovered.commit,
                last,
            });
        }
        // A hard state older than the newest entry carries no vote that still binds.
        let vote = if newest_term == recovered.hard_state.term {
            recovered.hard_state.vote
        } else {
            0
        };
        // A change is proposed only when the one before it is applied, so that one is committed,
        // also where the stored index does not say so. Without it, this node could lead by a
        // majority of members that were replaced (R15).
        let commit = recovered.commit.max(base_index).max(change_before);
        let hard_state = RaftHardState {
            term: newest_term,
            vote,
            commit,
            ..Default::default()
        };
        let conf_state = membership.to_engine();
        let mut log = MemoryLog::new(base_index, base_term, entries, hard_state, conf_state);
        if let Some(point) = recovered.snapshot {
            log.offer(point);
        }
        let node = RawNode::new(
            &engine_config(config, base_index),
            log,
            &crate::quiet::logger(),
        )
        .map_err(|error| ConsensusError::Engine(error.to_string()))?;
        let (low, high) = config.campaign_ticks;
        let mut consensus = Consensus {
            node,
            node_id: config.node_id,
            incarnation: config.incarnation,
            membership,
            max_uncommitted_bytes: config.max_uncommitted_bytes,
            handed_out: base_index,
            applied: base_index,
            changes: VecDeque::new(),
            syncing: VecDeque::new(),
            syncing_state: None,
            window_bytes: config.window_bytes,
            kept_after: None,
            removed_ticks: 0,
            election_ticks: config.election_ticks,
            heartbeat_ticks: config.heartbeat_ticks as usize,
            timeouts: ElectionTimeouts::new(config.seed, config.node_id, low, high),
            timeout_of: None,
            stale_rejects: 0,
            acknowledged: None,
            next_read_id: 1,
            proofs: Proofs::default(),
            refused_leader: None,
            stored: recovered.hard_state,
            reported_commit: recovered.commit,
            reported_role: None,
        };
        consensus.put_timeout(false);
        Ok(consensus)
    }

    /// Time has moved on by one tick. How long a tick is, the caller decides.
    pub fn tick(&mut self) {
        self.proofs.pass_tick();
        if self.must_sync_before_campaign() {
            // The engine would campaign over entries that are not durable, and panic.
            return;
        }
        let leads = self.node.raft.state == StateRole::Leader;
        let is_due = self.node.raft.election_elapsed + 1 >= self.campaign_ticks();
        if !leads && is_due && (self.is_another_folders() || !self.may_lead()) {
            // The engine would campaign.
            return;
        }
        self.node.tick();
        self.send_extra_heartbeat();
        let campaigned = !leads && self.node.raft.election_elapsed == 0;
        self.put_timeout(campaigned);
        if !campaigned {
            self.campaign_again_when_due();
        }
        self.leave_joint_when_due();
        self.hand_over_when_removed();
    }

    /// Stand for election now. A sole voter wins at once and may propose; its first entry, a no-op,
    /// comes out of the next [`drain`](Consensus::drain).
    ///
    /// # Errors
    /// [`ConsensusError::NotAVoter`]; [`ConsensusError::CampaignBeforeSync`];
    /// [`ConsensusError::Engine`] when the engine refuses.
    pub fn campaign(&mut self) -> Result<(), ConsensusError> {
        if !self.membership.votes(self.node_id) || self.is_another_folders() {
            // Among no voters at all, the engine would see it win, and panic.
            return Err(ConsensusError::NotAVoter {
                node_id: self.node_id,
            });
        }
        if self.must_sync_before_campaign() {
            return Err(ConsensusError::CampaignBeforeSync {
                node_id: self.node_id,
            });
        }
        if !self.may_lead() {
            return Err(ConsensusError::MayNotLead {
                node_id: self.node_id,
            });
        }
        let outcome = self.node.campaign();
        self.put_timeout(true);
        outcome.map_err(|error| ConsensusError::Engine(error.to_string()))
    }

    /// The leader is known to be gone: its connections have ended and it refuses new ones. Without
    /// this, votes are refused for `election_ticks` after its last message. The vote that was given
    /// in this term stays given.
    pub fn forget_leader(&mut self) {
        if self.node.raft.state == StateRole::Follower && self.leader().is_some() {
            self.become_follower_of_nobody();
        }
    }

    /// Returns whether this node waits twice as long for a leader before it campaigns: for a caller
    /// whose ticks come late, so that messages of the leader do too. How long it votes for nobody
    /// while it hears of a leader, and how soon it steps down when no majority answers, stay as
    /// they are.
    pub fn double_campaign_ticks(&mut self, doubled: bool) {
        self.timeouts.set_stretched(doubled);
        self.put_timeout(false);
    }

    /// Hands leadership over to `to`, a voter. Proposals are refused until it leads, or until
    /// `election_ticks` have passed; the status shows the outcome. Without effect on a node that
    /// does not lead.
    pub fn transfer_leader(&mut self, to: u64) {
        if self.leads() && self.membership.votes(to) {
            self.node.transfer_leader(to);
        }
    }

    /// A message has come from a peer. Its effects come out of the next
    /// [`drain`](Consensus::drain).
    ///
    /// # Errors
    /// [`StepError`]: the message was dropped, and the node is as it was. Only
    /// [`StepError::LostLog`] says that this node cannot go on.
    pub fn step(&mut self, mut message: PeerMessage) -> Result<(), StepError> {
        let (from, to) = (message.from, message.to);
        if to != self.node_id || from == self.node_id || from == raft::INVALID_ID {
            return Err(StepError::Misdirected {
                node_id: self.node_id,
                from,
                to,
            });
        }
        let last = self.last_index();
        if message.kind == MessageKind::Heartbeat
            && message.term >= self.node.raft.term
            && message.commit > last
            && last == 0
        {
            return Err(StepError::LostLog {
                commit: message.commit,
                last,
            });
        }
        if self.is_stale_reject(&message) {
            self.stale_rejects += 1;
            return Ok(());
        }
        if message.kind == MessageKind::TimeoutNow
            && (self.must_sync_before_campaign() || self.is_another_folders() || !self.may_lead())
        {
            return Ok(());
        }
        self.check_proofs(&mut message)?;
        if self.refuses_vote(&message) {
            if last == 0 {
                // To the engine no log is older than an empty one.
                return Ok(());
            }
            // The engine refuses a log that ends before its first entry, and says what is
            // committed.
            (message.index, message.log_term) = (0, 0);
        }
        if message.kind == MessageKind::PreVoteResponse && message.reject {
            // A node of an older term refuses in that term, and the engine would not listen: but
            // what it says is committed is so in every term (R44).
            message.term = message.term.max(self.node.raft.term);
        }
        let only_commits = message.kind == MessageKind::Append && message.entries.is_empty();
        let message = message.into_engine()?;
        let (committed, answers) = (self.commit_index(), self.node.raft.msgs.len());
        let outcome = self.node.step(message);
        self.put_timeout(false);
        let is_repeated = self.note_acknowledgement(answers);
        if only_commits && is_repeated && self.commit_index() > committed {
            self.node.raft.msgs.truncate(answers);
        }
        match outcome {
            Err(raft::Error::StepPeerNotFound) => Err(StepError::UnknownSender { from }),
            // What else the engine may say is about this node's own proposals.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Notes what the engine acknowledges behind this many messages. Returns whether that is the
    /// one message there, and says no more than the acknowledgement before it.
    ///
    /// The engine answers each append, also one that only says what is committed. A leader needs no
    /// such answer: it has the one to the entries, or asks for it again where that was lost.
    fn note_acknowledgement(&mut self, from: usize) -> bool {
        let answers = self.node.raft.msgs.get(from..).unwrap_or_default();
        let acknowledged = answers.iter().filter(|answer| {
            answer.get_msg_type() == MessageType::MsgAppendResponse && !answer.reject
        });
        let Some(newest) = acknowledged.last() else {
            return false;
        };
        let newest = (newest.to, newest.term, newest.index);
        let is_alone = answers.len() == 1;
        let is_known = self.acknowledged.replace(newest) == Some(newest);
        is_alone && is_known
    }

    /// An append that was refused although the entries before it are known to match: an answer of
    /// an earlier connection. The engine would go back behind them (R11).
    fn is_stale_reject(&self, message: &PeerMessage) -> bool {
        message.kind == MessageKind::AppendResponse
            && message.reject
            && message.request_snapshot == 0
            && message.term == self.node.raft.term
            && self.node.raft.state == StateRole::Leader
            && self
                .node
                .raft
                .prs()
                .get(message.from)
                .is_some_and(|progress| message.index <= progress.matched && progress.matched > 0)
    }

    /// Number of refused appends that were dropped because they came from an earlier connection.
    pub fn stale_rejects(&self) -> u64 {
        self.stale_rejects
    }

    /// Puts a payload at the end of the leader's log. It is not durable, let alone committed, by
    /// that.
    ///
    /// # Errors
    /// [`ProposeError`]; nothing was appended then.
    pub fn propose(&mut self, payload: Bytes) -> Result<Position, ProposeError> {
        self.may_propose()?;
        if payload.is_empty() {
            return Err(ProposeError::Empty);
        }
        let mut message = Message {
            from: self.node_id,
            ..Default::default()
        };
        message.set_msg_type(MessageType::MsgPropose);
        message.mut_entries().push(RaftEntry {
            data: payload,
            ..Default::default()
        });
        // A leader that may propose can only be refused for the bytes that wait.
        self.node
            .raft
            .step(message)
            .map_err(|_| ProposeError::TooMuchUncommitted {
                limit_bytes: self.max_uncommitted_bytes,
            })?;
        Ok(self.end_of_log())
    }

    /// Proposes a change of the membership. It has effect once the entry is applied, by
    /// [`apply_change`](Consensus::apply_change); a change that enters a joint configuration is
    /// followed by the entry that leaves it, which the next leader proposes by itself.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was appended then.
    pub fn propose_change(&mut self, change: &MembershipChange) -> Result<Position, ChangeError> {
        self.may_propose()?;
        if !self.node.raft.apply_to_current_term() {
            return Err(ChangeError::TooEarly);
        }
        if self.node.raft.has_pending_conf() {
            return Err(ChangeError::InProgress);
        }
        self.membership.check(change)?;
        let before = self.last_index();
        self.node
            .propose_conf_change(change.encode().to_vec(), engine_change(change))
            .map_err(|_| ProposeError::TooMuchUncommitted {
                limit_bytes: self.max_uncommitted_bytes,
            })?;
        // The engine swallows a change that it does not want, and appends a no-op (R13).
        let appended = self
            .node
            .raft
            .raft_log
            .entries(before + 1, None, raft::GetEntriesContext::empty(false))
            .unwrap_or_default();
        let kept = |entry: &RaftEntry| entry.get_entry_type() == EntryType::EntryConfChangeV2;
        if appended.first().is_some_and(kept) {
            Ok(self.end_of_log())
        } else {
            Err(ChangeError::InProgress)
        }
    }

    /// The configuration entry `index`, which was handed out as committed, is applied: the
    /// membership changes if `accept` says so. Every node must decide alike.
    ///
    /// # Errors
    /// [`ConsensusError::ConfigurationOrder`] when it is not the next one;
    /// [`ConsensusError::Engine`] when the change does not fit the membership.
    pub fn apply_change(
        &mut self,
        index: u64,
        change: &MembershipChange,
        accept: bool,
    ) -> Result<&Membership, ConsensusError> {
        let expected = self.changes.front().copied();
        if expected != Some(index) {
            return Err(ConsensusError::ConfigurationOrder {
                expected,
                given: index,
            });
        }
        if accept {
            let state = self
                .node
                .apply_conf_change(&engine_change(change))
                .map_err(|error| ConsensusError::Engine(error.to_string()))?;
            self.membership.note(change);
            self.membership.take_over(state);
            self.step_down_when_removed(index);
        }
        self.changes.pop_front();
        Ok(&self.membership)
    }

    /// The members, as far as entries are applied.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Asks for the index that must be applied before a read that begins now is linearizable. The
    /// answer comes in [`Effects::reads`] of a later [`drain`](Consensus::drain).
    ///
    /// # Errors
    /// [`ReadError`]; no answer will come then, ask again.
    pub fn read_index(&mut self) -> Result<ReadId, ReadError> {
        if !self.leads() {
            return Err(ReadError::NotLeader {
                leader: self.leader(),
            });
        }
        // The engine would drop the request without a word.
        if !self.node.raft.commit_to_current_term() {
            return Err(ReadError::NothingCommittedInTerm);
        }
        let id = self.next_read_id;
        self.next_read_id += 1;
        self.node.read_index(id.to_le_bytes().to_vec());
        Ok(ReadId(id))
    }

    /// Takes what has to be done now; `None` when there is nothing. The engine counts what is
    /// handed out in `append` as stored but not as durable until
    /// [`persisted`](Consensus::persisted).
    pub fn drain(&mut self) -> Option<Effects> {
        if !self.node.has_ready() {
            return None;
        }
        let mut ready = self.node.ready();
        let snapshot = match ready.snapshot() {
            none if none.is_empty() => None,
            some => point_of(some).ok(),
        };
        if let Some(point) = &snapshot {
            self.node.mut_store().install(point);
            self.membership = point.membership.clone();
            self.handed_out = point.index;
            self.changes.clear();
        }
        let entries = ready.take_entries();
        self.node.mut_store().append(&entries);
        let hard_state = ready.hs().map(|hs| HardState {
            term: hs.term,
            vote: hs.vote,
        });
        let hard_state = hard_state.filter(|hs| *hs != self.stored);
        if let Some(hs) = hard_state {
            self.stored = hs;
        }
        let committed: Vec<Entry> = ready
            .take_committed_entries()
            .into_iter()
            .map(from_raft)
            .collect();
        if let Some(last) = committed.last() {
            self.handed_out = last.index;
        }
        let configurations = committed
            .iter()
            .filter(|entry| entry.kind == EntryKind::Configuration);
        self.changes.extend(configurations.map(|entry| entry.index));
        let reads = ready
            .take_read_states()
            .into_iter()
            .filter_map(|state| {
                let id = <[u8; 8]>::try_from(state.request_ctx.as_slice()).ok()?;
                Some(ReadReady {
                    id: ReadId(u64::from_le_bytes(id)),
                    index: state.index,
                })
            })
            .collect();
        let token = PersistToken(ready.number());
        let must_sync = !entries.is_empty() || hard_state.is_some() || snapshot.is_some();
        if !entries.is_empty() || snapshot.is_some() {
            self.syncing.push_back(token);
        }
        let ours = |messages: Vec<Message>| {
            let messages = messages.into_iter();
            messages.filter_map(PeerMessage::from_engine).collect()
        };
        let mut send_now: Vec<PeerMessage> = ours(ready.take_messages());
        let mut send_after_sync: Vec<PeerMessage> = ours(ready.take_persisted_messages());
        self.add_commit_to_votes(send_now.iter_mut().chain(&mut send_after_sync));
        if hard_state.is_some() {
            self.syncing_state = Some(token);
        }
        // A sole voter leads by its own vote, before that is durable: what it sends of a term that
        // a crash makes it forget, it would make again with another content (R02).
        if self.syncing_state.is_some() {
            send_now.append(&mut send_after_sync);
            send_after_sync = std::mem::take(&mut send_now);
        } else {
            // It says that this node hears of the leader, and promises nothing of the log. Behind
            // the disk, it would have the leader of slow followers step down.
            let is_answer =
                |message: &mut PeerMessage| message.kind == MessageKind::HeartbeatResponse;
            send_now.extend(send_after_sync.extract_if(.., is_answer));
        }
        self.node.advance_append_async(ready);
        let wants_snapshot = self.node.mut_store().take_wanted();

        let status = self.status();
        let role = (self.reported_role != Some(status)).then_some(status);
        self.reported_role = Some(status);
        let commit = self.commit_index();
        let commit = (commit > self.reported_commit).then_some(commit);
        if let Some(index) = commit {
            self.reported_commit = index;
        }
        Some(Effects {
            token,
            append: entries.into_iter().map(from_raft).collect(),
            hard_state,
            commit,
            must_sync,
            committed,
            reads,
            send_now,
            send_after_sync,
            snapshot,
            wants_snapshot,
            role,
        })
    }

    /// A vote says how far its voter knows the log to be committed, as refusals of the engine do. A
    /// candidate that a crash has set back may ask servers for their votes that are no members any
    /// more and have gone: it needs to hear that they are none (R44).
    fn add_commit_to_votes<'a>(&self, messages: impl Iterator<Item = &'a mut PeerMessage>) {
        let is_vote = |message: &&'a mut PeerMessage| {
            let kinds = [MessageKind::VoteResponse, MessageKind::PreVoteResponse];
            kinds.contains(&message.kind) && !message.reject
        };
        let commit = self.commit_index();
        let Ok(term) = self.node.raft.raft_log.term(commit) else {
            return;
        };
        for vote in messages.filter(is_vote) {
            (vote.commit, vote.commit_term) = (commit, term);
        }
    }

    /// Everything in the effects with this token, and in all before them, is durable.
    pub fn persisted(&mut self, token: PersistToken) {
        self.syncing.retain(|waiting| *waiting > token);
        self.syncing_state = self.syncing_state.filter(|waiting| *waiting > token);
        self.node.on_persist_ready(token.0);
        self.put_timeout(false);
    }

    /// Everything up to `index` is applied. What no other node lacks is forgotten.
    ///
    /// # Errors
    /// [`ConsensusError::AppliedOutOfRange`] when `index` was not handed out as committed or goes
    /// back; [`ConsensusError::ConfigurationOrder`] when a configuration entry up to it has not
    /// been through [`apply_change`](Consensus::apply_change).
    pub fn applied(&mut self, index: u64) -> Result<(), ConsensusError> {
        if index < self.applied || index > self.handed_out {
            return Err(ConsensusError::AppliedOutOfRange {
                index,
                low: self.applied,
                high: self.handed_out,
            });
        }
        if let Some(expected) = self.changes.front().copied().filter(|next| *next <= index) {
            return Err(ConsensusError::ConfigurationOrder {
                expected: Some(expected),
                given: index,
            });
        }
        self.applied = index;
        self.node.advance_apply_to(index);
        self.forget_entries();
        self.leave_joint_when_due();
        Ok(())
    }

    /// Applied entries are kept while another node lacks them, as far as the window goes. A node
    /// that follows keeps the window full: it may lead next, and then has to serve the others.
    fn forget_entries(&mut self) {
        let unneeded = self.needed_by_nobody().min(self.applied);
        let log = self.node.mut_store();
        log.drop_up_to(unneeded);
        let kept_after = self.kept_after.unwrap_or(u64::MAX);
        log.drop_down_to(self.window_bytes, self.applied.min(kept_after));
        let most_bytes = self.window_bytes.saturating_mul(KEPT_WINDOWS);
        log.drop_down_to(most_bytes, self.applied);
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

    /// A snapshot of this point can be sent from now on.
    pub fn snapshot_saved(&mut self, point: SnapshotPoint) {
        self.node.mut_store().offer(point);
    }

    /// Reports the end of sending a snapshot. To be called for each [`MessageKind::Snapshot`] that
    /// was handed out, also when its connection has ended: the leader sends that node nothing else
    /// until then.
    pub fn report_snapshot(&mut self, to: u64, arrived: bool) {
        let status = if arrived {
            SnapshotStatus::Finish
        } else {
            SnapshotStatus::Failure
        };
        self.node.report_snapshot(to, status);
    }

    /// Messages to this node were lost.
    pub fn report_unreachable(&mut self, to: u64) {
        self.node.report_unreachable(to);
    }

    /// The point that a snapshot taken of the state machine now stands for: the applied index.
    pub fn snapshot_point(&self) -> SnapshotPoint {
        SnapshotPoint {
            index: self.applied,
            term: self.node.raft.raft_log.term(self.applied).unwrap_or(0),
            membership: self.membership.clone(),
        }
    }

    /// Role, term and leader now.
    pub fn status(&self) -> RoleChange {
        RoleChange {
            role: match self.node.raft.state {
                StateRole::Follower => Role::Follower,
                StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
                StateRole::Leader => Role::Leader,
            },
            term: self.node.raft.term,
            leader: self.leader(),
        }
    }

    /// The newest index known to be committed.
    pub fn commit_index(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// The newest index that is applied.
    pub fn applied_index(&self) -> u64 {
        self.applied
    }

    /// The newest index of the log, durable or not.
    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    fn leader(&self) -> Option<u64> {
        Some(self.node.raft.leader_id).filter(|id| *id != raft::INVALID_ID)
    }

    /// Returns whether this node leads and belongs to those who vote. A leader that was removed
    /// goes on in the engine, and drops what is proposed (R16).
    fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader && self.membership.votes(self.node_id)
    }

    fn may_propose(&self) -> Result<(), ProposeError> {
        if !self.leads() {
            let leader = self.leader().filter(|id| *id != self.node_id);
            return Err(ProposeError::NotLeader { leader });
        }
        match self.node.raft.lead_transferee {
            Some(to) => Err(ProposeError::HandingOver { to }),
            None => Ok(()),
        }
    }

    fn end_of_log(&self) -> Position {
        Position {
            index: self.last_index(),
            term: self.node.raft.term,
        }
    }

    /// Returns whether the membership lists this node with another data folder: the log ends, or is
    /// applied up to, before this folder became a member. Anyone who is needed as a voter has a
    /// later membership: it is made a voter by an entry behind the one that admits it, and a
    /// restart knows that the one before is committed (R15, R17).
    fn is_another_folders(&self) -> bool {
        // A member of the time before incarnations has 0.
        let is_other = |own| {
            let mut members = self.membership.members.iter();
            members
                .any(|member| member.id == self.node_id && ![0, own].contains(&member.incarnation))
        };
        self.incarnation.is_some_and(is_other)
    }

    /// A sole voter wins without a message, so nothing makes it wait for its own disk. And while a
    /// snapshot takes the place of the log, the engine would look for entries before it, and panic.
    fn must_sync_before_campaign(&self) -> bool {
        let is_sole_voter = self.membership.is_sole_voter(self.node_id);
        self.is_installing()
            || (self.node.raft.state != StateRole::Leader
                && !self.syncing.is_empty()
                && is_sole_voter)
    }

    /// Returns whether a snapshot was handed out that the caller has not applied yet.
    fn is_installing(&self) -> bool {
        self.applied < self.node.store().base()
    }

    /// Puts the timeout that was drawn here in the place of the engine's own.
    fn put_timeout(&mut self, campaigned: bool) {
        let now = self.status();
        if campaigned || self.timeout_of != Some(now) {
            self.timeouts.draw();
            self.timeout_of = Some(now);
        }
        if campaigned {
            self.timeouts.campaign_begins();
        }
        if now.leader.is_some() {
            self.timeouts.leader_is_known();
        }
        let ticks = self.campaign_ticks();
        self.node.raft.set_randomized_election_timeout(ticks);
    }

    /// Gives up a first campaign that nobody has won, and begins the second (`timeouts`).
    fn campaign_again_when_due(&mut self) {
        let is_candidate = matches!(
            self.node.raft.state,
            StateRole::Candidate | StateRole::PreCandidate
        );
        if is_candidate && self.timeouts.is_second_campaign_due() {
            // What forbids it now is asked again when the timeout has passed.
            let _ = self.campaign();
        }
    }

    /// A leader that sees a joint configuration leaves it, whichever leader entered it (R14).
    fn leave_joint_when_due(&mut self) {
        if self.node.raft.state == StateRole::Leader && self.membership.is_joint() {
            // What forbids it now is asked again with the next tick.
            let _ = self.propose_change(&MembershipChange::leave_joint());
        }
    }

    /// A leader that was removed and has entries after its removal cannot lead on until it has
    /// handed over: the engine panics when one of them is synced or committed (R16).
    fn step_down_when_removed(&mut self, removal: u64) {
        let leads = self.node.raft.state == StateRole::Leader;
        if leads && !self.membership.contains(self.node_id) && removal < self.last_index() {
            self.become_follower_of_nobody();
        }
    }

    fn become_follower_of_nobody(&mut self) {
        let term = self.node.raft.term;
        self.node.raft.become_follower(term, raft::INVALID_ID);
        self.put_timeout(false);
    }

    /// A leader that was removed would go on in the engine (R16): it asks the best voter to
    /// campaign, with each tick again, as one that has not applied its removal yet does not.
    fn hand_over_when_removed(&mut self) {
        let removed = self.node.raft.state == StateRole::Leader
            && !self.membership.is_joint()
            && !self.membership.votes(self.node_id);
        if !removed {
            self.removed_ticks = 0;
            return;
        }
        self.removed_ticks += 1;
        if self.removed_ticks > self.election_ticks {
            // Nobody answers. The engine would lead for ever: each request to take over makes it
            // forget how long it has heard of no majority.
            self.become_follower_of_nobody();
            return;
        }
        let best = self
            .progress()
            .into_iter()
            .filter(|peer| self.membership.votes(peer.id))
            .max_by_key(|peer| (peer.active, peer.matched));
        if let Some(best) = best {
            self.node.raft.abort_leader_transfer();
            self.node.transfer_leader(best.id);
        }
    }
}

fn check_config(config: &Config) -> Result<(), ConsensusError> {
    let refuse = |name, value, remedy| {
        Err(ConsensusError::Config {
            name,
            value,
            remedy,
        })
    };
    if config.node_id == 0 {
        return refuse("node_id", 0, "give each node its own id from 1 on");
    }
    if config.heartbeat_ticks == 0 {
        return refuse("heartbeat_ticks", 0, "use 1 or more");
    }
    if config.max_uncommitted_bytes == 0 {
        return refuse("max_uncommitted_bytes", 0, "use 1 or more");
    }
    if config.election_ticks <= 2 * config.heartbeat_ticks {
        return refuse(
            "election_ticks",
            u64::from(config.election_ticks),
            "use more than twice heartbeat_ticks, four times is usual",
        );
    }
    let (low, high) = config.campaign_ticks;
    if low < config.election_ticks || high < low {
        return refuse(
            "campaign_ticks",
            u64::from(low),
            "use a range that begins at election_ticks or later",
        );
    }
    Ok(())
}

fn engine_config(config: &Config, applied: u64) -> raft::Config {
    let election_tick = config.election_ticks as usize;
    raft::Config {
        id: config.node_id,
        election_tick,
        // The heartbeats of a leader that has nothing to say: see `heartbeats`.
        heartbeat_tick: 2 * config.heartbeat_ticks as usize,
        // The engine's own random source never decides anything: see `timeouts`.
        min_election_tick: config.campaign_ticks.0 as usize,
        max_election_tick: config.campaign_ticks.1 as usize * STRETCH + election_tick,
        applied,
        max_inflight_msgs: 128,
        max_size_per_msg: config.max_uncommitted_bytes.min(256 << 10),
        check_quorum: true,
        pre_vote: true,
        max_uncommitted_size: config.max_uncommitted_bytes,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use raft::Storage;

    use super::*;

    #[test]
    fn applied_entries_are_forgotten() {
        let mut node = Consensus::new(&Config::sole_voter(1), Recovered::default()).unwrap();
        node.campaign().unwrap();
        for at in 0..1000_u32 {
            node.propose(Bytes::copy_from_slice(&at.to_le_bytes()))
                .unwrap();
        }
        let last = node.last_index();
        while let Some(effects) = node.drain() {
            node.persisted(effects.token);
        }
        node.applied(last).unwrap();
        assert_eq!(node.node.store().first_index().unwrap(), last + 1);
    }
}
