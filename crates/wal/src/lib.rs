//! Durable log segments and snapshots over a storage trait that tests can break.
//!
//! Owns the data folder: what is in it, in which bytes (`docs/internals/format.md`), and when it is
//! durable. It never interprets an entry's payload or a snapshot's chunks, and never repairs what
//! was acknowledged: damage beyond a torn tail is refused with the file, the offset and what to do.
//! Nothing outside this crate syncs a file.
//!
//! Everything here blocks; call it from a thread that may. Nothing is cancelled half-way: a call
//! returns when the bytes are where it says or with an error that says where they are not.

#![forbid(unsafe_code)]

mod bytes_at;
mod end_mark;
mod error;
mod folder;
mod inspect;
mod marker;
mod record;
mod recover;
mod segment;
mod snapshot;
mod storage;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wal;

pub use end_mark::EndMark;
pub use error::WalError;
pub use inspect::{
    Dump, DumpItem, DumpRecord, FileReport, SegmentHeaderInfo, VerifyReport, dump, verify,
};
pub use record::{Entry, HardState, MAX_PAYLOAD_BYTES, Record};
pub use recover::{Recovered, RecoveryNote};
pub use snapshot::{
    Chunk, MAX_CHUNK_BYTES, SnapshotInfo, SnapshotMeta, SnapshotReader, SnapshotStore,
    SnapshotWriter,
};
pub use storage::{
    Access, DirStorage, FolderError, LockError, LockGuard, MemoryStorage, Storage, StorageFile,
};
pub use wal::{SyncReport, Wal, WalOptions};

/// The version of every file format of the data folder that this build writes and reads.
pub const FORMAT_VERSION: u32 = 1;
