//! Snapshots that are in use. While one is pinned, the log removes neither its file nor the
//! segments after its last entry.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The pins of one data folder: index and term of each pinned snapshot, and how often it is pinned.
/// Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pins {
    held: Arc<Mutex<BTreeMap<(u64, u64), usize>>>,
}

impl Pins {
    pub(super) fn hold(&self, index: u64, term: u64) -> SnapshotPin {
        *self.held().entry((index, term)).or_default() += 1;
        SnapshotPin {
            pins: self.clone(),
            point: (index, term),
        }
    }

    /// Returns whether the snapshot of this index and term is pinned.
    pub(crate) fn is_held(&self, point: (u64, u64)) -> bool {
        self.held().contains_key(&point)
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<(u64, u64), usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps one snapshot's file, and the log from its last entry on, until it is dropped.
#[derive(Debug)]
pub struct SnapshotPin {
    pins: Pins,
    /// Index and term.
    point: (u64, u64),
}

impl SnapshotPin {
    /// The last entry of the snapshot.
    pub fn index(&self) -> u64 {
        self.point.0
    }

    /// That entry's term.
    pub fn term(&self) -> u64 {
        self.point.1
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        let mut held = self.pins.held();
        if let Some(count) = held.get_mut(&self.point) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.point);
            }
        }
    }
}
