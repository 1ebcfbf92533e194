//! The replicated state machine: znodes, sessions, ACLs. Pure; no clock, no I/O, no randomness.
//!
//! [`Tree::apply`] is a function of the state and the command. Replicas that apply the same log
//! entries ([`Batch`]) have the same [`Tree::digest`]; a snapshot restores exactly the state at one
//! entry.

#![forbid(unsafe_code)]

mod acl_table;
mod arena;
mod batch;
mod digest;
mod effects;
mod exchange;
mod identity;
mod kind;
mod multi;
mod quota;
mod read;
mod reap;
mod restore;
mod seed;
mod sessions;
mod snapshot;
mod tree;
mod varint;
mod walk;
mod write;

pub use acl_table::AclList;
pub use batch::{BATCH_VERSION, Batch, BatchBuilder, BatchError, BatchItem, CloseReason, Command};
pub use effects::{Change, ChangeKind, Effects, Outcome, OverQuota, QuotaOf};
pub use exchange::{AssembleError, Assembly, Znode};
pub use identity::{AuthId, Identity, digest_id};
pub use quota::QuotaState;
pub use read::ChildNames;
pub use reap::ReapCandidate;
pub use restore::{Restore, RestoreError};
pub use seed::{SeedError, SeedNode};
pub use sessions::{EphemeralCursor, SessionInfo};
pub use snapshot::{MAX_CHUNK_BYTES, SNAPSHOT_VERSION, SnapshotBusy};
pub use tree::Tree;
pub use write::MAX_SEQUENCE;
