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
//! What peers send goes into [`Consensus::step`]; the effects' `send_now` and `send_after_sync` go
//! to them. A committed [`EntryKind::Configuration`] goes through [`Consensus::apply_change`]
//! before `applied`. A server that stands alone runs the same loop as one voter that campaigns at
//! once.
//!
//! | module | owns |
//! |---|---|
//! | `node` | one node: the engine, and what may be asked of it when; lost entries (`proofs`) |
//! | `log` | the entries in memory, as the engine reads them |
//! | `types` | what goes into a node and comes out of it |
//! | `message` | what nodes send to each other |
//! | `snapshot` | the point that a snapshot stands for |
//! | `entry` | entries of the replicated log |
//! | `membership` | who belongs to the cluster, and changes of that |
//! | `timeouts` | election timeouts from a seed |
//! | `error` | what is refused, and why |
//! | `quiet` | the engine's log lines, of which warnings are passed on |

#![forbid(unsafe_code)]

mod entry;
mod error;
mod log;
mod membership;
mod message;
mod node;
mod quiet;
mod snapshot;
mod timeouts;
mod types;

pub use entry::{Entry, EntryKind};
pub use error::{ChangeError, ConsensusError, ProposeError, ReadError, StepError};
pub use membership::{Change, Member, Membership, MembershipChange};
pub use message::{MessageKind, PeerMessage};
pub use node::Consensus;
pub use snapshot::SnapshotPoint;
pub use types::{
    Config, Effects, HardState, LogGap, PeerProgress, PersistToken, Position, ReadId, ReadReady,
    Recovered, Role, RoleChange,
};
