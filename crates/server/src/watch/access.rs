//! The watch table as a read gets to it.

use parking_lot::Mutex;

use crate::watch::table::WatchTable;

/// The watch table, which the core has locked and a socket has not.
pub(crate) enum WatchAccess<'a> {
    Lock(&'a Mutex<WatchTable>),
    Held(&'a mut WatchTable),
}

impl WatchAccess<'_> {
    pub(crate) fn with<R>(&mut self, change: impl FnOnce(&mut WatchTable) -> R) -> R {
        match self {
            WatchAccess::Lock(table) => change(&mut table.lock()),
            WatchAccess::Held(table) => change(table),
        }
    }
}
