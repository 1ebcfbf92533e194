//! A data folder while no server runs on it: made of a tree, or read into one. Owns the order in
//! which a new folder comes to be, so that one that was cut off half-way is never taken for a whole
//! one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_consensus::{EntryKind, Membership};
use baton_tree::{Batch, Tree};
use baton_wal::{
    DirStorage, Entry, HardState, Record, RecoveryNote, SnapshotMeta, Storage, Wal, WalError,
    WalOptions,
};
use bytes::Bytes;

use crate::commit::recover::{NODE_ID, restore};
use crate::commit::snapshots::write_whole;
use crate::commit::starting::Starting;
use crate::error::ServerError;

/// Suffix of a folder's name while it is being made.
const UNFINISHED: &str = ".unfinished";
/// The first entry: the one with which the only voter begins its first term.
const FIRST: u64 = 1;

/// Why a data folder was not made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfflineError {
    /// There is something in the folder that is to be made.
    #[error("{folder} is not empty: name a folder that is not there yet")]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// An earlier attempt was cut off, or another is under way.
    #[error(
        "{folder} is there: another import is under way, or one was cut off; remove it, then start again"
    )]
    Unfinished {
        /// The folder.
        folder: PathBuf,
    },
    /// Not a data folder.
    #[error(
        "{folder} is not a data folder of Baton: there is no file FORMAT in it; name the one given to baton serve --data-dir"
    )]
    NoDataFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// The system refused.
    #[error(
        "cannot {action} {path}: {source}; check that this user may, and that the disk has room"
    )]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The log refused.
    #[error(transparent)]
    Log(#[from] WalError),
    /// The folder's content cannot be read.
    #[error(transparent)]
    Content(ServerError),
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> OfflineError + use<> {
    let path = path.to_owned();
    move |source| OfflineError::Io {
        action,
        path,
        source,
    }
}

/// Refuses a folder that has something in it, before any work is done for it.
///
/// # Errors
/// [`OfflineError::NotEmpty`], or the folder cannot be looked into.
pub fn refuse_used(folder: &Path) -> Result<(), OfflineError> {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(OfflineError::NotEmpty {
                folder: folder.to_owned(),
            }),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io("look into", folder)(error)),
    }
}

/// The name that [`make_data_folder`] gives `folder` until it is whole.
///
/// # Errors
/// [`OfflineError::Io`] when the working directory is gone.
pub fn unfinished_folder(folder: &Path) -> Result<PathBuf, OfflineError> {
    let absolute = std::path::absolute(folder).map_err(io("find", folder))?;
    let mut unfinished = absolute.into_os_string();
    unfinished.push(UNFINISHED);
    Ok(PathBuf::from(unfinished))
}

/// Makes `folder` a data folder that begins with `tree`, for this user only. It is there only when
/// it is whole and durable. Returns how many bytes the snapshot in it has. `time_ms` is written
/// into it as the time when it was made.
///
/// # Errors
/// [`OfflineError`]; `folder` is then as it was.
pub fn make_data_folder(folder: &Path, tree: &mut Tree, time_ms: i64) -> Result<u64, OfflineError> {
    use std::os::unix::fs::DirBuilderExt;

    refuse_used(folder)?;
    let absolute = std::path::absolute(folder).map_err(io("find", folder))?;
    let unfinished = unfinished_folder(folder)?;
    let parent = absolute.parent().unwrap_or(&absolute);
    std::fs::create_dir_all(parent).map_err(io("make", parent))?;
    match std::fs::DirBuilder::new().mode(0o700).create(&unfinished) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(OfflineError::Unfinished { folder: unfinished });
        }
        made => made.map_err(io("make", &unfinished))?,
    }
    let made = write_folder(&unfinished, tree, time_ms).and_then(|bytes| {
        std::fs::rename(&unfinished, &absolute).map_err(io("name", &absolute))?;
        let above = DirStorage::open(parent).map_err(io("open", parent))?;
        above.sync_dir().map_err(io("sync", parent))?;
        Ok(bytes)
    });
    if made.is_err() {
        let _ = std::fs::remove_dir_all(&unfinished);
    }
    made
}

fn write_folder(folder: &Path, tree: &mut Tree, time_ms: i64) -> Result<u64, OfflineError> {
    let storage = DirStorage::open(folder).map_err(io("open", folder))?;
    let (mut wal, _) = Wal::open(Arc::new(storage), WalOptions::default())?;
    wal.append(&[
        Record::HardState(HardState {
            term: FIRST,
            vote: NODE_ID,
        }),
        Record::Entry(Entry {
            index: FIRST,
            term: FIRST,
            kind: EntryKind::Noop.as_byte(),
            payload: Bytes::new(),
        }),
        Record::Commit { index: FIRST },
    ])?;
    wal.sync()?;
    let membership = Membership::sole_voter(NODE_ID);
    let mut writer = wal.snapshots().writer(SnapshotMeta {
        index: FIRST,
        term: FIRST,
        zxid: tree.zxid(),
        time_ms,
        membership: membership.encode(),
    })?;
    write_whole(tree, &mut writer)?;
    let info = writer.finish()?;
    wal.snapshot_saved(&info)?;
    wal.close()?;
    Ok(info.file_bytes)
}

/// The tree of a data folder, after the last entry of its log, and what reading it has passed over
/// or could not decide. No server may run on it. Like a server's start, this cuts off a torn last
/// write.
///
/// # Errors
/// [`OfflineError`]; among others when a server runs on the folder.
pub fn read_data_folder(folder: &Path) -> Result<(Tree, Vec<RecoveryNote>), OfflineError> {
    // Opening the log of a folder that has none would make one.
    if !folder.join("FORMAT").is_file() {
        return Err(OfflineError::NoDataFolder {
            folder: folder.to_owned(),
        });
    }
    let storage = DirStorage::open(folder).map_err(io("open", folder))?;
    let restored = restore(
        Arc::new(storage),
        WalOptions::default(),
        &Starting::default(),
    );
    let mut restored = restored.map_err(|error| match error {
        ServerError::Log(error) => match Arc::try_unwrap(error) {
            Ok(error) => OfflineError::Log(error),
            Err(error) => OfflineError::Content(ServerError::Log(error)),
        },
        error => OfflineError::Content(error),
    })?;
    // The only voter commits whatever its log has.
    for entry in &restored.entries {
        if entry.kind == EntryKind::Command {
            let batch = Batch::decode(&entry.payload).map_err(|source| {
                let index = entry.index;
                OfflineError::Content(ServerError::Entry { index, source })
            })?;
            restored.tree.apply_batch(&batch, &mut (), |_, _| {});
        }
    }
    Ok((restored.tree, restored.notes))
}
