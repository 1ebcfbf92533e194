//! The commit path: one thread, the core, turns what sockets hand in into log entries, and applies
//! them to the tree once they are on disk.
//!
//! | module | owns |
//! |---|---|
//! | `pipeline` | the core thread: one log entry of everything that waits, synced and applied |
//! | `apply` | one committed entry: results, reads between its writes, replies, watch events |
//! | `session_ends` | ended sessions that have ephemerals left, and who waits for their end |
//! | `lost_session` | the line of the log about a session that expired, and what it held |
//! | `outstanding` | batches of this server's clients that are not applied yet |
//! | `backlog` | requests that wait for an entry, and whose turn it is |
//! | `in_flight` | the requests of a batch, and the steps that they become |
//! | `member_changes` | from a list of servers to a change of the members |
//! | `group_commit` | adaptive group commit: when the core spins, when it waits for more writes |
//! | `join` | the start of a member: from a data folder to a consensus node that may run |
//! | `log` | the writer of the log, which the core runs, or a thread of its own |
//! | `snapshots` | snapshots taken in slices between entries and written by a thread of their own |
//! | `recover` | from a data folder to a tree and a log to append to |
//! | `starting` | progress of the start, for operators that ask before the server serves |

mod apply;
mod backlog;
mod group_commit;
mod in_flight;
pub(crate) mod join;
pub(crate) mod log;
mod lost_session;
mod member_changes;
mod outstanding;
pub(crate) mod pipeline;
pub(crate) mod recover;
mod session_ends;
pub(crate) mod snapshots;
pub(crate) mod starting;
