//! From a data folder to a tree: the newest snapshot, then the log. Refuses whatever does not fit
//! together; never repairs.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use baton_consensus::{
    Config, Consensus, Entry, EntryKind, HardState, Membership, MembershipChange, Recovered,
    SnapshotPoint,
};
use baton_tree::{Batch, Executor, Piece, Restore, Tree};
use baton_wal::{
    Recovered as WalRecovered, RecoveryNote, SnapshotInfo, SnapshotReader, Storage, Wal, WalError,
    WalOptions,
};

use crate::core::start::starting::{Stage, Starting};
use crate::error::ServerError;
use crate::state::hash_seed;

/// This node's number in the group of one.
pub(crate) const NODE_ID: u64 = 1;

/// Chunks of a snapshot that are read ahead.
const CHUNKS_AHEAD: usize = 16;

/// State that a core starts from.
pub(crate) struct Begun {
    pub(crate) tree: Tree,
    pub(crate) consensus: Consensus,
    pub(crate) wal: Wal,
    /// The entry up to which the newest snapshot goes; 0 without one.
    pub(crate) snapshot_index: u64,
    /// The newest snapshot's zxid, and the wall clock when it was begun; zeros without one.
    pub(crate) snapshot: (i64, i64),
}

/// Content of a data folder.
pub(crate) struct Restored {
    /// Tree of the newest snapshot.
    pub(crate) tree: Tree,
    /// Every entry after it.
    pub(crate) entries: Vec<Entry>,
    /// Findings that recovery passed over or could not decide.
    pub(crate) notes: Vec<RecoveryNote>,
    snapshot: Option<SnapshotPoint>,
    hard_state: HardState,
    commit: u64,
    wal: Wal,
    snapshot_zxid: i64,
    snapshot_ms: i64,
}

/// Opens the log and restores the newest snapshot. The entries after it come out of consensus.
pub(crate) fn recover(
    storage: Arc<dyn Storage>,
    options: WalOptions,
    starting: &Starting,
) -> Result<Begun, ServerError> {
    let restored = restore(storage, options, starting)?;
    begin(restored, &Config::sole_voter(NODE_ID))
}

/// Does the work of [`recover`] on a member's log that is open.
pub(crate) fn recover_member(
    opened: (Wal, WalRecovered),
    config: &Config,
    starting: &Starting,
) -> Result<Begun, ServerError> {
    begin(restore_opened(opened, starting)?, config)
}

fn begin(restored: Restored, config: &Config) -> Result<Begun, ServerError> {
    let snapshot_index = restored.snapshot.as_ref().map_or(0, |point| point.index);
    let consensus = Consensus::new(
        config,
        Recovered {
            snapshot: restored.snapshot,
            hard_state: restored.hard_state,
            commit: restored.commit,
            entries: restored.entries,
        },
    )?;
    Ok(Begun {
        tree: restored.tree,
        consensus,
        wal: restored.wal,
        snapshot_index,
        snapshot: (restored.snapshot_zxid, restored.snapshot_ms),
    })
}

/// Opens the log and restores the newest snapshot.
pub(crate) fn restore(
    storage: Arc<dyn Storage>,
    options: WalOptions,
    starting: &Starting,
) -> Result<Restored, ServerError> {
    starting.enter(Stage::ReadLog);
    restore_opened(Wal::open(storage, options)?, starting)
}

/// Does the work of [`restore`] on a log that is open.
pub(crate) fn restore_opened(
    (wal, mut recovered): (Wal, WalRecovered),
    starting: &Starting,
) -> Result<Restored, ServerError> {
    for note in &recovered.notes {
        tracing::warn!("recovery: {note}");
    }
    let snapshots = wal.snapshots();
    let entries = std::mem::take(&mut recovered.entries);
    let open = |name: &str| snapshots.reader(name);
    let content = Content::read(recovered.snapshot.as_ref(), entries, open, starting)?;
    starting.found(|found| {
        if let Some(info) = &recovered.snapshot {
            found.snapshot_index = info.meta.index;
            found.snapshot_zxid = info.meta.zxid;
        }
        found.log_entries = content.entries.len() as u64;
        found.torn_bytes = recovered.notes.iter().map(torn_bytes).sum();
    });
    let meta = recovered.snapshot.as_ref().map(|info| &info.meta);
    let (snapshot_zxid, snapshot_ms) = meta.map_or((0, 0), |meta| (meta.zxid, meta.time_ms));
    Ok(Restored {
        tree: content.tree,
        entries: content.entries,
        notes: recovered.notes,
        snapshot: content.snapshot,
        hard_state: HardState {
            term: recovered.hard_state.term,
            vote: recovered.hard_state.vote,
        },
        commit: recovered.commit,
        wal,
        snapshot_zxid,
        snapshot_ms,
    })
}

/// Content of a folder's snapshot and log, as far as this version can read it.
struct Content {
    /// State at the snapshot.
    tree: Tree,
    snapshot: Option<SnapshotPoint>,
    /// Every entry after it.
    entries: Vec<Entry>,
}

impl Content {
    /// Reads all that a start needs, and changes nothing: a folder whose content this version
    /// cannot read is refused before anything is written to it.
    fn read(
        found: Option<&SnapshotInfo>,
        entries: Vec<baton_wal::Entry>,
        open: impl FnOnce(&str) -> Result<SnapshotReader, WalError>,
        starting: &Starting,
    ) -> Result<Self, ServerError> {
        let (restored, entries) = thread::scope(|scope| {
            // The other cores have the snapshot to read.
            let entries = scope.spawn(|| checked(entries));
            let restored = found.map(|info| {
                starting.load(info.content_bytes);
                let tree = restored_tree(open(&info.name)?, &info.name, starting)?;
                let point = SnapshotPoint {
                    index: info.meta.index,
                    term: info.meta.term,
                    membership: Membership::decode(&info.meta.membership)?,
                };
                Ok::<_, ServerError>((tree, point))
            });
            let entries = entries.join().unwrap_or_else(|panic| resume_unwind(panic));
            (restored.transpose(), entries)
        });
        let (mut tree, snapshot) = match restored? {
            Some((tree, point)) => (tree, Some(point)),
            None => (Tree::seeded(hash_seed()), None),
        };
        let (entries, growth) = entries?;
        tree.reserve(usize::try_from(growth).unwrap_or(0));
        Ok(Self {
            tree,
            snapshot,
            entries,
        })
    }
}

/// The entries of the log, all of which this version can apply, and the number of znodes that they
/// add.
fn checked(stored: Vec<baton_wal::Entry>) -> Result<(Vec<Entry>, i64), ServerError> {
    let mut growth = 0;
    let mut entries = Vec::with_capacity(stored.len());
    for entry in stored {
        let entry = Entry::from_stored(entry.index, entry.term, entry.kind, entry.payload)?;
        growth += check(&entry)?;
        entries.push(entry);
    }
    Ok((entries, growth))
}

/// Returns by how many znodes an entry lets the tree grow, if this version can apply it.
fn check(entry: &Entry) -> Result<i64, ServerError> {
    let index = entry.index;
    let growth = |payload: &[u8]| match Batch::decode(payload) {
        Ok(batch) => Ok(batch.growth()),
        Err(source) => Err(ServerError::Entry { index, source }),
    };
    match entry.kind {
        EntryKind::Noop => Ok(0),
        EntryKind::Command => growth(&entry.payload),
        EntryKind::Configuration => {
            let change = MembershipChange::decode(&entry.payload)?;
            match change.context.is_empty() {
                true => Ok(0),
                false => growth(&change.context),
            }
        }
    }
}

/// Whether a start could go on from what a folder's files contain, which are whole: this version
/// reads the newest snapshot, and can apply every entry behind it. Changes nothing.
///
/// # Errors
/// [`ServerError`], as the start gives it.
pub(crate) fn check_content(
    storage: &dyn Storage,
    recovered: &WalRecovered,
) -> Result<(), ServerError> {
    let cluster = recovered.cluster_id;
    let open = |name: &str| SnapshotReader::open(storage, name, Some(cluster));
    let (found, entries) = (recovered.snapshot.as_ref(), recovered.entries.clone());
    Content::read(found, entries, open, &Starting::default()).map(drop)
}

/// The tree that a snapshot contains. One thread reads and verifies chunks ahead of the one that
/// builds the tree.
fn restored_tree(
    mut reader: SnapshotReader,
    name: &str,
    starting: &Starting,
) -> Result<Tree, ServerError> {
    let mut restore = Restore::seeded(hash_seed());
    let refused = |source| ServerError::Snapshot {
        name: name.to_owned(),
        source,
    };
    thread::scope(|scope| {
        let (ahead, chunks) = crossbeam_channel::bounded(CHUNKS_AHEAD);
        scope.spawn(move || {
            while let Some(chunk) = reader.next_chunk().transpose() {
                let is_last = chunk.is_err();
                if ahead.send(chunk).is_err() || is_last {
                    break;
                }
            }
        });
        for chunk in chunks {
            let chunk = chunk?.payload;
            restore.chunk(&chunk).map_err(refused)?;
            starting.loaded(chunk.len());
        }
        Ok::<_, ServerError>(())
    })?;
    restore.finish_on(&AllCores).map_err(refused)
}

/// Runs work on as many threads as there are cores.
#[derive(Debug)]
struct AllCores;

impl Executor for AllCores {
    fn width(&self) -> usize {
        thread::available_parallelism().map_or(1, NonZero::get)
    }

    fn run(&self, pieces: Vec<Piece<'_>>) {
        thread::scope(|scope| {
            for piece in pieces {
                scope.spawn(piece);
            }
        });
    }
}

/// The bytes of a torn write that the note is about.
fn torn_bytes(note: &RecoveryNote) -> u64 {
    match note {
        RecoveryNote::TornTail { bytes, .. } => *bytes,
        _ => 0,
    }
}
