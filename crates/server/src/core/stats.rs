//! What the server counts of itself, for `mntr`, `srvr`, `stat` and `cons`. Counters are relaxed: they order nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of the whole server.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) connections_accepted: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) sessions_expired: AtomicU64,
    pub(crate) auth_failed: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) sync_nanos: AtomicU64,
    pub(crate) sync_nanos_max: AtomicU64,
    pub(crate) snapshots: AtomicU64,
    latency_count: AtomicU64,
    latency_total_us: AtomicU64,
    latency_max_us: AtomicU64,
    latency_min_us: AtomicU64,
}

impl Stats {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            received: zero(),
            sent: zero(),
            connections_accepted: zero(),
            connections_refused: zero(),
            sessions_expired: zero(),
            auth_failed: zero(),
            entries: zero(),
            commits: zero(),
            sync_nanos: zero(),
            sync_nanos_max: zero(),
            snapshots: zero(),
            latency_count: zero(),
            latency_total_us: zero(),
            latency_max_us: zero(),
            latency_min_us: AtomicU64::new(u64::MAX),
        }
    }

    /// Counts `requests` that were answered `micros` after they had been read.
    pub(crate) fn answered(&self, requests: u64, micros: u64) {
        self.sent.fetch_add(requests, Relaxed);
        self.latency_count.fetch_add(requests, Relaxed);
        self.latency_total_us
            .fetch_add(requests.saturating_mul(micros), Relaxed);
        if micros > self.latency_max_us.load(Relaxed) {
            self.latency_max_us.fetch_max(micros, Relaxed);
        }
        if micros < self.latency_min_us.load(Relaxed) {
            self.latency_min_us.fetch_min(micros, Relaxed);
        }
    }

    /// Shortest, mean and longest time to an answer, in milliseconds, as ZooKeeper reports them.
    pub(crate) fn latency_ms(&self) -> (u64, f64, u64) {
        let count = self.latency_count.load(Relaxed);
        if count == 0 {
            return (0, 0.0, 0);
        }
        let mean = self.latency_total_us.load(Relaxed) as f64 / count as f64 / 1000.0;
        (
            self.latency_min_us.load(Relaxed) / 1000,
            mean,
            self.latency_max_us.load(Relaxed) / 1000,
        )
    }

    /// Forgets what `srst` forgets.
    pub(crate) fn reset(&self) {
        self.received.store(0, Relaxed);
        self.sent.store(0, Relaxed);
        self.latency_count.store(0, Relaxed);
        self.latency_total_us.store(0, Relaxed);
        self.latency_max_us.store(0, Relaxed);
        self.latency_min_us.store(u64::MAX, Relaxed);
    }
}

/// Counters of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnStats {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) last_op: AtomicU64,
    pub(crate) last_cxid: AtomicU64,
}

impl ConnStats {
    pub(crate) fn reset(&self) {
        self.received.store(0, Relaxed);
        self.sent.store(0, Relaxed);
    }
}
