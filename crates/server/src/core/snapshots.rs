//! Snapshots without a pause: the core takes slices of the tree between batches, a thread of its
//! own writes them to disk. The log is purged once the snapshot is durable. A snapshot that fails
//! costs nothing but the segments that it would have made needless: its file is removed at once,
//! the log still has everything, and it is tried again after a pause. Where the log finds no room
//! while a snapshot is being written, the snapshot gives way.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use baton_consensus::{Consensus, SnapshotPoint};
use baton_tree::Tree;
use baton_wal::{SnapshotInfo, SnapshotMeta, SnapshotStore, SnapshotWriter, Wal, WalError};
use crossbeam_channel::{Receiver, Sender, TrySendError};
use tokio::sync::oneshot;

use crate::progress::{Progress, Unit};
use crate::state::ServerState;
use crate::state::backups::{self, Fresh};

/// Bytes of one slice: what a batch may have to wait for.
const SLICE_BYTES: usize = 64 << 10;
/// Slices that may wait for the disk.
const SLICES_WAITING: usize = 8;
/// The kind of our chunks in the snapshot's file.
const CHUNK_KIND: u8 = 0;
/// Pause after the first failure of a snapshot. Each further failure doubles it, up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(60);
const LONGEST_RETRY: Duration = Duration::from_secs(3600);

/// Writes the whole tree at once, where nothing waits for it.
pub(crate) fn write_whole(
    tree: &mut Tree,
    writer: &mut SnapshotWriter,
    progress: &Progress,
) -> Result<(), WalError> {
    progress.begin("writing the snapshot", Unit::Bytes, 0);
    tree.abandon_snapshot();
    let begun = tree.begin_snapshot();
    debug_assert!(begun.is_ok(), "abandoned just before");
    while let Some(slice) = tree.snapshot_slice(baton_tree::MAX_CHUNK_BYTES) {
        writer.chunk(CHUNK_KIND, &slice)?;
        progress.add(slice.len());
    }
    progress.begin("syncing the snapshot", Unit::Bytes, 0);
    Ok(())
}

/// The log, as snapshots need it.
pub(crate) trait SnapshotLog {
    /// The snapshots of the data folder.
    fn snapshots(&self) -> SnapshotStore;

    /// A snapshot is durable: what it makes needless is removed, now or soon. What should have gone
    /// may stay where the disk refuses, which does no harm.
    fn snapshot_saved(&mut self, saved: &SnapshotInfo);
}

impl SnapshotLog for Wal {
    fn snapshots(&self) -> SnapshotStore {
        Wal::snapshots(self)
    }

    fn snapshot_saved(&mut self, saved: &SnapshotInfo) {
        if let Err(error) = Wal::snapshot_saved(self, saved) {
            tracing::warn!(%error, "old segments of the log stay");
        }
    }
}

/// Writers of the slices.
enum Writer {
    Thread(JoinHandle<()>),
    /// The core does, in a simulation, once it has all slices.
    #[cfg(feature = "simulation")]
    Core(Box<dyn FnOnce() + Send>),
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Waits for the end of the writing. All slices are handed over, or dropped.
    fn join(self) {
        match self {
            Self::Thread(thread) => {
                let _ = thread.join();
            }
            #[cfg(feature = "simulation")]
            Self::Core(write) => write(),
        }
    }
}

#[derive(Debug)]
struct Writing {
    /// `None` once the tree has given everything.
    slices: Option<Sender<Vec<u8>>>,
    /// A slice that the channel had no room for.
    held: Option<Vec<u8>>,
    writer: Writer,
    done: Receiver<Result<SnapshotInfo, WalError>>,
    point: SnapshotPoint,
    zxid: i64,
    begun: Instant,
    /// Requester of the snapshot.
    asked: SnapshotWaiters,
}

/// Operators who wait for a snapshot.
type SnapshotWaiters = Vec<oneshot::Sender<backups::Outcome>>;

impl Writing {
    /// Whether nothing of it waits any more.
    fn is_finished(&self) -> bool {
        match &self.writer {
            Writer::Thread(thread) => thread.is_finished(),
            #[cfg(feature = "simulation")]
            Writer::Core(_) => self.slices.is_none(),
        }
    }
}

/// When a snapshot is due, and the one under way.
#[derive(Debug)]
pub(crate) struct Snapshots {
    entries_since: u64,
    bytes_since: u64,
    writing: Option<Writing>,
    /// Whether another server needs a snapshot.
    is_requested: bool,
    /// After a failure: when the next attempt is due, and the pause before it.
    retry: Option<(Instant, Duration)>,
}

impl Snapshots {
    /// `entries_since` is how many entries the log has after its newest snapshot.
    pub(crate) fn new(entries_since: u64) -> Self {
        Self {
            entries_since,
            bytes_since: 0,
            writing: None,
            is_requested: false,
            retry: None,
        }
    }

    /// Another server needs a snapshot that is not there: one is due now.
    pub(crate) fn request(&mut self) {
        self.is_requested = true;
    }

    /// Counts an entry of `bytes` bytes that went into the log.
    pub(crate) fn logged(&mut self, bytes: usize) {
        self.entries_since += 1;
        self.bytes_since += bytes as u64;
    }

    /// When the core has to come back: at once while there are slices to take, soon while the disk
    /// is being waited for, and for the next attempt after a failure.
    pub(crate) fn next_look(&self, now: Instant) -> Option<Instant> {
        let Some(writing) = &self.writing else {
            return self.retry.map(|(due, _)| due);
        };
        let pause = match (&writing.slices, &writing.held) {
            (Some(_), None) => Duration::ZERO,
            (Some(_), Some(_)) => Duration::from_millis(1),
            (None, _) => Duration::from_millis(20),
        };
        Some(now + pause)
    }

    /// Does a bounded part of what is to be done. Returns the point of a snapshot that has become
    /// durable.
    pub(crate) fn step(
        &mut self,
        state: &ServerState,
        consensus: &Consensus,
        log: &mut impl SnapshotLog,
    ) -> Option<SnapshotPoint> {
        if self.writing.is_none() {
            let options = &state.options;
            if std::mem::take(&mut self.is_requested)
                || state.backups.is_asked()
                || self.entries_since >= options.snapshot_every_entries
                || self.bytes_since >= options.snapshot_every_bytes
                || self.retry.is_some_and(|(due, _)| state.time.now() >= due)
            {
                self.begin(state, consensus.snapshot_point(), log.snapshots());
            }
            return None;
        }
        self.slice(state);
        self.finish(state, log)
    }

    fn begin(&mut self, state: &ServerState, point: SnapshotPoint, store: SnapshotStore) {
        // Counted from here, so that a snapshot that fails is tried again only after its pause or
        // when the next one is due.
        self.entries_since = 0;
        self.bytes_since = 0;
        let begun = state.time.now();
        let mut tree = state.tree.write();
        // Under the tree's lock: what was applied before they asked is in it.
        let asked = state.backups.take();
        if let Err(error) = tree.begin_snapshot() {
            self.failed(state.time.now(), &error.to_string(), asked);
            return;
        }
        let meta = SnapshotMeta {
            index: point.index,
            term: point.term,
            zxid: tree.zxid(),
            time_ms: state.time.wall_ms(),
            membership: point.membership.encode(),
        };
        let zxid = meta.zxid;
        #[cfg(feature = "simulation")]
        let is_simulated = state.time.is_simulated();
        #[cfg(not(feature = "simulation"))]
        let is_simulated = false;
        let (slices, incoming) = match is_simulated {
            false => crossbeam_channel::bounded::<Vec<u8>>(SLICES_WAITING),
            true => crossbeam_channel::unbounded(),
        };
        let (finished, done) = crossbeam_channel::bounded(1);
        let write = move || {
            let write = || -> Result<Option<SnapshotInfo>, WalError> {
                let mut writer = store.writer(meta)?;
                for slice in incoming {
                    // An empty slice is the end; without it, the core gave up.
                    if slice.is_empty() {
                        return writer.finish().map(Some);
                    }
                    writer.chunk(CHUNK_KIND, &slice)?;
                }
                Ok(None)
            };
            if let Some(outcome) = write().transpose() {
                let _ = finished.send(outcome);
            }
        };
        match spawn(write, is_simulated) {
            Ok(writer) => {
                self.writing = Some(Writing {
                    slices: Some(slices),
                    held: None,
                    writer,
                    done,
                    point,
                    zxid,
                    begun,
                    asked,
                });
            }
            Err(error) => {
                tree.abandon_snapshot();
                drop(tree);
                self.failed(
                    state.time.now(),
                    &format!("the system gave no thread: {error}"),
                    asked,
                );
            }
        }
    }

    /// Says why there is no snapshot, also to those who have asked, and sets the next attempt.
    fn failed(&mut self, now: Instant, why: &str, asked: SnapshotWaiters) {
        backups::answer(asked, &Err(why.to_owned()));
        let pause = self
            .retry
            .map_or(FIRST_RETRY, |(_, pause)| (pause * 2).min(LONGEST_RETRY));
        self.retry = Some((now + pause, pause));
        tracing::warn!(
            "no snapshot was written: {why}; the log keeps everything, the next attempt is in {} s",
            pause.as_secs()
        );
    }

    /// Ends the snapshot under way, because the log has no room while it takes some. One whose
    /// slices are all handed over is waited for: it may make segments needless. Does nothing where
    /// there is none.
    pub(crate) fn give_way(&mut self, state: &ServerState, log: &mut impl SnapshotLog) {
        let Some(mut writing) = self.writing.take() else {
            return;
        };
        if writing.slices.take().is_some() {
            state.tree.write().abandon_snapshot();
            // The thread sees the end of its slices, and removes its file.
            writing.writer.join();
            self.failed(
                state.time.now(),
                "it gave way to the log, which had no room on the disk",
                writing.asked,
            );
        } else {
            self.conclude(writing, state, log);
        }
    }

    fn slice(&mut self, state: &ServerState) {
        let Some(writing) = &mut self.writing else {
            return;
        };
        let Some(slices) = &writing.slices else {
            return;
        };
        let (slice, last) = match writing.held.take() {
            Some(slice) => (slice, false),
            None => {
                let held = state.time.now();
                let slice = state.tree.write().snapshot_slice(SLICE_BYTES);
                state
                    .stats
                    .snapshot_slice
                    .record(state.time.micros_since(held));
                match slice {
                    Some(slice) => (slice, false),
                    None => (Vec::new(), true),
                }
            }
        };
        let last = last || slice.is_empty();
        match slices.try_send(slice) {
            Ok(()) => {
                if last {
                    writing.slices = None;
                }
            }
            Err(TrySendError::Full(slice)) => writing.held = Some(slice),
            Err(TrySendError::Disconnected(_)) => {
                state.tree.write().abandon_snapshot();
                writing.slices = None;
            }
        }
    }

    fn finish(&mut self, state: &ServerState, log: &mut impl SnapshotLog) -> Option<SnapshotPoint> {
        let writing = self.writing.take_if(|writing| writing.is_finished())?;
        if writing.slices.is_some() {
            state.tree.write().abandon_snapshot();
        }
        self.conclude(writing, state, log)
    }

    /// Waits for the writing thread and acts on what became of its snapshot.
    fn conclude(
        &mut self,
        writing: Writing,
        state: &ServerState,
        log: &mut impl SnapshotLog,
    ) -> Option<SnapshotPoint> {
        // The thread sends before it ends.
        writing.writer.join();
        match writing.done.try_recv() {
            Ok(Ok(info)) => {
                self.retry = None;
                let stats = &state.stats;
                stats.snapshots.fetch_add(1, Relaxed);
                stats.snapshot_time.record(state.time.micros_since(writing.begun));
                stats.last_snapshot_zxid.store(writing.zxid, Relaxed);
                stats.last_snapshot_ms.store(state.time.wall_ms(), Relaxed);
                tracing::info!(
                    name = info.name,
                    index = writing.point.index,
                    bytes = info.file_bytes,
                    "snapshot written"
                );
                // Pinned before older ones are removed.
                let store = log.snapshots();
                let pin = store.pin(writing.point.index, writing.point.term);
                let fresh = Fresh { store, pin, info: info.clone() };
                backups::answer(writing.asked, &Ok(Arc::new(fresh)));
                log.snapshot_saved(&info);
                return Some(writing.point);
            }
            // What it needs in all is known only to one that is written to its end.
            Ok(Err(WalError::NoSpace {
                file, needed_bytes, ..
            })) => self.failed(state.time.now(), &format!(
                "{file} needs more than {needed_bytes} bytes, and there is no space left: free space on that disk, or raise the quota or the limit on file sizes that is met"
            ), writing.asked),
            Ok(Err(error)) => {
                self.failed(state.time.now(), &error.to_string(), writing.asked);
            }
            Err(_) => self.failed(state.time.now(), "its thread ended early", writing.asked),
        }
        None
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        if let Some(mut writing) = self.writing.take() {
            writing.slices = None;
            writing.writer.join();
        }
    }
}

/// Begins to write, on a thread of its own.
fn spawn(write: impl FnOnce() + Send + 'static, is_simulated: bool) -> std::io::Result<Writer> {
    #[cfg(feature = "simulation")]
    if is_simulated {
        return Ok(Writer::Core(Box::new(write)));
    }
    debug_assert!(!is_simulated, "only with the feature");
    let thread = std::thread::Builder::new().name("baton-snapshot".to_owned());
    thread.spawn(write).map(Writer::Thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_pause_before_the_next_attempt_up_to_an_hour() {
        let mut snapshots = Snapshots::new(0);
        let now = Instant::now();
        assert_eq!(snapshots.next_look(now), None);
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            snapshots.failed(now, "a test says so", Vec::new());
            let pause = Duration::from_secs(60 * minutes);
            assert_eq!(snapshots.retry.unwrap().1, pause);
            assert_eq!(snapshots.next_look(now), Some(now + pause));
        }
    }
}
