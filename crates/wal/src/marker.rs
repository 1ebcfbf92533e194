//! The file that says "this is a data folder, of this format, of this cluster". One line of text,
//! so that a person can read it; a checksum, so that a slip of an editor is noticed.

use crate::error::{WalError, check_version};
use crate::file_names::MARKER_FILE;
use crate::storage::Storage;
use crate::{FORMAT_VERSION, whole_file};

const LONGEST: usize = 256;

/// The cluster that the folder belongs to; `None` when there is no marker.
pub(crate) fn read(storage: &dyn Storage) -> Result<Option<u64>, WalError> {
    let location = storage.location(MARKER_FILE);
    let Some(buffer) = whole_file::read_beginning(storage, MARKER_FILE, LONGEST)? else {
        return Ok(None);
    };
    let malformed = || {
        WalError::corrupt(
            &location,
            0,
            "it is not the marker of a data folder",
            "restore it from a copy of this folder",
        )
    };
    let text = String::from_utf8(buffer).map_err(|_| malformed())?;
    let rest = text
        .strip_prefix("baton-data-folder format=")
        .ok_or_else(malformed)?;
    let (version, _) = rest.split_once(' ').ok_or_else(malformed)?;
    let version: u32 = version.parse().map_err(|_| malformed())?;
    check_version(&location, version)?;
    let cluster = rest
        .split_once("cluster=")
        .and_then(|(_, rest)| rest.split_once(' '))
        .and_then(|(cluster, _)| u64::from_str_radix(cluster, 16).ok())
        .ok_or_else(malformed)?;
    if text != line(cluster) {
        return Err(malformed());
    }
    Ok(Some(cluster))
}

/// Writes the marker durably.
pub(crate) fn write(storage: &dyn Storage, cluster_id: u64) -> Result<(), WalError> {
    whole_file::write_atomically(storage, MARKER_FILE, line(cluster_id).as_bytes()).map(drop)
}

fn line(cluster_id: u64) -> String {
    let text = format!("baton-data-folder format={FORMAT_VERSION} cluster={cluster_id:016x}");
    format!("{text} crc32c={:08x}\n", crc32c::crc32c(text.as_bytes()))
}
