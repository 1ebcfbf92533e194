//! The breaking disk: what can go wrong, when, and what a crash leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::storage::{Access, LockError, LockGuard, Storage, StorageFile};

/// A disk loses or keeps a write in pieces of this many bytes.
const SECTOR_BYTES: u64 = 512;

/// Effect of a planned fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The machine stops before the operation; everything after fails.
    Crash,
    /// The machine stops after the operation; everything after fails.
    CrashAfter,
    /// A write gets half-way, then the machine stops. Other operations: as `Crash`.
    TornWrite,
    /// The operation does nothing and reports an I/O error; later ones work.
    Error,
    /// A write gets half-way and reports an I/O error; later operations work. Others: as `Error`.
    PartialWrite,
    /// A sync reports an error and throws away what waited to be written, as Linux does: the
    /// program still reads it back, but no later sync brings it to the disk. Others: as `Error`.
    SyncLost,
    /// The operation does nothing and reports a full disk; later ones work.
    Full,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Fault; 7] = [
        Fault::Crash,
        Fault::CrashAfter,
        Fault::TornWrite,
        Fault::Error,
        Fault::PartialWrite,
        Fault::SyncLost,
        Fault::Full,
    ];
}

/// Part of the unsynced writes that a crash leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// All of it is there.
    Nothing,
    /// None of it is there.
    Everything,
    /// Any part of it is there, in any order, sector by sector, torn in the middle of a sector; and
    /// any of the changes of names.
    Random(u64),
}

/// A folder on a disk in memory that breaks on demand. Clones are handles on the same disk.
#[derive(Debug, Clone, Default)]
pub struct FaultStorage {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    files: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    operations: u64,
    plan: Option<(u64, Fault)>,
    crashed: bool,
    held: bool,
    capacity_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug, Clone)]
enum NameChange {
    Link(String, usize),
    Rename(String, String),
    Unlink(String),
}

/// Decision of the plan about the next operation.
enum FaultDecision {
    Normal,
    Half { then_crash: bool },
    LoseSync,
    CrashAfter,
}

impl FaultStorage {
    /// An empty disk without faults.
    pub fn new() -> FaultStorage {
        FaultStorage::default()
    }

    /// Breaks operation number `operation`; the first is 0. Replaces an earlier plan.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.disk().plan = Some((operation, fault));
    }

    /// Takes back a planned fault that has not come yet.
    pub fn clear_fault(&self) {
        self.disk().plan = None;
    }

    /// The sum of all file lengths.
    pub fn used_bytes(&self) -> u64 {
        self.disk().used_bytes()
    }

    /// Limits the sum of all file lengths; writing beyond reports a full disk.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.disk().capacity_bytes = bytes;
    }

    /// The number of operations so far.
    pub fn operations(&self) -> u64 {
        self.disk().operations
    }

    /// Power loss: another disk, without faults, as this one would be found after it.
    pub fn crash(&self, loss: Loss) -> FaultStorage {
        let disk = self.disk();
        let mut rng = match loss {
            Loss::Random(seed) => Some(fastrand::Rng::with_seed(seed)),
            _ => None,
        };
        let keep_percent = rng.as_mut().map_or(100, |rng| 25 * rng.u64(..5));
        let named = disk.named();
        let files = disk
            .files
            .iter()
            .enumerate()
            .map(|(id, inode)| match loss {
                _ if !named.contains(&id) => Inode::default(),
                Loss::Nothing => Inode::settled(inode.kept(|_| CrashSurvivors::All)),
                Loss::Everything => Inode::settled(inode.durable.clone()),
                Loss::Random(_) => Inode::settled(inode.kept(|length| {
                    let Some(rng) = rng.as_mut() else {
                        return CrashSurvivors::All;
                    };
                    if rng.u64(..100) >= keep_percent {
                        CrashSurvivors::None
                    } else if rng.u8(..100) < 10 {
                        CrashSurvivors::First(rng.u64(..length.max(1)))
                    } else {
                        CrashSurvivors::All
                    }
                })),
            })
            .collect();
        // A folder's changes that were not synced may reach the disk in any order.
        let mut rng = match loss {
            Loss::Random(seed) => Some(fastrand::Rng::with_seed(!seed)),
            _ => None,
        };
        let mut names = disk.durable_names.clone();
        for change in &disk.pending_names {
            let is_kept = match &mut rng {
                Some(rng) => rng.u8(..100) < 50,
                None => loss == Loss::Nothing,
            };
            if is_kept {
                change.apply(&mut names);
            }
        }
        FaultStorage::with(Disk {
            files,
            durable_names: names.clone(),
            names,
            ..Disk::default()
        })
    }

    /// The process is killed, the machine runs on: everything written is there to be read, and what
    /// was not synced can still be lost.
    pub fn kill(&self) -> FaultStorage {
        let disk = self.disk();
        let named = disk.named();
        let kept = |(id, inode): (usize, &Inode)| match named.contains(&id) {
            true => inode.clone(),
            false => Inode::default(),
        };
        FaultStorage::with(Disk {
            files: disk.files.iter().enumerate().map(kept).collect(),
            names: disk.names.clone(),
            durable_names: disk.durable_names.clone(),
            pending_names: disk.pending_names.clone(),
            ..Disk::default()
        })
    }

    /// The content of a file, or `None` when it is not there.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.disk();
        let id = *disk.names.get(name)?;
        disk.files.get(id).map(|inode| inode.live.clone())
    }

    /// Puts a durable file there, replacing what had the name.
    pub fn put(&self, name: &str, content: &[u8]) {
        let mut disk = self.disk();
        let id = disk.files.len();
        disk.files.push(Inode::settled(content.to_vec()));
        disk.names.insert(name.to_owned(), id);
        disk.durable_names.insert(name.to_owned(), id);
    }

    /// Takes a file away, durably.
    pub fn take(&self, name: &str) {
        let mut disk = self.disk();
        disk.names.remove(name);
        disk.durable_names.remove(name);
    }

    /// Flips one bit of a file, durably. Outside the file it does nothing.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) {
        if let Some(mut content) = self.content(name) {
            if let Some(byte) = content.get_mut(offset as usize) {
                *byte ^= 1 << (bit % 8);
            }
            self.put(name, &content);
        }
    }

    fn with(disk: Disk) -> FaultStorage {
        FaultStorage {
            disk: Arc::new(Mutex::new(disk)),
        }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum CrashSurvivors {
    All,
    None,
    First(u64),
}

impl Inode {
    fn settled(content: Vec<u8>) -> Inode {
        Inode {
            live: content.clone(),
            durable: content,
            pending: Vec::new(),
        }
    }

    /// The durable content with those pieces of the pending writes that `keep` chooses.
    fn kept(&self, mut keep: impl FnMut(u64) -> CrashSurvivors) -> Vec<u8> {
        let mut content = self.durable.clone();
        for (offset, data) in &self.pending {
            let mut at = 0;
            while at < data.len() {
                let position = offset + at as u64;
                let in_sector = SECTOR_BYTES - position % SECTOR_BYTES;
                let length = in_sector.min((data.len() - at) as u64);
                let kept = match keep(length) {
                    CrashSurvivors::All => length,
                    CrashSurvivors::None => 0,
                    CrashSurvivors::First(count) => count,
                } as usize;
                if let Some(piece) = data.get(at..at + kept) {
                    overwrite(&mut content, position, piece);
                }
                at += length as usize;
            }
        }
        content
    }
}

fn overwrite(content: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let start = offset as usize;
    let end = start + data.len();
    if data.is_empty() {
        return;
    }
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(target) = content.get_mut(start..end) {
        target.copy_from_slice(data);
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Link(name, id) => {
                names.insert(name.clone(), *id);
            }
            NameChange::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
            NameChange::Unlink(name) => {
                names.remove(name);
            }
        }
    }
}

impl Disk {
    fn begin(&mut self) -> io::Result<FaultDecision> {
        if self.crashed {
            return Err(io::Error::other("the machine has stopped"));
        }
        let number = self.operations;
        self.operations += 1;
        let Some((at, fault)) = self.plan else {
            return Ok(FaultDecision::Normal);
        };
        if at != number {
            return Ok(FaultDecision::Normal);
        }
        match fault {
            Fault::Crash => {
                self.crashed = true;
                Err(io::Error::other("the machine has stopped"))
            }
            Fault::CrashAfter => Ok(FaultDecision::CrashAfter),
            Fault::TornWrite => Ok(FaultDecision::Half { then_crash: true }),
            Fault::PartialWrite => Ok(FaultDecision::Half { then_crash: false }),
            Fault::SyncLost => Ok(FaultDecision::LoseSync),
            Fault::Error => Err(io::Error::other("injected I/O error")),
            Fault::Full => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    /// For operations that are whole or not at all.
    fn whole<T>(&mut self, act: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        match self.begin()? {
            FaultDecision::Normal => act(self),
            FaultDecision::CrashAfter => {
                let done = act(self);
                self.crashed = true;
                done
            }
            FaultDecision::Half { then_crash } => {
                self.crashed |= then_crash;
                Err(io::Error::other("injected I/O error"))
            }
            FaultDecision::LoseSync => Err(io::Error::other("injected I/O error")),
        }
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }

    /// Files that have a name, or may have one after a crash.
    fn named(&self) -> BTreeSet<usize> {
        let links = self.pending_names.iter().filter_map(|change| match change {
            NameChange::Link(_, id) => Some(*id),
            _ => None,
        });
        let names = self.names.values().chain(self.durable_names.values());
        names.copied().chain(links).collect()
    }

    fn used_bytes(&self) -> u64 {
        self.names
            .values()
            .filter_map(|id| self.files.get(*id))
            .map(|inode| inode.live.len() as u64)
            .sum()
    }

    fn write(&mut self, id: usize, offset: u64, data: &[u8]) -> io::Result<()> {
        let used = self.used_bytes();
        let capacity = self.capacity_bytes;
        let Some(inode) = self.files.get_mut(id) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let growth = (offset + data.len() as u64).saturating_sub(inode.live.len() as u64);
        if capacity.is_some_and(|capacity| used + growth > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        overwrite(&mut inode.live, offset, data);
        inode.pending.push((offset, data.to_vec()));
        Ok(())
    }

    fn write_by_plan(&mut self, id: usize, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.begin()? {
            FaultDecision::Half { then_crash } => {
                let half = data.get(..data.len() / 2).unwrap_or_default();
                let done = self.write(id, offset, half);
                self.crashed |= then_crash;
                done.and(Err(io::Error::other("injected I/O error")))
            }
            FaultDecision::CrashAfter => {
                let done = self.write(id, offset, data);
                self.crashed = true;
                done
            }
            FaultDecision::LoseSync => Err(io::Error::other("injected I/O error")),
            FaultDecision::Normal => self.write(id, offset, data),
        }
    }
}

impl Storage for FaultStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk()
            .whole(|disk| Ok(disk.names.keys().cloned().collect()))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let id = self.disk().whole(|disk| {
            if disk.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let id = disk.files.len();
            disk.files.push(Inode::default());
            disk.change_name(NameChange::Link(name.to_owned(), id));
            Ok(id)
        })?;
        Ok(Box::new(FaultFile {
            storage: self.clone(),
            id,
        }))
    }

    fn open(&self, name: &str, _: Access) -> io::Result<Box<dyn StorageFile>> {
        let id = self.disk().whole(|disk| match disk.names.get(name) {
            Some(id) => Ok(*id),
            None => Err(io::ErrorKind::NotFound.into()),
        })?;
        Ok(Box::new(FaultFile {
            storage: self.clone(),
            id,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk().whole(|disk| {
            if !disk.names.contains_key(from) {
                return Err(io::ErrorKind::NotFound.into());
            }
            disk.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk().whole(|disk| {
            if !disk.names.contains_key(name) {
                return Err(io::ErrorKind::NotFound.into());
            }
            disk.change_name(NameChange::Unlink(name.to_owned()));
            Ok(())
        })
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk().whole(|disk| {
            for change in std::mem::take(&mut disk.pending_names) {
                change.apply(&mut disk.durable_names);
            }
            Ok(())
        })
    }

    fn lock(&self) -> Result<LockGuard, LockError> {
        let mut disk = self.disk();
        if disk.held {
            return Err(LockError::InUse {
                pid: Some(std::process::id()),
            });
        }
        disk.held = true;
        Ok(LockGuard::new(UnlockOnDrop(self.clone())))
    }

    fn location(&self, name: &str) -> String {
        format!("disk:{name}")
    }
}

struct UnlockOnDrop(FaultStorage);

impl Drop for UnlockOnDrop {
    fn drop(&mut self) {
        self.0.disk().held = false;
    }
}

#[derive(Debug)]
struct FaultFile {
    storage: FaultStorage,
    id: usize,
}

impl StorageFile for FaultFile {
    fn len(&self) -> io::Result<u64> {
        let id = self.id;
        self.storage.disk().whole(|disk| {
            Ok(disk
                .files
                .get(id)
                .map_or(0, |inode| inode.live.len() as u64))
        })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let id = self.id;
        self.storage.disk().whole(|disk| {
            let rest = disk
                .files
                .get(id)
                .and_then(|inode| inode.live.get(offset as usize..))
                .unwrap_or_default();
            let count = rest.len().min(buffer.len());
            if let (Some(target), Some(source)) = (buffer.get_mut(..count), rest.get(..count)) {
                target.copy_from_slice(source);
            }
            Ok(count)
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.storage.disk().write_by_plan(self.id, offset, data)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut disk = self.storage.disk();
        let from = disk
            .files
            .get(self.id)
            .map_or(0, |inode| inode.live.len() as u64);
        let zeros = vec![0; len.saturating_sub(from) as usize];
        disk.write_by_plan(self.id, from, &zeros)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.storage.disk();
        let course = disk.begin()?;
        let Some(inode) = disk.files.get_mut(self.id) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        match course {
            FaultDecision::Normal | FaultDecision::CrashAfter => {
                for (offset, data) in std::mem::take(&mut inode.pending) {
                    overwrite(&mut inode.durable, offset, &data);
                }
                disk.crashed |= matches!(course, FaultDecision::CrashAfter);
                Ok(())
            }
            FaultDecision::LoseSync => {
                inode.pending.clear();
                Err(io::Error::other("injected sync failure"))
            }
            FaultDecision::Half { then_crash } => {
                disk.crashed |= then_crash;
                Err(io::Error::other("injected I/O error"))
            }
        }
    }
}
