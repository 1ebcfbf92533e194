//! Locks: mutexes, read/write locks, several locks at once.
//!
//! - [`Mutex`]: one holder at a time, in order of arrival.
//! - [`ReentrantMutex`]: the owner of the lock can acquire it again.
//! - [`RwLock`]: many readers or one writer, in order of arrival.
//! - [`MultiLock`]: several locks, all of them or none.
//! - [`SimpleMutex`]: one node and no wait queue, for clients that lock in this way.
//!
//! Each has an example on its page. A mutex yields a [`Guard`](crate::Guard), which says when the
//! lock is lost. [`LockError`] says why a lock was not acquired, [`WaitProgress`] who is ahead.

mod multi;
mod mutex;
mod reentrant;
mod rw_lock;
mod simple;

pub use crate::acquire::{LockError, QueuePosition, WaitProgress};
pub use multi::{MultiGuard, MultiLock};
pub use mutex::Mutex;
pub use reentrant::{OwnerId, ReentrantGuard, ReentrantMutex};
pub use rw_lock::{ReadGuard, RwLock, UpgradeRefused, WriteGuard};
pub use simple::SimpleMutex;
