//! Notices that files have changed. Reading them again is the matter of their owner.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

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

/// What the system says of each file: two of them differ when a file was changed or replaced.
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
    /// What the system says now.
    #[must_use]
    pub fn of(files: &Files) -> Self {
        Self::of_paths(&files.paths())
    }

    /// What the system says now of these files.
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
