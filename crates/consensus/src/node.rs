//! One node of the consensus group: the engine, its log in memory, and the translation between the
//! engine's types and ours. Never a clock, a file, a socket; never a type of the engine in a
//! signature.

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{
    ConfState, Entry as RaftEntry, HardState as RaftHardState, Message, MessageType,
};
use raft::{RawNode, StateRole};

use crate::error::{ConsensusError, ProposeError, ReadError};
use crate::log::MemoryLog;
use crate::types::{
    Config, Effects, Entry, EntryKind, HardState, Membership, PersistToken, Position, ReadId,
    ReadReady, Recovered, Role, RoleChange, SnapshotPoint,
};

/// A node of the consensus group. See the crate's page for the loop that drives it.
pub struct Consensus {
    node: RawNode<MemoryLog>,
    node_id: u64,
    membership: Membership,
    max_uncommitted_bytes: u64,
    /// The newest index handed out in `Effects::committed`.
    handed_out: u64,
    /// Index up to which the caller has applied entries.
    applied: u64,
    next_read_id: u64,
    stored: HardState,
    told_commit: u64,
    told_role: Option<RoleChange>,
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
            None => Membership {
                voters: vec![config.node_id],
                learners: Vec::new(),
            },
        };
        if membership.voters != [config.node_id] || !membership.learners.is_empty() {
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
        for entry in recovered.entries {
            if entry.index != last + 1 {
                return Err(ConsensusError::LogGap {
                    expected: last + 1,
                    found: entry.index,
                });
            }
            last = entry.index;
            newest_term = newest_term.max(entry.term);
            entries.push_back(to_raft(entry));
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
        let commit = recovered.commit.max(base_index);
        let hard_state = RaftHardState {
            term: newest_term,
            vote,
            commit,
            ..Default::default()
        };
        let conf_state = ConfState {
            voters: membership.voters.clone(),
            ..Default::default()
        };
        let log = MemoryLog::new(base_index, base_term, entries, hard_state, conf_state);
        let node = RawNode::new(
            &engine_config(config, base_index),
            log,
            &crate::quiet::logger(),
        )
        .map_err(|error| ConsensusError::Engine(error.to_string()))?;
        Ok(Consensus {
            node,
            node_id: config.node_id,
            membership,
            max_uncommitted_bytes: config.max_uncommitted_bytes,
            handed_out: base_index,
            applied: base_index,
            next_read_id: 1,
            stored: recovered.hard_state,
            told_commit: recovered.commit,
            told_role: None,
        })
    }

    /// Time has moved on by one tick. How long a tick is, the caller decides.
    pub fn tick(&mut self) {
        self.node.tick();
    }

    /// Stand for election now. A sole voter wins at once and may propose; its first entry, a no-op,
    /// comes out of the next [`drain`](Consensus::drain).
    ///
    /// # Errors
    /// [`ConsensusError::Engine`] when the engine refuses.
    pub fn campaign(&mut self) -> Result<(), ConsensusError> {
        self.node
            .campaign()
            .map_err(|error| ConsensusError::Engine(error.to_string()))
    }

    /// Puts a payload at the end of the leader's log. It is not durable, let alone committed, by
    /// that.
    ///
    /// # Errors
    /// [`ProposeError`]; nothing was appended then.
    pub fn propose(&mut self, payload: Bytes) -> Result<Position, ProposeError> {
        if self.node.raft.state != StateRole::Leader {
            return Err(ProposeError::NotLeader {
                leader: self.leader(),
            });
        }
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
        // A sole voter that leads can only be refused for the bytes that wait.
        self.node
            .raft
            .step(message)
            .map_err(|_| ProposeError::TooMuchUncommitted {
                limit_bytes: self.max_uncommitted_bytes,
            })?;
        Ok(Position {
            index: self.node.raft.raft_log.last_index(),
            term: self.node.raft.term,
        })
    }

    /// Asks for the index that must be applied before a read that begins now is linearizable. The
    /// answer comes in [`Effects::reads`] of a later [`drain`](Consensus::drain).
    ///
    /// # Errors
    /// [`ReadError`]; no answer will come then, ask again.
    pub fn read_index(&mut self) -> Result<ReadId, ReadError> {
        if self.node.raft.state != StateRole::Leader {
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
        let must_sync = !entries.is_empty() || hard_state.is_some();
        // One voter has no peer to write to.
        drop(ready.take_messages());
        drop(ready.take_persisted_messages());
        self.node.advance_append_async(ready);

        let status = self.status();
        let role = (self.told_role != Some(status)).then_some(status);
        self.told_role = Some(status);
        let commit = self.commit_index();
        let commit = (commit > self.told_commit).then_some(commit);
        if let Some(index) = commit {
            self.told_commit = index;
        }
        Some(Effects {
            token,
            append: entries.into_iter().map(from_raft).collect(),
            hard_state,
            commit,
            must_sync,
            committed,
            reads,
            role,
        })
    }

    /// Everything in the effects with this token, and in all before them, is durable.
    pub fn persisted(&mut self, token: PersistToken) {
        self.node.on_persist_ready(token.0);
    }

    /// Everything up to `index` is applied; a sole voter forgets those entries.
    ///
    /// # Errors
    /// [`ConsensusError::AppliedOutOfRange`] when `index` was not handed out as committed or goes
    /// back.
    pub fn applied(&mut self, index: u64) -> Result<(), ConsensusError> {
        if index < self.applied || index > self.handed_out {
            return Err(ConsensusError::AppliedOutOfRange {
                index,
                low: self.applied,
                high: self.handed_out,
            });
        }
        self.applied = index;
        self.node.advance_apply_to(index);
        self.node.mut_store().drop_up_to(index);
        Ok(())
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

    /// The newest index of the log, durable or not.
    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// How many entries are held in memory, for limits and metrics.
    pub fn entries_in_memory(&self) -> usize {
        self.node.store().len()
    }

    fn leader(&self) -> Option<u64> {
        Some(self.node.raft.leader_id).filter(|id| *id != raft::INVALID_ID)
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
    if config.election_ticks <= config.heartbeat_ticks {
        return refuse(
            "election_ticks",
            u64::from(config.election_ticks),
            "use more than heartbeat_ticks, ten times is usual",
        );
    }
    Ok(())
}

fn engine_config(config: &Config, applied: u64) -> raft::Config {
    let election_tick = config.election_ticks as usize;
    raft::Config {
        id: config.node_id,
        election_tick,
        heartbeat_tick: config.heartbeat_ticks as usize,
        // One possible value: the engine's own random source never decides anything.
        min_election_tick: election_tick,
        max_election_tick: election_tick + 1,
        applied,
        max_inflight_msgs: 256,
        max_size_per_msg: config.max_uncommitted_bytes.min(1 << 20),
        check_quorum: true,
        pre_vote: true,
        max_uncommitted_size: config.max_uncommitted_bytes,
        ..Default::default()
    }
}

fn to_raft(entry: Entry) -> RaftEntry {
    RaftEntry {
        index: entry.index,
        term: entry.term,
        data: entry.payload,
        ..Default::default()
    }
}

fn from_raft(entry: RaftEntry) -> Entry {
    Entry {
        index: entry.index,
        term: entry.term,
        kind: if entry.data.is_empty() {
            EntryKind::Noop
        } else {
            EntryKind::Command
        },
        payload: entry.data,
    }
}
