//! The core turns what sockets and the other servers hand in into log entries, and applies them to
//! the tree once they are on disk; one thread at a time runs it. Validates no write before it is
//! committed.
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `turns` | the thread that takes the core's next turn |
//! | `driver` | one turn of the core, and what the components below do in it |
//! | `start/` | from a data folder to a tree, a log and a consensus node that may run |
//! | `log` | the writer of the log, which the core runs, or a thread of its own |
//! | `snapshots` | snapshots taken in slices between entries and written by a thread of their own |
//! | `apply` | one committed entry: results, reads between its writes, replies, watch events |
//! | `membership/` | changes of the members: which is under way, and its next step |
//! | `member_changes` | from a list of servers to a change of the members |
//! | `batches/` | requests of clients, from the inbox to an entry of the log |
//! | `transfer/` | snapshots between servers: sent, received, verified |
//! | `digests` | whether the servers have the same state |
//! | `wall_clocks` | the servers' wall clocks, and the time of a log entry |
//! | `leadership/` | who leads; when this server campaigns or hands over |
//! | `peer_states` | the other servers, as this one has heard of them |
//! | `lost_entries` | entries that others have acknowledged, and those that this folder lacks |
//! | `timings/` | when entries were proposed, synced and committed: for metrics and traces |
//! | `disk_worker` | work that waits for the disk, on a thread of its own |
//! | `links/` | the connections to the other servers, as the core uses them |

mod apply;
mod batches;
mod digests;
mod disk_worker;
pub(crate) mod driver;
mod leadership;
pub(crate) mod links;
pub(crate) mod log;
mod lost_entries;
mod member_changes;
mod membership;
mod peer_states;
pub(crate) mod snapshots;
pub(crate) mod start;
mod timings;
pub(crate) mod transfer;
pub(crate) mod turns;
mod wall_clocks;
