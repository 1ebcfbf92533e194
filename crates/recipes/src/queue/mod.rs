//! Queues in the layouts of other libraries: each item goes to one consumer.
//!
//! - [`Queue`]: [`DistributedQueue`] is first in, first out; [`PriorityQueue`] has the lowest
//!   number first, [`DelayQueue`] each item when it is due, [`IdQueue`] items that are found by id.
//! - [`LockingQueue`]: items that are locked until they are done, and return if they are not.
//!
//! Each has an example on its page. Where no other library reads the queue, use
//! [`work_queue`](crate::work_queue), which does more.

// Owns their names and bytes, and how the unknown outcome of an offer or a removal is resolved.
// Must never offer an item twice (H66), nor lose one that it has deleted (H65), nor delete one
// that it cannot read (H72).
//
// | module | owns |
// |---|---|
// | `ordered_queue` | `Queue`: items taken in their order; the names that the orders need |
// | `locking_queue` | `LockingQueue`: items that are locked until they are done |
// | `locked_item` | `LockedItem`: an item that its consumer has locked, and how the lock ends |
// | `item_claim` | the node that locks an item for one consumer |
// | `folder` | listing, offering and taking, under the names of one format |
// | `folder_state` | what clones of one handle share: takes under way, items of dropped callers |
// | `layout` | names of items, their order, and which library's they are |
// | `curator_envelope` | the bytes in which Curator writes several items into one node |
// | `error` | `QueueError` |

mod curator_envelope;
mod error;
mod folder;
mod folder_state;
mod item_claim;
mod layout;
mod locked_item;
mod locking_queue;
mod ordered_queue;

pub use error::QueueError;
pub use layout::QueueKind;
pub use layout::QueueLayout;
pub use locked_item::LockedItem;
pub use locking_queue::LockingQueue;
pub use ordered_queue::{
    ByDueTime, ById, ByPriority, DelayQueue, DistributedQueue, Fifo, IdItem, IdQueue, Order,
    PriorityQueue, Queue,
};
