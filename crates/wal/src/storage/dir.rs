//! A real folder on a real disk.
//!
//! `File::sync_data` is `fdatasync` on Linux and the full flush on macOS; a folder is synced by
//! syncing its handle. The lock is the system's own file lock, which ends with the process, on a
//! file that holds the pid.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::privacy::{self, FILE_MODE, FOLDER_MODE, FolderError};
use super::{Access, LockError, LockGuard, Storage, StorageFile};
use crate::file_names::LOCK_FILE;

/// A folder of the file system.
#[derive(Debug, Clone)]
pub struct DirStorage {
    path: PathBuf,
}

impl DirStorage {
    /// The folder at `path`, which must be there.
    ///
    /// # Errors
    /// `NotADirectory` or `NotFound`, and whatever else the system says.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<DirStorage> {
        let path = path.into();
        if fs::metadata(&path)?.is_dir() {
            Ok(DirStorage { path })
        } else {
            Err(io::Error::from(io::ErrorKind::NotADirectory))
        }
    }

    /// The folder at `path`, for this user only. It and the folders above it are made, and made
    /// durable, where they are missing. One that is there and that others may read is closed to
    /// them, with its files, if it holds nothing but a log.
    ///
    /// # Errors
    /// [`FolderError`] for a folder that others own, may write to or share, and whatever the system
    /// says.
    pub fn create(path: impl Into<PathBuf>) -> Result<DirStorage, FolderError> {
        let path = path.into();
        let made = make(&path).and_then(|()| DirStorage::open(path.clone()));
        let storage = made.map_err(|source| FolderError::Io {
            folder: path.clone(),
            source,
        })?;
        privacy::keep_private(&path)?;
        Ok(storage)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a folder and those above it, durably, where they are missing.
fn make(path: &Path) -> io::Result<()> {
    let mut made = Vec::new();
    let mut missing = path;
    while !missing.as_os_str().is_empty() && !missing.exists() {
        made.push(missing.to_owned());
        match missing.parent() {
            Some(parent) => missing = parent,
            None => break,
        }
    }
    fs::DirBuilder::new()
        .mode(FOLDER_MODE)
        .recursive(true)
        .create(path)?;
    for folder in made.iter().rev() {
        let parent = match folder.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

impl Storage for DirStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for item in fs::read_dir(&self.path)? {
            let item = item?;
            if item.file_type()?.is_file()
                && let Ok(name) = item.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(self.path.join(name))?;
        privacy::own(&file)?;
        Ok(Box::new(DirFile { file }))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn StorageFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(access == Access::Write)
            .open(self.path.join(name))?;
        Ok(Box::new(DirFile { file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn remove_open(&self, name: &str) -> io::Result<Option<File>> {
        let file = OpenOptions::new().write(true).open(self.path.join(name));
        self.remove(name)?;
        // Bytes that have another name are not ours to free.
        let has_no_name = |file: &File| file.metadata().is_ok_and(|it| it.nlink() == 0);
        Ok(file.ok().filter(has_no_name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn lock(&self) -> Result<LockGuard, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(self.path.join(LOCK_FILE))?;
        privacy::own(&file)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let pid = match file.read_to_string(&mut text) {
                    Ok(_) => text.trim().parse().ok(),
                    Err(_) => None,
                };
                return Err(LockError::InUse { pid });
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(LockGuard::new(file))
    }

    fn inode(&self) -> io::Result<Option<(u64, u64)>> {
        let lock = fs::metadata(self.path.join(LOCK_FILE))?;
        Ok(Some((lock.dev(), lock.ino())))
    }

    fn readers(&self) -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }

    fn location(&self, name: &str) -> String {
        if name.is_empty() {
            self.path.display().to_string()
        } else {
            self.path.join(name).display().to_string()
        }
    }
}

#[derive(Debug)]
struct DirFile {
    file: File,
}

impl StorageFile for DirFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let before = self.len()?;
        let mut at = before;
        while at < len {
            let count = (len - at).min(ZEROS.len() as u64);
            let zeros = ZEROS
                .get(..usize::try_from(count).unwrap_or(0))
                .unwrap_or_default();
            if let Err(error) = self.file.write_all_at(zeros, at) {
                // What fitted is of no use, and on a full disk others need it.
                let _ = self.file.set_len(before);
                return Err(error);
            }
            at += count;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// No test can cut the power of a disk. But a device and a folder of the kernel's own refuse a
    /// sync, so one that says "done" of them was never asked for.
    #[test]
    fn syncs_of_files_and_folders_reach_the_system() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/null", folder.path().join("device")).unwrap();
        let storage = DirStorage::open(folder.path()).unwrap();
        let device = storage.open("device", Access::Write).unwrap();
        device.write_at(0, b"x").unwrap();
        assert!(device.sync_data().is_err());
        storage.create("file").unwrap().sync_data().unwrap();
        storage.sync_dir().unwrap();
        let of_the_kernel = DirStorage::open("/proc/self").unwrap();
        assert!(of_the_kernel.sync_dir().is_err());
    }
}
