//! Locks.

mod error;
mod mutex;

pub use error::LockError;
pub use mutex::Mutex;
