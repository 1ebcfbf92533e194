//! Several whole servers that are one, each on a disk that loses what was not synced. Owns their
//! comings and goings, and what must be true of them after each turn of any of them.
//!
//! | module | owns |
//! |---|---|
//! | `mesh` | connections between servers: dialling, carrying, cuts, ends |
//! | `life` | starts, ends and pauses of servers; what must be true of them |
//! | `state` | what all tasks of a cluster share |
//! | `lives` | how long sessions were promised to live, and when they expire |
//! | `mark` | rare situations |

mod life;
mod lives;
pub(crate) mod mark;
mod mesh;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use life::{Power, SUPERUSER};
pub(crate) use state::{Cluster, Setup, SmallSnapshots};
