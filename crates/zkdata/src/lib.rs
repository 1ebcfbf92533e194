//! Apache ZooKeeper's files (protocol.md §4): snapshots and transaction logs, read with every
//! checksum held against its bytes, replayed as ZooKeeper replays them, and a snapshot written that
//! ZooKeeper loads.
//!
//! Owns those formats and their rules, over bytes that are read once, from begin to end; opens no
//! file. Bytes are not trusted: no count reserves memory, nothing panics, and each error names the
//! file and the byte.

//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `export`, `to_tree` | a snapshot that ZooKeeper loads, from a tree; a tree from a database |
//! | `log` | transaction logs: read, checked, replayed |
//! | `snapshot` | snapshots: read and checked |
//! | `replay` | one transaction applied to a database |
//! | `digest` | ZooKeeper's digest of a database |
//! | `database` | znodes and sessions as ZooKeeper stores them |
//! | `txn` | the layouts of transactions |
//! | `compressed` | snappy and gzip streams |
//! | `input` | bytes of a file, read once, with offsets |
//! | `names` | names of files, and which of them are read in which order |
//! | `password` | the password of a session |
//! | `error` | what can be wrong with a file, with the remedy |

#![forbid(unsafe_code)]

mod compressed;
mod database;
mod digest;
mod error;
mod export;
mod input;
mod log;
mod names;
mod password;
mod replay;
mod snapshot;
mod to_tree;
mod txn;

pub use baton_tree::Tree;
pub use database::Database;
pub use error::ZkDataError;
pub use export::{ExportError, ExportReport, write_snapshot, write_streamed_snapshot};
pub use log::{ReplayReport, replay_log};
pub use names::{
    FileKind, log_file_zxid, logs_to_read, snapshot_file_zxid, snapshots_newest_first,
};
pub use password::java_password;
pub use snapshot::{is_snapshot, read_snapshot, read_streamed_snapshot};
pub use to_tree::{Moved, OwnerForm};
