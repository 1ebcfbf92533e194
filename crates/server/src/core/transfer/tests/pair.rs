//! A sender, a receiver, and what is between them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_consensus::{Membership, MessageKind, PeerMessage, SnapshotPoint};
use baton_peers::codec::{Frame, FrameError, Pieces, Stage, take_frame};
use baton_peers::net::SendError;
use baton_tree::Tree;
use baton_wal::testing::FaultStorage;
use baton_wal::{
    Entry, HardState, Record, SnapshotInfo, SnapshotMeta, SnapshotStore, Storage, Wal, WalError,
    WalOptions,
};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use crate::core::disk_worker::{DiskWorker, InlineWorker, Job};
use crate::core::transfer::{EndedTransfer, Incoming, Outgoing, Received, TransferLimits};

pub(super) const LEADER: u64 = 1;
pub(super) const FOLLOWER: u64 = 2;
pub(super) const TERM: u64 = 3;

pub(super) fn wal_options() -> WalOptions {
    WalOptions {
        cluster_id: Some(7),
        segment_bytes: 4096,
        extend_bytes: 4096,
        keep_snapshots: 2,
    }
}

/// Small chunks, so that a small file has several; two of them on their way.
pub(super) fn limits() -> TransferLimits {
    TransferLimits {
        chunk_bytes: 32,
        window_bytes: 64,
        unstored_bytes: 64,
        bytes_per_second: 0,
        ..TransferLimits::default()
    }
}

pub(super) fn members(ids: &[u64]) -> Membership {
    Membership {
        voters: ids.to_vec(),
        ..Membership::default()
    }
}

pub(super) fn open(disk: &FaultStorage) -> Result<Wal, WalError> {
    Wal::open(Arc::new(disk.clone()), wal_options()).map(|(wal, _)| wal)
}

/// Appends entries up to `last`, all committed.
pub(super) fn fill(wal: &mut Wal, last: u64) {
    let first = wal.last_index() + 1;
    if first == 1 {
        let state = HardState {
            term: TERM,
            vote: 1,
        };
        wal.append(&[Record::HardState(state)]).unwrap();
    }
    for index in first..=last {
        let entry = Entry {
            index,
            term: TERM,
            kind: 1,
            payload: Bytes::from(vec![7; 40]),
        };
        wal.append(&[Record::Entry(entry), Record::Commit { index }])
            .unwrap();
        wal.sync().unwrap();
    }
}

/// Writes a snapshot of the log's end. Files with another time differ.
pub(super) fn save(wal: &mut Wal, membership: &Membership, time_ms: i64) -> SnapshotPoint {
    save_tree(wal, membership, time_ms, &mut Tree::new())
}

pub(super) fn save_tree(
    wal: &mut Wal,
    membership: &Membership,
    time_ms: i64,
    tree: &mut Tree,
) -> SnapshotPoint {
    let point = SnapshotPoint {
        index: wal.last_index(),
        term: TERM,
        membership: membership.clone(),
    };
    let mut writer = wal
        .snapshots()
        .writer(SnapshotMeta {
            index: point.index,
            term: point.term,
            zxid: 0,
            time_ms,
            membership: membership.encode(),
        })
        .unwrap();
    tree.begin_snapshot().unwrap();
    while let Some(chunk) = tree.snapshot_slice(64 << 10) {
        writer.chunk(0, &chunk).unwrap();
    }
    let info = writer.finish().unwrap();
    wal.snapshot_saved(&info).unwrap();
    wal.sync().unwrap();
    point
}

pub(super) fn message(to: u64, point: &SnapshotPoint) -> PeerMessage {
    PeerMessage {
        kind: MessageKind::Snapshot,
        from: LEADER,
        to,
        term: TERM,
        log_term: 0,
        index: 0,
        commit: 0,
        commit_term: 0,
        request_snapshot: 0,
        reject: false,
        reject_hint: 0,
        context: Bytes::new(),
        entries: Vec::new(),
        snapshot: Some(point.clone()),
    }
}

/// A worker whose jobs the test runs.
#[derive(Clone, Default)]
pub(super) struct HeldWorker(Arc<Mutex<VecDeque<Job>>>);

impl HeldWorker {
    /// Runs the oldest job that waits, if there is one.
    pub(super) fn run_one(&self) -> bool {
        let job = self.0.lock().pop_front();
        job.map(|job| job()).is_some()
    }

    pub(super) fn waiting(&self) -> usize {
        self.0.lock().len()
    }
}

impl fmt::Debug for HeldWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldWorker")
    }
}

impl DiskWorker for HeldWorker {
    fn run(&mut self, job: Job) {
        self.0.lock().push_back(job);
    }
}

/// The same frame, after it was on the wire.
pub(super) fn over_the_wire(frame: &Frame) -> Result<Frame, FrameError> {
    let mut pieces = Pieces::new();
    frame.encode(&mut pieces)?;
    let mut bytes = BytesMut::from(&*pieces.take().concat());
    let (kind, body) = take_frame(&mut bytes, Stage::Lane(frame.lane()))?.unwrap();
    Frame::decode(kind, body)
}

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) leader: Wal,
    pub(super) leader_disk: FaultStorage,
    pub(super) follower: Wal,
    pub(super) follower_disk: FaultStorage,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// Index that the follower has committed by itself.
    pub(super) committed: u64,
    /// On the way to the follower, and to the leader.
    pub(super) down: VecDeque<Frame>,
    pub(super) up: VecDeque<Frame>,
    pub(super) is_connected: bool,
    /// Frames that have room in each direction.
    pub(super) room: usize,
    pub(super) ended: Vec<EndedTransfer>,
    /// Snapshot messages that have come to the follower.
    pub(super) messages: Vec<PeerMessage>,
    /// Bytes of chunks that were sent.
    pub(super) chunk_bytes: u64,
}

impl Pair {
    /// A leader with a snapshot of entry 20, and a follower with five entries.
    pub(super) fn new() -> (Pair, SnapshotPoint) {
        let leader_disk = FaultStorage::new();
        let mut leader = open(&leader_disk).unwrap();
        fill(&mut leader, 20);
        let point = save(&mut leader, &members(&[1, 2, 3]), 0);
        let follower_disk = FaultStorage::new();
        let mut follower = open(&follower_disk).unwrap();
        fill(&mut follower, 5);
        let pair = Pair {
            now: Instant::now(),
            outgoing: Outgoing::new(leader.snapshots(), limits(), Box::new(InlineWorker)),
            incoming: incoming(follower.snapshots()),
            follower,
            leader,
            leader_disk,
            follower_disk,
            committed: 5,
            down: VecDeque::new(),
            up: VecDeque::new(),
            is_connected: true,
            room: usize::MAX,
            ended: Vec::new(),
            messages: Vec::new(),
            chunk_bytes: 0,
        };
        (pair, point)
    }

    pub(super) fn begin(&mut self, point: &SnapshotPoint) {
        self.outgoing.begin(message(FOLLOWER, point), self.now);
    }

    /// The sender does what it can.
    pub(super) fn poll_sender(&mut self) {
        let (is_connected, room) = (self.is_connected, self.room);
        let (down, chunk_bytes) = (&mut self.down, &mut self.chunk_bytes);
        let ended = self.outgoing.poll(self.now, &mut |to, frame| {
            assert_eq!(to, FOLLOWER);
            if !is_connected {
                return Err(SendError::NotConnected);
            }
            if down.len() >= room {
                return Err(SendError::Full);
            }
            if let Frame::SnapshotChunk(chunk) = &frame {
                *chunk_bytes += chunk.data.len() as u64;
            }
            down.push_back(over_the_wire(&frame).unwrap());
            Ok(())
        });
        self.ended.extend(ended);
    }

    /// The receiver does what it can.
    pub(super) fn poll_receiver(&mut self) {
        let (is_connected, room) = (self.is_connected, self.room);
        let up = &mut self.up;
        self.incoming
            .poll(self.now, self.committed, &mut |to, frame| {
                assert_eq!(to, LEADER);
                if !is_connected {
                    return Err(SendError::NotConnected);
                }
                if up.len() >= room {
                    return Err(SendError::Full);
                }
                up.push_back(over_the_wire(&frame).unwrap());
                Ok(())
            });
    }

    /// One frame arrives in one direction; whether there was one.
    pub(super) fn deliver(&mut self, to: u64) -> bool {
        if to == LEADER {
            let frame = self.up.pop_front();
            if let Some(frame) = &frame {
                self.outgoing.frame(FOLLOWER, frame, self.now);
            }
            return frame.is_some();
        }
        match self.down.pop_front() {
            None => false,
            Some(Frame::Raft(messages)) => {
                self.messages.extend(messages);
                true
            }
            Some(frame) => {
                self.incoming.frame(LEADER, frame, self.committed, self.now);
                true
            }
        }
    }

    /// Both sides do what they can until nothing is left to do at this time.
    pub(super) fn settle(&mut self) {
        loop {
            self.poll_sender();
            self.poll_receiver();
            let down = self.deliver(FOLLOWER);
            let up = self.deliver(LEADER);
            if !down && !up && self.down.is_empty() && self.up.is_empty() {
                self.poll_receiver();
                self.poll_sender();
                if self.down.is_empty() && self.up.is_empty() {
                    return;
                }
            }
        }
    }

    /// The connection ends, with everything that is on it.
    pub(super) fn disconnect(&mut self) {
        self.down.clear();
        self.up.clear();
        self.outgoing.gone(FOLLOWER);
        self.incoming.gone(LEADER);
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    /// The only outcome so far.
    pub(super) fn outcome(&mut self) -> EndedTransfer {
        let ended = std::mem::take(&mut self.ended);
        assert_eq!(ended.len(), 1, "{ended:?}");
        assert_eq!(ended[0].to, FOLLOWER);
        ended[0].clone()
    }

    /// Takes the message that has come and its snapshot, if the follower may install it.
    pub(super) fn take(&mut self) -> Option<Received> {
        let message = self.messages.pop()?;
        let point = message.snapshot.unwrap();
        if !self.incoming.admits(&point, self.committed) {
            return None;
        }
        self.incoming.take(&point)
    }

    /// Files of transfers in the follower's folder.
    pub(super) fn left_behind(&self) -> Vec<String> {
        let mut names = self.follower_disk.list().unwrap();
        names.retain(|name| name.starts_with("recv-"));
        names
    }
}

pub(super) fn incoming(store: SnapshotStore) -> Incoming {
    Incoming::new(FOLLOWER, store, limits(), Box::new(InlineWorker))
}

/// Installs a received snapshot, as the log thread does.
pub(super) fn install(wal: &mut Wal, info: &SnapshotInfo) -> Result<SnapshotInfo, WalError> {
    wal.append_received(info)?;
    wal.sync()?;
    wal.finish_received(info)
}

/// Runs a transfer up to its `at`th frame, in either direction; whether it went so far.
pub(super) fn run_to_frame(pair: &mut Pair, at: usize) -> bool {
    for number in 0..=at {
        let mut idle = 0;
        loop {
            pair.poll_sender();
            pair.poll_receiver();
            let is_at = number == at && (!pair.down.is_empty() || !pair.up.is_empty());
            if is_at {
                return true;
            }
            if pair.deliver(FOLLOWER) || pair.deliver(LEADER) {
                break;
            }
            idle += 1;
            if idle > 3 {
                return false;
            }
        }
    }
    false
}
