//! The facade's own vocabulary: what goes in, what comes out. Plain data, no behaviour of the
//! engine.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::ConsensusError;

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A new leader's first entry; it carries nothing and is applied as nothing.
    Noop,
    /// A payload that was proposed.
    Command,
}

impl EntryKind {
    /// The byte that stands for this kind on disk (`docs/internals/format.md`).
    pub fn as_byte(self) -> u8 {
        match self {
            EntryKind::Noop => 0,
            EntryKind::Command => 1,
        }
    }

    /// The kind that a byte stands for; `None` when a later version wrote it.
    pub fn from_byte(byte: u8) -> Option<EntryKind> {
        match byte {
            0 => Some(EntryKind::Noop),
            1 => Some(EntryKind::Command),
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
    /// What it carries.
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

/// Position of a proposal in the log. It is committed when an entry with this index *and* this term
/// is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Index in the log.
    pub index: u64,
    /// Term of the leader that took it.
    pub term: u64,
}

/// State that must be on disk, besides the entries, before the effects that carry it count as
/// persisted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HardState {
    /// The newest term this node has seen.
    pub term: u64,
    /// The node that it voted for in that term; 0 for none.
    pub vote: u64,
}

/// Members of the cluster. Stored with every snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// Nodes that vote.
    pub voters: Vec<u64>,
    /// Nodes that only receive.
    pub learners: Vec<u64>,
}

impl Membership {
    const FORMAT: u8 = 1;

    /// The bytes of a snapshot's membership field (`docs/internals/format.md`).
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(8 + 8 * (self.voters.len() + self.learners.len()));
        out.put_u8(Self::FORMAT);
        out.put_bytes(0, 3);
        out.put_u16_le(u16::try_from(self.voters.len()).unwrap_or(u16::MAX));
        out.put_u16_le(u16::try_from(self.learners.len()).unwrap_or(u16::MAX));
        for id in self.voters.iter().chain(&self.learners) {
            out.put_u64_le(*id);
        }
        out.freeze()
    }

    /// Reads what [`Membership::encode`] wrote.
    ///
    /// # Errors
    /// [`ConsensusError::MalformedMembership`] when the bytes are not that.
    pub fn decode(bytes: &[u8]) -> Result<Membership, ConsensusError> {
        let malformed = ConsensusError::MalformedMembership;
        let (head, ids) = bytes.split_at_checked(8).ok_or(malformed.clone())?;
        let [Self::FORMAT, 0, 0, 0, v0, v1, l0, l1] = *head else {
            return Err(malformed);
        };
        let voters = usize::from(u16::from_le_bytes([v0, v1]));
        let learners = usize::from(u16::from_le_bytes([l0, l1]));
        let (ids, rest) = ids.as_chunks::<8>();
        if !rest.is_empty() || ids.len() != voters + learners {
            return Err(malformed);
        }
        let mut ids = ids.iter().map(|id| u64::from_le_bytes(*id));
        let voters = ids.by_ref().take(voters).collect();
        Ok(Membership {
            voters,
            learners: ids.collect(),
        })
    }
}

/// The point in the log that a snapshot stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPoint {
    /// The last entry that the snapshot contains.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// The members at that entry.
    pub membership: Membership,
}

/// Content of the log at start.
#[derive(Debug, Clone, Default)]
pub struct Recovered {
    /// The snapshot that the state machine was restored from.
    pub snapshot: Option<SnapshotPoint>,
    /// The newest stored hard state.
    pub hard_state: HardState,
    /// The newest stored commit index; 0 when none was. It may lag, it never leads.
    pub commit: u64,
    /// Every entry after the snapshot, without a gap.
    pub entries: Vec<Entry>,
}

/// Settings of one node.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node's id; not 0.
    pub node_id: u64,
    /// Ticks without a leader after which a node campaigns; more than `heartbeat_ticks`.
    pub election_ticks: u32,
    /// Ticks between a leader's heartbeats; at least 1.
    pub heartbeat_ticks: u32,
    /// Bytes of proposals that may wait to be committed before
    /// [`ProposeError::TooMuchUncommitted`].
    ///
    /// [`ProposeError::TooMuchUncommitted`]: crate::ProposeError::TooMuchUncommitted
    pub max_uncommitted_bytes: u64,
}

impl Config {
    /// The settings of a server that stands alone.
    pub fn sole_voter(node_id: u64) -> Config {
        Config {
            node_id,
            election_ticks: 10,
            heartbeat_ticks: 1,
            max_uncommitted_bytes: 256 << 20,
        }
    }
}

/// The part a node plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Asks for votes.
    Candidate,
    /// May propose.
    Leader,
}

/// A change of role, term or leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleChange {
    /// This node's part now.
    pub role: Role,
    /// The term now.
    pub term: u64,
    /// The leader's id where it is known.
    pub leader: Option<u64>,
}

/// Names one [`Effects`]; give it to [`Consensus::persisted`](crate::Consensus::persisted).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersistToken(pub(crate) u64);

/// Names one call of [`Consensus::read_index`](crate::Consensus::read_index); never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub(crate) u64);

/// A read may run once everything up to `index` is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadReady {
    /// Which call this answers.
    pub id: ReadId,
    /// The index that must be applied first.
    pub index: u64,
}

/// Actions that the caller must take now.
#[derive(Debug)]
pub struct Effects {
    /// Passed to [`Consensus::persisted`](crate::Consensus::persisted) once `append` and
    /// `hard_state` are durable.
    pub token: PersistToken,
    /// Entries to store, in order; an index already stored is replaced together with all after it.
    pub append: Vec<Entry>,
    /// Hard state to store with them.
    pub hard_state: Option<HardState>,
    /// A commit index worth storing as a hint, without a sync of its own.
    pub commit: Option<u64>,
    /// Whether `append` and `hard_state` need a sync before `persisted`; when false both are empty.
    pub must_sync: bool,
    /// Entries to apply now, in order. Each is handed out once.
    pub committed: Vec<Entry>,
    /// Reads whose index is known.
    pub reads: Vec<ReadReady>,
    /// Set when role, term or leader changed.
    pub role: Option<RoleChange>,
}
