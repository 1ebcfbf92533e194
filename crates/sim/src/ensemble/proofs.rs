//! What a node knows of entries that others have committed and acknowledged (R19), and the votes
//! that are cast meanwhile.

use std::collections::BTreeMap;

use baton_wal::Acknowledged;

/// Knowledge of one process.
#[derive(Debug, Default)]
pub(crate) struct NodeProofs {
    /// The newest committed entry that each other folder has acknowledged to this node, by id and
    /// incarnation.
    pub(crate) acknowledged: BTreeMap<(u64, u128), u64>,
    /// The process of each other node that was heard last.
    pub(crate) peer_runs: BTreeMap<u64, u64>,
    /// What the folder says of it.
    pub(crate) stored: Acknowledged,
    pub(crate) may_store_at_us: u64,
    pub(crate) ticks: u64,
    /// For the judgement: the newest entry that a node had committed when it connected.
    pub(crate) shown: u64,
    /// For the judgement: the newest term that a node was in when it connected.
    pub(crate) shown_term: u64,
    /// For the judgement: the newest entry for which this node was refused as an older copy.
    pub(crate) named: u64,
}

/// A vote, for the judgement of what it elects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CastVote {
    /// The newest committed entry that the voter had been shown.
    pub(crate) shown: u64,
    /// The newest term that the voter had been shown.
    pub(crate) shown_term: u64,
    /// Whether the voter's folder lacked entries or votes of before.
    pub(crate) is_forgetful: bool,
}
