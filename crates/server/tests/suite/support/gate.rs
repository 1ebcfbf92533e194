//! A storage in memory whose syncs wait while its gate is shut: a disk that hangs. So does what is
//! opened.

use std::io;
use std::sync::{Arc, Condvar, Mutex};

use baton_wal::{Access, LockError, LockGuard, MemoryStorage, Storage, StorageFile};

/// Open at first.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    is_shut: bool,
    /// Number of callers that wait at the gate.
    waiting: usize,
}

impl Gate {
    /// Shuts the gate until the result is dropped: a server that is dropped waits for its disk.
    pub fn shut(&self) -> Shut {
        self.0.0.lock().unwrap().is_shut = true;
        Shut(self.clone())
    }

    /// Returns once somebody waits in front of the gate.
    pub fn until_reached(&self) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap();
        drop(
            changed
                .wait_while(state, |state| state.waiting == 0)
                .unwrap(),
        );
    }

    fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.waiting += 1;
        changed.notify_all();
        state = changed.wait_while(state, |state| state.is_shut).unwrap();
        state.waiting -= 1;
    }
}

#[derive(Debug)]
pub struct Shut(Gate);

impl Drop for Shut {
    fn drop(&mut self) {
        self.0.0.0.lock().unwrap().is_shut = false;
        self.0.0.1.notify_all();
    }
}

#[derive(Debug, Clone)]
pub struct GatedStorage {
    inner: MemoryStorage,
    gate: Gate,
}

impl GatedStorage {
    pub fn new(gate: &Gate) -> Self {
        Self {
            inner: MemoryStorage::new(),
            gate: gate.clone(),
        }
    }

    fn gated(&self, file: Box<dyn StorageFile>) -> Box<dyn StorageFile> {
        Box::new(GatedFile {
            inner: file,
            gate: self.gate.clone(),
        })
    }
}

impl Storage for GatedStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        self.inner.create(name).map(|file| self.gated(file))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn StorageFile>> {
        self.gate.pass();
        self.inner.open(name, access).map(|file| self.gated(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.inner.sync_dir()
    }

    fn lock(&self) -> Result<LockGuard, LockError> {
        self.inner.lock()
    }

    fn location(&self, name: &str) -> String {
        self.inner.location(name)
    }
}

#[derive(Debug)]
struct GatedFile {
    inner: Box<dyn StorageFile>,
    gate: Gate,
}

impl StorageFile for GatedFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.inner.allocate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass();
        self.inner.sync_data()
    }
}
