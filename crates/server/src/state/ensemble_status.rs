//! State of a server of an ensemble in it: its role, the leader, how far its log is, which servers
//! are connected. The core keeps it current; four-letter words, HTTP and metrics read it. Decides
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use baton_consensus::{PeerProgress, Role};
use baton_tree::ServerList;

use crate::options::EnsembleOptions;

/// The part of one server in its ensemble, at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct EnsembleStatus {
    /// This server's id.
    pub(crate) id: u64,
    pub(crate) role: Role,
    /// The leader, where it is known.
    pub(crate) leader: Option<u64>,
    pub(crate) term: u64,
    /// The newest entry that is known to be committed.
    pub(crate) commit: u64,
    /// The newest entry that is applied here.
    pub(crate) applied: u64,
    pub(crate) voters: Vec<u64>,
    pub(crate) learners: Vec<u64>,
    /// Knowledge of a leader about the others; empty on every other server.
    pub(crate) progress: Vec<PeerProgress>,
    /// The servers to which there is a connection.
    pub(crate) connected: BTreeSet<u64>,
    /// Every server with its address for other servers.
    pub(crate) servers: BTreeMap<u64, String>,
    /// Whether it answers reads though no leader is known. While this is locked, the mode neither
    /// begins nor ends.
    pub(crate) is_read_only: bool,
    /// The list of the servers, once the log has one.
    pub(crate) list: Option<ServerList>,
    /// Since when this server has led; `None` while it does not.
    pub(crate) has_led_since: Option<Instant>,
    /// Milliseconds by which this server's wall clock is ahead of a majority's; `None` while
    /// too few are known.
    pub(crate) clock_offset_ms: Option<i64>,
    /// Milliseconds by which each other server's clock is ahead of this one's.
    pub(crate) clock_offsets_ms: Vec<(u64, i64)>,
    /// The newest format level that each other server has said that it can read.
    pub(crate) levels: BTreeMap<u64, u32>,
    /// Committed entries that its log lacks, or that of a leader which it does not follow.
    pub(crate) log_gap: Option<String>,
    /// Number of committed entries that its folder has lost and that it had acknowledged.
    pub(crate) lost_entries: u64,
}

impl EnsembleStatus {
    /// The status of a server that has just started: a follower without a leader, whose voters are
    /// those of its settings.
    pub(crate) fn new(id: u64, options: &EnsembleOptions) -> Self {
        Self {
            id,
            voters: options
                .servers
                .keys()
                .copied()
                .filter(|id| !options.observers.contains(id))
                .collect(),
            learners: options.observers.iter().copied().collect(),
            servers: options.servers.clone(),
            ..Self::default()
        }
    }

    /// Whether this server receives every write and does not vote.
    pub(crate) fn is_observer(&self) -> bool {
        !self.voters.contains(&self.id)
    }
}
