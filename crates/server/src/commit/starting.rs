//! The progress of a start, for operators until the server serves. The recovering thread writes it;
//! it decides nothing.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use baton_tls::PeerTls;
use parking_lot::Mutex;

/// Stages of a start, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Finds the newest snapshot, and reads the log behind it.
    ReadLog,
    LoadSnapshot,
    ReplayLog,
    /// All data is there; the sockets are about to be listened on.
    Listen,
}

/// Stage of the start, and entries replayed.
#[derive(Debug, Default)]
pub(crate) struct Starting {
    stage: AtomicU8,
    entries: AtomicU64,
    replayed: AtomicU64,
    /// What a server of several waits for before it may read a log.
    waits: Mutex<Option<String>>,
    /// The certificates of TLS between servers, once they are read.
    peer_tls: OnceLock<Arc<PeerTls>>,
    found: Mutex<Recovery>,
}

/// What the start has found in the data folder.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recovery {
    /// The entry up to which the newest snapshot goes, and its zxid; zeros without one.
    pub(crate) snapshot_index: u64,
    pub(crate) snapshot_zxid: i64,
    /// Entries of the log behind it.
    pub(crate) log_entries: u64,
    /// Bytes of a torn write at the end of the log, which were dropped.
    pub(crate) torn_bytes: u64,
    /// The cluster of a server of several.
    pub(crate) cluster: Option<u64>,
    /// From the beginning of the start until the data was there.
    pub(crate) took: Duration,
}

impl Starting {
    pub(crate) fn enter(&self, stage: Stage) {
        *self.waits.lock() = None;
        self.stage.store(stage as u8, Relaxed);
    }

    /// The server waits for others; `why` says for what. Over with the next stage.
    pub(crate) fn wait(&self, why: &str) {
        *self.waits.lock() = Some(why.to_owned());
    }

    /// The replay of `entries` entries begins.
    pub(crate) fn replay(&self, entries: u64) {
        self.entries.store(entries, Relaxed);
        self.enter(Stage::ReplayLog);
    }

    /// One more has been replayed.
    pub(crate) fn replayed(&self) {
        self.replayed.fetch_add(1, Relaxed);
    }

    /// Adds to what the start has found.
    pub(crate) fn found(&self, add: impl FnOnce(&mut Recovery)) {
        add(&mut self.found.lock());
    }

    pub(crate) fn recovery(&self) -> Recovery {
        *self.found.lock()
    }

    /// The certificates of TLS between servers are these.
    pub(crate) fn has_peer_tls(&self, tls: &Arc<PeerTls>) {
        // A start reads them once.
        let _ = self.peer_tls.set(Arc::clone(tls));
    }

    pub(crate) fn peer_tls(&self) -> Option<Arc<PeerTls>> {
        self.peer_tls.get().cloned()
    }

    fn stage(&self) -> Stage {
        let stages = [Stage::ReadLog, Stage::LoadSnapshot, Stage::ReplayLog];
        let at = usize::from(self.stage.load(Relaxed));
        stages.get(at).copied().unwrap_or(Stage::Listen)
    }
}

impl fmt::Display for Starting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server starts: ")?;
        if let Some(why) = &*self.waits.lock() {
            return f.write_str(why);
        }
        match self.stage() {
            Stage::ReadLog => f.write_str("reading the log"),
            Stage::LoadSnapshot => f.write_str("loading the snapshot"),
            Stage::ReplayLog => write!(
                f,
                "replaying the log, {} of {} entries",
                self.replayed.load(Relaxed),
                self.entries.load(Relaxed)
            ),
            Stage::Listen => f.write_str("about to listen"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_is_shown() {
        let starting = Starting::default();
        assert_eq!(starting.to_string(), "the server starts: reading the log");
        starting.wait("waiting for server 1");
        assert_eq!(
            starting.to_string(),
            "the server starts: waiting for server 1"
        );
        starting.enter(Stage::LoadSnapshot);
        let text = "the server starts: loading the snapshot";
        assert_eq!(starting.to_string(), text);
        starting.replay(7);
        starting.replayed();
        let text = "the server starts: replaying the log, 1 of 7 entries";
        assert_eq!(starting.to_string(), text);
        starting.enter(Stage::Listen);
        assert_eq!(starting.to_string(), "the server starts: about to listen");
    }
}
