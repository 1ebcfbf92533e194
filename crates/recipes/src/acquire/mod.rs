//! Lock acquisition: from its parameters to a [`Guard`](crate::Guard).
//!
//! Owns the attempts over sessions and waiter nodes, and what a caller receives of them: progress
//! and errors. Must never make a guard of a node that is not first in its wait queue.

mod acquisition;
mod error;
mod options;
mod progress;

pub(crate) use acquisition::{
    AcquireMode, Acquisition, AttemptError, Grant, Report, needs_renewal, renew,
};
pub use error::LockError;
pub(crate) use options::acquisition_options;
pub use progress::{QueuePosition, WaitProgress};
