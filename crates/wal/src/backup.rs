//! Backups: the bytes of a snapshot's file, kept outside of a data folder under any name. Owns when
//! such a file counts as one: whole, read back, checked by its owner, and durable.

use std::io;
use std::sync::Arc;

use crate::error::{USE_ANOTHER, WalError};
use crate::snapshot::{Chunk, SnapshotInfo, SnapshotMeta, SnapshotReader};
use crate::storage::{Access, Storage};
use crate::unfinished_file::{UnfinishedFile, storage_failure};

/// The end of a backup's name while it is not whole.
const UNFINISHED: &str = ".unfinished";

/// A backup that is being written. It gets its name only once it is whole and durable; a writer
/// that fails or is dropped before removes its unfinished file.
#[derive(Debug)]
pub struct BackupWriter {
    file: UnfinishedFile,
}

impl BackupWriter {
    /// The name that a backup has until it is whole.
    #[must_use]
    pub fn unfinished_name(name: &str) -> String {
        format!("{name}{UNFINISHED}")
    }

    /// Begins a backup called `name`.
    ///
    /// # Errors
    /// [`WalError::BackupExists`] and [`WalError::BackupUnfinished`] where the name is taken;
    /// [`WalError`] when the file cannot be made.
    pub fn begin(storage: Arc<dyn Storage>, name: &str) -> Result<Self, WalError> {
        refuse_taken(storage.as_ref(), name)?;
        let unfinished = Self::unfinished_name(name);
        let location = storage.location(&unfinished);
        match UnfinishedFile::create(storage, name.to_owned(), unfinished, None) {
            Ok(file) => Ok(Self { file }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(WalError::BackupUnfinished { file: location })
            }
            Err(error) => Err(storage_failure("create", location, 0, error)),
        }
    }

    /// Bytes that were written so far.
    pub fn written(&self) -> u64 {
        self.file.written
    }

    /// Writes the next bytes.
    ///
    /// # Errors
    /// [`WalError`] when the disk refuses. The backup is then lost.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WalError> {
        self.file.write_and_sync(bytes)
    }

    /// Reads the whole file back, gives its chunks to `check`, and then makes it a backup, durably.
    /// Chunks that `check` leaves are read and checked too.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] when the bytes are not a whole snapshot; [`WalError`] when the disk
    /// refuses; whatever `check` returns. There is then no backup.
    pub fn finish<T, E: From<WalError>>(
        mut self,
        check: impl FnOnce(&mut BackupReader) -> Result<T, E>,
    ) -> Result<(SnapshotInfo, T), E> {
        self.file.sync()?;
        let file = &mut self.file;
        let mut reader = BackupReader::open(file.storage.as_ref(), &file.unfinished)?;
        let checked = check(&mut reader)?;
        let mut info = reader.verify()?;
        refuse_taken(file.storage.as_ref(), &file.name)?;
        if let Err(error) = file.publish() {
            // The caller gets an error, so nobody may find a backup later.
            file.remove_named();
            return Err(error.into());
        }
        info.name = std::mem::take(&mut file.name);
        Ok((info, checked))
    }
}

/// A rename would put the backup in the place of whatever has its name.
fn refuse_taken(storage: &dyn Storage, name: &str) -> Result<(), WalError> {
    match storage.open(name, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(WalError::io("open", storage.location(name), error)),
        Ok(_) => Err(WalError::BackupExists {
            file: storage.location(name),
        }),
    }
}

/// A backup that is being read. Each byte is held against its checksum before it is handed out.
#[derive(Debug)]
pub struct BackupReader {
    reader: SnapshotReader,
    cluster_id: u64,
}

impl BackupReader {
    /// Opens a backup: a snapshot's file of any cluster and name.
    ///
    /// # Errors
    /// [`WalError`] when it is not there, its header is damaged, or it is of another version.
    pub fn open(storage: &dyn Storage, name: &str) -> Result<Self, WalError> {
        let (reader, cluster_id) = SnapshotReader::open_any(storage, name).map_err(of_backup)?;
        Ok(Self { reader, cluster_id })
    }

    /// The header.
    pub fn meta(&self) -> &SnapshotMeta {
        self.reader.meta()
    }

    /// The cluster that it is of.
    pub fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// The next chunk; `None` once the end has been read and found right.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] when a byte is not as it was written or the end is missing.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, WalError> {
        self.reader.next_chunk().map_err(of_backup)
    }

    /// Reads on to the end.
    ///
    /// # Errors
    /// As [`next_chunk`](BackupReader::next_chunk).
    pub fn verify(self) -> Result<SnapshotInfo, WalError> {
        self.reader.verify().map_err(of_backup)
    }
}

/// An error of a snapshot, with the remedy for a backup.
fn of_backup(error: WalError) -> WalError {
    match error {
        WalError::Corrupt {
            file, offset, what, ..
        } => WalError::corrupt(&file, offset, what, USE_ANOTHER),
        error => error,
    }
}
