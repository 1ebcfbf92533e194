//! Errors of ZooKeeper's files: what is wrong, where, and what to do. Owns the wording.

use baton_tree::AssembleError;

/// Reason why ZooKeeper's files were not read. Nothing of what was read before it is used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZkDataError {
    /// The first bytes are others.
    #[error(
        "{file} is not a ZooKeeper {what}: its first 16 bytes are not those of one of version 2; restore it from a copy, or move it away"
    )]
    NotOne {
        /// The file.
        file: String,
        /// `snapshot` or `transaction log`.
        what: &'static str,
    },
    /// ZooKeeper did not finish it: it passes over such a snapshot as well.
    #[error(
        "the snapshot {file} was never finished: it does not end with ZooKeeper's mark; use an older one"
    )]
    Unfinished {
        /// The file.
        file: String,
    },
    /// The compressed stream is damaged.
    #[error(
        "{file} cannot be decompressed: {reason}; restore it from a copy, or move it away: an older snapshot with the logs since then has the same data"
    )]
    Decompress {
        /// The file.
        file: String,
        /// Error of the decompressor.
        reason: String,
    },
    /// The system did not give the bytes.
    #[error(
        "cannot read {file}: {reason}; run this as the user that ZooKeeper runs as, and check the disk"
    )]
    Unreadable {
        /// The file.
        file: String,
        /// Error of the system.
        reason: String,
    },
    /// A stored checksum does not match.
    #[error(
        "{file} at byte {offset}: the checksum is {stored:08x}, but the bytes before it have {computed:08x}; {remedy}"
    )]
    Checksum {
        /// The file.
        file: String,
        /// Begin of the checksum, or of what it covers.
        offset: u64,
        /// The stored value.
        stored: u64,
        /// The value of the bytes.
        computed: u64,
        /// The next step.
        remedy: &'static str,
    },
    /// A record that cannot be read.
    #[error("{file} at byte {offset}: {reason}; {remedy}")]
    Record {
        /// The file.
        file: String,
        /// Position.
        offset: u64,
        /// The damage.
        reason: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A kind of transaction that is in no ZooKeeper up to 3.9.
    #[error(
        "{file} at byte {offset}: a transaction of type {kind}, which is not known here; let ZooKeeper write a snapshot of all it has (start and stop it), and import that"
    )]
    UnknownTransaction {
        /// The file.
        file: String,
        /// Begin of the transaction.
        offset: u64,
        /// Its type.
        kind: i32,
    },
    /// Transactions that do not follow each other.
    #[error(
        "{file} at byte {offset}: transaction 0x{zxid:x} comes after 0x{after:x}; do not mix logs of different servers"
    )]
    OutOfOrder {
        /// The file.
        file: String,
        /// Begin of the transaction.
        offset: u64,
        /// Its zxid.
        zxid: i64,
        /// The one before.
        after: i64,
    },
    /// ZooKeeper's own digest of the tree is another than that of the tree that was read.
    #[error(
        "after transaction 0x{zxid:x} the tree has digest {computed:016x}, but ZooKeeper had {stored:016x} ({source_file}): a file is missing or was changed; with --allow-digest-mismatch it is imported as it is"
    )]
    Digest {
        /// After which transaction.
        zxid: i64,
        /// The stored value.
        stored: u64,
        /// The value that was read.
        computed: u64,
        /// File that it is stored in.
        source_file: String,
    },
    /// The snapshot has traces of transactions that no log has.
    #[error(
        "the snapshot {snapshot} was finished after transaction 0x{zxid:x}, but the logs end with 0x{last:x}: a log is missing; name ZooKeeper's dataLogDir, or put the log back; with --allow-digest-mismatch it is imported as it is"
    )]
    LogMissing {
        /// The snapshot.
        snapshot: String,
        /// The last transaction before it was finished.
        zxid: i64,
        /// The last transaction that was read.
        last: i64,
    },
    /// A snapshot that is to say up to where it goes, and does not.
    #[error(
        "{file} does not contain its last zxid: ZooKeeper's admin command `snapshot` (3.9) writes it; with a snapshot of a data folder, use baton import"
    )]
    NoLastZxid {
        /// The file.
        file: String,
    },
    /// A znode's ACL is in no file.
    #[error(
        "the ACL number {number} of the znode {path:?} is in no snapshot and no log: a log is missing"
    )]
    NoAcl {
        /// The znode.
        path: String,
        /// The number.
        number: i64,
    },
    /// More data than Baton's snapshots can hold in one znode.
    #[error(
        "the znode {path:?} has {bytes} bytes of data, which is larger than the {limit} that can be stored here: make it smaller in ZooKeeper, then import"
    )]
    TooLarge {
        /// The znode.
        path: String,
        /// Length of the data.
        bytes: usize,
        /// The most.
        limit: usize,
    },
    /// The znodes do not make a tree.
    #[error("{0}: a log is missing, or the files are of different servers")]
    Tree(AssembleError),
}

impl From<AssembleError> for ZkDataError {
    fn from(error: AssembleError) -> Self {
        Self::Tree(error)
    }
}
