//! Work queue: items are claimed, worked on and acknowledged; an unacknowledged item returns to the
//! queue.
//!
//! - [`WorkQueue`]: put items, take them, run a handler for each; it has an example.
//! - [`WorkItem`]: a payload with its priority, delay and id.
//! - [`Claim`]: an item in a consumer's hands. [`Settlement`]: how a claim ends.
//! - [`DeadLetter`]: an item that failed too often. [`QueueDepth`]: how much is in the queue.

// Owns the layout that is Baton's own, described in `docs/user/recipes.md`. An item leaves the
// tree only by a settlement under its claim, by a purge, or as a dead letter that somebody
// discards. It must never be lost, nor settled by a consumer that has lost its claim
// (`docs/internals/hazards.md` H67–H76).
//
// | module | owns |
// |---|---|
// | `runner` | running a handler for each item, several at once |
// | `take` | `take`, `poll`, `take_many`, `give_back`; one task claims for a whole process |
// | `wait` | waiting for items: the queue watcher and what it watches |
// | `claim_attempt` | the multi that claims items, and how its unknown outcome is resolved |
// | `claim` | `Claim`: a claimed item in a consumer's hands |
// | `settle` | the one multi that ends a claim, by its owner or by its token |
// | `claims` | the list of claims: who works on what |
// | `outside` | what the nodes say to somebody who takes no part |
// | `purge` | removing all items, or all dead letters |
// | `depth` | how much is in the queue |
// | `dead_letter` | dead letters: made, listed, replayed, discarded |
// | `offer` | putting items |
// | `scan` | which items can be claimed now, in which order, and when there will be more |
// | `capacity` | room under the capacity; changing the capacity |
// | `repair` | making the missing nodes of the layout on demand |
// | `retry` | whether a step that failed may be tried again, and the loop that does so |
// | `missing_nodes` | nodes of the layout that somebody deleted: found, reported, made again |
// | `shards` | the shards of items: listed, counted, chosen for a new item, removed |
// | `queue` | `WorkQueue`: path and settings, with the options of its claims |
// | `context` | what the clones of a handle share; the queue's own node |
// | `read_ahead` | claimable items that were read before they are needed |
// | `visibility` | the visibility timeout of a claim: noted, measured, extended |
// | `held_item` | an item under a claim of this process, until it is lost |
// | `notice` | the node that informs a claim's owner of a settlement by another process |
// | `capacity_counter` | the node that bounds the number of items |
// | `settlement` | `Settlement`: how a claim ends, and what that makes of the item |
// | `item` | `WorkItem`: a payload and how it is queued |
// | `error` | `WorkError`, and why a step failed |
// | `envelope` | an item's bytes on the tree |
// | `layout` | names and paths |

mod capacity;
mod capacity_counter;
mod claim;
mod claim_attempt;
mod claims;
mod context;
mod dead_letter;
mod depth;
mod envelope;
mod error;
mod held_item;
mod item;
mod layout;
mod missing_nodes;
mod notice;
mod offer;
pub(crate) mod outside;
mod purge;
mod queue;
mod read_ahead;
mod repair;
mod retry;
mod runner;
mod scan;
mod settle;
mod settlement;
mod shards;
mod take;
mod visibility;
mod wait;

pub use claim::Claim;
pub use claims::{ClaimInfo, Claims};
pub use dead_letter::DeadLetter;
pub use depth::QueueDepth;
pub use error::WorkError;
pub use item::WorkItem;
pub use outside::{ItemNote, WorkFolders, available_since_ms, is_claim};
pub use purge::PurgeReport;
pub use queue::WorkQueue;
pub use runner::RunSummary;
pub use settlement::{SettledState, Settlement};
