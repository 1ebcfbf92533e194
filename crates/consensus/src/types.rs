//! Inputs and outputs of a node, as plain data.

use crate::entry::Entry;
use crate::message::PeerMessage;
use crate::snapshot::SnapshotPoint;

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
    /// Ticks within which a leader must have heard of a majority, and for which a node that hears
    /// of a leader votes for no other; more than twice `heartbeat_ticks`.
    pub election_ticks: u32,
    /// Ticks without a leader after which a node campaigns: from the first to the second, both
    /// included, drawn again for each attempt; the first is at least `election_ticks`. A node to
    /// which the leader has nothing to say waits for longer by `election_ticks` less
    /// `heartbeat_ticks`.
    pub campaign_ticks: (u32, u32),
    /// Decides what is drawn. The same calls on nodes with the same seed have the same effects.
    pub seed: u64,
    /// Ticks between a leader's heartbeats; at least 1. While all nodes have the whole log, twice
    /// that, or `election_ticks` where it sleeps through [`idle_ticks`].
    ///
    /// [`idle_ticks`]: crate::Consensus::idle_ticks
    pub heartbeat_ticks: u32,
    /// Bytes of proposals that may wait to be committed before
    /// [`ProposeError::TooMuchUncommitted`].
    ///
    /// [`ProposeError::TooMuchUncommitted`]: crate::ProposeError::TooMuchUncommitted
    pub max_uncommitted_bytes: u64,
    /// Bytes of applied entries that a leader keeps in memory for nodes that lag. A node that lags
    /// by more needs a snapshot.
    pub window_bytes: u64,
    /// Whether a recovered membership of more than this node is refused.
    pub alone: bool,
    /// The incarnation of this node's data folder, if it has one. While the membership lists this
    /// node with another one, the log has not come to when this folder became a member: the node
    /// does not campaign. It could win alone, where it was the only voter once (R17).
    pub incarnation: Option<u128>,
}

impl Config {
    /// The settings of a server that stands alone.
    pub fn sole_voter(node_id: u64) -> Config {
        Config {
            node_id,
            election_ticks: 10,
            campaign_ticks: (10, 10),
            seed: 0,
            heartbeat_ticks: 1,
            max_uncommitted_bytes: 256 << 20,
            window_bytes: 0,
            alone: true,
            incarnation: None,
        }
    }

    /// The settings of a node of several, for ticks of 25 ms: a leader that ends in silence is
    /// replaced after 450 to 700 ms, 300 ms later where it had nothing to say.
    pub fn member(node_id: u64, seed: u64) -> Config {
        Config {
            node_id,
            election_ticks: 16,
            campaign_ticks: (18, 28),
            seed,
            heartbeat_ticks: 4,
            max_uncommitted_bytes: 64 << 20,
            window_bytes: 64 << 20,
            alone: false,
            incarnation: None,
        }
    }
}

/// The part a node plays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Follows a leader, or waits for one.
    #[default]
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
    /// Id of the call that this answers.
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
    /// Whether `append`, `hard_state` and `snapshot` need a sync before `persisted`; when false all
    /// of them are empty.
    pub must_sync: bool,
    /// Entries to apply now, in order. Each is handed out once.
    pub committed: Vec<Entry>,
    /// Reads whose index is known.
    pub reads: Vec<ReadReady>,
    /// Messages that may be sent at once, in parallel to the sync: a leader's.
    pub send_now: Vec<PeerMessage>,
    /// Messages that may be sent only when `append`, `hard_state` and `snapshot` are durable: they
    /// promise that.
    pub send_after_sync: Vec<PeerMessage>,
    /// The state that replaces this node's own. The caller has the snapshot of this point already,
    /// since it has given its message to [`Consensus::step`](crate::Consensus::step); it makes it
    /// durable, then calls `persisted`, installs it and calls `applied`.
    pub snapshot: Option<SnapshotPoint>,
    /// Nodes that lag behind the window, for which no snapshot is at hand: save one that has them
    /// in its membership, and call [`Consensus::snapshot_saved`](crate::Consensus::snapshot_saved).
    pub wants_snapshot: Vec<u64>,
    /// Set when role, term or leader changed.
    pub role: Option<RoleChange>,
}

/// Entries that a log lacks though they are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogGap {
    /// This node has acknowledged more than its log has: its folder was rolled back. It neither
    /// votes nor leads until a leader has sent it the rest.
    RolledBack {
        /// The newest committed entry that it has acknowledged.
        acknowledged: u64,
        /// The end of its log.
        last: u64,
    },
    /// Another node knows an entry to be committed that this log lacks. This node does not lead.
    Lacks {
        /// That node.
        node: u64,
        /// The entry; its term is 0 where it is not known.
        commit: Position,
    },
    /// A leader lacks entries that are committed here. This node does not follow it.
    LeaderLacks {
        /// The leader.
        leader: u64,
        /// Its term.
        term: u64,
        /// The first entry that it has not, or has otherwise.
        index: u64,
    },
}

/// Knowledge of a leader about another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProgress {
    /// The node.
    pub id: u64,
    /// The newest entry that it is known to have.
    pub matched: u64,
    /// Whether it has answered within the last round of `election_ticks`.
    pub active: bool,
    /// The point of the snapshot that it is being sent; 0 for none.
    pub snapshot: u64,
}
