//! The snapshot that this server receives: one at a time. Nothing of it counts before the whole
//! file is durable, verified and restored to a tree; whatever a peer sends, memory and the one
//! unfinished file are bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use baton_consensus::{Membership, SnapshotPoint};
use baton_peers::codec::{
    Frame, SnapshotAck, SnapshotChunk, SnapshotOffer, SnapshotReject, SnapshotRejectReason,
};
use baton_peers::net::SendError;
use baton_tree::{Restore, Tree};
use baton_wal::{RawSnapshotWriter, SnapshotFileId, SnapshotInfo, SnapshotStore, WalError};
use bytes::Bytes;

use crate::core::disk_worker::{DiskWorker, Progress, Task};
use crate::core::transfer::limits::TransferLimits;
use crate::state::hash_seed;

/// Jobs that may wait for the disk before an offer is refused: each offer makes up to two.
const JOBS_WAITING: usize = 8;

/// Sends one frame to a peer.
type SendFrame<'a> = dyn FnMut(u64, Frame) -> Result<(), SendError> + 'a;

/// A snapshot that has come whole: its file is durable and verified.
#[derive(Debug)]
pub(crate) struct Received {
    /// The file, for `Wal::append_received` and `Wal::finish_received`.
    pub(crate) info: SnapshotInfo,
    /// The point that it stands for.
    pub(crate) point: SnapshotPoint,
    /// The state that was restored from it.
    pub(crate) tree: Tree,
}

/// Reason for which a snapshot is refused: for the sender, and for this server's log.
#[derive(Debug)]
struct Refusal {
    reason: SnapshotRejectReason,
    why: String,
}

impl Refusal {
    fn new(reason: SnapshotRejectReason, why: impl Into<String>) -> Self {
        Self {
            reason,
            why: why.into(),
        }
    }

    fn damaged(why: impl Into<String>) -> Self {
        Self::new(SnapshotRejectReason::Damaged, why)
    }
}

impl From<WalError> for Refusal {
    fn from(error: WalError) -> Self {
        let reason = match &error {
            WalError::NoSpace { .. } => SnapshotRejectReason::NoRoom,
            WalError::Corrupt { .. }
            | WalError::FormatVersion { .. }
            | WalError::WrongCluster { .. } => SnapshotRejectReason::Damaged,
            _ => SnapshotRejectReason::DiskFailed,
        };
        Self::new(reason, error.to_string())
    }
}

/// The snapshot that this server receives.
#[derive(Debug)]
pub(crate) struct Incoming {
    own_id: u64,
    store: SnapshotStore,
    limits: TransferLimits,
    worker: Box<dyn DiskWorker>,
    /// FramePermit by each job that removes or creates a file.
    waiting: Arc<()>,
    current: Option<Transfer>,
    /// Rejects that are not sent yet, by peer.
    rejects: BTreeMap<u64, SnapshotReject>,
    /// The transfer that was refused last, by peer: its further frames need no answer.
    refused: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Transfer {
    id: SnapshotFileId,
    /// The peer that sends it, and the number of its transfer; `None` once its connection has
    /// ended. Another offer of the same file goes on from what is stored.
    sender: Option<(u64, u64)>,
    state: State,
    progress_at: Instant,
    /// Whether the sender is to be notified of what is stored.
    ack_due: bool,
}

#[derive(Debug)]
enum State {
    Receiving(Receiving),
    /// The file is being verified and restored to a tree.
    Checking {
        task: Task<Result<Received, Refusal>>,
        stop: Arc<AtomicBool>,
    },
    Ready(Box<Received>),
}

#[derive(Debug)]
struct Receiving {
    file: FileState,
    /// Everything before this offset is stored.
    stored: u64,
    /// Everything before this offset is stored once the write under way is complete.
    writing_to: u64,
    /// Chunks that follow, without a gap.
    queue: VecDeque<Bytes>,
    /// The offset after the queue: where the next chunk has to begin.
    expected: u64,
}

#[derive(Debug)]
enum FileState {
    Idle(Box<RawSnapshotWriter>),
    Writing(Task<Result<RawSnapshotWriter, Refusal>>),
}

impl Incoming {
    /// Receives snapshots into this folder, for the server `own_id`.
    pub(crate) fn new(
        own_id: u64,
        store: SnapshotStore,
        limits: TransferLimits,
        worker: Box<dyn DiskWorker>,
    ) -> Self {
        Self {
            own_id,
            store,
            limits,
            worker,
            waiting: Arc::new(()),
            current: None,
            rejects: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// A frame has come from a peer. Those that are no part of a snapshot are passed over.
    /// `committed` is the newest entry that is committed here: a snapshot of it or of an earlier
    /// one is not needed.
    pub(crate) fn frame(&mut self, from: u64, frame: Frame, committed: u64, now: Instant) {
        match frame {
            Frame::SnapshotOffer(offer) => self.offered(from, &offer, committed, now),
            Frame::SnapshotChunk(chunk) => self.chunk(from, chunk, now),
            Frame::SnapshotDone(done) => self.done(from, done.transfer),
            _ => {}
        }
    }

    /// A connection of the snapshot lane with this peer has ended, in either direction. What has
    /// come from it is kept for a while: its next offer, or that of another peer, may be of the
    /// same file.
    pub(crate) fn gone(&mut self, peer: u64) {
        self.rejects.remove(&peer);
        self.refused.remove(&peer);
        if let Some(current) = &mut self.current
            && current.is_from(peer)
        {
            current.sender = None;
            current.ack_due = false;
        }
    }

    /// Does what can be done now. `committed` as in [`Incoming::frame`].
    pub(crate) fn poll(&mut self, now: Instant, committed: u64, send: &mut SendFrame<'_>) {
        self.advance(now);
        if let Some(current) = &self.current {
            let waits_for_disk = current.waits_for_disk();
            let idle = now.saturating_duration_since(current.progress_at);
            if current.id.index <= committed {
                self.refuse(&Refusal::new(
                    SnapshotRejectReason::Outdated,
                    "this server has committed as much",
                ));
            } else if !waits_for_disk && idle >= self.limits.stall_limit {
                self.refuse(&Refusal::new(
                    SnapshotRejectReason::Busy,
                    "nothing has come for too long",
                ));
            }
        }
        if let Some(current) = &mut self.current
            && current.ack_due
            && let Some((from, transfer)) = current.sender
            && let Some(offset) = current.acknowledged()
        {
            let ack = SnapshotAck { transfer, offset };
            current.ack_due = send(from, Frame::SnapshotAck(ack)).is_err();
        }
        self.rejects
            .retain(|to, reject| send(*to, Frame::SnapshotReject(*reject)).is_err());
    }

    /// When [`Incoming::poll`] is due though nothing happens.
    pub(crate) fn next_poll(&self, now: Instant) -> Option<Instant> {
        let again = now + self.limits.send_again;
        if !self.rejects.is_empty() {
            return Some(again);
        }
        let current = self.current.as_ref()?;
        if current.ack_due && current.sender.is_some() && current.acknowledged().is_some() {
            return Some(again);
        }
        (!current.waits_for_disk()).then(|| current.progress_at + self.limits.stall_limit)
    }

    /// Whether the message of this point's snapshot may go to the consensus: the snapshot has come
    /// whole, or so much is committed here already that the consensus only answers.
    pub(crate) fn admits(&self, point: &SnapshotPoint, committed: u64) -> bool {
        point.index <= committed || self.has(point)
    }

    fn has(&self, point: &SnapshotPoint) -> bool {
        let state = self.current.as_ref().map(|current| &current.state);
        matches!(state, Some(State::Ready(received)) if received.point == *point)
    }

    /// Hands out the snapshot of this point, which is to be installed now.
    pub(crate) fn take(&mut self, point: &SnapshotPoint) -> Option<Received> {
        if !self.has(point) {
            return None;
        }
        match self.current.take()?.state {
            State::Ready(received) => Some(*received),
            _ => None,
        }
    }

    /// Removes what has come so far: the log has no room on the disk. The sender may try again
    /// later.
    pub(crate) fn give_way(&mut self) {
        self.refuse(&Refusal::new(
            SnapshotRejectReason::NoRoom,
            "it gave way to the log, which had no room on the disk",
        ));
    }

    /// Drops a value on the worker's thread: a tree that another one has replaced is large.
    pub(crate) fn dispose(&mut self, value: impl Send + 'static) {
        self.worker.run(Box::new(move || drop(value)));
    }

    fn offered(&mut self, from: u64, offer: &SnapshotOffer, committed: u64, now: Instant) {
        self.refused.remove(&from);
        self.rejects.remove(&from);
        let id = SnapshotFileId {
            index: offer.index,
            term: offer.term,
            bytes: offer.bytes,
            crc: offer.crc,
        };
        if id.index <= committed {
            self.reject(from, offer.transfer, SnapshotRejectReason::Outdated);
            return;
        }
        let is_taken = self.current.as_ref().is_some_and(|current| {
            current.is_from_other(from)
                && current.advanced_within(self.limits.idle_limit, now)
                && id.index <= current.id.index
        });
        if is_taken || Arc::strong_count(&self.waiting) > JOBS_WAITING {
            self.reject(from, offer.transfer, SnapshotRejectReason::Busy);
            return;
        }
        let sender = self.current.as_ref().and_then(|current| current.sender);
        if let Some((other, transfer)) = sender.filter(|(other, _)| *other != from) {
            self.reject(other, transfer, SnapshotRejectReason::Busy);
        }
        match &mut self.current {
            Some(current) if current.id == id => current.resume((from, offer.transfer), now),
            _ => {
                self.discard();
                let (store, waiting) = (self.store.clone(), Arc::clone(&self.waiting));
                let create = Task::start(self.worker.as_mut(), move || {
                    let _waiting = waiting;
                    Ok(store.raw_writer(id)?)
                });
                tracing::info!(
                    from,
                    index = id.index,
                    bytes = id.bytes,
                    "receives a snapshot of another server"
                );
                self.current = Some(Transfer {
                    id,
                    sender: Some((from, offer.transfer)),
                    state: State::Receiving(Receiving {
                        file: FileState::Writing(create),
                        stored: 0,
                        writing_to: 0,
                        queue: VecDeque::new(),
                        expected: 0,
                    }),
                    progress_at: now,
                    ack_due: false,
                });
            }
        }
    }

    fn chunk(&mut self, from: u64, chunk: SnapshotChunk, now: Instant) {
        let unstored_bytes = self.limits.unstored_bytes as u64;
        let Some(current) = self.current_of(from, chunk.transfer) else {
            self.reject_unknown(from, chunk.transfer);
            return;
        };
        let bytes = current.id.bytes;
        let State::Receiving(receiving) = &mut current.state else {
            return;
        };
        let end = chunk.offset.saturating_add(chunk.data.len() as u64);
        if end <= receiving.expected {
            return;
        }
        let refusal = if chunk.offset != receiving.expected {
            Refusal::new(SnapshotRejectReason::Gap, "a part is missing")
        } else if end > bytes {
            Refusal::damaged("more bytes have come than were announced")
        } else if end - receiving.stored > unstored_bytes {
            Refusal::new(SnapshotRejectReason::Gap, "more comes than is acknowledged")
        } else {
            receiving.expected = end;
            receiving.queue.push_back(chunk.data);
            current.progress_at = now;
            return;
        };
        self.refuse(&refusal);
    }

    fn done(&mut self, from: u64, transfer: u64) {
        let Some(current) = self.current_of(from, transfer) else {
            self.reject_unknown(from, transfer);
            return;
        };
        if let State::Receiving(receiving) = &current.state
            && receiving.expected < current.id.bytes
        {
            self.refuse(&Refusal::new(
                SnapshotRejectReason::Gap,
                "it ends before its size",
            ));
        }
    }

    /// Takes the outcomes of jobs, and gives the next ones to the worker.
    fn advance(&mut self, now: Instant) {
        while let Some(current) = &mut self.current {
            let outcome = match &mut current.state {
                State::Receiving(receiving) => {
                    receiving.advance(self.worker.as_mut(), self.own_id, &mut current.ack_due)
                }
                State::Checking { task, .. } => match task.poll() {
                    Progress::Pending => return,
                    Progress::Done(Ok(received)) => {
                        tracing::info!(
                            index = current.id.index,
                            bytes = current.id.bytes,
                            "a snapshot of another server has come"
                        );
                        current.state = State::Ready(Box::new(received));
                        current.ack_due = true;
                        current.progress_at = now;
                        return;
                    }
                    Progress::Done(Err(refusal)) => Err(refusal),
                    Progress::Lost => Err(thread_ended()),
                },
                State::Ready(_) => return,
            };
            match outcome {
                Ok(Step::Waits) => {
                    if let State::Receiving(receiving) = &mut current.state
                        && receiving.stored == current.id.bytes
                    {
                        let Some(file) = receiving.take_file() else {
                            return;
                        };
                        let stop = Arc::new(AtomicBool::new(false));
                        let check = check(file, self.store.clone(), Arc::clone(&stop));
                        let task = Task::start(self.worker.as_mut(), check);
                        current.state = State::Checking { task, stop };
                        continue;
                    }
                    return;
                }
                Ok(Step::Goes) => current.progress_at = now,
                Err(refusal) => self.refuse(&refusal),
            }
        }
    }

    /// The transfer under way, if it has this sender and this number.
    fn current_of(&mut self, from: u64, transfer: u64) -> Option<&mut Transfer> {
        let current = self.current.as_mut()?;
        (current.sender == Some((from, transfer))).then_some(current)
    }

    /// Ends the transfer under way, if there is one. What has come is kept where the next offer of
    /// the same file can build on it.
    fn refuse(&mut self, refusal: &Refusal) {
        let Some(current) = &mut self.current else {
            return;
        };
        let (sender, index) = (current.sender.take(), current.id.index);
        current.ack_due = false;
        let (reason, why) = (refusal.reason, &refusal.why);
        match reason {
            SnapshotRejectReason::Gap | SnapshotRejectReason::Outdated => {
                tracing::debug!(index, why, "does not take a snapshot of another server");
            }
            _ => tracing::warn!(index, why, "does not take a snapshot of another server"),
        }
        if reason != SnapshotRejectReason::Gap {
            self.discard();
        }
        if let Some((from, transfer)) = sender {
            self.reject(from, transfer, reason);
        }
    }

    fn reject(&mut self, to: u64, transfer: u64, reason: SnapshotRejectReason) {
        self.refused.insert(to, transfer);
        self.rejects.insert(to, SnapshotReject { transfer, reason });
    }

    /// Answers a frame of a transfer that this server does not know, once.
    fn reject_unknown(&mut self, from: u64, transfer: u64) {
        if self.refused.get(&from) != Some(&transfer) {
            self.reject(from, transfer, SnapshotRejectReason::Gap);
        }
    }

    /// Removes what has come so far, on the worker's thread.
    fn discard(&mut self) {
        let Some(current) = self.current.take() else {
            return;
        };
        current.stop();
        let (store, waiting) = (self.store.clone(), Arc::clone(&self.waiting));
        self.worker.run(Box::new(move || {
            let _waiting = waiting;
            let received = match current.state {
                State::Ready(received) => Some(received),
                // The job before this one has stopped, or was complete already.
                State::Checking { task, .. } => match task.poll() {
                    Progress::Done(Ok(received)) => Some(Box::new(received)),
                    _ => None,
                },
                // The drop removes the unfinished file.
                State::Receiving(_) => None,
            };
            if let Some(received) = received {
                discard_file(&store, &received.info);
            }
        }));
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(current) = &self.current {
            current.stop();
        }
    }
}

impl Transfer {
    fn is_from(&self, peer: u64) -> bool {
        self.sender.is_some_and(|(from, _)| from == peer)
    }

    fn is_from_other(&self, peer: u64) -> bool {
        self.sender.is_some_and(|(from, _)| from != peer)
    }

    fn advanced_within(&self, limit: Duration, now: Instant) -> bool {
        self.waits_for_disk() || now.saturating_duration_since(self.progress_at) < limit
    }

    /// Whether a job of this server is under way.
    fn waits_for_disk(&self) -> bool {
        match &self.state {
            State::Receiving(receiving) => matches!(receiving.file, FileState::Writing(_)),
            State::Checking { .. } => true,
            State::Ready(_) => false,
        }
    }

    /// Another offer of the same file.
    fn resume(&mut self, sender: (u64, u64), now: Instant) {
        self.sender = Some(sender);
        self.progress_at = now;
        match &mut self.state {
            State::Receiving(receiving) => {
                receiving.queue.clear();
                receiving.expected = receiving.writing_to;
                self.ack_due = matches!(receiving.file, FileState::Idle(_));
            }
            State::Checking { .. } => {}
            State::Ready(_) => self.ack_due = true,
        }
    }

    /// Returns the offset to acknowledge to the sender: all that is stored; the whole size only
    /// once the file is verified.
    fn acknowledged(&self) -> Option<u64> {
        match &self.state {
            State::Receiving(receiving) if receiving.stored < self.id.bytes => {
                Some(receiving.stored)
            }
            State::Receiving(_) | State::Checking { .. } => None,
            State::Ready(_) => Some(self.id.bytes),
        }
    }

    /// Makes a check under way end soon.
    fn stop(&self) {
        if let State::Checking { stop, .. } = &self.state {
            stop.store(true, Relaxed);
        }
    }
}

/// Result of a look at the file's job.
enum Step {
    /// A job has ended or begun.
    Goes,
    /// A job is under way, or there is nothing to write.
    Waits,
}

impl Receiving {
    fn advance(
        &mut self,
        worker: &mut dyn DiskWorker,
        own_id: u64,
        ack_due: &mut bool,
    ) -> Result<Step, Refusal> {
        if let FileState::Writing(task) = &self.file {
            match task.poll() {
                Progress::Pending => return Ok(Step::Waits),
                Progress::Lost => return Err(thread_ended()),
                Progress::Done(Err(refusal)) => return Err(refusal),
                Progress::Done(Ok(file)) => {
                    self.stored = file.written();
                    self.file = FileState::Idle(Box::new(file));
                    *ack_due = true;
                    return Ok(Step::Goes);
                }
            }
        }
        if self.queue.is_empty() {
            return Ok(Step::Waits);
        }
        let Some(mut file) = self.take_file() else {
            return Ok(Step::Waits);
        };
        let queue = std::mem::take(&mut self.queue);
        self.writing_to = self.expected;
        self.file = FileState::Writing(Task::start(worker, move || {
            for bytes in queue {
                file.write(&bytes)?;
            }
            check_members(&file, own_id)?;
            Ok(file)
        }));
        Ok(Step::Goes)
    }

    /// The file, if no job has it. The caller that takes it puts another state in its place.
    fn take_file(&mut self) -> Option<RawSnapshotWriter> {
        let taken = FileState::Writing(Task::lost());
        match std::mem::replace(&mut self.file, taken) {
            FileState::Idle(file) => Some(*file),
            writing @ FileState::Writing(_) => {
                self.file = writing;
                None
            }
        }
    }
}

fn thread_ended() -> Refusal {
    Refusal::new(
        SnapshotRejectReason::DiskFailed,
        "the thread that writes it has ended early",
    )
}

/// Refuses a snapshot whose members do not include this server, as soon as its header has come
/// (R21).
fn check_members(file: &RawSnapshotWriter, own_id: u64) -> Result<(), Refusal> {
    let Some(meta) = file.meta() else {
        return Ok(());
    };
    let membership = Membership::decode(&meta.membership)
        .map_err(|error| Refusal::damaged(error.to_string()))?;
    if membership.contains(own_id) {
        return Ok(());
    }
    Err(Refusal::new(
        SnapshotRejectReason::NotMember,
        "its members do not include this server",
    ))
}

/// The job that verifies the file and restores its tree.
fn check(
    file: RawSnapshotWriter,
    store: SnapshotStore,
    stop: Arc<AtomicBool>,
) -> impl FnOnce() -> Result<Received, Refusal> + Send {
    move || {
        let mut restore = Restore::seeded(hash_seed());
        let info = file.finish(|chunk| {
            if stop.load(Relaxed) {
                let why = "it is not needed any more";
                return Err(Refusal::new(SnapshotRejectReason::Busy, why));
            }
            restore
                .chunk(&chunk.payload)
                .map_err(|error| Refusal::damaged(error.to_string()))
        })?;
        let point = Membership::decode(&info.meta.membership).map(|membership| SnapshotPoint {
            index: info.meta.index,
            term: info.meta.term,
            membership,
        });
        let why = match (point, restore.finish()) {
            (Ok(point), Ok(tree)) => return Ok(Received { info, point, tree }),
            (Err(error), _) => error.to_string(),
            (_, Err(error)) => error.to_string(),
        };
        discard_file(&store, &info);
        Err(Refusal::damaged(why))
    }
}

fn discard_file(store: &SnapshotStore, info: &SnapshotInfo) {
    if let Err(error) = store.discard_received(info) {
        tracing::warn!(%error, "a snapshot of another server stays until the next start");
    }
}
