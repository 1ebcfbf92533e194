//! The file that says that another cluster has begun with the folder's data, so that no server
//! starts on the folder any more. It has the path of the new folder; only that it is there counts.

use crate::error::WalError;
use crate::file_names::SUPERSEDED_FILE;
use crate::storage::Storage;
use crate::whole_file;

const LONGEST: usize = 4096;

/// Refuses a folder whose data another cluster has begun with.
///
/// # Errors
/// [`WalError::Superseded`], or the file cannot be read.
pub fn refuse_superseded(storage: &dyn Storage) -> Result<(), WalError> {
    match whole_file::read_beginning(storage, SUPERSEDED_FILE, LONGEST)? {
        None => Ok(()),
        Some(into) => Err(WalError::Superseded {
            folder: storage.location(""),
            into: String::from_utf8_lossy(&into).trim_end().to_owned(),
            file: storage.location(SUPERSEDED_FILE),
        }),
    }
}

/// Notes durably that another cluster begins with the folder's data, in the folder `into`.
///
/// # Errors
/// [`WalError`] when the disk refuses.
pub fn write_superseded(storage: &dyn Storage, into: &str) -> Result<(), WalError> {
    let line = format!("{into}\n");
    whole_file::write_atomically(storage, SUPERSEDED_FILE, line.as_bytes()).map(drop)
}

/// Removes the note, if it is there: the other cluster has not begun.
///
/// # Errors
/// [`WalError`] when the disk refuses.
pub fn remove_superseded(storage: &dyn Storage) -> Result<(), WalError> {
    whole_file::remove_durably(storage, SUPERSEDED_FILE)
        .map_err(|error| WalError::io("remove", storage.location(SUPERSEDED_FILE), error))
}
