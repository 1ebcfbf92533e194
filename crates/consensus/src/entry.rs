//! Entries of the replicated log, and their translation from and to the engine's.

use bytes::Bytes;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
    Entry as RaftEntry, EntryType,
};

use crate::error::ConsensusError;
use crate::membership::{Change, Membership, MembershipChange};

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A new leader's first entry; it carries nothing and is applied as nothing.
    Noop,
    /// A payload that was proposed.
    Command,
    /// A [`MembershipChange`].
    Configuration,
}

impl EntryKind {
    /// The byte that stands for this kind on disk (`docs/internals/format.md`).
    pub fn as_byte(self) -> u8 {
        match self {
            EntryKind::Noop => 0,
            EntryKind::Command => 1,
            EntryKind::Configuration => 2,
        }
    }

    /// The kind that a byte stands for; `None` when a later version wrote it.
    pub fn from_byte(byte: u8) -> Option<EntryKind> {
        match byte {
            0 => Some(EntryKind::Noop),
            1 => Some(EntryKind::Command),
            2 => Some(EntryKind::Configuration),
            _ => None,
        }
    }
}

/// One entry of the replicated log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log; the first entry ever is 1.
    pub index: u64,
    /// The term of the leader that made it.
    pub term: u64,
    /// Its payload.
    pub kind: EntryKind,
    /// The proposed bytes; shared, so that a clone costs a reference count.
    pub payload: Bytes,
}

impl Entry {
    /// An entry as the log gives it back; `kind` is what [`EntryKind::as_byte`] wrote.
    ///
    /// # Errors
    /// [`ConsensusError::UnknownKind`] when a later version wrote it.
    pub fn from_stored(
        index: u64,
        term: u64,
        kind: u8,
        payload: Bytes,
    ) -> Result<Entry, ConsensusError> {
        let kind = EntryKind::from_byte(kind).ok_or(ConsensusError::UnknownKind { index, kind })?;
        Ok(Entry {
            index,
            term,
            kind,
            payload,
        })
    }
}

/// The engine's entry. Of a configuration entry the engine reads only the type, once it is
/// proposed; its payload is what it calls the context.
pub(crate) fn to_raft(entry: Entry) -> Result<RaftEntry, ConsensusError> {
    let mut raft = RaftEntry {
        index: entry.index,
        term: entry.term,
        ..Default::default()
    };
    match entry.kind {
        EntryKind::Noop => {}
        EntryKind::Command => raft.data = entry.payload,
        EntryKind::Configuration => {
            MembershipChange::decode(&entry.payload)?;
            raft.set_entry_type(EntryType::EntryConfChangeV2);
            raft.context = entry.payload;
        }
    }
    Ok(raft)
}

pub(crate) fn from_raft(entry: RaftEntry) -> Entry {
    let (kind, payload) = match entry.get_entry_type() {
        EntryType::EntryNormal if entry.data.is_empty() => (EntryKind::Noop, Bytes::new()),
        EntryType::EntryNormal => (EntryKind::Command, entry.data),
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
            (EntryKind::Configuration, entry.context)
        }
    };
    Entry {
        index: entry.index,
        term: entry.term,
        kind,
        payload,
    }
}

/// The engine's form of a change. Always through a joint configuration, which is left by an entry
/// of its own.
pub(crate) fn engine_change(change: &MembershipChange) -> ConfChangeV2 {
    let mut engine = ConfChangeV2::default();
    if change.changes.is_empty() {
        return engine;
    }
    engine.set_transition(ConfChangeTransition::Explicit);
    for part in &change.changes {
        let mut single = ConfChangeSingle {
            node_id: part.id(),
            ..Default::default()
        };
        single.set_change_type(match part {
            Change::AddVoter(_) => ConfChangeType::AddNode,
            Change::AddLearner(_) => ConfChangeType::AddLearnerNode,
            Change::Remove(_) => ConfChangeType::RemoveNode,
        });
        engine.mut_changes().push(single);
    }
    engine
}

impl Membership {
    /// The engine's list of ids.
    pub(crate) fn to_engine(&self) -> ConfState {
        ConfState {
            voters: self.voters.clone(),
            voters_outgoing: self.outgoing.clone(),
            learners: self.learners.clone(),
            learners_next: self.learners_next.clone(),
            ..Default::default()
        }
    }

    /// Takes over the engine's list of ids; members that are in none of its parts are forgotten.
    pub(crate) fn take_over(&mut self, engine: ConfState) {
        let sorted = |mut ids: Vec<u64>| {
            ids.sort_unstable();
            ids
        };
        self.voters = sorted(engine.voters);
        self.outgoing = sorted(engine.voters_outgoing);
        self.learners = sorted(engine.learners);
        self.learners_next = sorted(engine.learners_next);
        let mut members = std::mem::take(&mut self.members);
        members.retain(|member| self.contains(member.id));
        self.members = members;
    }
}
