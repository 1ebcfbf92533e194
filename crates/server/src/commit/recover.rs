//! From a data folder to a tree: the newest snapshot, then the log. Refuses whatever does not fit
//! together; never repairs.

use std::sync::Arc;

use baton_consensus::{Config, Consensus, Entry, HardState, Membership, Recovered, SnapshotPoint};
use baton_tree::{Restore, Tree};
use baton_wal::{Recovered as WalRecovered, RecoveryNote, Storage, Wal, WalOptions};

use crate::commit::starting::{Stage, Starting};
use crate::error::ServerError;

/// This node's number in the group of one.
pub(crate) const NODE_ID: u64 = 1;

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
    /// As of the newest snapshot.
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

/// As [`recover`], of a member's log that is open.
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

/// As [`restore`], of a log that is open.
pub(crate) fn restore_opened(
    (wal, recovered): (Wal, WalRecovered),
    starting: &Starting,
) -> Result<Restored, ServerError> {
    for note in &recovered.notes {
        tracing::warn!("recovery: {note}");
    }
    let mut snapshot = None;
    let mut tree = Tree::new();
    if let Some(info) = &recovered.snapshot {
        starting.load(info.content_bytes);
        let mut reader = wal.snapshots().reader(&info.name)?;
        let mut restore = Restore::new();
        let refused = |source| ServerError::Snapshot {
            name: info.name.clone(),
            source,
        };
        while let Some(chunk) = reader.next_chunk()? {
            restore.chunk(&chunk.payload).map_err(refused)?;
            starting.loaded(chunk.payload.len());
        }
        tree = restore.finish().map_err(refused)?;
        snapshot = Some(SnapshotPoint {
            index: info.meta.index,
            term: info.meta.term,
            membership: Membership::decode(&info.meta.membership)?,
        });
    }
    starting.found(|found| {
        if let Some(info) = &recovered.snapshot {
            found.snapshot_index = info.meta.index;
            found.snapshot_zxid = info.meta.zxid;
        }
        found.log_entries = recovered.entries.len() as u64;
        found.torn_bytes = recovered.notes.iter().map(torn_bytes).sum();
    });
    let entries = recovered
        .entries
        .into_iter()
        .map(|entry| Entry::from_stored(entry.index, entry.term, entry.kind, entry.payload))
        .collect::<Result<Vec<_>, _>>()?;
    let meta = recovered.snapshot.as_ref().map(|info| &info.meta);
    let (snapshot_zxid, snapshot_ms) = meta.map_or((0, 0), |meta| (meta.zxid, meta.time_ms));
    Ok(Restored {
        tree,
        entries,
        notes: recovered.notes,
        snapshot,
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

/// The bytes of a torn write that the note is about.
fn torn_bytes(note: &RecoveryNote) -> u64 {
    match note {
        RecoveryNote::TornTail { bytes, .. } => *bytes,
        _ => 0,
    }
}
