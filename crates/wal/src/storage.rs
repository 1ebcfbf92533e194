//! Storage of files: one folder, flat, by name. The trait is as small as the log needs, so that a
//! test can stand in for the disk and fail any single operation.

mod dir;
mod memory;
mod privacy;

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;

pub use dir::DirStorage;
pub use memory::MemoryStorage;
pub use privacy::FolderError;

/// Use of an opened file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only to read.
    Read,
    /// To read and to write.
    Write,
}

/// One flat folder of files.
///
/// A file, a rename or a removal is durable after [`sync_dir`](Storage::sync_dir), a file's content
/// after its [`sync_data`](StorageFile::sync_data); before, a crash may undo any part of it. All
/// calls block.
pub trait Storage: Send + Sync + fmt::Debug {
    /// The names of all files, in any order.
    ///
    /// # Errors
    /// Whatever the system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// A new, empty file.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken, and whatever the system says.
    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>>;

    /// A file that is there.
    ///
    /// # Errors
    /// `NotFound` when it is not, and whatever the system says.
    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn StorageFile>>;

    /// Gives a file another name, replacing what had it.
    ///
    /// # Errors
    /// Whatever the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Whatever the system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Removes a file like [`remove`](Storage::remove), and returns it open where its bytes stay
    /// until it is closed, so that the caller may free them in parts.
    ///
    /// # Errors
    /// Whatever the system says.
    fn remove_open(&self, name: &str) -> io::Result<Option<File>> {
        self.remove(name).map(|()| None)
    }

    /// Makes created, renamed and removed names durable.
    ///
    /// # Errors
    /// Whatever the system says; the names are then in an unknown state.
    fn sync_dir(&self) -> io::Result<()>;

    /// Takes the folder for this process until the guard is dropped.
    ///
    /// # Errors
    /// [`LockError::InUse`] when another holder has it, without waiting.
    fn lock(&self) -> Result<LockGuard, LockError>;

    /// Device and inode of the file that [`lock`](Storage::lock) has taken, by its name: another
    /// one, or none, means that the folder was replaced or removed. `None`: nothing can replace it.
    ///
    /// # Errors
    /// Whatever the system says.
    fn inode(&self) -> io::Result<Option<(u64, u64)>> {
        Ok(None)
    }

    /// Number of threads that read at once at a start; 1 where the order of calls matters.
    fn readers(&self) -> usize {
        1
    }

    /// The name as a person finds it, for messages: with its folder.
    fn location(&self, name: &str) -> String;
}

/// One open file. Positions are absolute, so that no call depends on the one before.
#[allow(
    clippy::len_without_is_empty,
    reason = "an empty file has no meaning here"
)]
pub trait StorageFile: Send + Sync + fmt::Debug {
    /// The length in bytes.
    ///
    /// # Errors
    /// Whatever the system says.
    fn len(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` and says how much there was; less than asked only at the end of
    /// the file.
    ///
    /// # Errors
    /// Whatever the system says.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `data` at `offset`, growing the file where needed.
    ///
    /// # Errors
    /// Whatever the system says; any part may have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Fills the file with zeros from its end to `len`, for real, so that writing there later
    /// changes no metadata. Does nothing when it is that long already.
    ///
    /// # Errors
    /// `StorageFull` when there is no room; the file is then as it was, and takes no more room than
    /// before.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Makes the content durable, and the length with it.
    ///
    /// # Errors
    /// Whatever the system says; the content since the last sync is then in an unknown state for
    /// ever.
    fn sync_data(&self) -> io::Result<()>;
}

/// Keeps a folder until it is dropped.
pub struct LockGuard {
    _held: Box<dyn Any + Send + Sync>,
}

impl LockGuard {
    /// A guard that keeps `held` alive.
    pub fn new(held: impl Any + Send + Sync) -> LockGuard {
        LockGuard {
            _held: Box::new(held),
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockGuard")
    }
}

/// Reason why a folder could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another holder has it.
    #[error("in use by {}", .pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}")))]
    InUse {
        /// The process, where it can be read.
        pid: Option<u32>,
    },
    /// The system refused.
    #[error("cannot lock: {0}")]
    Io(io::Error),
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
