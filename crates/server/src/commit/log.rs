//! Who writes the log: the core itself where a server stands alone, a thread of its own where the
//! server is one of several.

use std::time::Instant;

use baton_wal::{SnapshotInfo, SnapshotStore, Wal, WalError};

use crate::commit::log_thread::{Job, LogThread};

/// The log, as the core has it.
#[derive(Debug)]
pub(crate) enum Log {
    /// The core writes and syncs it.
    Own(Box<Wal>),
    /// A thread does; the core never waits for the disk.
    Threaded(Box<LogThread>),
}

impl Log {
    /// The snapshots of the data folder.
    pub(crate) fn snapshots(&self) -> SnapshotStore {
        match self {
            Log::Own(wal) => wal.snapshots(),
            Log::Threaded(thread) => thread.snapshots(),
        }
    }

    /// A snapshot is durable: what it makes needless is removed, now or soon.
    ///
    /// # Errors
    /// [`WalError`] where the core writes the log and the disk refuses; what should have gone may
    /// then still be there, which does no harm.
    pub(crate) fn snapshot_saved(&mut self, saved: &SnapshotInfo) -> Result<(), WalError> {
        match self {
            Log::Own(wal) => wal.snapshot_saved(saved),
            Log::Threaded(thread) => {
                thread.submit(Job::SnapshotSaved(saved.clone()), Instant::now());
                Ok(())
            }
        }
    }
}
