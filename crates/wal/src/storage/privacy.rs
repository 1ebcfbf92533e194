//! Keeps a data folder to the user whose server uses it. The log and the snapshots hold the
//! passwords of sessions and everything that ACLs protect, so no other user may read them; and
//! a user who may write to the folder could put other files in their place.
//!
//! Owns the decision about a folder that is there already: closed to others where that is harmless,
//! else refused.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::file_names::{MARKER_FILE, is_ours};

/// Permission bits that other users must not have.
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;
/// Every file of a data folder.
pub(super) const FILE_MODE: u32 = 0o600;
/// A data folder, and each folder made on the way to it.
pub(super) const FOLDER_MODE: u32 = 0o700;
/// A file system's own folder in its topmost folder, where a volume is mounted.
const FILE_SYSTEMS_OWN: &str = "lost+found";

/// Reason why a folder is not taken for a data folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The system refused.
    #[error("cannot use the data folder {}: {source}; choose a folder that this user may write to", .folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// The system's answer.
        r#source: io::Error,
    },
    /// Another user owns the folder, and so can replace what is in it.
    #[error("the data folder {folder} belongs to another user ({owner}, this process runs as {user}): run as that user, run chown {user} {folder}, or choose a folder of your own, such as one below it", folder = .folder.display())]
    ForeignOwner {
        /// The folder.
        folder: PathBuf,
        /// The owner's number.
        owner: u32,
        /// The number of the user who runs this process.
        user: u32,
    },
    /// Others may put files into the folder.
    #[error("others may write to the data folder {folder} (mode {mode:04o}): run chmod 700 {folder}, or choose another", folder = .folder.display())]
    OthersWrite {
        /// The folder.
        folder: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Others may read the folder, and it is not Baton's alone, so that it is not simply closed.
    #[error("others may read the data folder {folder} (mode {mode:04o}), which also holds {other}: run chmod 700 {folder}, or name a folder below it, which is then made for this user only", folder = .folder.display())]
    OthersRead {
        /// The folder.
        folder: PathBuf,
        /// Its permissions.
        mode: u32,
        /// A file in it that is not Baton's.
        other: String,
    },
}

/// Refuses a folder that others own, may write to, or share; closes one that they may only read.
pub(super) fn keep_private(path: &Path) -> Result<(), FolderError> {
    let cannot = |source| FolderError::Io {
        folder: path.to_owned(),
        source,
    };
    let about = fs::metadata(path).map_err(cannot)?;
    let user = rustix::process::geteuid().as_raw();
    if about.uid() != user {
        return Err(FolderError::ForeignOwner {
            folder: path.to_owned(),
            owner: about.uid(),
            user,
        });
    }
    let mode = mode_of(&about);
    if mode & OTHERS_WRITE != 0 {
        return Err(FolderError::OthersWrite {
            folder: path.to_owned(),
            mode,
        });
    }
    let names = entries_of(path).map_err(cannot)?;
    if mode & OTHERS != 0 {
        if !names.iter().any(|(name, _)| name == MARKER_FILE)
            && let Some((other, _)) = names.iter().find(|(name, _)| !is_expected(name))
        {
            return Err(FolderError::OthersRead {
                folder: path.to_owned(),
                mode,
                other: other.clone(),
            });
        }
        fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)).map_err(cannot)?;
        tracing::warn!(
            "others could read the data folder {} (mode {mode:04o}); it is closed to them now",
            path.display()
        );
    }
    let mut closed = 0;
    for (name, about) in &names {
        if about.is_file() && is_ours(name) && mode_of(about) & OTHERS != 0 {
            close(&path.join(name)).map_err(cannot)?;
            closed += 1;
        }
    }
    if closed > 0 {
        tracing::warn!(
            "others could read files in the data folder {} ({closed} of them); they are closed now (mode {FILE_MODE:04o})",
            path.display()
        );
    }
    Ok(())
}

/// Makes a new file readable and writable for this user, whatever the process's umask took from it.
pub(super) fn own(file: &fs::File) -> io::Result<()> {
    if mode_of(&file.metadata()?) != FILE_MODE {
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    }
    Ok(())
}

fn close(path: &Path) -> io::Result<()> {
    match fs::set_permissions(path, Permissions::from_mode(FILE_MODE)) {
        // A running server has just removed or renamed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn mode_of(about: &Metadata) -> u32 {
    about.permissions().mode() & 0o7777
}

/// Everything in the folder. What goes away meanwhile is left out.
fn entries_of(path: &Path) -> io::Result<Vec<(String, Metadata)>> {
    let mut names = Vec::new();
    for item in fs::read_dir(path)? {
        let item = item?;
        let name = item.file_name().to_string_lossy().into_owned();
        match item.metadata() {
            Ok(about) => names.push((name, about)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(names)
}

/// Returns whether a folder that holds nothing else is as good as empty.
fn is_expected(name: &str) -> bool {
    is_ours(name) || name == FILE_SYSTEMS_OWN
}
