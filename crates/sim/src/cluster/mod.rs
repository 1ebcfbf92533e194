//! An ensemble of whole servers, each on a disk that loses what was not synced. Owns their starts
//! and stops, and what must be true of them after each turn of any of them.
//!
//! | module | owns |
//! |---|---|
//! | `mesh` | connections between servers: dialling, carrying, cuts, ends |
//! | `rollback` | folders that are replaced by older copies |
//! | `life` | starts, ends and pauses of servers; what must be true of them |
//! | `logs` | what must be true of their logs |
//! | `state` | what all tasks of a cluster share |
//! | `server_log` | what is known of one server's log |
//! | `image` | what a log must give back |
//! | `members` | the effect of a change, computed beside the engine; who can decide |
//! | `oracle` | what is known of all servers: leaders, entries, trees, members |
//! | `lives` | how long sessions were promised to live, and when they expire |
//! | `bug` | seeded bugs |
//! | `mark` | rare situations |

pub(crate) mod bug;
mod image;
mod life;
mod lives;
mod logs;
pub(crate) mod mark;
mod members;
mod mesh;
mod oracle;
mod rollback;
mod server_log;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use life::{SUPERUSER, StopCause};
pub(crate) use state::{Cluster, Setup, SmallSnapshots};
