//! A large file that is written piece by piece: it has another name until it is whole and durable,
//! and is removed at once where its writer fails or is dropped before. On a full disk, that room is
//! the log's.

use std::io;
use std::sync::Arc;

use crate::error::{WalError, is_no_room};
use crate::storage::{Storage, StorageFile};
use crate::whole_file::discard;

/// Bytes after which [`UnfinishedFile::write_and_sync`] syncs: a sync of the log on the same disk
/// may have to wait for all that is not synced.
const SYNC_BYTES: u64 = 2 << 20;

#[derive(Debug)]
pub(crate) struct UnfinishedFile {
    pub storage: Arc<dyn Storage>,
    file: Box<dyn StorageFile>,
    pub name: String,
    /// The name until the file is whole.
    pub unfinished: String,
    pub written: u64,
    unsynced: u64,
    /// Size of the whole file, where it is known.
    expected_bytes: Option<u64>,
    is_named: bool,
}

impl UnfinishedFile {
    /// Creates the file under the name `unfinished`, which must not be taken.
    pub fn create(
        storage: Arc<dyn Storage>,
        name: String,
        unfinished: String,
        expected_bytes: Option<u64>,
    ) -> io::Result<Self> {
        Ok(Self {
            file: storage.create(&unfinished)?,
            storage,
            name,
            unfinished,
            written: 0,
            unsynced: 0,
            expected_bytes,
            is_named: false,
        })
    }

    pub fn location(&self) -> String {
        self.storage.location(&self.unfinished)
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WalError> {
        let length = bytes.len() as u64;
        self.file
            .write_at(self.written, bytes)
            .map_err(|error| self.failed("write", length, error))?;
        self.written += length;
        self.unsynced += length;
        Ok(())
    }

    /// Writes, and syncs now and then.
    pub fn write_and_sync(&mut self, bytes: &[u8]) -> Result<(), WalError> {
        self.write(bytes)?;
        if self.unsynced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    pub fn sync(&mut self) -> Result<(), WalError> {
        let synced = self.file.sync_data();
        synced.map_err(|error| self.failed("sync", 0, error))?;
        self.unsynced = 0;
        Ok(())
    }

    /// Gives the synced file its name, durably.
    pub fn publish(&mut self) -> Result<(), WalError> {
        self.storage
            .rename(&self.unfinished, &self.name)
            .map_err(|error| self.failed("rename", 0, error))?;
        self.is_named = true;
        self.storage
            .sync_dir()
            .map_err(|error| storage_failure("sync", self.storage.location(""), 0, error))
    }

    /// Removes the file if it has its name already.
    pub fn remove_named(&self) {
        if self.is_named {
            discard(self.storage.as_ref(), &self.name);
        }
    }

    /// The error of an action on the file, with the room that another attempt needs.
    fn failed(&self, action: &'static str, unwritten: u64, error: io::Error) -> WalError {
        let needed_bytes = match self.expected_bytes {
            Some(all) => all.saturating_sub(self.written),
            None => self.written + unwritten,
        };
        storage_failure(action, self.location(), needed_bytes, error)
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if !self.is_named {
            discard(self.storage.as_ref(), &self.unfinished);
        }
    }
}

/// The log is usable whatever becomes of such a file: where there is no room, another one can be
/// tried later.
pub(crate) fn storage_failure(
    action: &'static str,
    file: String,
    needed_bytes: u64,
    error: io::Error,
) -> WalError {
    if is_no_room(&error) {
        return WalError::NoSpace {
            file,
            needed_bytes,
            retryable: true,
        };
    }
    WalError::io(action, file, error)
}
