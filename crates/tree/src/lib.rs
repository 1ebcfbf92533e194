//! The replicated state machine: znodes, sessions, ACLs. Pure; no clock, no I/O, no randomness.
//!
//! [`Tree::apply`] is a function of the state and the command. Replicas that apply the same log
//! entries ([`Batch`]) have the same [`Tree::digest`]; a snapshot restores exactly the state at one
//! entry.
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `exchange` | a tree from and to a list of znodes, for imports |
//! | `apply` | the commands of the log: sessions, the zxid, which write is run |
//! | `multi` | several writes, all or none, and their bounds |
//! | `write` | create, delete, set, check, reconfigure; **the number of a sequential znode** |
//! | `restore` | a tree from a snapshot's chunks |
//! | `quota`, `reap`, `read` | quotas; which containers and TTL znodes are due; reads |
//! | `change` | changes of one znode, with digest and indexes |
//! | `recorder` | what accompanies a write: context, notifications, undo |
//! | `snapshot` | a snapshot in slices while writes go on |
//! | `tree` | the state itself |
//! | `snapshot_content` | a snapshot's bytes |
//! | `batch` | the payload of a log entry |
//! | `sessions`, `walk` | sessions and their ephemerals; a walk over all znodes |
//! | `attachment` | **which connection writes for a session, and which command is the next** |
//! | `digest` | the digest of the whole tree |
//! | `effects` | what a command reports |
//! | `arena` | znodes in memory |
//! | `record`, `payloads` | stored parts of a znode; names and data |
//! | `acl_table` | ACLs stored once each |
//! | `child_names` | the names of many children, which a listing shares |
//! | `acl_rules` | **which ACLs may be stored**, and their bounds |
//! | `acl_list`, `identity` | what an ACL lets whom do; the identities of a client |
//! | `server_list` | the servers of an ensemble, as `/zookeeper/config` lists them |
//! | `executor` | work that several threads of the caller may share |
//! | `kind`, `level`, `varint` | kinds of znodes; format levels; encoded numbers |

#![forbid(unsafe_code)]

mod acl_list;
mod acl_rules;
mod acl_table;
mod apply;
mod arena;
mod attachment;
mod batch;
mod change;
mod child_names;
mod digest;
mod effects;
mod exchange;
mod executor;
mod identity;
mod kind;
mod level;
mod multi;
mod payloads;
mod quota;
mod read;
mod reap;
mod record;
mod recorder;
mod restore;
mod server_list;
mod sessions;
mod snapshot;
mod snapshot_content;
mod tree;
mod varint;
mod walk;
mod write;

pub use acl_list::AclList;
pub use acl_rules::AclAllowance;
pub use attachment::{Stamp, Unapplied};
pub use batch::{
    BATCH_VERSION, Batch, BatchBuilder, BatchError, BatchItem, CloseReason, Command, Origin,
};
pub use child_names::ChildListing;
pub use effects::{Change, ChangeKind, Effects, Outcome, OverQuota, QuotaOf};
pub use exchange::{AssembleError, Assembly, Znode};
pub use executor::{Executor, Piece, Sequential};
pub use identity::{AuthId, Identity, digest_id};
pub use level::{FormatLevel, MOST_DELETED_AT_ONCE};
pub use multi::MultiBounds;
pub use quota::QuotaState;
pub use read::{ChildNames, PeekedChild};
pub use reap::{ReapCandidate, ReapCursor};
pub use restore::{Restore, RestoreError};
pub use server_list::{ListChange, ListedServer, ServerList};
pub use sessions::{EphemeralCursor, SessionInfo};
pub use snapshot::SnapshotBusy;
pub use snapshot_content::{MAX_CHUNK_BYTES, SNAPSHOT_VERSION};
pub use tree::Tree;
pub use write::MAX_SEQUENCE;
