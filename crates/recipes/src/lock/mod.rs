//! Locks.

mod multi;
mod mutex;
mod reentrant;
mod rw_lock;
mod simple;

pub use multi::{MultiGuard, MultiLock};
pub use mutex::Mutex;
pub use reentrant::{OwnerId, ReentrantGuard, ReentrantMutex};
pub use rw_lock::{ReadGuard, RwLock, UpgradeRefused, WriteGuard};
pub use simple::SimpleMutex;
