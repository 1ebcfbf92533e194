//! Queues in the layouts of other libraries: each item goes to one consumer.
//!
//! - [`DistributedQueue`]: first in, first out.
//! - [`PriorityQueue`]: the lowest number first. [`DelayQueue`]: each item when it is due.
//! - [`IdQueue`]: items that can be found and removed by id.
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
// | `distributed_queue` | `DistributedQueue`: first in, first out |
// | `priority_queue` | `PriorityQueue`: the lowest number first |
// | `delay_queue` | `DelayQueue`: each item when it is due |
// | `id_queue` | `IdQueue`: items that can be found and removed by id |
// | `locking_queue` | `LockingQueue`: items that are locked until they are done |
// | `locked_item` | `LockedItem`: an item that its consumer has locked, and how the lock ends |
// | `item_claim` | the node that locks an item for one consumer |
// | `folder` | listing, offering and taking, under the names of one format |
// | `folder_state` | what clones of one handle share: takes under way, items of dropped callers |
// | `layout` | names of items, their order, and which library's they are |
// | `curator_envelope` | the bytes in which Curator writes several items into one node |
// | `error` | `QueueError` |

mod curator_envelope;
mod delay_queue;
mod distributed_queue;
mod error;
mod folder;
mod folder_state;
mod id_queue;
mod item_claim;
mod layout;
mod locked_item;
mod locking_queue;
mod priority_queue;

pub use delay_queue::DelayQueue;
pub use distributed_queue::DistributedQueue;
pub use error::QueueError;
pub use id_queue::{IdItem, IdQueue};
pub use layout::QueueKind;
pub use layout::QueueLayout;
pub use locked_item::LockedItem;
pub use locking_queue::LockingQueue;
pub use priority_queue::PriorityQueue;
