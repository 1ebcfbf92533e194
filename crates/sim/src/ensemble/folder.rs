//! What a node's folder holds besides the log itself: the snapshot that a cluster is born with, and
//! those that come from other nodes.

use std::sync::Arc;

use baton_consensus::Membership;
use baton_tree::{Restore, Tree};
use baton_wal::testing::FaultStorage;
use baton_wal::{Record, SnapshotInfo, SnapshotMeta, SnapshotStore, Wal, WalError, WalOptions};

use super::image::{LogImage, Written};
use super::network::Envelope;
use super::truth::{BORN_INDEX, BORN_TERM};

/// The cluster of all folders.
pub(crate) const CLUSTER_ID: u64 = 7;

/// How every log here is kept: small segments, two snapshots.
pub(crate) fn wal_options() -> WalOptions {
    WalOptions {
        cluster_id: Some(CLUSTER_ID),
        segment_bytes: 4096,
        extend_bytes: 4096,
        keep_snapshots: 2,
    }
}

/// The tree in a snapshot's file.
pub(crate) fn tree_of(store: &SnapshotStore, name: &str) -> Result<Tree, String> {
    let mut reader = store.reader(name).map_err(|error| error.to_string())?;
    let mut restore = Restore::new();
    while let Some(chunk) = reader.next_chunk().map_err(|error| error.to_string())? {
        restore
            .chunk(&chunk.payload)
            .map_err(|error| error.to_string())?;
    }
    restore.finish().map_err(|error| error.to_string())
}

/// A folder with the snapshot that a cluster is born with: the agreed members at an index that no
/// entry has. With index 0 in its place the engine would send a new member the log from its first
/// entry on, which does not say who the first members are.
pub(crate) fn born(disk: &FaultStorage, membership: &Membership) -> Result<LogImage, WalError> {
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), wal_options())?;
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
    let mut image = LogImage::default();
    image.write(&Written::Installed {
        index: BORN_INDEX,
        term: BORN_TERM,
    });
    image.write(&Written::HardState {
        term: BORN_TERM,
        vote: 0,
    });
    Ok(image)
}

/// Writes a snapshot that has come to a file of its own.
pub(crate) fn write_received(
    store: &SnapshotStore,
    envelope: &Envelope,
) -> Result<Option<SnapshotInfo>, WalError> {
    let Some(content) = &envelope.content else {
        return Ok(None);
    };
    let mut writer = store.receiver(content.meta.clone())?;
    for (kind, chunk) in &content.chunks {
        writer.chunk(*kind, chunk)?;
    }
    writer.finish().map(Some)
}
