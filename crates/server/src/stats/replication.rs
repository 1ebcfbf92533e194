//! Counters of a server of an ensemble: what it proposed as the leader, what it received as a
//! follower, elections, ticks. All of them stay at zero on a server that stands alone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;

use crate::stats::distribution::{Distribution, Spread};
use crate::stats::sizes::Sizes;

/// Times are in microseconds.
#[derive(Debug, Default)]
pub(crate) struct ReplicationStats {
    /// Log entries with writes that this server has proposed as the leader, and their bytes.
    pub(crate) proposals: AtomicU64,
    pub(crate) proposal_sizes: Sizes,
    /// Time of these entries from the proposal until it was known that a majority has it.
    pub(crate) quorum_ack_latency: Distribution,
    /// The same until each other server had it.
    ack_latency: Mutex<BTreeMap<u64, Distribution>>,
    /// Entries that a leader has sent, and those of them that were committed.
    pub(crate) entries_received: AtomicU64,
    pub(crate) commits_received: AtomicU64,
    /// From when a write was put into a batch, by the wall clock of the server that did it, until
    /// it was applied here.
    pub(crate) propagation_latency: Distribution,
    /// Number of times that this server began to look for a leader, and the durations.
    pub(crate) looking: AtomicU64,
    pub(crate) election_time: Distribution,
    /// From when a leader was known until everything that was committed before it was applied.
    pub(crate) follower_sync_time: Distribution,
    pub(crate) observer_sync_time: Distribution,
    /// Time for which this server could answer no write, and the part of it that ended with its own
    /// lead.
    pub(crate) unavailable_time: Distribution,
    pub(crate) leader_unavailable_time: Distribution,
    /// Snapshots that were being sent at a time, counted when one more began.
    pub(crate) snapshots_in_flight: Distribution,
    pub(crate) tick_lateness: Distribution,
    /// Whether this server waits twice as long for a leader because its ticks were late.
    pub(crate) is_cautious: AtomicBool,
}

impl ReplicationStats {
    /// Another server has acknowledged entries this long after they were proposed.
    pub(crate) fn acknowledged(&self, server: u64, times: impl Iterator<Item = u64>) {
        let mut servers = self.ack_latency.lock();
        let latency = servers.entry(server).or_default();
        times.for_each(|took| latency.record(took));
    }

    /// Time that each other server took to acknowledge entries.
    pub(crate) fn ack_latency(&self) -> Vec<(u64, Spread)> {
        let servers = self.ack_latency.lock();
        let servers = servers.iter();
        servers
            .map(|(id, latency)| (*id, latency.spread()))
            .collect()
    }
}
