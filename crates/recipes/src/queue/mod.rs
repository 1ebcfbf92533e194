//! Queues in the forms that other libraries use too: items in a folder of the tree, each taken by
//! one consumer.
//!
//! Owns their names and bytes, and how an offer or a removal whose answer was lost is resolved.
//! Must never offer an item twice (H66), nor drop one that it has deleted (H65), nor delete one
//! that it cannot read (H72).

mod claim;
mod delay;
mod distributed;
mod envelope;
mod error;
mod folder;
mod id;
mod layout;
mod local;
mod locked;
mod locking;
mod priority;

pub use delay::DelayQueue;
pub use distributed::DistributedQueue;
pub use error::QueueError;
pub use id::{IdItem, IdQueue};
pub use layout::QueueLayout;
pub use locked::LockedItem;
pub use locking::LockingQueue;
pub use priority::PriorityQueue;
