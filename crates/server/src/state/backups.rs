//! Backups that operators have asked for: what is handed from the request to the core, which takes
//! a snapshot, and back. Owns how many are on their way; the request reads the bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use baton_wal::{SnapshotInfo, SnapshotPin, SnapshotStore};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// A snapshot that holds everything that was applied when it was asked for. Its file stays while
/// this lives.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) store: SnapshotStore,
    pub(crate) pin: SnapshotPin,
    pub(crate) info: SnapshotInfo,
}

/// A snapshot, or why there is none.
pub(crate) type Outcome = Result<Arc<Fresh>, String>;

/// Waiters for the next snapshot, and the transfers under way.
#[derive(Debug)]
pub(crate) struct Backups {
    asked: Mutex<Vec<oneshot::Sender<Outcome>>>,
    place: Arc<Semaphore>,
    /// When the last command that has an interval was carried out.
    last_snapshot: Mutex<Option<Instant>>,
    last_success: Mutex<Option<Sent>>,
    sent: AtomicU64,
    failed: AtomicU64,
}

/// A backup that was sent whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    /// When, in seconds since 1970.
    pub(crate) at_seconds: u64,
    pub(crate) bytes: u64,
}

impl Default for Backups {
    fn default() -> Self {
        Self {
            asked: Mutex::default(),
            place: Arc::new(Semaphore::new(1)),
            last_snapshot: Mutex::default(),
            last_success: Mutex::default(),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }
}

impl Backups {
    /// The place of the only transfer at a time; `None`: another one has it.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.place).try_acquire_owned().ok()
    }

    /// A backup was sent whole.
    pub(crate) fn succeeded(&self, sent: Sent) {
        *self.last_success.lock() = Some(sent);
        self.sent.fetch_add(1, Relaxed);
    }

    /// A backup could not be made, or broke off.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// The last one that was sent whole since the start.
    pub(crate) fn last_success(&self) -> Option<Sent> {
        *self.last_success.lock()
    }

    /// Backups that were sent whole, and those that were not.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.sent.load(Relaxed), self.failed.load(Relaxed))
    }

    /// Asks for a snapshot that begins after this call. The core has to be nudged.
    pub(crate) fn ask(&self) -> oneshot::Receiver<Outcome> {
        let (asked, outcome) = oneshot::channel();
        self.asked.lock().push(asked);
        outcome
    }

    /// Whether somebody waits for a snapshot that has not begun.
    pub(crate) fn is_asked(&self) -> bool {
        !self.asked.lock().is_empty()
    }

    /// Those who wait for a snapshot that begins now.
    pub(crate) fn take(&self) -> Vec<oneshot::Sender<Outcome>> {
        std::mem::take(&mut *self.asked.lock())
    }

    /// Counts a snapshot that is to be sent now.
    ///
    /// # Errors
    /// How long to wait until the next one may be.
    pub(crate) fn snapshot_due(&self, now: Instant, interval: Duration) -> Result<(), Duration> {
        let mut last = self.last_snapshot.lock();
        let next = last.and_then(|last| last.checked_add(interval));
        let left = next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
        if !left.is_zero() {
            return Err(left);
        }
        *last = Some(now);
        Ok(())
    }
}

/// Answers everybody who waits for a snapshot.
pub(crate) fn answer(asked: Vec<oneshot::Sender<Outcome>>, outcome: &Outcome) {
    for asker in asked {
        // The asker may have gone.
        let _ = asker.send(outcome.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_transfer_goes_on_at_a_time_and_a_command_with_an_interval_waits_for_it() {
        let backups = Backups::default();
        let first = backups.place().unwrap();
        assert!(backups.place().is_none());
        drop(first);
        assert!(backups.place().is_some());
        let (now, interval) = (Instant::now(), Duration::from_secs(300));
        assert_eq!(backups.snapshot_due(now, interval), Ok(()));
        let soon = now + Duration::from_secs(100);
        let left = Duration::from_secs(200);
        assert_eq!(backups.snapshot_due(soon, interval), Err(left));
        assert_eq!(backups.snapshot_due(now + interval, interval), Ok(()));
        assert_eq!(backups.snapshot_due(now + interval, Duration::ZERO), Ok(()));
    }

    #[test]
    fn who_asks_gets_the_next_snapshot() {
        let backups = Backups::default();
        let mut first = backups.ask();
        assert!(backups.is_asked());
        let asked = backups.take();
        // Too late for this one.
        let mut second = backups.ask();
        answer(asked, &Err("no room".to_owned()));
        assert_eq!(first.try_recv().unwrap().unwrap_err(), "no room");
        assert!(second.try_recv().is_err() && backups.is_asked());
    }
}
