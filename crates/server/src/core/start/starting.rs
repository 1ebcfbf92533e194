//! The progress of a start, for operators until the server serves. The recovering thread writes it;
//! it decides nothing.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use baton_tls::PeerTls;
use parking_lot::Mutex;

use crate::progress::{Progress, Unit};

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

impl Stage {
    const fn name(self) -> &'static str {
        match self {
            Self::ReadLog => "reading the log",
            Self::LoadSnapshot => "loading the snapshot",
            Self::ReplayLog => "replaying the log",
            Self::Listen => "about to listen",
        }
    }
}

/// Stage of the start, and entries replayed.
#[derive(Debug, Default)]
pub(crate) struct Starting {
    stage: AtomicU8,
    progress: Arc<Progress>,
    /// Event for which a server of several waits before it may read a log.
    waits: Mutex<Option<String>>,
    /// The certificates of TLS between servers, once they are read.
    peer_tls: OnceLock<Arc<PeerTls>>,
    found: Mutex<Recovery>,
}

/// Findings of the start in the data folder.
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
    /// A start that others follow by `progress` too.
    pub(crate) fn of(progress: Arc<Progress>) -> Self {
        Self {
            progress,
            ..Self::default()
        }
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.begin(stage, Unit::Bytes, 0);
    }

    fn begin(&self, stage: Stage, unit: Unit, total: u64) {
        *self.waits.lock() = None;
        self.progress.begin(stage.name(), unit, total);
        self.stage.store(stage as u8, Relaxed);
    }

    /// The server waits for others; `why` says for what. Over with the next stage.
    pub(crate) fn wait(&self, why: &str) {
        *self.waits.lock() = Some(why.to_owned());
    }

    /// The replay of `entries` entries begins.
    pub(crate) fn replay(&self, entries: u64) {
        self.begin(Stage::ReplayLog, Unit::Entries, entries);
    }

    /// Counts what is done of the present stage.
    pub(crate) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// A snapshot of this many bytes is to be loaded.
    pub(crate) fn load(&self, bytes: u64) {
        self.begin(Stage::LoadSnapshot, Unit::Bytes, bytes);
    }

    /// This many of its bytes more are loaded.
    pub(crate) fn loaded(&self, bytes: usize) {
        self.progress.add(bytes);
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
        let stage = self.stage();
        f.write_str(stage.name())?;
        let (step, done) = self.progress.read();
        match stage {
            Stage::LoadSnapshot => write!(f, ", {done} of {} bytes", step.total),
            Stage::ReplayLog => write!(f, ", {done} of {} entries", step.total),
            Stage::ReadLog | Stage::Listen => Ok(()),
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
        starting.load(9);
        starting.loaded(2);
        let text = "the server starts: loading the snapshot, 2 of 9 bytes";
        assert_eq!(starting.to_string(), text);
        starting.replay(7);
        starting.progress().add(1);
        let text = "the server starts: replaying the log, 1 of 7 entries";
        assert_eq!(starting.to_string(), text);
        starting.enter(Stage::Listen);
        assert_eq!(starting.to_string(), "the server starts: about to listen");
    }
}
