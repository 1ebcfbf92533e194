//! What consensus refuses, and why.

/// A state that consensus cannot start from or go on with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConsensusError {
    /// A setting is out of range.
    #[error("consensus setting {name} is {value}: {remedy}")]
    Config {
        /// The setting.
        name: &'static str,
        /// The value that was given.
        value: u64,
        /// What would be accepted.
        remedy: &'static str,
    },
    /// The recovered state names other voters than this node alone.
    #[error(
        "the stored membership is voters {voters:?}, but this build runs node {node_id} as the only voter: \
         start it with the node id the data was written under"
    )]
    Membership {
        /// This node.
        node_id: u64,
        /// The voters that the snapshot names.
        voters: Vec<u64>,
    },
    /// Recovered entries do not join to the snapshot or to each other.
    #[error(
        "the recovered log has entry {found} where {expected} must follow: restore the data folder from a copy"
    )]
    LogGap {
        /// The index that must come next.
        expected: u64,
        /// The index that came.
        found: u64,
    },
    /// The commit index that was stored lies beyond the recovered log.
    #[error(
        "the stored commit index {commit} lies beyond the last recovered entry {last}: entries that were \
         acknowledged are missing; restore the data folder from a copy"
    )]
    CommitBeyondLog {
        /// The stored commit index.
        commit: u64,
        /// The last index in the log.
        last: u64,
    },
    /// An entry kind that this build does not know.
    #[error(
        "log entry {index} is of unknown kind {kind}: it was written by a later version; run that version"
    )]
    UnknownKind {
        /// The entry.
        index: u64,
        /// Its kind byte.
        kind: u8,
    },
    /// `applied` was given an index that was not handed out as committed, or that goes back.
    #[error("applied index {index} is outside {low}..={high}: a defect of the caller")]
    AppliedOutOfRange {
        /// The index that was given.
        index: u64,
        /// What is applied already.
        low: u64,
        /// What was handed out.
        high: u64,
    },
    /// A membership record is malformed.
    #[error("the membership record of the snapshot is malformed: use an older snapshot")]
    MalformedMembership,
    /// The engine refused its own state.
    #[error("the raft engine refused to go on: {0}")]
    Engine(String),
}

/// Why a proposal was not taken. Nothing was appended, so it can be proposed again elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// This node does not lead.
    #[error("not proposed: this node is not the leader; the leader is {}", leader_text(.leader))]
    NotLeader {
        /// The leader's id where it is known.
        leader: Option<u64>,
    },
    /// An empty payload: that is the form of the leader's own no-op.
    #[error("not proposed: the payload is empty; propose at least one byte")]
    Empty,
    /// Too many bytes wait to be committed.
    #[error(
        "not proposed: {limit_bytes} bytes already wait to be committed; wait for some of them"
    )]
    TooMuchUncommitted {
        /// The limit in bytes.
        limit_bytes: u64,
    },
}

/// Why a read index cannot be given now. Ask again after the next commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// This node does not lead.
    #[error("no read index: this node is not the leader; the leader is {}", leader_text(.leader))]
    NotLeader {
        /// The leader's id where it is known.
        leader: Option<u64>,
    },
    /// The leader has committed nothing in its own term yet, so it cannot know the newest commit.
    #[error("no read index: the leader's first entry is not committed yet; ask again after it is")]
    NothingCommittedInTerm,
}

fn leader_text(leader: &Option<u64>) -> String {
    leader.map_or_else(|| "not known".to_owned(), |id| format!("node {id}"))
}
