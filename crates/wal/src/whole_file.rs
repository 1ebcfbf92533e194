//! Files that are written and read as a whole: under another name until they are durable.

use std::fs::File;
use std::io;

use bytes::Bytes;

use crate::error::WalError;
use crate::file_names::UNFINISHED_SUFFIX;
use crate::storage::{Access, Storage, StorageFile};

/// Writes a whole file under its name so that it is either there whole or not at all. A failure
/// leaves no unfinished file behind.
pub(crate) fn write_atomically(
    storage: &dyn Storage,
    name: &str,
    content: &[u8],
) -> Result<Box<dyn StorageFile>, WalError> {
    let unfinished = format!("{name}{UNFINISHED_SUFFIX}");
    let location = storage.location(&unfinished);
    let failed = |action| {
        let location = location.clone();
        move |error| WalError::io(action, location, error)
    };
    remove_durably(storage, &unfinished).map_err(failed("remove"))?;
    let file = storage.create(&unfinished).map_err(failed("create"))?;
    let written = file
        .write_at(0, content)
        .map_err(failed("write"))
        .and_then(|()| file.sync_data().map_err(failed("sync")))
        .and_then(|()| storage.rename(&unfinished, name).map_err(failed("rename")));
    if let Err(error) = written {
        drop(file);
        discard(storage, &unfinished);
        return Err(error);
    }
    storage
        .sync_dir()
        .map_err(|error| WalError::io("sync", storage.location(""), error))?;
    Ok(file)
}

/// The beginning of a file, at most this many bytes of it; `None` when there is no file.
pub(crate) fn read_beginning(
    storage: &dyn Storage,
    name: &str,
    most: usize,
) -> Result<Option<Vec<u8>>, WalError> {
    let location = storage.location(name);
    let file = match storage.open(name, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(WalError::io("open", location, error)),
    };
    let mut buffer = vec![0; most];
    let count = file
        .read_at(0, &mut buffer)
        .map_err(|error| WalError::io("read", location, error))?;
    buffer.truncate(count);
    Ok(Some(buffer))
}

/// Removes a file that may be there, durably: a crash that undid the removal of an unfinished one
/// and kept a rename behind it would put the old bytes in the place of the new ones.
pub(crate) fn remove_durably(storage: &dyn Storage, name: &str) -> io::Result<()> {
    remove_open_durably(storage, name).map(drop)
}

/// Removes it likewise, and returns the file where closing it frees its bytes.
pub(crate) fn remove_open_durably(storage: &dyn Storage, name: &str) -> io::Result<Option<File>> {
    match storage.remove_open(name) {
        Ok(file) => storage.sync_dir().map(|()| file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file that may be missing.
pub(crate) fn remove_if_there(storage: &dyn Storage, name: &str) -> io::Result<()> {
    match storage.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes an unfinished file after a failure, so that its bytes do not stay on a disk that may be
/// full. A removal that fails too is left to the next start.
pub(crate) fn discard(storage: &dyn Storage, unfinished: &str) {
    if let Err(error) = remove_durably(storage, unfinished) {
        tracing::warn!(
            "cannot remove the unfinished file {}: {error}; the next start removes it",
            storage.location(unfinished)
        );
    }
}

/// The whole content of a file.
pub(crate) fn read_all(storage: &dyn Storage, name: &str) -> Result<Bytes, WalError> {
    let failed = |action| move |error| WalError::io(action, storage.location(name), error);
    let file = storage.open(name, Access::Read).map_err(failed("open"))?;
    let length = file.len().map_err(failed("measure"))?;
    let mut content = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let count = file.read_at(0, &mut content).map_err(failed("read"))?;
    content.truncate(count);
    Ok(Bytes::from(content))
}
