//! A narrow sans-I/O facade over the `raft` crate.
//!
//! Owns the question "which entries are committed, in which order, and who may propose". It never
//! reads a clock, touches a file or a socket, or starts a thread: the caller ticks it, stores what
//! it hands out and reports when that is durable. No type of the engine crosses this boundary.
//!
//! The caller's loop is always the same:
//!
//! 1. [`Consensus::propose`] everything that waits;
//! 2. [`Consensus::drain`] → [`Effects`]; store `append` and `hard_state`, sync them;
//! 3. [`Consensus::persisted`] with the token of those effects;
//! 4. [`Consensus::drain`] again: what the sync committed is now in `committed`; apply it;
//! 5. [`Consensus::applied`].
//!
//! A server that stands alone runs the same loop as one voter that campaigns at once.

#![forbid(unsafe_code)]

mod error;
mod log;
mod node;
mod quiet;
mod types;

pub use error::{ConsensusError, ProposeError, ReadError};
pub use node::Consensus;
pub use types::{
    Config, Effects, Entry, EntryKind, HardState, Membership, PersistToken, Position, ReadId,
    ReadReady, Recovered, Role, RoleChange, SnapshotPoint,
};
