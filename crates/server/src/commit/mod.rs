//! The commit path: one thread, the core, turns what sockets hand in into log entries, and applies
//! them to the tree once they are on disk.
//!
//! | module | owns |
//! |---|---|
//! | `pipeline` | the core thread: takes everything that waits, proposes one log entry, appends, syncs, applies; waits where the disk is full |
//! | `apply` | one committed entry: the tree's results, the reads between its writes, replies and watch events into each connection's FIFO |
//! | `group_commit` | adaptive group commit: when the core spins after a sync, and when it waits for a second small write |
//! | `snapshots` | snapshots taken in slices between entries and written by a thread of their own |
//! | `recover` | from a data folder to a tree and a log to append to |
//! | `starting` | progress of the start, for operators that ask before the server serves |

mod apply;
mod group_commit;
pub(crate) mod pipeline;
pub(crate) mod recover;
pub(crate) mod snapshots;
pub(crate) mod starting;
