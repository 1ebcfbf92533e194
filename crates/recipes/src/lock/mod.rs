//! Locks.

mod error;
mod multi;
mod mutex;

pub use error::LockError;
pub use multi::{MultiGuard, MultiLock};
pub use mutex::Mutex;
