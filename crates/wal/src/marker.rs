//! The file that says "this is a data folder, of this format, of this cluster". One line of text,
//! so that a person can read it; a checksum, so that a slip of an editor is noticed.

use crate::error::{WalError, check_version};
use crate::file_names::MARKER_FILE;
use crate::storage::{Access, Storage};
use crate::{FORMAT_VERSION, whole_file};

const LONGEST: usize = 256;

/// The cluster that the folder belongs to; `None` when there is no marker.
pub(crate) fn read(storage: &dyn Storage) -> Result<Option<u64>, WalError> {
    let location = storage.location(MARKER_FILE);
    let file = match storage.open(MARKER_FILE, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(WalError::io("open", location, error)),
    };
    let mut buffer = vec![0; LONGEST];
    let count = file
        .read_at(0, &mut buffer)
        .map_err(|error| WalError::io("read", location.clone(), error))?;
    buffer.truncate(count);
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
