//! Errors of consensus: what it refuses, and why.

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
        /// The accepted values.
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
    /// The recovered log changes the membership, and this build runs a server alone.
    #[error(
        "log entry {index} changes the members of a cluster, but this server runs alone: run it as a member of \
         its cluster"
    )]
    NotAlone {
        /// The entry.
        index: u64,
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
        /// First index that is applied already.
        low: u64,
        /// Last index that was handed out.
        high: u64,
    },
    /// A membership record, or the change that a configuration entry carries, is malformed.
    #[error(
        "a membership record is malformed: start with an older snapshot, or run the version that wrote it"
    )]
    MalformedMembership,
    /// A configuration entry was passed over, or another entry was applied as one.
    #[error(
        "configuration entry {expected:?} is to be applied next, not {given}: a defect of the caller"
    )]
    ConfigurationOrder {
        /// The next configuration entry that was handed out.
        expected: Option<u64>,
        /// The index that was given.
        given: u64,
    },
    /// A node that does not vote cannot campaign, nor can one whose place another data folder has
    /// (R17).
    #[error(
        "node {node_id} cannot campaign: it does not vote with this data folder; make it a voter first"
    )]
    NotAVoter {
        /// This node.
        node_id: u64,
    },
    /// The only voter cannot campaign while entries are on their way to the disk.
    #[error("node {node_id} cannot campaign before its entries are durable: call persisted first")]
    CampaignBeforeSync {
        /// This node.
        node_id: u64,
    },
    /// This node has just started, or its log lacks entries that others know to be committed.
    #[error("node {node_id} does not campaign yet: its log may lack committed entries")]
    MayNotLead {
        /// This node.
        node_id: u64,
    },
    /// The engine refused its own state.
    #[error("the raft engine refused to go on: {0}")]
    Engine(String),
}

/// Reason why a proposal was not taken. Nothing was appended, so it can be proposed again
/// elsewhere.
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
    /// Leadership is being handed over.
    #[error("not proposed: leadership is being handed over to node {to}; propose again there")]
    HandingOver {
        /// The node that is to lead.
        to: u64,
    },
}

/// Reason why a change of the membership was not proposed. Nothing was appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// It could not be proposed, whatever it says.
    #[error(transparent)]
    Propose(#[from] ProposeError),
    /// The leader has applied no entry of its own term, so it may not know the newest membership.
    #[error(
        "not changed: the leader has just been elected; try again when its first entry is applied"
    )]
    TooEarly,
    /// Another change is under way.
    #[error("not changed: another change is under way; try again when it is complete")]
    InProgress,
    /// There is no joint configuration to leave.
    #[error("not changed: no change is under way that could be completed")]
    NotJoint,
    /// No voter would be left.
    #[error("not changed: no voter would be left; add another one first")]
    LastVoter,
    /// One node is named twice.
    #[error("not changed: node {id} is named twice; name each node once")]
    Twice {
        /// The node.
        id: u64,
    },
    /// A node has the id 0.
    #[error("not changed: 0 is not a node id; give each node its own id from 1 on")]
    ZeroId,
    /// The node votes already, at this address.
    #[error("not changed: node {id} votes already, at this address")]
    AlreadyVotes {
        /// The node.
        id: u64,
    },
    /// The node has received nothing of the log.
    #[error(
        "not changed: node {id} is not a learner; add it as a learner, and let it catch up, first"
    )]
    NotALearner {
        /// The node.
        id: u64,
    },
    /// The node is a member with another incarnation.
    #[error(
        "not changed: node {id} is a member with another data folder; remove it first, then add it"
    )]
    OtherIncarnation {
        /// The node.
        id: u64,
    },
    /// The node belongs to the cluster in no part.
    #[error("not changed: node {id} is not a member")]
    Unknown {
        /// The node.
        id: u64,
    },
}

/// Reason why a message of a peer was not taken. The node is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// It is for another node, or from this one.
    #[error("a message from node {from} to node {to} came to node {node_id}: check the addresses")]
    Misdirected {
        /// This node.
        node_id: u64,
        /// The sender that it names.
        from: u64,
        /// The receiver that it names.
        to: u64,
    },
    /// Its parts do not fit together.
    #[error("a message of a peer is malformed: {what}")]
    Malformed {
        /// The error.
        what: &'static str,
    },
    /// An answer of a node that does not belong to the cluster.
    #[error("node {from} is not a member of the cluster; its answer is ignored")]
    UnknownSender {
        /// The sender.
        from: u64,
    },
    /// A leader lacks entries that are committed here: it is not followed.
    #[error(
        "the leader {leader} lacks entry {index}, which is committed here (up to entry {commit}): this node does not follow it"
    )]
    LeaderLacks {
        /// The leader.
        leader: u64,
        /// The first entry that it has not, or has otherwise.
        index: u64,
        /// The newest entry that is committed here.
        commit: u64,
    },
    /// The leader has counted entries of this node, and this node has none at all.
    #[error(
        "the leader knows this node's log up to {commit}, but it ends at {last}: entries that this node \
         acknowledged are lost; replace its data folder with `baton server replace`"
    )]
    LostLog {
        /// Index that the leader says is committed here.
        commit: u64,
        /// The end of the log.
        last: u64,
    },
}

/// Reason why a read index cannot be given now. Ask again after the next commit.
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
