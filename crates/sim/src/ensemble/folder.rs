//! What a node's folder holds besides the log itself: the snapshot that a cluster is born with, and
//! those that come from other nodes.

use baton_consensus::Membership;
use baton_tree::{Restore, Tree};
use baton_wal::testing::FaultStorage;
use baton_wal::{SnapshotInfo, SnapshotStore, WalError, WalOptions};

use super::image::{LogImage, Written};
use super::network::Envelope;
use crate::birth::{BORN_INDEX, BORN_TERM, write_birth};

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

/// A folder with the snapshot that a cluster is born with.
pub(crate) fn born(disk: &FaultStorage, membership: &Membership) -> Result<LogImage, WalError> {
    write_birth(disk, wal_options(), membership)?;
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
