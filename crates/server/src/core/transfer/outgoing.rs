//! Snapshots that this server sends: one to each peer at a time. Each transfer comes to exactly one
//! outcome (R26), and keeps its file and the log after it while it runs, and until its receiver has
//! installed it (R22).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_consensus::{PeerMessage, PeerProgress};
use baton_peers::codec::{Frame, SnapshotChunk, SnapshotDone, SnapshotOffer, SnapshotRejectReason};
use baton_peers::net::SendError;
use baton_wal::{RawSnapshotReader, SnapshotPin, SnapshotStore, WalError};
use bytes::Bytes;

use crate::core::disk_worker::{DiskWorker, Progress, Task};
use crate::core::transfer::limits::TransferLimits;
use crate::core::transfer::pace::Pace;

/// Sends one frame to a peer.
type SendFrame<'a> = dyn FnMut(u64, Frame) -> Result<(), SendError> + 'a;

/// Reasons for which a snapshot did not arrive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendFailure {
    /// The message has no snapshot.
    #[error("the message carries no snapshot")]
    NoSnapshot,
    /// The receiver would refuse it for ever (R21).
    #[error("the members in the snapshot do not include the receiver")]
    LacksReceiver,
    /// This server cannot read the file.
    #[error("the file cannot be read: {0}")]
    Unreadable(String),
    /// The connection has ended.
    #[error("the connection has ended")]
    Disconnected,
    /// The receiver has refused it.
    #[error("{0}")]
    Rejected(SnapshotRejectReason),
    /// An answer of the receiver does not fit.
    #[error("the receiver acknowledges {offset} bytes, of {sent} that were sent")]
    Confused {
        /// The offset that it acknowledges.
        offset: u64,
        /// The offset up to which bytes were sent.
        sent: u64,
    },
    /// No progress for too long.
    #[error("the receiver has made no progress for {} s", .0.as_secs())]
    Stalled(Duration),
}

impl SendFailure {
    /// Whether only another snapshot can succeed: the leader has to make one.
    pub(crate) fn wants_fresh(&self) -> bool {
        matches!(
            self,
            Self::LacksReceiver
                | Self::Unreadable(_)
                | Self::Rejected(SnapshotRejectReason::NotMember)
        )
    }

    /// Whether an attempt at once would most likely end alike, after much work.
    pub(crate) fn wants_pause(&self) -> bool {
        match self {
            Self::Disconnected => false,
            Self::Rejected(reason) => !matches!(
                reason,
                SnapshotRejectReason::Busy | SnapshotRejectReason::Gap
            ),
            _ => true,
        }
    }
}

/// A transfer has come to its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedTransfer {
    /// The receiver.
    pub(crate) to: u64,
    /// The snapshot's last entry.
    pub(crate) index: u64,
    /// Whether file and message have arrived. The message can still be lost with its connection;
    /// the leader's next message then makes the receiver ask again.
    pub(crate) outcome: Result<(), SendFailure>,
}

/// The snapshots that this server sends.
#[derive(Debug)]
pub(crate) struct Outgoing {
    store: SnapshotStore,
    limits: TransferLimits,
    worker: Box<dyn DiskWorker>,
    pace: Pace,
    /// The number of the last transfer.
    transfers: u64,
    sending: BTreeMap<u64, Sending>,
    ended: Vec<EndedTransfer>,
    /// Snapshots that have arrived, by receiver, until it has installed them and caught up: what
    /// lies between goes to it as entries, or it would need another snapshot at once.
    arrived: BTreeMap<u64, Arrived>,
    /// The last pause after a failure, by receiver.
    pauses: BTreeMap<u64, Duration>,
    /// The peer whose chunk was sent last: the others come before it.
    served_last: u64,
}

#[derive(Debug)]
struct Arrived {
    pin: Arc<SnapshotPin>,
    kept_until: Instant,
    /// The last entry that the receiver has.
    matched: u64,
    /// The leader's last entry when the receiver had installed the snapshot.
    caught_up_at: Option<u64>,
}

#[derive(Debug)]
struct Sending {
    transfer: u64,
    /// Sent when the file has arrived.
    message: PeerMessage,
    pin: Arc<SnapshotPin>,
    state: State,
    progress_at: Instant,
}

#[derive(Debug)]
enum State {
    /// Waits after a failure.
    Paused(Instant),
    /// The file is being opened.
    Opening(Task<Result<RawSnapshotReader, WalError>>),
    /// The offer is to be sent.
    Offering(Arc<RawSnapshotReader>),
    /// The receiver has the offer.
    Offered(Arc<RawSnapshotReader>),
    Streaming(Stream),
    /// The receiver says that the file is damaged: this server's own file is being verified.
    Doubted(Task<Result<(), WalError>>),
    /// The receiver has the file, or as much by itself: the message is to be sent. Without it the
    /// leader would never be notified how far a receiver is that needs no snapshot.
    Delivering,
}

#[derive(Debug)]
struct Stream {
    file: Arc<RawSnapshotReader>,
    /// Everything before this offset was sent.
    sent: u64,
    /// The receiver has everything before this offset.
    acked: u64,
    reading: Option<Task<Result<Bytes, WalError>>>,
    /// The chunk at `sent`.
    chunk: Option<Bytes>,
    /// Whether the receiver was notified that all was sent.
    is_done: bool,
}

/// Parts of the server that a transfer needs to advance.
struct TransferContext<'a> {
    store: &'a SnapshotStore,
    limits: &'a TransferLimits,
    worker: &'a mut dyn DiskWorker,
    pace: &'a mut Pace,
    now: Instant,
}

impl Outgoing {
    /// Sends snapshots of this folder.
    pub(crate) fn new(
        store: SnapshotStore,
        limits: TransferLimits,
        worker: Box<dyn DiskWorker>,
    ) -> Self {
        Self {
            store,
            pace: Pace::new(limits.bytes_per_second),
            limits,
            worker,
            transfers: 0,
            sending: BTreeMap::new(),
            ended: Vec::new(),
            arrived: BTreeMap::new(),
            pauses: BTreeMap::new(),
            served_last: 0,
        }
    }

    /// Sends the snapshot of the point that `message` carries to its receiver, and then the
    /// message. A transfer of another point to the same receiver ends without an outcome of its
    /// own: this one's counts for both.
    pub(crate) fn begin(&mut self, message: PeerMessage, now: Instant) {
        let to = message.to;
        let Some(point) = &message.snapshot else {
            self.end(to, 0, Err(SendFailure::NoSnapshot));
            return;
        };
        let (index, term) = (point.index, point.term);
        if !point.membership.contains(to) {
            self.sending.remove(&to);
            self.end(to, index, Err(SendFailure::LacksReceiver));
            return;
        }
        if let Some(sending) = self.sending.get_mut(&to)
            && (sending.pin.index(), sending.pin.term()) == (index, term)
        {
            sending.message = message;
            return;
        }
        self.transfers += 1;
        let pin = Arc::new(self.store.pin(index, term));
        let state = match self.pauses.get(&to) {
            Some(pause) => State::Paused(now + *pause),
            None => open(self.worker.as_mut(), &self.store, &pin),
        };
        let sending = Sending {
            transfer: self.transfers,
            message,
            pin,
            state,
            progress_at: now,
        };
        self.arrived.remove(&to);
        self.sending.insert(to, sending);
        tracing::debug!(to, index, "a snapshot is to be sent to another server");
    }

    /// A frame has come from a peer. Those that are no answer to a snapshot are passed over, and so
    /// is an answer to an earlier transfer.
    pub(crate) fn frame(&mut self, from: u64, frame: &Frame, now: Instant) {
        let Some(sending) = self.sending.get_mut(&from) else {
            return;
        };
        let outcome = match frame {
            Frame::SnapshotAck(ack) if ack.transfer == sending.transfer => {
                sending.acknowledged(ack.offset, now)
            }
            Frame::SnapshotReject(reject) if reject.transfer == sending.transfer => {
                sending.rejected(reject.reason, &self.store, self.worker.as_mut())
            }
            _ => return,
        };
        if let Err(failure) = outcome {
            self.failed(from, failure);
        }
    }

    /// A connection of the snapshot lane with this peer has ended, in either direction.
    pub(crate) fn gone(&mut self, peer: u64) {
        self.failed(peer, SendFailure::Disconnected);
    }

    /// Does what can be done now, and returns the transfers that have ended.
    pub(crate) fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Vec<EndedTransfer> {
        // The server that was served last comes last, so that all have their part of the pace.
        let last = self.served_last;
        let after = self
            .sending
            .range((Bound::Excluded(last), Bound::Unbounded));
        let up_to = self.sending.range(..=last);
        let turns: Vec<u64> = after.chain(up_to).map(|(to, _)| *to).collect();
        for to in turns {
            let Some(sending) = self.sending.get_mut(&to) else {
                continue;
            };
            let means = TransferContext {
                store: &self.store,
                limits: &self.limits,
                worker: self.worker.as_mut(),
                pace: &mut self.pace,
                now,
            };
            let sent_before = sending.sent();
            let outcome = sending.advance(means, &mut |frame| send(to, frame));
            if sending.sent() > sent_before {
                self.served_last = to;
            }
            match outcome {
                Ok(false) => {}
                Ok(true) => self.arrived(to, now),
                Err(failure) => self.failed(to, failure),
            }
        }
        self.arrived.retain(|_, arrived| now < arrived.kept_until);
        std::mem::take(&mut self.ended)
    }

    /// When [`Outgoing::poll`] is due though nothing happens.
    pub(crate) fn next_poll(&self, now: Instant) -> Option<Instant> {
        if !self.ended.is_empty() {
            return Some(now);
        }
        let due = |sending: &Sending| sending.next_poll(&self.limits, &self.pace, now);
        self.sending.values().filter_map(due).min()
    }

    /// Ends the pins of snapshots whose receivers have them installed and have caught up, or belong
    /// to the cluster no more. `progress` is what the leader, whose last entry is `last`, knows of
    /// all others.
    pub(crate) fn release_matched(&mut self, progress: &[PeerProgress], last: u64, now: Instant) {
        let stall_limit = self.limits.stall_limit;
        self.arrived.retain(|to, arrived| {
            let Some(peer) = progress.iter().find(|peer| peer.id == *to) else {
                return false;
            };
            if peer.matched < arrived.pin.index() {
                return true;
            }
            if peer.matched > arrived.matched {
                arrived.matched = peer.matched;
                arrived.kept_until = now + stall_limit;
            }
            peer.matched < *arrived.caught_up_at.get_or_insert(last)
        });
    }

    /// The oldest entry after which the log is needed for a snapshot under way (R22).
    pub(crate) fn oldest(&self) -> Option<u64> {
        let sending = self.sending.values().map(|sending| sending.pin.index());
        let arrived = self.arrived.values().map(|arrived| arrived.matched);
        sending.chain(arrived).min()
    }

    /// Ends all transfers without an outcome: this server does not lead any more.
    pub(crate) fn abandon(&mut self) {
        self.sending.clear();
        self.arrived.clear();
        self.pauses.clear();
        self.ended.clear();
    }

    fn arrived(&mut self, to: u64, now: Instant) {
        let Some(sending) = self.sending.remove(&to) else {
            return;
        };
        let index = sending.pin.index();
        self.pauses.remove(&to);
        self.arrived.insert(
            to,
            Arrived {
                pin: sending.pin,
                kept_until: now + self.limits.stall_limit,
                matched: index,
                caught_up_at: None,
            },
        );
        self.end(to, index, Ok(()));
    }

    fn failed(&mut self, to: u64, failure: SendFailure) {
        let Some(sending) = self.sending.remove(&to) else {
            return;
        };
        let index = sending.pin.index();
        if failure.wants_pause() {
            let first = self.limits.first_pause;
            let pause = self.pauses.get(&to).map_or(first, |pause| *pause * 2);
            let pause = pause.min(self.limits.longest_pause);
            self.pauses.insert(to, pause);
        }
        self.end(to, index, Err(failure));
    }

    fn end(&mut self, to: u64, index: u64, outcome: Result<(), SendFailure>) {
        self.ended.push(EndedTransfer { to, index, outcome });
    }
}

/// Opens a pinned snapshot.
fn open(worker: &mut dyn DiskWorker, store: &SnapshotStore, pin: &Arc<SnapshotPin>) -> State {
    let (store, pin) = (store.clone(), Arc::clone(pin));
    State::Opening(Task::start(worker, move || store.raw_reader(&pin)))
}

impl Sending {
    /// The receiver says that it has everything before `offset`.
    fn acknowledged(&mut self, offset: u64, now: Instant) -> Result<(), SendFailure> {
        let confused = |sent| Err(SendFailure::Confused { offset, sent });
        match &mut self.state {
            State::Offered(file) if offset <= file.id().bytes => {
                let file = Arc::clone(file);
                self.state = State::Streaming(Stream::new(file, offset));
                self.progress_at = now;
                Ok(())
            }
            State::Streaming(stream) if offset <= stream.sent => {
                if offset > stream.acked {
                    stream.acked = offset;
                    self.progress_at = now;
                }
                Ok(())
            }
            State::Offered(file) => confused(file.id().bytes),
            State::Streaming(stream) => confused(stream.sent),
            State::Doubted(_) | State::Delivering => Ok(()),
            State::Paused(_) | State::Opening(_) | State::Offering(_) => confused(0),
        }
    }

    fn rejected(
        &mut self,
        reason: SnapshotRejectReason,
        store: &SnapshotStore,
        worker: &mut dyn DiskWorker,
    ) -> Result<(), SendFailure> {
        self.state = match reason {
            SnapshotRejectReason::Outdated => State::Delivering,
            SnapshotRejectReason::Damaged => {
                let (store, pin) = (store.clone(), Arc::clone(&self.pin));
                let verify = move || store.verify_pinned(&pin).map(drop);
                State::Doubted(Task::start(worker, verify))
            }
            _ => return Err(SendFailure::Rejected(reason)),
        };
        Ok(())
    }

    /// The offset up to which bytes were sent.
    fn sent(&self) -> u64 {
        match &self.state {
            State::Streaming(stream) => stream.sent,
            _ => 0,
        }
    }

    /// Does what can be done now; whether file and message have arrived.
    fn advance(
        &mut self,
        mut means: TransferContext<'_>,
        send: &mut dyn FnMut(Frame) -> Result<(), SendError>,
    ) -> Result<bool, SendFailure> {
        let is_paused = matches!(self.state, State::Paused(_));
        let stall = means.limits.stall_limit;
        if !is_paused && means.now.saturating_duration_since(self.progress_at) >= stall {
            return Err(SendFailure::Stalled(stall));
        }
        loop {
            self.state = match &mut self.state {
                State::Paused(until) if means.now < *until => return Ok(false),
                State::Paused(_) => {
                    self.progress_at = means.now;
                    open(means.worker, means.store, &self.pin)
                }
                State::Opening(task) => match outcome_of(task)? {
                    None => return Ok(false),
                    Some(file) => State::Offering(Arc::new(file)),
                },
                State::Offering(file) => {
                    let id = file.id();
                    let offer = SnapshotOffer {
                        transfer: self.transfer,
                        index: id.index,
                        term: id.term,
                        bytes: id.bytes,
                        crc: id.crc,
                    };
                    if !is_queued(send(Frame::SnapshotOffer(offer)))? {
                        return Ok(false);
                    }
                    self.progress_at = means.now;
                    State::Offered(Arc::clone(file))
                }
                State::Offered(_) => return Ok(false),
                State::Streaming(stream) => {
                    if !stream.advance(self.transfer, &mut means, send)? {
                        return Ok(false);
                    }
                    State::Delivering
                }
                State::Delivering => {
                    return is_queued(send(Frame::Raft(vec![self.message.clone()])));
                }
                State::Doubted(task) => {
                    return match outcome_of(task)? {
                        None => Ok(false),
                        Some(()) => Err(SendFailure::Rejected(SnapshotRejectReason::Damaged)),
                    };
                }
            };
        }
    }

    fn next_poll(&self, limits: &TransferLimits, pace: &Pace, now: Instant) -> Option<Instant> {
        let again = now + limits.send_again;
        let by_itself = match &self.state {
            State::Paused(until) => return Some(*until),
            State::Offering(_) | State::Delivering => Some(again),
            State::Streaming(stream) if stream.waits_for_ack(limits) => None,
            State::Streaming(stream) if stream.reading.is_some() => None,
            State::Streaming(_) => Some(pace.wait_until(now).unwrap_or(again)),
            State::Opening(_) | State::Offered(_) | State::Doubted(_) => None,
        };
        let stalled = self.progress_at + limits.stall_limit;
        Some(by_itself.map_or(stalled, |at| at.min(stalled)))
    }
}

impl Stream {
    fn new(file: Arc<RawSnapshotReader>, offset: u64) -> Self {
        Self {
            file,
            sent: offset,
            acked: offset,
            reading: None,
            chunk: None,
            is_done: false,
        }
    }

    /// Reads and sends what may leave now; whether the receiver has everything.
    fn advance(
        &mut self,
        transfer: u64,
        means: &mut TransferContext<'_>,
        send: &mut dyn FnMut(Frame) -> Result<(), SendError>,
    ) -> Result<bool, SendFailure> {
        let bytes = self.file.id().bytes;
        while self.sent < bytes {
            if let Some(task) = &self.reading {
                let Some(chunk) = outcome_of(task)? else {
                    return Ok(false);
                };
                self.reading = None;
                self.chunk = Some(chunk);
            }
            let Some(data) = self.chunk.clone() else {
                self.read(means);
                continue;
            };
            if self.waits_for_ack(means.limits) || means.pace.wait_until(means.now).is_some() {
                return Ok(false);
            }
            let length = data.len();
            let chunk = SnapshotChunk {
                transfer,
                offset: self.sent,
                data,
            };
            if !is_queued(send(Frame::SnapshotChunk(chunk)))? {
                return Ok(false);
            }
            means.pace.spend(means.now, length);
            self.chunk = None;
            self.sent += length as u64;
        }
        if !self.is_done {
            self.is_done = is_queued(send(Frame::SnapshotDone(SnapshotDone { transfer })))?;
        }
        Ok(self.is_done && self.acked == bytes)
    }

    fn read(&mut self, means: &mut TransferContext<'_>) {
        let (file, offset, most) = (Arc::clone(&self.file), self.sent, means.limits.chunk_bytes);
        let read = move || file.read(offset, most);
        self.reading = Some(Task::start(means.worker, read));
    }

    /// Whether the next chunk would exceed what may be on its way; one chunk always may.
    fn waits_for_ack(&self, limits: &TransferLimits) -> bool {
        let next = self.chunk.as_ref().map_or(0, Bytes::len) as u64;
        let unacked = self.sent - self.acked;
        let is_complete = self.sent == self.file.id().bytes && self.is_done;
        unacked > 0 && (is_complete || unacked + next > limits.window_bytes as u64)
    }
}

/// The outcome of work on this server's own file, if there is one.
fn outcome_of<T: Send + 'static>(
    task: &Task<Result<T, WalError>>,
) -> Result<Option<T>, SendFailure> {
    match task.poll() {
        Progress::Pending => Ok(None),
        Progress::Done(Ok(outcome)) => Ok(Some(outcome)),
        Progress::Done(Err(error)) => Err(SendFailure::Unreadable(error.to_string())),
        Progress::Lost => Err(SendFailure::Unreadable(
            "its thread has ended early".to_owned(),
        )),
    }
}

/// Whether a frame was queued. One that found no room is sent again later.
fn is_queued(sent: Result<(), SendError>) -> Result<bool, SendFailure> {
    match sent {
        Ok(()) => Ok(true),
        Err(SendError::Full) => Ok(false),
        Err(_) => Err(SendFailure::Disconnected),
    }
}
