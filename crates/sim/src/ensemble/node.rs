//! One node: its disk, what it has promised, and its process while it runs.

use std::collections::{BTreeMap, VecDeque};

use baton_consensus::{
    Consensus, Entry, HardState, Membership, PeerMessage, PersistToken, ReadId, SnapshotPoint,
};
use baton_tree::Tree;
use baton_wal::testing::FaultStorage;
use baton_wal::{Record, SnapshotInfo, Wal, WalError};

use super::image::{LogImage, Written, content_of};
use super::network::Envelope;
use super::proofs::NodeProofs;

/// Why a node waits for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It is no member any more.
    Removed,
    /// It was informed that entries of its log are lost.
    LostLog,
}

/// A copy of a folder.
#[derive(Debug)]
pub(crate) struct FolderCopy {
    pub(crate) disk: FaultStorage,
    pub(crate) image: LogImage,
    pub(crate) incarnation: u128,
}

/// What a restart of a seeded bug believes in.
#[derive(Debug)]
pub(crate) struct Belief {
    pub(crate) membership: Membership,
    /// Up to here, changes are not applied again.
    pub(crate) up_to: u64,
}

/// A node. Its folder and its promises outlive its process.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) incarnation: u128,
    pub(crate) disk: FaultStorage,
    /// What the disk must give back.
    pub(crate) image: LogImage,
    /// Other states that it may give back, if the process ended within a write.
    pub(crate) candidates: Vec<LogImage>,
    /// What this node had on disks that are gone.
    pub(crate) lost: Vec<LogImage>,
    /// Entries that it has acknowledged to others: index and term.
    pub(crate) acknowledged: BTreeMap<u64, u64>,
    /// Term, and vote in it, that others know of.
    pub(crate) promised: (u64, u64),
    /// The newest committed entry that it had before its folder was rolled back, until it has
    /// received that again.
    pub(crate) forgotten: Option<u64>,
    /// Whether its folder was rolled back at any time. What it receives again may not be durable
    /// when the next copy is put back.
    pub(crate) was_rolled_back: bool,
    /// Up to this term it may have given votes that its folder does not have.
    pub(crate) forgotten_term: u64,
    pub(crate) stopped: Option<Stopped>,
    /// Whether it is not needed at the end of the run.
    pub(crate) stays_down: bool,
    /// Its clock, in millionths that it runs fast.
    pub(crate) rate_ppm: i64,
    pub(crate) life: u64,
    pub(crate) pauses: u64,
    pub(crate) is_paused: bool,
    /// Until when its syncs take long.
    pub(crate) stalled_until_us: u64,
    /// Whether errors of the disk are planned.
    pub(crate) disk_breaks: bool,
    pub(crate) copy: Option<FolderCopy>,
    /// Entries as it last had them in its log.
    pub(crate) entries: BTreeMap<u64, Entry>,
    /// Its membership, applied index and newest snapshot as of the end of its last process.
    pub(crate) last_membership: Membership,
    pub(crate) last_applied: u64,
    pub(crate) last_snapshot: u64,
    /// Entries that were replaced by others (seeded bug B20).
    pub(crate) replaced: BTreeMap<u64, Entry>,
    pub(crate) belief: Option<Belief>,
    pub(crate) process: Option<Box<Process>>,
}

/// What one drain has handed out to be stored, and what follows from it.
#[derive(Debug)]
pub(crate) struct Batch {
    /// `None`: nothing waits for it.
    pub(crate) token: Option<PersistToken>,
    pub(crate) append: Vec<Entry>,
    pub(crate) hard_state: Option<HardState>,
    pub(crate) commit: Option<u64>,
    pub(crate) install: Option<Box<Received>>,
    pub(crate) send: Vec<PeerMessage>,
    /// Whether it is in the log's buffer already.
    pub(crate) is_appended: bool,
}

/// A snapshot from another node, durable, with the tree that was built from it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) info: SnapshotInfo,
    pub(crate) tree: Tree,
}

/// A snapshot of our own that is being written.
#[derive(Debug)]
pub(crate) struct OwnSnapshot {
    pub(crate) point: SnapshotPoint,
    pub(crate) zxid: i64,
    pub(crate) chunks: Vec<Vec<u8>>,
}

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) consensus: Consensus,
    pub(crate) wal: Wal,
    pub(crate) tree: Tree,
    pub(crate) applied: u64,
    /// The log as it will be once everything handed out is synced.
    pub(crate) log: LogImage,
    pub(crate) queue: VecDeque<Batch>,
    /// What the log task is syncing.
    pub(crate) in_flight: Vec<Batch>,
    /// A commit index that goes with the next batch.
    pub(crate) commit_hint: Option<u64>,
    /// A snapshot that is being received.
    pub(crate) receiving: Option<Envelope>,
    /// One that is durable, and that consensus has not asked for yet.
    pub(crate) received: Option<Box<Received>>,
    pub(crate) own_snapshot: Option<OwnSnapshot>,
    pub(crate) snapshot_index: u64,
    pub(crate) wants_snapshot: bool,
    /// Knowledge of what was acknowledged and committed elsewhere.
    pub(crate) proofs: NodeProofs,
    /// Snapshots on their way, by receiver, and the connection that carries each.
    pub(crate) shipping: BTreeMap<u64, u64>,
    /// The newest connection from which a message of each peer has come.
    pub(crate) heard: BTreeMap<u64, u64>,
    /// Reads that were begun, and the index that must not be undercut.
    pub(crate) reads: BTreeMap<ReadId, u64>,
    /// The term in which the present joint configuration was entered.
    pub(crate) joint_term: u64,
    /// The newest term, commit index and applied index that were observed.
    pub(crate) observed: (u64, u64, u64),
    /// Up to where committed entries were compared.
    pub(crate) compared: u64,
    /// Up to where seeded bug B03 has applied entries.
    pub(crate) early: u64,
    /// A membership that a seeded bug takes over at once.
    pub(crate) take_over: Option<Belief>,
    /// What came while the process stood still.
    pub(crate) mailbox: Vec<Envelope>,
    pub(crate) missed_ticks: u32,
}

impl Node {
    /// Whether its folder may lack entries, or votes of this term, that others rely on.
    pub(crate) fn forgets(&self, term: u64) -> bool {
        self.forgotten.is_some() || term <= self.forgotten_term
    }
}

impl Batch {
    /// A commit index that no entry comes with.
    pub(crate) fn of_commit(index: u64) -> Batch {
        Batch {
            token: None,
            append: Vec::new(),
            hard_state: None,
            commit: Some(index),
            install: None,
            send: Vec::new(),
            is_appended: false,
        }
    }

    /// The changes of the log in it, for a log that is as `image` says.
    pub(crate) fn written(&self, image: &LogImage) -> Vec<Written> {
        let mut written = Vec::new();
        if let Some(state) = self.hard_state {
            written.push(Written::HardState {
                term: state.term,
                vote: state.vote,
            });
        }
        let mut last = image.last();
        if let Some(received) = &self.install {
            let (index, term) = (received.info.meta.index, received.info.meta.term);
            if last >= index {
                written.push(Written::Truncated { from: index });
            }
            written.push(Written::Installed { index, term });
            last = index;
        }
        for entry in &self.append {
            if entry.index <= last {
                written.push(Written::Truncated { from: entry.index });
            }
            last = entry.index;
            written.push(Written::Entry {
                index: entry.index,
                term: entry.term,
                content: content_of(entry),
            });
        }
        written
    }

    /// Term and vote go first: a torn write then never leaves a shorter log of the same term.
    fn state_record(&self) -> Option<Record> {
        self.hard_state.map(|state| {
            Record::HardState(baton_wal::HardState {
                term: state.term,
                vote: state.vote,
            })
        })
    }

    fn records(&self) -> Vec<Record> {
        let entry = |entry: &Entry| {
            Record::Entry(baton_wal::Entry {
                index: entry.index,
                term: entry.term,
                kind: entry.kind.as_byte(),
                payload: entry.payload.clone(),
            })
        };
        let commit = self.commit.map(|index| Record::Commit { index });
        self.append.iter().map(entry).chain(commit).collect()
    }
}

impl Process {
    /// The log task's work: everything in flight into the log, one sync, then what a received
    /// snapshot needs. May be called again after a full disk.
    pub(crate) fn write_in_flight(&mut self) -> Result<(), WalError> {
        for batch in &mut self.in_flight {
            if batch.is_appended {
                continue;
            }
            if let Some(state) = batch.state_record() {
                self.wal.append(&[state])?;
            }
            if let Some(received) = &batch.install {
                self.wal.append_received(&received.info)?;
            }
            self.wal.append(&batch.records())?;
            batch.is_appended = true;
        }
        self.wal.sync()?;
        for batch in &self.in_flight {
            if let Some(received) = &batch.install {
                self.wal.finish_received(&received.info)?;
            }
        }
        Ok(())
    }

    pub(crate) fn is_installing(&self) -> bool {
        let waiting = self.queue.iter().chain(&self.in_flight);
        self.received.is_some() || waiting.into_iter().any(|batch| batch.install.is_some())
    }
}
