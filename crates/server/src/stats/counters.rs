//! Counters of the server and of its connections, for the four-letter words and `/metrics`. They
//! are relaxed: they order nothing. Their names and meanings are in the table of
//! `operator::metrics`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::stats::distribution::{Distribution, Spread};
use crate::stats::replication::ReplicationStats;
use crate::stats::requests::RequestCounts;

/// ZooKeeper's initial trace mask.
const TRACE_MASK: i64 = 0x132;

/// Counters of the whole server. Times are in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) connections_accepted: AtomicU64,
    pub(crate) refused_from_address: AtomicU64,
    pub(crate) refused_in_all: AtomicU64,
    pub(crate) handshakes_timed_out: AtomicU64,
    /// Connections closed because their session was not written down in time.
    pub(crate) handshakes_unanswered: AtomicU64,
    pub(crate) tls_handshakes: AtomicU64,
    pub(crate) tls_handshakes_failed: AtomicU64,
    pub(crate) slow_readers_closed: AtomicU64,
    pub(crate) all_too_slow_closed: AtomicU64,
    pub(crate) event_floods_closed: AtomicU64,
    pub(crate) connections_shed: AtomicU64,
    pub(crate) large_requests: AtomicU64,
    pub(crate) sessions_reattached: AtomicU64,
    pub(crate) sessions_expired: AtomicU64,
    pub(crate) auth_failed: AtomicU64,
    pub(crate) requests: RequestCounts,
    /// Connections whose client went without closing its session.
    pub(crate) connections_dropped: AtomicU64,
    /// Sessions that expired while they had ephemerals.
    pub(crate) sessions_expired_holding: AtomicU64,
    /// Delay until the sockets' tasks got their turn.
    pub(crate) socket_lag: Distribution,
    /// Ends of sessions that waited for bytes to be read.
    pub(crate) session_ends_put_off: AtomicU64,
    /// Connections that ended so that less is held of unfinished requests.
    pub(crate) unfinished_closed: AtomicU64,
    pub(crate) large_answers_refused: AtomicU64,
    pub(crate) watches_refused: AtomicU64,
    pub(crate) sessions_refused: AtomicU64,
    /// Syncs that took longer than a second.
    pub(crate) slow_syncs: AtomicU64,
    /// Number of times that another server's state was not this one's.
    pub(crate) digest_mismatches: AtomicU64,
    /// Whether writes wait for room on the disk.
    pub(crate) disk_full: AtomicBool,
    /// From the arrival of an entry's oldest request until the entry is made, and of its
    /// application.
    pub(crate) queue_time: Distribution,
    pub(crate) apply_time: Distribution,
    pub(crate) commands: AtomicU64,
    pub(crate) reaped: AtomicU64,
    /// The most steps that were made under one hold of the tree's lock.
    pub(crate) most_steps: AtomicU64,
    pub(crate) watch_bytes: AtomicU64,
    pub(crate) snapshots: AtomicU64,
    pub(crate) last_snapshot_zxid: AtomicI64,
    /// Time of the wall clock; 0 before the first.
    pub(crate) last_snapshot_ms: AtomicI64,
    /// Bytes of connections that have ended.
    pub(crate) bytes_in_before: AtomicU64,
    pub(crate) bytes_out_before: AtomicU64,
    pub(crate) trace_mask: AtomicI64,
    pub(crate) reads: Distribution,
    pub(crate) updates: Distribution,
    pub(crate) sync_time: Distribution,
    pub(crate) batch_requests: Distribution,
    pub(crate) batch_bytes: Distribution,
    pub(crate) snapshot_time: Distribution,
    pub(crate) snapshot_slice: Distribution,
    pub(crate) start_time: Distribution,
    pub(crate) load_snapshot_time: Distribution,
    pub(crate) load_log_time: Distribution,
    pub(crate) load_log_entries: Distribution,
    pub(crate) created_watches: Distribution,
    pub(crate) deleted_watches: Distribution,
    pub(crate) changed_watches: Distribution,
    pub(crate) children_watches: Distribution,
    /// Writes that went over a soft quota.
    pub(crate) quota_soft_exceeded: AtomicU64,
    /// Writes that were refused for a hard quota.
    pub(crate) quota_hard_exceeded: AtomicU64,
    pub(crate) quota_refusals: Refusals,
    pub(crate) replication: ReplicationStats,
}

impl Stats {
    pub(crate) fn new() -> Self {
        Self {
            trace_mask: AtomicI64::new(TRACE_MASK),
            ..Self::default()
        }
    }

    /// Times from a request's arrival to its answer, of reads and writes together.
    pub(crate) fn latency(&self) -> Spread {
        self.reads.spread().and(&self.updates.spread())
    }

    /// Notes how many steps were made under one hold of the tree's lock.
    pub(crate) fn steps_under_lock(&self, steps: usize) {
        let steps = steps as u64;
        if steps > self.most_steps.load(Relaxed) {
            self.most_steps.fetch_max(steps, Relaxed);
        }
    }

    /// Forgets what `srst` forgets.
    pub(crate) fn reset(&self) {
        self.received.store(0, Relaxed);
        self.sent.store(0, Relaxed);
        self.requests.sizes.reset();
        self.reads.reset();
        self.updates.reset();
    }
}

/// Writes refused for a quota, by the first name of its path.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<String, i64>>);

impl Refusals {
    /// Most names that are counted: a client that may write quotas could make any number.
    const MOST: usize = 1000;

    pub(crate) fn count(&self, path: &str) {
        let name = path.split('/').nth(1).unwrap_or_default();
        let mut by_name = self.0.lock();
        if let Some(count) = by_name.get_mut(name) {
            *count += 1;
        } else if by_name.len() < Self::MOST {
            by_name.insert(name.to_owned(), 1);
        }
    }

    pub(crate) fn by_namespace(&self) -> Vec<(String, i64)> {
        let by_name = self.0.lock();
        by_name
            .iter()
            .map(|(k, count)| (k.clone(), *count))
            .collect()
    }
}

/// Counters of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnStats {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    /// Bytes that its task has and the socket has not taken.
    pub(crate) unwritten: AtomicU64,
    /// Bytes of requests that are not whole or wait, and since when.
    pub(crate) unfinished: AtomicUsize,
    pub(crate) unfinished_since_ms: AtomicU64,
    /// Since when bytes have waited that leave before this many have been sent: often reset for a
    /// client that reads, however little.
    pub(crate) waits_since_ms: AtomicU64,
    pub(crate) waits_until_sent: AtomicU64,
    pub(crate) last_op: AtomicU64,
    pub(crate) last_cxid: AtomicU64,
    pub(crate) last_zxid: AtomicI64,
    /// Time of the server's running.
    pub(crate) last_response_ms: AtomicU64,
    pub(crate) last_latency_us: AtomicU64,
    pub(crate) total_latency_us: AtomicU64,
    pub(crate) min_latency_us: AtomicU64,
    pub(crate) max_latency_us: AtomicU64,
}

impl ConnStats {
    pub(crate) fn new() -> Self {
        Self {
            min_latency_us: AtomicU64::new(u64::MAX),
            ..Self::default()
        }
    }

    /// Counts `requests` that were answered at `now_ms`, `micros` after they had been read.
    pub(crate) fn answered(&self, requests: u64, micros: u64, zxid: i64, now_ms: u64) {
        self.sent.fetch_add(requests, Relaxed);
        self.total_latency_us
            .fetch_add(requests.saturating_mul(micros), Relaxed);
        self.min_latency_us.fetch_min(micros, Relaxed);
        self.max_latency_us.fetch_max(micros, Relaxed);
        self.last_latency_us.store(micros, Relaxed);
        self.last_zxid.store(zxid, Relaxed);
        self.last_response_ms.store(now_ms, Relaxed);
    }

    /// Requests that have no answer yet.
    pub(crate) fn outstanding(&self) -> u64 {
        self.received
            .load(Relaxed)
            .saturating_sub(self.sent.load(Relaxed))
    }

    /// Shortest, mean and longest time to an answer, in milliseconds.
    pub(crate) fn latency_ms(&self) -> (u64, u64, u64) {
        let Some(mean) = self
            .total_latency_us
            .load(Relaxed)
            .checked_div(self.sent.load(Relaxed))
        else {
            return (0, 0, 0);
        };
        (
            self.min_latency_us.load(Relaxed) / 1000,
            mean / 1000,
            self.max_latency_us.load(Relaxed) / 1000,
        )
    }

    /// Forgets what `srst` forgets.
    pub(crate) fn reset(&self) {
        self.received.store(0, Relaxed);
        self.sent.store(0, Relaxed);
        self.total_latency_us.store(0, Relaxed);
        self.min_latency_us.store(u64::MAX, Relaxed);
        self.max_latency_us.store(0, Relaxed);
        self.last_latency_us.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_for_the_first_name_of_a_path_and_for_a_bounded_number_of_names() {
        let refusals = Refusals::default();
        for path in ["/b/c", "/a", "/b", "/b/d/e"] {
            refusals.count(path);
        }
        let expected = [("a".to_owned(), 1), ("b".to_owned(), 3)];
        assert_eq!(refusals.by_namespace(), expected);
        for n in 0..2 * Refusals::MOST {
            refusals.count(&format!("/{n}"));
        }
        refusals.count("/a");
        let expected = refusals.by_namespace();
        assert_eq!(expected.len(), Refusals::MOST);
        assert!(expected.contains(&("a".to_owned(), 2)), "known names go on");
    }
}
