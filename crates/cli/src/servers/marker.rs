//! Marks by which the users of a machine know of each other's local servers, which they can neither
//! reach nor see.
//!
//! A local server leaves an empty file in a folder that all users share, named after its user and
//! process, and holds it locked as long as it runs. A command that finds a locked file of another
//! user knows that this user's server runs. Nothing follows from a file but that: its owner, as the
//! system reports it, is all that is believed, and nothing is read from it or written to it.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// The prefix of the names of markers. A user's id and a process id follow.
const PREFIX: &str = "baton-local-server.";
/// Others may open a marker, to see whether it is locked.
const MODE: Mode = Mode::from_raw_mode(0o644);
/// Markers that are read in one folder. More than that is somebody's mischief, and must not hold a
/// command up.
const MOST: usize = 1024;

/// The mark of this process, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Marker {
    folder: File,
    name: String,
    /// Locked.
    file: File,
}

impl Marker {
    /// Leaves a mark in the first of these folders that takes one. The user's marks of servers that
    /// have been killed are removed.
    pub(crate) fn leave(folders: &[PathBuf]) -> Option<Self> {
        folders.iter().find_map(|folder| {
            let marked = Self::leave_in(folder);
            if let Err(error) = &marked {
                tracing::debug!(folder = %folder.display(), %error, "cannot leave a marker here");
            }
            marked.ok()
        })
    }

    fn leave_in(path: &Path) -> std::io::Result<Self> {
        let folder = open_folder(path)?;
        let about = fs::fstat(&folder)?;
        let mode = Mode::from_raw_mode(about.st_mode);
        if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) {
            // Anybody could remove the file, and replace it by another.
            return Err(Errno::PERM.into());
        }
        let me = rustix::process::geteuid().as_raw();
        for left in entries(&folder)?.filter(|entry| entry.user == me) {
            remove_if_left(&folder, &left.name);
        }
        let name = format!("{PREFIX}{me}.{}", std::process::id());
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(fs::openat(&folder, &name, flags, Mode::RUSR | Mode::WUSR)?);
        let marker = Self { folder, name, file };
        // Nobody else can open it before it is locked.
        marker.file.lock()?;
        fs::fchmod(&marker.file, MODE)?;
        Ok(marker)
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        remove(&self.folder, &self.name, &self.file);
    }
}

/// The users other than `me` whose local servers run, by their marks in these folders.
pub(crate) fn other_users(folders: &[PathBuf], me: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for folder in folders {
        let Ok(folder) = open_folder(folder) else {
            continue;
        };
        for entry in entries(&folder).into_iter().flatten() {
            if entry.user != me && !found.contains(&entry.user) && is_held(&folder, &entry) {
                found.insert(entry.user);
            }
        }
    }
    found
}

/// A marker's name, taken apart.
struct Entry {
    name: String,
    user: u32,
}

fn open_folder(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    fs::openat(CWD, path, flags, Mode::empty()).map(File::from)
}

/// The files of a folder that are named as markers are.
fn entries(folder: &File) -> std::io::Result<impl Iterator<Item = Entry>> {
    let listed = fs::Dir::read_from(folder)?.flatten();
    let entries = listed.filter_map(|listed| {
        let name = listed.file_name().to_str().ok()?;
        let (user, process) = name.strip_prefix(PREFIX)?.split_once('.')?;
        process.parse::<u32>().ok()?;
        Some(Entry {
            user: user.parse().ok()?,
            name: name.to_owned(),
        })
    });
    Ok(entries.take(MOST))
}

/// Opens a file that anybody may have made, and without waiting, whatever it is.
fn open_strange(folder: &File, name: &str) -> Result<(File, Stat), Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::RDONLY;
    let file = fs::openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty())?;
    let about = fs::fstat(&file)?;
    Ok((File::from(file), about))
}

/// Whether this marker is its user's own, not a link to something else of that user, and its server
/// runs.
fn is_held(folder: &File, entry: &Entry) -> bool {
    let Ok((file, about)) = open_strange(folder, &entry.name) else {
        return false;
    };
    let is_plain = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
    is_plain
        && about.st_nlink == 1
        && about.st_uid == entry.user
        && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Removes the mark of a server of this user that has been killed.
fn remove_if_left(folder: &File, name: &str) {
    if let Ok((file, _)) = open_strange(folder, name)
        && file.try_lock().is_ok()
    {
        remove(folder, name, &file);
    }
}

/// Removes a name, if it is still that of the file.
fn remove(folder: &File, name: &str, file: &File) {
    let same = |one: Stat, other: Stat| (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino);
    let named = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    if let (Ok(named), Ok(opened)) = (named, fs::fstat(file))
        && same(named, opened)
    {
        let _ = fs::unlinkat(folder, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn folder(mode: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        folder
    }

    fn seen(folder: &Path, by: u32) -> Vec<u32> {
        other_users(&[folder.to_owned()], by).into_iter().collect()
    }

    /// Seen as another user would, who has another number.
    #[test]
    fn a_server_is_seen_by_others_as_long_as_it_runs() {
        let folder = folder(0o1777);
        let at = [folder.path().join("missing"), folder.path().to_owned()];
        let marker = Marker::leave(&at).unwrap();
        assert_eq!(seen(folder.path(), me() + 1), [me()]);
        assert_eq!(seen(folder.path(), me()), [0; 0]);
        let file = folder.path().join(&marker.name);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        drop(marker);
        assert!(!file.exists());
        assert_eq!(seen(folder.path(), me() + 1), [0; 0]);
    }

    #[test]
    fn a_file_that_is_not_a_locked_file_of_the_user_it_names_counts_for_nothing() {
        let folder = folder(0o1777);
        let name =
            |user: u32, process: u32| folder.path().join(format!("{PREFIX}{user}.{process}"));
        let locked = |path: PathBuf| {
            let file = File::create(path).unwrap();
            file.lock().unwrap();
            file
        };
        // What a killed server leaves.
        std::fs::write(name(me(), 1), "").unwrap();
        // Links to what is locked.
        let _one = locked(folder.path().join("one"));
        symlink(folder.path().join("one"), name(me(), 2)).unwrap();
        let _two = locked(folder.path().join("two"));
        std::fs::hard_link(folder.path().join("two"), name(me(), 3)).unwrap();
        // The name of somebody else.
        let _three = locked(name(me() + 7, 4));
        // What would block a process that opens it.
        fs::mknodat(
            CWD,
            name(me(), 5),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let pipe = File::options()
            .read(true)
            .write(true)
            .open(name(me(), 5))
            .unwrap();
        pipe.lock().unwrap();
        assert_eq!(seen(folder.path(), me() + 1), [0; 0]);
        // The user's next server removes what a killed one has left, and nothing else.
        let marker = Marker::leave(&[folder.path().to_owned()]).unwrap();
        assert!(!name(me(), 1).exists());
        assert!(name(me(), 2).exists() && name(me(), 3).exists() && name(me() + 7, 4).exists());
        assert_eq!(seen(folder.path(), me() + 1), [me()]);
        drop(marker);
    }

    #[test]
    fn no_mark_is_left_where_anybody_could_replace_it() {
        let open = folder(0o777);
        assert!(Marker::leave(&[open.path().to_owned()]).is_none());
        let sticky = folder(0o1777);
        let at = [open.path().to_owned(), sticky.path().to_owned()];
        let marker = Marker::leave(&at).unwrap();
        assert!(sticky.path().join(&marker.name).exists());
    }
}
