//! Locks.

mod error;
mod multi;
mod mutex;
mod rw_lock;

pub use error::LockError;
pub use multi::{MultiGuard, MultiLock};
pub use mutex::Mutex;
pub use rw_lock::{ReadGuard, RwLock, UpgradeRefused, WriteGuard};
