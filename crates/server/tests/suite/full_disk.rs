//! Snapshots and a disk without room: a snapshot that fails takes none, and one under way gives way
//! to the log, so that writes go on without a restart.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use baton_server::{Options, Server};
use baton_wal::testing::FaultStorage;
use baton_wal::{Access, LockError, LockGuard, MemoryStorage, Storage, StorageFile};

use crate::support::{PATIENCE, Wire, in_memory};

fn options(snapshot_every_entries: u64) -> Options {
    let mut options = in_memory().options().clone();
    options.snapshot_every_entries = snapshot_every_entries;
    options
}

async fn create(wire: &mut Wire, n: usize, bytes: usize) {
    let path = format!("/n{n}");
    let data = vec![n as u8; bytes];
    tokio::time::timeout(PATIENCE, wire.create(&path, &data, 0))
        .await
        .unwrap_or_else(|_| panic!("{path} still waits for room"))
        .unwrap();
}

fn named(storage: &impl Storage, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names = storage.list().unwrap();
    names.retain(|name| is_meant(name));
    names
}

fn unfinished(storage: &impl Storage) -> Vec<String> {
    named(storage, |name| name.ends_with(".tmp"))
}

fn snapshots(storage: &impl Storage) -> Vec<String> {
    named(storage, |name| {
        name.starts_with("snap-") && !name.ends_with(".tmp")
    })
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn a_snapshot_that_found_no_room_takes_none_from_the_writes_after_it() {
    let disk = FaultStorage::new();
    let server = Server::start_with(options(28), Arc::new(disk.clone()))
        .await
        .unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    for n in 0..15 {
        create(&mut wire, n, 100_000).await;
    }
    // Room for two more steps of the log. When the snapshot begins, the log has taken one of them:
    // it never fits whole, however late the next write comes.
    let mut used = 0;
    for name in disk.list().unwrap() {
        used += disk.content(&name).unwrap().len() as u64;
    }
    disk.set_capacity(Some(used + (9 << 18)));
    for n in 15..35 {
        create(&mut wire, n, 100_000).await;
    }
    assert_eq!(snapshots(&disk), [""; 0], "there was no room for one");
    until("the failed snapshot's file goes", || {
        unfinished(&disk).is_empty()
    })
    .await;
    disk.set_capacity(None);
    for n in 35..60 {
        create(&mut wire, n, 100).await;
    }
    until("a snapshot succeeds", || !snapshots(&disk).is_empty()).await;
    server.shutdown().await.unwrap();
}

/// A disk that has room for a snapshot or for more of the log, not for both. A snapshot's first
/// write waits until the log has been refused.
#[derive(Debug, Clone, Default)]
struct Either {
    files: MemoryStorage,
    refused: Arc<(Mutex<bool>, Condvar)>,
    holds: Arc<AtomicBool>,
}

impl Either {
    fn file(&self, name: &str, file: Box<dyn StorageFile>) -> Box<dyn StorageFile> {
        Box::new(EitherFile {
            disk: self.clone(),
            file,
            is_snapshot: name.starts_with("snap-"),
        })
    }
}

impl Storage for Either {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }
    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        Ok(self.file(name, self.files.create(name)?))
    }
    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn StorageFile>> {
        Ok(self.file(name, self.files.open(name, access)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.files.sync_dir()
    }
    fn lock(&self) -> Result<LockGuard, LockError> {
        self.files.lock()
    }
    fn location(&self, name: &str) -> String {
        self.files.location(name)
    }
}

#[derive(Debug)]
struct EitherFile {
    disk: Either,
    file: Box<dyn StorageFile>,
    is_snapshot: bool,
}

impl StorageFile for EitherFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.is_snapshot {
            self.disk.holds.store(true, SeqCst);
            let (refused, changed) = &*self.disk.refused;
            let guard = refused.lock().unwrap();
            let waited = changed.wait_timeout_while(guard, PATIENCE, |refused| !*refused);
            drop(waited.unwrap());
        }
        self.file.write_at(offset, data)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        if !unfinished(&self.disk.files).is_empty() {
            let (refused, changed) = &*self.disk.refused;
            *refused.lock().unwrap() = true;
            changed.notify_all();
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.allocate(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[tokio::test]
async fn a_snapshot_under_way_gives_way_to_a_log_that_finds_no_room() {
    let disk = Either::default();
    let server = Server::start_with(options(20), Arc::new(disk.clone()))
        .await
        .unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    // A tree of more bytes than may be on their way from the core to the disk.
    for n in 0..20 {
        create(&mut wire, n, 200_000).await;
    }
    until("a snapshot is under way", || disk.holds.load(SeqCst)).await;
    // More than what is left of the log's last step.
    for n in 20..26 {
        create(&mut wire, n, 200_000).await;
    }
    assert_eq!(unfinished(&disk), [""; 0]);
    for n in 26..60 {
        create(&mut wire, n, 10).await;
    }
    until("the next snapshot succeeds", || {
        !snapshots(&disk).is_empty()
    })
    .await;
    server.shutdown().await.unwrap();
}
