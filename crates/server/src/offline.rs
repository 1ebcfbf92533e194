//! A data folder while no server runs on it: made of a tree, or read into one. Owns the order in
//! which a new folder comes to be, so that one that was cut off half-way is never taken for a whole
//! one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_consensus::{EntryKind, Member, Membership, MembershipChange};
use baton_tree::{Batch, Tree};
use baton_wal::{
    DirStorage, Entry, HardState, Hold, MemberFolder, Record, Recovered, RecoveryNote,
    SnapshotMeta, SnapshotWriter, Storage, Wal, WalError, WalOptions,
};
use bytes::Bytes;

use crate::core::snapshots::write_whole;
use crate::core::start::recover::{self, NODE_ID, Restored, restore, restore_opened};
use crate::core::start::starting::Starting;
use crate::error::ServerError;
use crate::progress::Progress;

/// Suffix of a folder's name while it is being made.
const UNFINISHED: &str = ".unfinished";
/// The file that a member's folder has.
const MEMBER_FILE: &str = "MEMBER";
/// The first entry: the one with which the only voter begins its first term.
const FIRST: u64 = 1;

/// Reasons for which a data folder was not made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfflineError {
    /// There is something in the folder that is to be made.
    #[error("{folder} is not empty: name a folder that is not there yet")]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder that is to be made cannot take the place of what is there.
    #[error(
        "{folder} is a symbolic link or a mount point, which no new folder can take the place of: name a folder in it \
         that is not there yet"
    )]
    NotReplaceable {
        /// The folder.
        folder: PathBuf,
    },
    /// An earlier attempt was cut off, or another is under way.
    #[error(
        "{folder} is there: another import or restore is under way, or one was cut off; remove it, then start again"
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
        /// The attempted action.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Error of the system.
        r#source: std::io::Error,
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

/// Refuses a folder that has something in it, or that no other can take the place of, before any
/// work is done for it.
///
/// # Errors
/// [`OfflineError::NotEmpty`], [`OfflineError::NotReplaceable`], or the folder cannot be looked
/// into.
pub fn refuse_used(folder: &Path) -> Result<(), OfflineError> {
    if is_link_or_mount(folder) {
        return Err(OfflineError::NotReplaceable {
            folder: folder.to_owned(),
        });
    }
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

/// Whether this is a symbolic link, or of another file system than the folder that it is in: a
/// rename to its name is refused.
fn is_link_or_mount(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let Ok(found) = folder.symlink_metadata() else {
        return false;
    };
    let above = std::path::absolute(folder).ok();
    let above = above.and_then(|absolute| absolute.parent()?.metadata().ok());
    found.is_symlink() || above.is_some_and(|above| above.dev() != found.dev())
}

/// A cluster of one server that begins with the data of an earlier one.
#[derive(Debug, Clone)]
pub struct NewCluster {
    /// The id of its only server, 1 to 127.
    pub server_id: u8,
    /// The address `HOST:PORT` at which other servers are to reach it.
    pub address: String,
    /// Whether the data may lack writes that the former cluster has acknowledged: it has lost its
    /// majority for good. Zxids then go on 2^32 higher, so that no fencing token is given twice.
    pub may_lack_writes: bool,
}

/// Makes `into` the data folder of the only voter of a new cluster, with the data of `from`: the
/// folder of a server that stands alone and is to get company, or of a member whose cluster has
/// lost its majority. No server may run on `from`, and none starts on it afterwards: a file says
/// where its data went. Start the server with `into` and a list of itself alone, then add others
/// with `reconfig`; former members belong to another cluster and are refused (R20). Everything in
/// the log of `from` counts, also what its cluster may not have committed. Returns the zxid with
/// which the new cluster begins.
///
/// # Errors
/// [`OfflineError`]; both folders are then as they were.
pub fn found_cluster(from: &Path, into: &Path, new: &NewCluster) -> Result<i64, OfflineError> {
    refuse_used(into)?;
    refuse_no_data_folder(from)?;
    let old = DirStorage::open(from).map_err(io("open", from))?;
    baton_wal::refuse_superseded(&old)?;
    let at = std::path::absolute(into).map_err(io("find", into))?;
    // Before the new folder is there: no crash leaves two that servers start on.
    baton_wal::write_superseded(&old, &at.display().to_string())?;
    let made = move_into_cluster(from, into, new);
    if made.is_err() {
        baton_wal::remove_superseded(&old)?;
    }
    made
}

fn move_into_cluster(from: &Path, into: &Path, new: &NewCluster) -> Result<i64, OfflineError> {
    let id = u64::from(new.server_id);
    let mut tree = if from.join(MEMBER_FILE).is_file() {
        read_member_folder(from, id)?
    } else {
        read_data_folder(from, &Arc::default())?.0
    };
    let leap = match new.may_lack_writes {
        true => u32::MAX,
        false => 0,
    };
    tree.begin_new_cluster(tree.zxid().saturating_add(leap.into()));
    let zxid = tree.zxid();
    let cluster = make_member_folder(
        into,
        &mut tree,
        id,
        &new.address,
        None,
        &Progress::default(),
    )?;
    tracing::warn!(
        server = id,
        cluster = format_args!("{cluster:016x}"),
        zxid,
        may_lack_writes = new.may_lack_writes,
        "a new cluster begins with the data of another one; former members are refused"
    );
    Ok(zxid)
}

/// Makes `into` the data folder of the only voter of a new cluster, which begins with `tree`.
/// Returns the cluster's id.
fn make_member_folder(
    into: &Path,
    tree: &mut Tree,
    id: u64,
    address: &str,
    hold: Option<Hold>,
    progress: &Progress,
) -> Result<u64, OfflineError> {
    let (cluster, incarnation) = (draw()?, draw()?.max(1));
    let bytes = u64::try_from(cluster & u128::from(u64::MAX))
        .unwrap_or(1)
        .max(1);
    let membership = Membership {
        voters: vec![id],
        members: vec![Member {
            id,
            incarnation,
            address: address.to_owned(),
        }],
        ..Membership::default()
    };
    make_folder(into, |folder| {
        let storage = DirStorage::open(folder).map_err(io("open", folder))?;
        let storage: Arc<dyn Storage> = Arc::new(storage);
        let mut folder = MemberFolder::open(Arc::clone(&storage), id, incarnation)?;
        folder.store_birth(bytes, membership.encode())?;
        let write = |writer: &mut SnapshotWriter| write_whole(tree, writer, progress);
        let (wal, _) = folder.found_log(WalOptions::default(), write)?;
        wal.close()?;
        put_hold(storage.as_ref(), hold)
    })?;
    Ok(bytes)
}

/// The first server of an ensemble that begins with a backup.
#[derive(Debug, Clone)]
pub struct FirstServer {
    /// Its id, 1 to 127.
    pub id: u8,
    /// The address `HOST:PORT` at which other servers are to reach it.
    pub address: String,
}

/// Makes `into` a data folder that begins with `tree`, a restored state after
/// [`begin_new_cluster`](crate::restoring::begin_new_cluster): that of a server alone, or of the
/// only member of a new cluster. The server that starts on it serves no session before the leases
/// of earlier ones have ended, if there is a `hold`.
///
/// # Errors
/// [`OfflineError`]; `into` is then as it was.
pub fn restore_folder(
    into: &Path,
    tree: &mut Tree,
    first: Option<&FirstServer>,
    hold: Option<Hold>,
    time_ms: i64,
    progress: &Progress,
) -> Result<(), OfflineError> {
    match first {
        Some(first) => {
            make_member_folder(into, tree, first.id.into(), &first.address, hold, progress)
                .map(drop)
        }
        None => make_folder(into, |unfinished| {
            write_folder(unfinished, tree, time_ms, progress)?;
            let storage = DirStorage::open(unfinished).map_err(io("open", unfinished))?;
            put_hold(&storage, hold)
        }),
    }
}

fn put_hold(storage: &dyn Storage, hold: Option<Hold>) -> Result<(), OfflineError> {
    match hold {
        Some(hold) => Ok(baton_wal::write_hold(storage, hold)?),
        None => Ok(()),
    }
}

/// Random bits of the system.
fn draw() -> Result<u128, OfflineError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| std::io::Error::other(error.to_string()))
        .map_err(io("draw from", Path::new("the system's random numbers")))?;
    Ok(u128::from_le_bytes(bytes))
}

/// The tree of a member's folder, after the last entry of its log.
fn read_member_folder(folder: &Path, id: u64) -> Result<Tree, OfflineError> {
    let storage = DirStorage::open(folder).map_err(io("open", folder))?;
    let folder = MemberFolder::open(Arc::new(storage), id, 1)?;
    let write =
        |writer: &mut SnapshotWriter| write_whole(&mut Tree::new(), writer, &Progress::default());
    let opened = folder.open_log(WalOptions::default(), write)?;
    let restored = restore_opened(opened, &Starting::default());
    Ok(replayed(
        restored.map_err(OfflineError::Content)?,
        &Starting::default(),
    )?
    .tree)
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
pub fn make_data_folder(
    folder: &Path,
    tree: &mut Tree,
    time_ms: i64,
    progress: &Progress,
) -> Result<u64, OfflineError> {
    make_folder(folder, |unfinished| {
        write_folder(unfinished, tree, time_ms, progress)
    })
}

/// Makes a folder that is there only when it is whole and durable.
fn make_folder<T>(
    folder: &Path,
    write: impl FnOnce(&Path) -> Result<T, OfflineError>,
) -> Result<T, OfflineError> {
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
    let made = write(&unfinished).and_then(|written| {
        std::fs::rename(&unfinished, &absolute).map_err(|error| match error.kind() {
            // A part of the same file system is mounted there.
            std::io::ErrorKind::ResourceBusy => OfflineError::NotReplaceable {
                folder: folder.to_owned(),
            },
            _ => io("name", &absolute)(error),
        })?;
        let above = DirStorage::open(parent).map_err(io("open", parent))?;
        above.sync_dir().map_err(io("sync", parent))?;
        Ok(written)
    });
    if made.is_err() {
        let _ = std::fs::remove_dir_all(&unfinished);
    }
    made
}

fn write_folder(
    folder: &Path,
    tree: &mut Tree,
    time_ms: i64,
    progress: &Progress,
) -> Result<u64, OfflineError> {
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
    write_whole(tree, &mut writer, progress)?;
    let info = writer.finish()?;
    wal.snapshot_saved(&info)?;
    wal.close()?;
    Ok(info.file_bytes)
}

/// Whether a server of this version could start from what [`baton_wal::verify`] has found: it reads
/// the newest snapshot, and can apply every entry behind it. The folder is neither locked nor
/// changed.
///
/// # Errors
/// [`OfflineError::Content`], with the refusal of a start.
pub fn check_content(storage: &dyn Storage, recovered: &Recovered) -> Result<(), OfflineError> {
    recover::check_content(storage, recovered).map_err(OfflineError::Content)
}

/// The tree of a data folder, after the last entry of its log, and what reading it has passed over
/// or could not decide. No server may run on it. Like a server's start, this cuts off a torn last
/// write.
///
/// # Errors
/// [`OfflineError`]; among others when a server runs on the folder.
pub fn read_data_folder(
    folder: &Path,
    progress: &Arc<Progress>,
) -> Result<(Tree, Vec<RecoveryNote>), OfflineError> {
    refuse_no_data_folder(folder)?;
    let storage = DirStorage::open(folder).map_err(io("open", folder))?;
    let starting = Starting::of(Arc::clone(progress));
    let restored = restore(Arc::new(storage), WalOptions::default(), &starting);
    let restored = restored.map_err(|error| match error {
        ServerError::Log(error) => match Arc::try_unwrap(error) {
            Ok(error) => OfflineError::Log(error),
            Err(error) => OfflineError::Content(ServerError::Log(error)),
        },
        error => OfflineError::Content(error),
    })?;
    let restored = replayed(restored, &starting)?;
    Ok((restored.tree, restored.notes))
}

/// Refuses a folder that has no log: opening it would make one.
fn refuse_no_data_folder(folder: &Path) -> Result<(), OfflineError> {
    match folder.join("FORMAT").is_file() {
        true => Ok(()),
        false => Err(OfflineError::NoDataFolder {
            folder: folder.to_owned(),
        }),
    }
}

/// Applies every entry of the log: the only voter commits whatever its log has.
fn replayed(mut restored: Restored, starting: &Starting) -> Result<Restored, OfflineError> {
    starting.replay(restored.entries.len() as u64);
    for entry in &restored.entries {
        starting.progress().add(1);
        let payload = match entry.kind {
            EntryKind::Noop => continue,
            EntryKind::Command => entry.payload.clone(),
            EntryKind::Configuration => {
                let change = MembershipChange::decode(&entry.payload);
                let change = change.map_err(|error| OfflineError::Content(error.into()))?;
                if change.context.is_empty() {
                    continue;
                }
                change.context
            }
        };
        let batch = Batch::decode(&payload).map_err(|source| {
            let index = entry.index;
            OfflineError::Content(ServerError::Entry { index, source })
        })?;
        restored.tree.apply_batch(&batch, &mut (), |_, _| {});
    }
    Ok(restored)
}
