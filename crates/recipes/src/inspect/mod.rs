//! Recipes seen from outside: who holds, who waits, what a queue contains.
//!
//! An [`Inspector`] reads the nodes of a recipe without taking part in it, whichever library made
//! them. It makes no node, sets no watch and counts for nobody. What it returns is a snapshot: it
//! was true when it was read, and it is not a proof that it still is.
//!
//! | recipe | method |
//! |---|---|
//! | mutex, read/write lock, simple lock, semaphore, election | [`Inspector::lock`] |
//! | one waiter's position, at the cost of two reads | [`Inspector::ahead`] |
//! | barrier | [`Inspector::gate`] |
//! | double barrier | [`Inspector::double_barrier`] |
//! | countdown latch | [`Inspector::latch`] |
//! | queue, locking queue | [`Inspector::queue`], [`Inspector::locking_queue`] |
//! | work queue | [`Inspector::work_queue`] |
//! | membership | [`Inspector::group`] |
//!
//! An election is a wait queue as well: its leader is the holder.
//!
//! Callers that have read a tree themselves find out with [`recognise`] what a folder is, and make
//! the same snapshots of it: [`LockSnapshot::of_children`], [`LockSnapshot::of_semaphore`],
//! [`GroupSnapshot::of_children`]. What one node is by its path alone, [`role`] says.
//!
//! Two methods change something, each only the node that was seen: [`Inspector::revoke`] asks a
//! holder to release, and [`Inspector::break_holder`] deletes a holder's node.
//!
//! ```no_run
//! # async fn example(client: baton::Client) -> Result<(), baton::Error> {
//! use baton::inspect::Inspector;
//!
//! let inspector = Inspector::new(&client);
//! let lock = inspector.lock("/deploy").await?;
//! for holder in &lock.holders {
//!     println!("held by {holder} since {}", holder.info.since_ms);
//! }
//! for (position, waiter) in lock.waiters.iter().enumerate() {
//!     println!("{}. {waiter}, {}", position + 1, waiter.info.path);
//! }
//! // Ask the holders to release; who does not listen loses its node.
//! for holder in &lock.holders {
//!     inspector.revoke(holder).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Every snapshot implements `serde::Serialize`. Session ids are written as hexadecimal text.

// The modules of this folder, highest first: a module uses only modules below it.
//
// | module | owns |
// |---|---|
// | `role` | what one node is to a recipe, by its path |
// | `recognise` | which recipe a folder is, by its data and its children |
// | `waits` | who waits for whom in a wait queue |
// | `lock` | locks, semaphores and elections: holders, waiters in order |
// | `ahead` | the part of a wait queue before one node |
// | `change` | asking a holder to release, and deleting its node |
// | `barrier` | gates, double barriers, latches |
// | `queue` | queues in the layouts of other libraries |
// | `work_queue` | work queues |
// | `group` | groups of members |
// | `lock_node` | a node of a wait queue, and the order of several |
// | `children` | the children of a lock's directory, by naming scheme |
// | `inspector` | the handle, and how it reads again after a lost connection |
// | `node_info` | a node as it was read, and the pipelined reads of many |
// | `error` | why something could not be read |

mod ahead;
mod barrier;
mod change;
mod children;
mod error;
mod group;
mod inspector;
mod lock;
mod lock_node;
mod node_info;
mod queue;
mod recognise;
mod role;
mod waits;
mod work_queue;

pub use crate::queue::QueueKind;
pub use ahead::WaitersAhead;
pub use barrier::{DoubleBarrierSnapshot, LatchSnapshot, RoundPhase};
pub use children::{ForeignChild, NodeMode, Scheme};
pub use error::InspectError;
pub use group::{GroupMember, GroupSnapshot};
pub use inspector::Inspector;
pub use lock::{Folder, LockKind, LockSnapshot, semaphore_folders};
pub use lock_node::LockNode;
pub use node_info::{NodeInfo, UnreadableNode};
pub use queue::{ItemClaim, LockingQueueSnapshot, QueueSnapshot};
pub use recognise::{
    FolderKind, RoundInfo, beside, is_part_of_locking_queue, is_ready_mark, is_receipts, latch_in,
    locking_queue_folders, newest_round_in, oldest_items, recognise, round_in, sequence_number,
    term_in, term_path,
};
pub use role::{NodeRole, role};
pub use waits::BlockedNode;
pub use work_queue::WorkQueueSnapshot;
