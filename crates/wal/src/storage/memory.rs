//! A folder in memory, for a server that keeps nothing: the same log and snapshots on it, the same
//! path through the code. Unwritten zeros at a file's end take no memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Access, LockError, LockGuard, Storage, StorageFile};

/// Files in memory. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    files: Arc<Mutex<BTreeMap<String, MemoryFile>>>,
    held: Arc<Mutex<bool>>,
}

impl MemoryStorage {
    /// An empty folder.
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }
}

/// A lock that a panic elsewhere cannot make unusable: the data under it is plain bytes.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Storage for MemoryStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(locked(&self.files).keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let mut files = locked(&self.files);
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = MemoryFile::default();
        files.insert(name.to_owned(), file.clone());
        Ok(Box::new(file))
    }

    fn open(&self, name: &str, _: Access) -> io::Result<Box<dyn StorageFile>> {
        match locked(&self.files).get(name) {
            Some(file) => Ok(Box::new(file.clone())),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = locked(&self.files);
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match locked(&self.files).remove(name) {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self) -> Result<LockGuard, LockError> {
        let mut held = locked(&self.held);
        if *held {
            return Err(LockError::InUse {
                pid: Some(std::process::id()),
            });
        }
        *held = true;
        Ok(LockGuard::new(UnlockOnDrop(Arc::clone(&self.held))))
    }

    fn location(&self, name: &str) -> String {
        format!("memory:{name}")
    }
}

struct UnlockOnDrop(Arc<Mutex<bool>>);

impl Drop for UnlockOnDrop {
    fn drop(&mut self) {
        *locked(&self.0) = false;
    }
}

#[derive(Debug, Clone, Default)]
struct MemoryFile {
    content: Arc<Mutex<MemoryContent>>,
}

/// `data` is followed by zeros up to `len`.
#[derive(Debug, Default)]
struct MemoryContent {
    data: Vec<u8>,
    len: u64,
}

impl StorageFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(locked(&self.content).len)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let content = locked(&self.content);
        let count = content.len.saturating_sub(offset).min(buffer.len() as u64);
        let count = usize::try_from(count).unwrap_or(0);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let stored = content.data.get(start..).unwrap_or_default();
        for (at, target) in buffer.iter_mut().take(count).enumerate() {
            *target = stored.get(at).copied().unwrap_or(0);
        }
        Ok(count)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut content = locked(&self.content);
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let end = start + data.len();
        if content.data.len() < end {
            content.data.resize(end, 0);
        }
        if let Some(target) = content.data.get_mut(start..end) {
            target.copy_from_slice(data);
        }
        content.len = content.len.max(end as u64);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut content = locked(&self.content);
        content.len = content.len.max(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}
