//! Takes a data folder into use: makes a new one, clears what was left unfinished, and brings the
//! last segment into the state that the next record relies on. Everything here happens once, before
//! the log is handed out.

use crate::end_mark::{self, EndMark};
use crate::error::WalError;
use crate::file_names::{self, MARKER_FILE, received_point, segment_name, snapshot_name};
use crate::marker;
use crate::options::WalOptions;
use crate::recover::{self, LogEnd};
use crate::segment::{self, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::snapshot::{self, SnapshotInfo};
use crate::storage::{Access, Storage, StorageFile};
use crate::whole_file;

/// The folder's cluster; makes a new folder a data folder. The marker comes last, so that a marked
/// folder always has a segment and an end mark.
pub(crate) fn open(storage: &dyn Storage, options: &WalOptions) -> Result<u64, WalError> {
    if let Some(found) = marker::read(storage)? {
        if let Some(expected) = options.cluster_id.filter(|expected| *expected != found) {
            return Err(WalError::WrongCluster {
                file: storage.location(MARKER_FILE),
                found,
                expected,
            });
        }
        return Ok(found);
    }
    let missing_marker = || WalError::MissingMarker {
        folder: storage.location(""),
        marker: MARKER_FILE,
    };
    let marked = end_mark::newest(storage)?;
    let (cluster_id, header_crc) = match recover::sequences(storage)?.as_slice() {
        _ if !snapshot::names(storage)?.is_empty() => return Err(missing_marker()),
        [] if marked.is_none() => {
            let cluster_id = options.cluster_id.unwrap_or_else(draw_cluster_id);
            let header = SegmentHeader {
                cluster_id,
                sequence: 1,
                first_index: 1,
                previous_chain: 0,
                extend_bytes: u32::try_from(options.extend_bytes).unwrap_or(u32::MAX),
            };
            let (header, crc) = header.encode();
            whole_file::write_atomically(storage, &segment_name(1), &header)?;
            (cluster_id, crc)
        }
        // A start that was cut off between the first segment and the marker: no record was ever
        // written.
        [1] => {
            let first = segment::Segment::load(storage, &segment_name(1))?;
            let new = EndMark::of_new(first.header.cluster_id, first.header_crc());
            if first.content.len() > SEGMENT_HEADER_BYTES
                || marked.is_some_and(|found| found.mark != new)
            {
                return Err(missing_marker());
            }
            (first.header.cluster_id, first.header_crc())
        }
        _ => return Err(missing_marker()),
    };
    end_mark::create(storage, &EndMark::of_new(cluster_id, header_crc))?;
    marker::write(storage, cluster_id)?;
    Ok(cluster_id)
}

/// A number that no other folder has; the standard library's per-process random keys are the
/// source.
fn draw_cluster_id() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish().max(1)
}

/// Removes what an earlier process did not finish.
pub(crate) fn remove_unfinished(storage: &dyn Storage) -> Result<(), WalError> {
    let names = storage
        .list()
        .map_err(|error| WalError::io("list", storage.location(""), error))?;
    for name in names.iter().filter(|name| file_names::is_unfinished(name)) {
        storage
            .remove(name)
            .map_err(|error| WalError::io("remove", storage.location(name), error))?;
    }
    Ok(())
}

/// Ends the installation of a received snapshot that a crash has cut off: the one that recovery has
/// chosen, since the log has its mark, gets its own name, and any other is discarded. To be called
/// once the mark is durable.
pub(crate) fn settle_received(
    storage: &dyn Storage,
    chosen: Option<&mut SnapshotInfo>,
) -> Result<(), WalError> {
    if let Some(info) = chosen
        && received_point(&info.name).is_some()
    {
        let name = snapshot_name(info.meta.index, info.meta.term);
        name_received(storage, &info.name, &name)?;
        info.name = name;
    }
    for name in snapshot::received_names(storage)? {
        storage
            .remove(&name)
            .map_err(|error| WalError::io("remove", storage.location(&name), error))?;
    }
    Ok(())
}

/// Gives a received snapshot the name of one of our own, durably.
pub(crate) fn name_received(storage: &dyn Storage, from: &str, to: &str) -> Result<(), WalError> {
    storage
        .rename(from, to)
        .map_err(|error| WalError::io("rename", storage.location(from), error))?;
    storage
        .sync_dir()
        .map_err(|error| WalError::io("sync", storage.location(""), error))
}

/// Opens the last segment for writing, and makes what was read from it durable before anything
/// builds on it: the last process may have been killed between a write and its sync, or after a
/// sync that failed, when the system gives back bytes that the disk does not have. So the last
/// write is written again, and zeros behind it up to the length that the next record vouches for:
/// what a crash tore could come back to life behind a new record.
pub(crate) fn continue_segment(
    storage: &dyn Storage,
    end: &LogEnd,
) -> Result<(Box<dyn StorageFile>, u64), WalError> {
    let failed =
        |action| move |error| WalError::io(action, storage.location(&end.segment_name), error);
    let file = storage
        .open(&end.segment_name, Access::Write)
        .map_err(failed("open"))?;
    let step = u64::from(end.segment_step);
    let mut allocated = end.segment_bytes;
    if allocated > SEGMENT_HEADER_BYTES as u64 {
        allocated = allocated.max(u64::from(end.offset)).next_multiple_of(step);
    }
    let (start, last_write) = &end.last_write;
    file.write_at(u64::from(*start), last_write)
        .map_err(failed("write"))?;
    let zeros = vec![0; 1 << 20];
    let mut at = u64::from(end.offset);
    while at < allocated {
        let count = (allocated - at).min(zeros.len() as u64);
        let part = zeros
            .get(..usize::try_from(count).unwrap_or(0))
            .unwrap_or_default();
        file.write_at(at, part).map_err(failed("write"))?;
        at += count;
    }
    file.sync_data().map_err(failed("sync"))?;
    storage
        .sync_dir()
        .map_err(|error| WalError::io("sync", storage.location(""), error))?;
    Ok((file, allocated))
}
