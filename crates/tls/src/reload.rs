//! Notices that files have changed, and keeps what was read of them. How they are read is the
//! matter of their owner.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::error::TlsError;
use crate::pem::Files;

/// Outcome of looking at the files again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// The files are as they were.
    Unchanged,
    /// The files have changed and were read.
    Reloaded,
    /// The files have changed and are refused; what was read before stays in use.
    Kept(TlsError),
}

/// Value read from files, until they change.
#[derive(Debug)]
pub(crate) struct ReloadedFiles<T>(Mutex<(T, FileStamps)>);

impl<T: Clone> ReloadedFiles<T> {
    /// Reads the files whose stamps `stamps` takes. They are taken first: a file that changes while
    /// it is read is read again.
    pub(crate) fn load(
        stamps: impl FnOnce() -> FileStamps,
        read: impl FnOnce() -> Result<T, TlsError>,
    ) -> Result<Self, TlsError> {
        let stamps = stamps();
        Ok(Self(Mutex::new((read()?, stamps))))
    }

    /// Returns the value read last.
    pub(crate) fn current(&self) -> T {
        self.0.lock().0.clone()
    }

    /// The same files, with something else made of what was read.
    pub(crate) fn map(&self, change: impl FnOnce(T) -> T) -> Self {
        let (current, stamps) = self.0.lock().clone();
        Self(Mutex::new((change(current), stamps)))
    }

    /// Reads the files again if they have changed. Files that are refused change nothing, and are
    /// reported once.
    pub(crate) fn reload(
        &self,
        stamps: FileStamps,
        read: impl FnOnce() -> Result<T, TlsError>,
    ) -> ReloadOutcome {
        if self.0.lock().1 == stamps {
            return ReloadOutcome::Unchanged;
        }
        let read = read();
        let mut current = self.0.lock();
        current.1 = stamps;
        match read {
            Ok(read) => {
                current.0 = read;
                ReloadOutcome::Reloaded
            }
            Err(error) => ReloadOutcome::Kept(error),
        }
    }
}

/// Stamps of files as the system gives them: two differ when a file was changed or replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStamps(Vec<(PathBuf, Option<FileStamp>)>);

/// `None` in place of it: the file is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
    /// A file that was moved into the place of another has another one.
    inode: u64,
    /// Changes with the content, the permissions, and a time that was set back.
    changed: (i64, i64),
}

impl FileStamps {
    /// Returns the stamps of now.
    #[must_use]
    pub fn of(files: &Files) -> Self {
        Self::of_paths(&files.paths())
    }

    /// Returns the stamps of these files now.
    #[must_use]
    pub fn of_paths(paths: &[&Path]) -> Self {
        let stamps = paths.iter();
        Self(
            stamps
                .map(|path| ((*path).to_owned(), FileStamp::of(path)))
                .collect(),
        )
    }
}

impl FileStamp {
    /// Follows symbolic links, so that a link that points elsewhere now is a change.
    fn of(path: &Path) -> Option<Self> {
        let about = std::fs::metadata(path).ok()?;
        let (inode, changed) = identity(&about);
        Some(Self {
            modified: about.modified().ok(),
            bytes: about.len(),
            inode,
            changed,
        })
    }
}

#[cfg(unix)]
fn identity(about: &std::fs::Metadata) -> (u64, (i64, i64)) {
    use std::os::unix::fs::MetadataExt;

    (about.ino(), (about.ctime(), about.ctime_nsec()))
}

#[cfg(not(unix))]
fn identity(_: &std::fs::Metadata) -> (u64, (i64, i64)) {
    (0, (0, 0))
}
