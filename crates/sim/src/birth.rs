//! The folder that each first member of a cluster begins with.

use std::sync::Arc;

use baton_consensus::Membership;
use baton_tree::Tree;
use baton_wal::testing::FaultStorage;
use baton_wal::{Record, SnapshotMeta, Wal, WalError, WalOptions};

/// Index and term of the entry that the first membership stands for.
pub(crate) const BORN_INDEX: u64 = 1;
pub(crate) const BORN_TERM: u64 = 1;

/// Writes the snapshot that a cluster is born with: the agreed members at an index that no entry
/// has. With index 0 in its place the engine would send a new member the log from its first entry
/// on, which does not say who the first members are.
pub(crate) fn write_birth(
    disk: &FaultStorage,
    options: WalOptions,
    membership: &Membership,
) -> Result<(), WalError> {
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), options)?;
    let mut writer = wal.snapshots().receiver(SnapshotMeta {
        index: BORN_INDEX,
        term: BORN_TERM,
        zxid: 0,
        time_ms: 0,
        membership: membership.encode(),
    })?;
    let mut tree = Tree::new();
    if tree.begin_snapshot().is_ok() {
        while let Some(chunk) = tree.snapshot_slice(1 << 16) {
            writer.chunk(0, &chunk)?;
        }
    }
    let received = writer.finish()?;
    wal.append_received(&received)?;
    wal.append(&[Record::HardState(baton_wal::HardState {
        term: BORN_TERM,
        vote: 0,
    })])?;
    wal.sync()?;
    wal.finish_received(&received)?;
    Ok(())
}
