//! The log of a server: one writer, with two executors. A server that stands alone runs it on the
//! core's thread, since a change of thread would cost more than the wait; a member of an ensemble
//! gives it a thread of its own, so that the core goes on while the disk is busy (R05).
//!
//! The writer owns the order: records are written as they were handed in, everything that waits
//! shares one sync, and messages that promise something leave after the sync that makes it true
//! (R01, R02). It waits for room on a full disk, and marks the end of what is synced.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use baton_consensus::{PeerMessage, PersistToken};
use baton_wal::{Acknowledged, Record, SnapshotInfo, SnapshotStore, Wal, WalError};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

#[cfg(feature = "simulation")]
use crate::core::disk_worker::InlineWorker;
use crate::core::disk_worker::{DiskWorker, ThreadWorker};
use crate::core::links::wire::Wire;
use crate::core::snapshots::SnapshotLog;
use crate::state::ServerState;
use crate::time::micros;

/// A sync that takes longer is counted, as ZooKeeper does.
const SLOW_SYNC: Duration = Duration::from_secs(1);
/// Pause between two writes to a full disk, and between two lines of the log about it.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(200);
const FULL_DISK_REMINDER: Duration = Duration::from_secs(60);
/// Longest time for which synced entries go without an end mark. The mark costs a sync of its own,
/// so it waits for a moment of rest, or for the next of these moments where there is none.
const END_MARK_PAUSE: Duration = Duration::from_millis(500);
/// Jobs that are done together, at most.
const MOST_JOBS: usize = 1024;
/// Pause between two parts of a removed file that are freed: 200 MB a second.
const REMOVAL_PAUSE: Duration = Duration::from_millis(5);
/// Bytes of entries that share one sync. The last job may exceed them.
const SYNC_BYTES: usize = 1 << 20;

/// Jobs of the log.
#[derive(Debug)]
pub(crate) enum Job {
    /// Appends the records of some effects of the consensus.
    Write {
        /// The term and the vote.
        hard_state: Option<Record>,
        /// A received snapshot, which takes the place of the log before `records`.
        received: Option<SnapshotInfo>,
        records: Vec<Record>,
        must_sync: bool,
        token: PersistToken,
        /// Messages that leave when the records are durable.
        then: Vec<PeerMessage>,
    },
    /// Notes how far the log is known to be committed, which no write has done since. The next sync
    /// makes it durable; the end of the process alone does not undo it.
    Commit(u64),
    /// Stores which entries members have acknowledged.
    Acknowledged(Acknowledged),
    /// A snapshot is durable: what it makes needless is removed.
    SnapshotSaved(SnapshotInfo),
    /// Ends the log in good order.
    Close,
}

impl Job {
    /// Bytes of its entries.
    fn bytes(&self) -> usize {
        let payload = |record: &Record| match record {
            Record::Entry(entry) => entry.payload.len(),
            _ => 0,
        };
        match self {
            Job::Write { records, .. } => records.iter().map(payload).sum(),
            _ => 0,
        }
    }
}

/// Completed jobs of the log.
#[derive(Debug)]
pub(crate) enum CompletedJob {
    /// The effects of this token are durable, by a sync that took this long.
    Persisted(PersistToken, Duration),
    /// The disk has refused to store what members have acknowledged.
    AcknowledgedRefused,
    /// The log is closed.
    Closed,
    /// The log cannot go on.
    Failed(WalError),
}

/// Runs the writer.
#[derive(Debug)]
enum Executor {
    /// The owner of the log, in [`Log::work`].
    Inline(Box<LogWriter>),
    /// A thread of its own; `None` where a simulation is the thread.
    Thread(Option<JoinHandle<()>>),
}

/// The core's handle on the log. Dropping it ends its thread, with what it is writing.
#[derive(Debug)]
pub(crate) struct Log {
    executor: Executor,
    jobs: Option<Sender<Job>>,
    done: Receiver<CompletedJob>,
    /// When each write was handed in that is not durable yet, and its bytes; oldest first.
    pending: VecDeque<(Instant, usize)>,
    pending_bytes: usize,
    /// When something was made durable last.
    progressed_at: Option<Instant>,
    store: SnapshotStore,
    /// The folder's record of acknowledgements at the start.
    acknowledged: Result<Acknowledged, WalError>,
    stops: Arc<AtomicBool>,
}

impl Log {
    /// A log that its owner writes, in [`Log::work`].
    pub(crate) fn inline(wal: Wal, state: &Arc<ServerState>, wire: &Arc<dyn Wire>) -> Self {
        let (mut log, mut writer) = Self::prepare(wal, state, wire);
        writer.is_inline = true;
        writer.waits_for_room = false;
        log.executor = Executor::Inline(Box::new(writer));
        log
    }

    /// A log with a thread, which nudges the core when it has done something.
    ///
    /// # Errors
    /// What the system says where it gives no thread.
    pub(crate) fn threaded(
        wal: Wal,
        state: &Arc<ServerState>,
        wire: &Arc<dyn Wire>,
    ) -> std::io::Result<Self> {
        let (mut log, writer) = Self::prepare(wal, state, wire);
        let thread = std::thread::Builder::new()
            .name("baton-log".to_owned())
            .spawn(move || writer.run())?;
        log.executor = Executor::Thread(Some(thread));
        Ok(log)
    }

    /// Prepares a log like [`Log::threaded`], without the thread: the owner of the writer runs it.
    pub(crate) fn prepare(
        wal: Wal,
        state: &Arc<ServerState>,
        wire: &Arc<dyn Wire>,
    ) -> (Self, LogWriter) {
        let store = wal.snapshots();
        let acknowledged = wal.acknowledged();
        let (jobs, waiting) = crossbeam_channel::unbounded();
        let (finished, done) = crossbeam_channel::unbounded();
        let stops = Arc::new(AtomicBool::new(false));
        let writer = LogWriter {
            remover: remover(state),
            wal,
            state: Arc::clone(state),
            wire: Arc::clone(wire),
            jobs: waiting,
            done: finished,
            stops: Arc::clone(&stops),
            mark_due: None,
            is_inline: false,
            waits_for_room: true,
        };
        let log = Self {
            executor: Executor::Thread(None),
            jobs: Some(jobs),
            done,
            pending: VecDeque::new(),
            pending_bytes: 0,
            progressed_at: None,
            store,
            acknowledged,
            stops,
        };
        (log, writer)
    }

    /// Hands a job in, at `now`. What it is to say comes out of [`Log::take`].
    pub(crate) fn submit(&mut self, job: Job, now: Instant) {
        if matches!(job, Job::Write { .. }) {
            let bytes = job.bytes();
            self.pending.push_back((now, bytes));
            self.pending_bytes += bytes;
        }
        if let Some(jobs) = &self.jobs {
            // The thread ends early only after it has said why.
            let _ = jobs.send(job);
        }
    }

    /// Does what was handed in, where no thread does. While the disk is full, `on_full` may make
    /// room. Returns whether there was anything to do.
    pub(crate) fn work(&mut self, on_full: &mut dyn FnMut(&mut Wal)) -> bool {
        match &mut self.executor {
            Executor::Inline(writer) if writer.has_jobs() => {
                writer.work(None, on_full);
                true
            }
            _ => false,
        }
    }

    /// Marks the end of what is synced, where that is due and no thread does it.
    ///
    /// # Errors
    /// Why the log cannot go on.
    pub(crate) fn mark_end(&mut self) -> Result<(), WalError> {
        match &mut self.executor {
            Executor::Inline(writer) => writer.mark_end(),
            Executor::Thread(_) => Ok(()),
        }
    }

    /// When [`Log::mark_end`] is due.
    pub(crate) fn mark_due(&self) -> Option<Instant> {
        match &self.executor {
            Executor::Inline(writer) => writer.mark_due,
            Executor::Thread(_) => None,
        }
    }

    /// Whether its owner writes it, in [`Log::work`].
    pub(crate) fn is_inline(&self) -> bool {
        matches!(self.executor, Executor::Inline(_))
    }

    /// Has writes wait for room on a full disk from here on: the server runs, and can be asked to
    /// stop. A start does not wait.
    pub(crate) fn wait_for_room(&mut self) {
        if let Executor::Inline(writer) = &mut self.executor {
            writer.waits_for_room = true;
        }
    }

    /// Whether effects wait to be durable.
    pub(crate) fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Bytes of entries that wait to be durable.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Time for which the disk has made nothing durable though something waits, and the bytes that
    /// it may be writing.
    pub(crate) fn standstill(&self, now: Instant) -> Option<(Duration, usize)> {
        let (submitted, bytes) = self.pending.front()?;
        let since = self
            .progressed_at
            .map_or(*submitted, |at| at.max(*submitted));
        let bytes = self.pending_bytes.min(2 * SYNC_BYTES).max(*bytes);
        Some((now.saturating_duration_since(since), bytes))
    }

    /// The next thing that was done, as of `now`; does not wait.
    pub(crate) fn take(&mut self, now: Instant) -> Option<CompletedJob> {
        let done = self.done.try_recv().ok()?;
        if let CompletedJob::Persisted(..) = done {
            let written = self.pending.pop_front();
            self.pending_bytes -= written.map_or(0, |(_, bytes)| bytes);
            self.progressed_at = Some(now);
        }
        Some(done)
    }

    /// Takes out which entries members have acknowledged, by the folder at the start.
    ///
    /// # Errors
    /// [`WalError`] when that cannot be read.
    pub(crate) fn take_acknowledged(&mut self) -> Result<Acknowledged, WalError> {
        std::mem::replace(&mut self.acknowledged, Ok(Acknowledged::default()))
    }

    /// Does what was handed in, ends the log in good order, and waits for that.
    ///
    /// # Errors
    /// Why the log is not closed.
    pub(crate) fn close(&mut self) -> Result<(), WalError> {
        self.stops.store(true, Relaxed);
        self.submit(Job::Close, Instant::now());
        while self.work(&mut |_| {}) {}
        loop {
            match self.done.recv() {
                Ok(CompletedJob::Failed(error)) => return Err(error),
                Ok(CompletedJob::Closed) | Err(_) => return Ok(()),
                Ok(_) => {}
            }
        }
    }
}

impl SnapshotLog for Log {
    fn snapshots(&self) -> SnapshotStore {
        self.store.clone()
    }

    fn snapshot_saved(&mut self, saved: &SnapshotInfo) {
        self.submit(Job::SnapshotSaved(saved.clone()), Instant::now());
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        self.jobs = None;
        if let Executor::Thread(Some(thread)) =
            std::mem::replace(&mut self.executor, Executor::Thread(None))
        {
            let _ = thread.join();
        }
    }
}

/// The worker that removes files of the log.
fn remover(state: &ServerState) -> Box<dyn DiskWorker> {
    #[cfg(feature = "simulation")]
    if state.time.is_simulated() {
        return Box::new(InlineWorker);
    }
    #[cfg(not(feature = "simulation"))]
    let _ = state;
    Box::new(ThreadWorker::new("baton-remove", Arc::new(|| {})))
}

/// Writes and syncs the log, wherever it runs.
#[derive(Debug)]
pub(crate) struct LogWriter {
    /// Removes files that a snapshot makes needless: the file system takes long for large ones.
    /// Dropped before the log, whose lock others wait for.
    remover: Box<dyn DiskWorker>,
    wal: Wal,
    state: Arc<ServerState>,
    wire: Arc<dyn Wire>,
    jobs: Receiver<Job>,
    done: Sender<CompletedJob>,
    stops: Arc<AtomicBool>,
    mark_due: Option<Instant>,
    /// Whether the core stands still meanwhile, and needs no nudge.
    is_inline: bool,
    waits_for_room: bool,
}

impl LogWriter {
    fn run(mut self) {
        loop {
            let first = match self.mark_due {
                None => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => self.jobs.recv_deadline(due),
            };
            let first = match first {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if !self.turn(first) {
                return;
            }
        }
    }

    /// When the end of the log is to be marked.
    #[cfg(feature = "simulation")]
    pub(crate) fn mark_due(&self) -> Option<Instant> {
        self.mark_due
    }

    /// Whether jobs wait.
    pub(crate) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Runs [`LogWriter::work`], and marks the end where that is due.
    pub(crate) fn turn(&mut self, first: Option<Job>) -> bool {
        self.work(first, &mut |_| {})
            && match self.mark_end() {
                Ok(()) => true,
                Err(error) => self.fail(error),
            }
    }

    /// Does `first` and what waits behind it, as far as one sync should take it. `false`: the log
    /// is closed, or cannot go on.
    fn work(&mut self, first: Option<Job>, on_full: &mut dyn FnMut(&mut Wal)) -> bool {
        let mut bytes = first.as_ref().map_or(0, Job::bytes);
        let mut waiting = Vec::from_iter(first);
        while waiting.len() < MOST_JOBS
            && bytes < SYNC_BYTES
            && let Ok(job) = self.jobs.try_recv()
        {
            bytes += job.bytes();
            waiting.push(job);
        }
        match self.do_all(waiting, on_full) {
            Ok(is_closed) => !is_closed,
            Err(error) => self.fail(error),
        }
    }

    /// Does all jobs; returns whether the log is closed.
    fn do_all(
        &mut self,
        waiting: Vec<Job>,
        on_full: &mut dyn FnMut(&mut Wal),
    ) -> Result<bool, WalError> {
        let mut written = Vec::new();
        let mut must_sync = false;
        for job in waiting {
            match job {
                Job::Write {
                    hard_state,
                    received,
                    records,
                    must_sync: this,
                    token,
                    then,
                } => {
                    // First, so that a torn write never leaves a shorter log of the same term.
                    if let Some(hard_state) = hard_state {
                        let first = std::slice::from_ref(&hard_state);
                        self.with_room(on_full, |wal| wal.append(first))?;
                    }
                    if let Some(snapshot) = &received {
                        self.with_room(on_full, |wal| wal.append_received(snapshot))?;
                    }
                    self.with_room(on_full, |wal| wal.append(&records))?;
                    must_sync |= this;
                    written.push((token, then));
                    if let Some(snapshot) = &received {
                        // Its name becomes its own only when its mark is durable (R23).
                        self.with_room(on_full, Wal::sync)?;
                        self.wal.finish_received(snapshot)?;
                    }
                }
                other => {
                    self.make_durable(&mut written, std::mem::take(&mut must_sync), on_full)?;
                    if self.do_other(other, on_full)? {
                        return Ok(true);
                    }
                }
            }
        }
        self.make_durable(&mut written, must_sync, on_full)?;
        Ok(false)
    }

    /// Does a job that is not a write; returns whether the log is closed.
    fn do_other(&mut self, job: Job, on_full: &mut dyn FnMut(&mut Wal)) -> Result<bool, WalError> {
        match job {
            Job::Commit(index) => {
                self.with_room(on_full, |wal| wal.append(&[Record::Commit { index }]))?;
            }
            Job::Acknowledged(acknowledged) => {
                if let Err(error) = self.wal.store_acknowledged(&acknowledged) {
                    tracing::warn!(%error, "what other servers have acknowledged is not stored");
                    self.report(CompletedJob::AcknowledgedRefused);
                }
            }
            Job::SnapshotSaved(info) => self.snapshot_saved(&info),
            Job::Close => {
                match self.wal.mark_closed() {
                    Err(error @ WalError::NoSpace { .. }) => {
                        tracing::warn!("the log is whole, but not marked as closed: {error}");
                    }
                    closed => closed?,
                }
                self.report(CompletedJob::Closed);
                return Ok(true);
            }
            Job::Write { .. } => {}
        }
        Ok(false)
    }

    /// Has what the snapshot makes needless removed, and notes the snapshot in the log.
    fn snapshot_saved(&mut self, saved: &SnapshotInfo) {
        let kept = |error: WalError| tracing::warn!(%error, "old segments of the log stay");
        match self.wal.outdated() {
            Ok(outdated) => {
                let stops = Arc::clone(&self.stops);
                let pause = move || {
                    std::thread::sleep(REMOVAL_PAUSE);
                    !stops.load(Relaxed)
                };
                self.remover.run(Box::new(move || {
                    outdated.remove_in_parts(pause).unwrap_or_else(kept);
                }));
            }
            Err(error) => kept(error),
        }
        if let Err(error) = self.wal.mark_snapshot(saved) {
            tracing::warn!(%error, "the snapshot is not noted in the log");
        }
    }

    /// Syncs, if one of them asks for it; then their messages leave and the core is notified.
    fn make_durable(
        &mut self,
        written: &mut Vec<(PersistToken, Vec<PeerMessage>)>,
        must_sync: bool,
        on_full: &mut dyn FnMut(&mut Wal),
    ) -> Result<(), WalError> {
        let mut took = Duration::ZERO;
        if must_sync {
            let mark = self.state.time.mark();
            took = self.with_room(on_full, Wal::sync)?.sync_time;
            let (stats, options) = (&self.state.stats, &self.state.options);
            stats.sync_time.record(micros(took));
            if took > SLOW_SYNC {
                stats.slow_syncs.fetch_add(1, Relaxed);
            }
            if self.is_inline && took > options.tick.max(options.min_session_timeout / 2) {
                // Once enough requests waited, sockets were not read, so sessions could not be
                // touched.
                self.state.time.forgive(mark, took);
            }
        }
        let mut messages = Vec::new();
        for (token, then) in written.drain(..) {
            messages.extend(then);
            let _ = self.done.send(CompletedJob::Persisted(token, took));
        }
        if !messages.is_empty() {
            // An answer that is lost with its connection: the leader asks again.
            drop(self.wire.send_raft(messages));
        }
        self.nudge();
        Ok(())
    }

    fn report(&self, done: CompletedJob) {
        // Refused only where the core has gone.
        let _ = self.done.send(done);
        self.nudge();
    }

    /// Reports that the log cannot go on.
    fn fail(&self, error: WalError) -> bool {
        self.report(CompletedJob::Failed(error));
        false
    }

    /// Has the core take what was done: here, where neither the log nor a client waits for it.
    fn nudge(&self) {
        if self.is_inline {
            return;
        }
        match self.has_jobs() || self.state.inbox.queued_requests() > 0 {
            true => self.state.inbox.nudge(),
            false => self.state.inbox.turn_or_nudge(),
        }
    }

    /// Has the log record how far it is synced, a moment after it was.
    fn mark_end(&mut self) -> Result<(), WalError> {
        if self.wal.is_end_marked() {
            self.mark_due = None;
            return Ok(());
        }
        let now = self.state.time.now();
        if now < *self.mark_due.get_or_insert(now + END_MARK_PAUSE) {
            return Ok(());
        }
        self.mark_due = None;
        match self.wal.mark_end() {
            Err(error @ WalError::NoSpace { .. }) => {
                tracing::warn!("the end of the log is not marked: {error}");
                self.mark_due = Some(now + FULL_DISK_REMINDER);
                Ok(())
            }
            marked => marked,
        }
    }

    /// Runs `act` on the log, again and again while the disk is full. Meanwhile nothing else is
    /// written: writes wait, reads show what is on the disk. A request to stop the server ends the
    /// wait.
    fn with_room<T>(
        &mut self,
        on_full: &mut dyn FnMut(&mut Wal),
        mut act: impl FnMut(&mut Wal) -> Result<T, WalError>,
    ) -> Result<T, WalError> {
        let time = &self.state.time;
        let is_full = &self.state.stats.disk_full;
        let mark = time.mark();
        let mut since: Option<(Instant, Instant)> = None;
        let outcome = loop {
            let error = match act(&mut self.wal) {
                Err(error @ WalError::NoSpace { retryable, .. })
                    if retryable && self.waits_for_room && !self.stops.load(Relaxed) =>
                {
                    error
                }
                outcome => break outcome,
            };
            let now = time.now();
            if since.is_none_or(|(_, logged)| now >= logged + FULL_DISK_REMINDER) {
                tracing::error!("{error}; reads are answered, writes wait until there is room");
                since = Some((since.map_or(now, |(begun, _)| begun), now));
            }
            is_full.store(true, Relaxed);
            #[cfg(feature = "simulation")]
            if time.is_simulated() {
                self.state.simulated.disk_full();
                continue;
            }
            if self.is_inline {
                on_full(&mut self.wal);
                if self.state.inbox.stops_within(FULL_DISK_PAUSE) {
                    break Err(error);
                }
            } else {
                self.state.inbox.nudge();
                std::thread::sleep(FULL_DISK_PAUSE);
            }
        };
        if let Some((begun, _)) = since {
            is_full.store(false, Relaxed);
            let waited = time.now().saturating_duration_since(begun);
            if self.is_inline {
                // Sockets with writes that wait were not read further.
                time.forgive(mark, waited);
            }
            if outcome.is_ok() {
                tracing::info!(?waited, "there is room on the disk again; writes go on");
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use baton_consensus::{Config, Consensus, MessageKind, Recovered};
    use baton_peers::codec::Frame;
    use baton_peers::handshake::LocalServer;
    use baton_peers::net::{SendError, Unsent};
    use baton_wal::testing::{Fault, FaultStorage, Loss};
    use baton_wal::{Storage, WalOptions};
    use bytes::Bytes;
    use parking_lot::Mutex;

    use super::*;
    use crate::options::Options;
    use crate::state::tests::state;

    /// Notes the last durable entry of a disk at each message.
    #[derive(Debug)]
    struct Witness {
        disk: FaultStorage,
        durable: Mutex<Vec<u64>>,
    }

    impl Wire for Witness {
        fn send_raft(&self, messages: Vec<PeerMessage>) -> Vec<Unsent> {
            let disk: Arc<dyn Storage> = Arc::new(self.disk.crash(Loss::Everything));
            let (wal, _) = Wal::open(disk, WalOptions::default()).unwrap();
            let last = wal.last_index();
            self.durable.lock().extend(messages.iter().map(|_| last));
            Vec::new()
        }

        fn send(&self, _: u64, _: Frame) -> Result<(), SendError> {
            Err(SendError::NotConnected)
        }

        fn update_local(&self, _: &mut dyn FnMut(&mut LocalServer)) {}

        fn set_addresses(&self, _: &BTreeMap<u64, String>) {}
    }

    fn message() -> PeerMessage {
        PeerMessage {
            kind: MessageKind::AppendResponse,
            from: 1,
            to: 2,
            term: 1,
            log_term: 0,
            index: 0,
            commit: 0,
            commit_term: 0,
            request_snapshot: 0,
            reject: false,
            reject_hint: 0,
            context: Bytes::new(),
            entries: Vec::new(),
            snapshot: None,
        }
    }

    /// A write of an entry, with a message that promises it.
    fn job(consensus: &mut Consensus, payload: &[u8]) -> Job {
        consensus.propose(Bytes::copy_from_slice(payload)).unwrap();
        let effects = consensus.drain().unwrap();
        let records = effects.append.iter().map(|entry| {
            Record::Entry(baton_wal::Entry {
                index: entry.index,
                term: entry.term,
                kind: entry.kind.as_byte(),
                payload: entry.payload.clone(),
            })
        });
        Job::Write {
            hard_state: None,
            received: None,
            records: records.collect(),
            must_sync: true,
            token: effects.token,
            then: vec![message()],
        }
    }

    struct Stage {
        disk: FaultStorage,
        witness: Arc<Witness>,
        log: Log,
        worker: LogWriter,
        consensus: Consensus,
    }

    impl Stage {
        fn new() -> Self {
            let disk = FaultStorage::new();
            let witness = Arc::new(Witness {
                disk: disk.clone(),
                durable: Mutex::default(),
            });
            let opened = Wal::open(Arc::new(disk.clone()), WalOptions::default());
            let wire: Arc<dyn Wire> = Arc::<Witness>::clone(&witness);
            let (log, worker) = Log::prepare(opened.unwrap().0, &state(Options::default()), &wire);
            let mut consensus =
                Consensus::new(&Config::sole_voter(1), Recovered::default()).unwrap();
            consensus.campaign().unwrap();
            Self {
                disk,
                witness,
                log,
                worker,
                consensus,
            }
        }

        /// Hands an entry to the log, with a message that promises it.
        fn write(&mut self, payload: &[u8]) -> PersistToken {
            let job = job(&mut self.consensus, payload);
            let Job::Write { token, .. } = job else {
                unreachable!("it is a write")
            };
            self.log.submit(job, Instant::now());
            token
        }

        fn take(&mut self) -> Option<CompletedJob> {
            self.log.take(Instant::now())
        }

        fn durable(&self) -> Vec<u64> {
            self.witness.durable.lock().clone()
        }
    }

    #[test]
    fn r01_what_a_message_promises_is_durable_when_it_leaves() {
        let mut stage = Stage::new();
        let first = stage.write(b"entry");
        assert!(stage.log.is_busy() && stage.log.standstill(Instant::now()).is_some());
        assert!(stage.take().is_none() && stage.durable().is_empty());
        assert!(stage.worker.turn(None));
        // The leader's first entry and the proposed one.
        assert_eq!(stage.durable(), [2]);
        assert!(matches!(stage.take(), Some(CompletedJob::Persisted(token, _)) if token == first));
        assert!(!stage.log.is_busy() && stage.take().is_none());
    }

    #[test]
    fn everything_that_waits_shares_one_sync() {
        let operations = |writes: usize| {
            let mut stage = Stage::new();
            stage.write(b"entry");
            stage.worker.turn(None);
            let before = stage.disk.operations();
            for _ in 0..writes {
                stage.write(b"entry");
            }
            stage.worker.turn(None);
            let tokens = std::iter::from_fn(|| stage.take()).count();
            assert_eq!(tokens, 1 + writes);
            stage.disk.operations() - before
        };
        assert_eq!(operations(1), operations(10));
    }

    #[test]
    fn a_sync_takes_a_mebibyte_and_the_disk_progresses_with_each() {
        let mut stage = Stage::new();
        let begun = Instant::now();
        let second = Duration::from_secs(1);
        for _ in 0..8 {
            stage.write(&vec![7; SYNC_BYTES / 2]);
        }
        assert_eq!(stage.log.pending_bytes(), 4 * SYNC_BYTES);
        for round in 1..=4 {
            let now = begun + round * second;
            let (stands, bytes) = stage.log.standstill(now).unwrap();
            // The first write was handed in a moment after the beginning.
            assert!(stands <= second && bytes <= 2 * SYNC_BYTES);
            assert!(stage.worker.turn(None));
            let durable = std::iter::from_fn(|| stage.log.take(now)).count();
            assert_eq!(durable, 2);
        }
        assert_eq!(stage.log.standstill(begun + 5 * second), None);
        assert_eq!(stage.log.pending_bytes(), 0);
    }

    #[test]
    fn r01_nothing_is_promised_when_the_sync_fails_and_the_core_is_notified() {
        let mut stage = Stage::new();
        stage.write(b"entry");
        stage.worker.turn(None);
        let sent = stage.durable().len();
        while stage.take().is_some() {}
        stage.write(b"entry");
        stage.disk.fail_at(stage.disk.operations(), Fault::Error);
        assert!(!stage.worker.turn(None), "the log cannot go on");
        assert!(matches!(stage.take(), Some(CompletedJob::Failed(_))));
        assert_eq!(stage.durable().len(), sent);
        assert!(stage.log.is_busy(), "the write is not durable");
    }

    #[test]
    fn a_full_disk_makes_writes_wait_until_there_is_room() {
        let mut stage = Stage::new();
        stage.disk.set_capacity(Some(stage.disk.used_bytes()));
        stage.write(&[7; 1 << 20]);
        let Stage {
            disk,
            witness,
            mut log,
            mut worker,
            ..
        } = stage;
        let state = Arc::clone(&worker.state);
        let working = std::thread::spawn(move || worker.turn(None));
        while !state.stats.disk_full.load(Relaxed) {
            std::thread::yield_now();
        }
        assert!(witness.durable.lock().is_empty() && log.take(Instant::now()).is_none());
        disk.set_capacity(None);
        assert!(working.join().unwrap());
        assert!(matches!(
            log.take(Instant::now()),
            Some(CompletedJob::Persisted(..))
        ));
        assert!(!state.stats.disk_full.load(Relaxed));
    }

    #[test]
    fn r19_the_core_is_notified_that_a_full_disk_refuses_what_members_have_acknowledged() {
        let mut stage = Stage::new();
        let store = |stage: &mut Stage| {
            let job = Job::Acknowledged(Acknowledged::default());
            stage.log.submit(job, Instant::now());
            assert!(stage.worker.turn(None));
            stage.take()
        };
        assert!(store(&mut stage).is_none());
        stage.disk.set_capacity(Some(stage.disk.used_bytes()));
        assert!(matches!(
            store(&mut stage),
            Some(CompletedJob::AcknowledgedRefused)
        ));
    }

    /// Makes a stage like [`Stage::new`], without a thread.
    fn inline() -> (FaultStorage, Log, Consensus) {
        let disk = FaultStorage::new();
        let witness: Arc<dyn Wire> = Arc::new(Witness {
            disk: disk.clone(),
            durable: Mutex::default(),
        });
        let (wal, _) = Wal::open(Arc::new(disk.clone()), WalOptions::default()).unwrap();
        let log = Log::inline(wal, &state(Options::default()), &witness);
        let mut consensus = Consensus::new(&Config::sole_voter(1), Recovered::default()).unwrap();
        consensus.campaign().unwrap();
        (disk, log, consensus)
    }

    #[test]
    fn a_log_without_a_thread_does_everything_that_waits_with_one_sync_when_its_owner_lets_it() {
        let (disk, mut log, mut consensus) = inline();
        let write = |log: &mut Log, consensus: &mut Consensus| {
            log.submit(job(consensus, b"entry"), Instant::now());
        };
        write(&mut log, &mut consensus);
        assert!(log.take(Instant::now()).is_none() && log.is_busy());
        let mut one_write = disk.operations();
        assert!(log.work(&mut |_| panic!("there is room")));
        one_write = disk.operations() - one_write;
        for _ in 0..10 {
            write(&mut log, &mut consensus);
        }
        let before = disk.operations();
        assert!(log.work(&mut |_| panic!("there is room")));
        // The first one has begun the file, too.
        assert!(disk.operations() - before <= one_write);
        let done = std::iter::from_fn(|| log.take(Instant::now())).count();
        assert_eq!(done, 11);
        assert!(!log.is_busy() && !log.work(&mut |_| {}));
        assert!(log.mark_due().is_none());
        log.mark_end().unwrap();
        assert!(log.mark_due().is_some(), "its end is marked in a moment");
    }

    #[test]
    fn a_log_without_a_thread_waits_for_room_once_it_runs_and_its_owner_may_make_some() {
        let (disk, mut log, mut consensus) = inline();
        disk.set_capacity(Some(disk.used_bytes()));
        log.submit(job(&mut consensus, &[7; 1 << 20]), Instant::now());
        log.work(&mut |_| panic!("a start does not wait"));
        let refused = std::iter::from_fn(|| log.take(Instant::now())).last();
        assert!(matches!(
            refused,
            Some(CompletedJob::Failed(WalError::NoSpace { .. }))
        ));
        log.wait_for_room();
        log.submit(job(&mut consensus, &[7; 1 << 20]), Instant::now());
        let mut asked = 0;
        log.work(&mut |_| {
            asked += 1;
            disk.set_capacity(None);
        });
        assert_eq!(asked, 1);
        let done = std::iter::from_fn(|| log.take(Instant::now())).last();
        assert!(matches!(done, Some(CompletedJob::Persisted(..))));
    }
}
