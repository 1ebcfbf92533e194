//! Durable log segments and snapshots over a storage trait that tests can break.
//!
//! Owns the data folder: what is in it, in which bytes (`docs/internals/format.md`), and when it is
//! durable. It never interprets an entry's payload or a snapshot's chunks, and never repairs what
//! was acknowledged: damage beyond a torn tail is refused with the file, the offset and what to do.
//! Nothing outside this crate syncs a file.
//!
//! Everything here blocks; call it from a thread that may. Nothing is cancelled half-way: a call
//! returns when the bytes are where it says or with an error that says where they are not.

//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `member_folder` | the data folder of a server of several: its identity, then its log |
//! | `wal` | the log that is being written: buffer, one write, one sync, the next segment, purge |
//! | `outdated` | files that newer snapshots make needless, on their way out |
//! | `folder` | taking a data folder into use |
//! | `inspect` | `dump` and `verify`: every record and chunk, read without changing anything |
//! | `identity` | the file that says what a data folder is to a cluster of several servers |
//! | `backup` | a backup: a snapshot's file outside of a data folder, written and read |
//! | `acknowledged` | the file that says which entries the members of a cluster have acknowledged |
//! | `hold` | the file that says until when a restored folder serves no session |
//! | `superseded` | the file that says that another cluster has begun with the folder's data |
//! | `recover` | what the folder gives back at start, and whether it may be trusted |
//! | `end_mark` | how far the log was synced, recorded in a second place |
//! | `segment` | one segment file: header, records, where it ends |
//! | `snapshot` | snapshot files: written, read, verified; their bytes as they travel; pins |
//! | `marker` | the file that says of which format and cluster the folder is |
//! | `unfinished_file` | large files, written under another name until they are whole |
//! | `whole_file` | files written under another name until they are durable |
//! | `testing` | a storage that fails where a test wants it to |
//! | `storage` | the folder itself: a trait, real files, memory; its permissions |
//! | `file_names` | the names of all files, and which names are Baton's |
//! | `record` | the bytes of one record |
//! | `options`, `error`, `bytes_at` | how a log is kept; errors with the remedy; numbers in bytes |

#![forbid(unsafe_code)]

mod acknowledged;
mod backup;
mod bytes_at;
mod end_mark;
mod error;
mod file_names;
mod folder;
mod hold;
mod identity;
mod inspect;
mod marker;
mod member_folder;
mod options;
mod outdated;
mod record;
mod recover;
mod segment;
mod snapshot;
mod storage;
mod superseded;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod unfinished_file;
mod wal;
mod whole_file;

pub use acknowledged::Acknowledged;
pub use backup::{BackupReader, BackupWriter};
pub use end_mark::EndMark;
pub use error::WalError;
pub use file_names::FileKind;
pub use hold::{Hold, read_hold, remove_hold, write_hold};
pub use identity::Identity;
pub use inspect::{
    Dump, DumpItem, DumpRecord, FileReport, SegmentHeaderInfo, VerifyReport, dump, verify,
};
pub use member_folder::MemberFolder;
pub use options::WalOptions;
pub use outdated::Outdated;
pub use record::{Entry, HardState, MAX_PAYLOAD_BYTES, Record};
pub use recover::{Recovered, RecoveryNote};
pub use snapshot::{
    Chunk, MAX_CHUNK_BYTES, RawSnapshotReader, RawSnapshotWriter, SnapshotFileId, SnapshotInfo,
    SnapshotMeta, SnapshotPin, SnapshotReader, SnapshotStore, SnapshotWriter,
};
pub use storage::{
    Access, DirStorage, FolderError, LockError, LockGuard, MemoryStorage, Storage, StorageFile,
};
pub use superseded::{refuse_superseded, remove_superseded, write_superseded};
pub use wal::{SyncReport, Wal};

/// The version of every file format of the data folder that this build writes and reads.
pub const FORMAT_VERSION: u32 = 1;
