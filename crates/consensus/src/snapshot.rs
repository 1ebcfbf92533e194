//! The point that a snapshot stands for, and the engine's form of it.

use raft::eraftpb;

use crate::error::ConsensusError;
use crate::membership::Membership;

/// The point in the log that a snapshot stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPoint {
    /// The last entry that the snapshot contains.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// The members at that entry.
    pub membership: Membership,
}

/// The engine's snapshot of a point. Its data is the membership record, which knows more than the
/// engine's own list of ids.
pub(crate) fn snapshot_of(point: &SnapshotPoint) -> eraftpb::Snapshot {
    let mut snapshot = eraftpb::Snapshot {
        data: point.membership.encode(),
        ..Default::default()
    };
    let metadata = snapshot.mut_metadata();
    metadata.index = point.index;
    metadata.term = point.term;
    *metadata.mut_conf_state() = point.membership.to_engine();
    snapshot
}

/// The point of an engine's snapshot.
pub(crate) fn point_of(snapshot: &eraftpb::Snapshot) -> Result<SnapshotPoint, ConsensusError> {
    let metadata = snapshot.get_metadata();
    Ok(SnapshotPoint {
        index: metadata.index,
        term: metadata.term,
        membership: Membership::decode(&snapshot.data)?,
    })
}
