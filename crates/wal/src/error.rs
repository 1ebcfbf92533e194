//! Errors of the log. Every text names the file, and what to do next.

use std::io;

use crate::FORMAT_VERSION;

/// An error of the log or of a snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalError {
    /// The operating system refused a read, or a change that was not yet promised to anyone.
    #[error("cannot {action} {file}: {source}; check the disk and the permissions of this user")]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file or folder.
        file: String,
        /// The system's answer.
        r#source: io::Error,
    },
    /// No room on the disk. Nothing that waits to be synced was acknowledged. When `retryable`, it
    /// is still buffered and [`Wal::sync`](crate::Wal::sync) may be called again once there is
    /// room.
    #[error("no space left {} {file}: free space on that disk, or raise the quota or the limit on file sizes that is met{}", room_wanted(*.needed_bytes),
        if *.retryable { "" } else { ", then start again" })]
    NoSpace {
        /// The file.
        file: String,
        /// Number of bytes to be written.
        needed_bytes: u64,
        /// Whether the log is still usable.
        retryable: bool,
    },
    /// A write or a sync failed, so what is on the disk is not known. Never retried: after a failed
    /// sync the system may hold a page for clean that never reached the disk.
    #[error(
        "{action} of {file} failed ({reason}): nothing more is written; check the disk, then start again to recover from what is on it"
    )]
    Poisoned {
        /// The failed action.
        action: &'static str,
        /// The file.
        file: String,
        /// The system's answer.
        reason: String,
    },
    /// Another process has the data folder.
    #[error("the data folder {folder} is in use by {}: stop that process, or use another folder", pid_text(.pid))]
    InUse {
        /// The data folder.
        folder: String,
        /// The process that holds it, where it can be read.
        pid: Option<u32>,
    },
    /// A file of another format version.
    #[error("{file} has format version {found}, this build reads version {supported}: {}", version_remedy(*.found, *.supported))]
    FormatVersion {
        /// The file.
        file: String,
        /// The version in it.
        found: u32,
        /// The version of this build.
        supported: u32,
    },
    /// A file of another cluster.
    #[error(
        "{file} belongs to cluster {found:016x}, not to {expected:016x}: do not mix data folders; move the foreign file away"
    )]
    WrongCluster {
        /// The file.
        file: String,
        /// The cluster in it.
        found: u64,
        /// The cluster expected.
        expected: u64,
    },
    /// The folder holds log files but not the marker that says which format and cluster they have.
    #[error(
        "{folder} holds log files but no readable {marker} file: restore it from a copy of this folder, or use an empty folder"
    )]
    MissingMarker {
        /// The data folder.
        folder: String,
        /// The marker's name.
        marker: &'static str,
    },
    /// The marker is there, the log is not.
    #[error(
        "{folder} is marked as a data folder but holds no log segment: acknowledged data is missing; restore the folder from a copy, or use an empty folder"
    )]
    MissingLog {
        /// The data folder.
        folder: String,
    },
    /// Acknowledged bytes are damaged.
    #[error("{file} is damaged at byte {offset}: {what}; {remedy}")]
    Corrupt {
        /// The file.
        file: String,
        /// Position, in bytes from the start.
        offset: u64,
        /// The damage.
        what: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A segment is missing after another: the one with the next number, or one that was begun and
    /// is gone.
    #[error(
        "log segment {missing} is missing after {before}: restore it from a copy of this folder"
    )]
    SegmentGap {
        /// The segment before the gap.
        before: String,
        /// The number of the first missing segment.
        missing: u64,
    },
    /// The log begins after entries that no usable snapshot holds.
    #[error("the log in {folder} begins at entry {log_begins}, and no usable snapshot reaches entry {needed}{}: restore a snapshot from a copy of this folder", damaged_text(.damaged))]
    MissingSnapshot {
        /// The data folder.
        folder: String,
        /// The first entry in the log.
        log_begins: u64,
        /// The entry that a snapshot must reach.
        needed: u64,
        /// Snapshots that are there but damaged, each with its reason.
        damaged: Vec<String>,
    },
    /// The log ends before a snapshot that was made from it.
    #[error(
        "the log ends at entry {log_ends}, before entry {snapshot_index} that snapshot {snapshot} was made of: acknowledged entries are missing; restore the folder from a copy"
    )]
    LogBehindSnapshot {
        /// The last entry in the log.
        log_ends: u64,
        /// The snapshot's last entry.
        snapshot_index: u64,
        /// The snapshot's file.
        snapshot: String,
    },
    /// The folder's data went into another folder, with which another cluster has begun.
    #[error(
        "the data of {folder} went to {into}, where a new cluster began with it: start the server there. To give that \
         cluster up instead, remove {into} and then the file {file}"
    )]
    Superseded {
        /// The data folder.
        folder: String,
        /// The new cluster's folder.
        into: String,
        /// The file that says so.
        file: String,
    },
    /// A member's folder, given to a server that stands alone.
    #[error(
        "the data folder {folder} belongs to server {server} of an ensemble: start the server with the list of the \
         ensemble's servers, or name another folder"
    )]
    MemberFolder {
        /// The data folder.
        folder: String,
        /// The server that owns it.
        server: u64,
    },
    /// A folder that has a log and no identity, given to a server of several.
    #[error(
        "the data folder {folder} has a log, and no file {file} that says of which ensemble: name an empty folder, or \
         start the server alone, without a list of servers. If the file {file} was lost, restore it from a copy of \
         this folder"
    )]
    NotAMemberFolder {
        /// The data folder.
        folder: String,
        /// The name of the file of a member's identity.
        file: &'static str,
    },
    /// The folder of another server of the ensemble.
    #[error(
        "the data folder {folder} belongs to server {found}, and this is server {expected}: name the folder of server \
         {expected}, or correct the id"
    )]
    OtherServer {
        /// The data folder.
        folder: String,
        /// The server that owns it.
        found: u64,
        /// This server.
        expected: u64,
    },
    /// A member's folder without its log: what the server has acknowledged is gone (R17).
    #[error(
        "the data folder {folder} of server {server}, a member of cluster {cluster:016x}, has lost its log: restore the \
         newest state of the folder, or empty the folder, start the server, and admit it again with \
         `baton server replace {server}`"
    )]
    MemberLogLost {
        /// The data folder.
        folder: String,
        /// The server that owns it.
        server: u64,
        /// The cluster that it belongs to.
        cluster: u64,
    },
    /// A change of a folder's identity that no folder may make.
    #[error("{file} was not changed: {rule}; a defect of the caller")]
    Identity {
        /// The name of the file.
        file: &'static str,
        /// The rule.
        rule: &'static str,
    },
    /// An entry that does not follow the last one.
    #[error(
        "entry {found} cannot follow entry {last} in the log: a defect of the caller, nothing was written"
    )]
    OutOfOrder {
        /// The last entry in the log.
        last: u64,
        /// The entry that was given.
        found: u64,
    },
    /// A payload or a chunk over the limit.
    #[error(
        "{bytes} bytes in one {what} are over the limit of {limit_bytes}: split it, nothing was written"
    )]
    TooLarge {
        /// The thing that was too large.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// A backup that would take the place of another file.
    #[error("{file} is there already: name another file, or remove it")]
    BackupExists {
        /// The file.
        file: String,
    },
    /// A backup under way, or what is left of one.
    #[error(
        "{file} is there: another backup is under way, or one was cut off; remove it, then start again"
    )]
    BackupUnfinished {
        /// The unfinished file.
        file: String,
    },
    /// An option out of range.
    #[error("log option {name} is {value}: use {accepted}")]
    Option {
        /// The option.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The accepted values.
        accepted: &'static str,
    },
}

/// Returns whether the system has no room: on the disk, in the user's quota, or below the largest
/// size of a file.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn room_wanted(needed_bytes: u64) -> String {
    match needed_bytes {
        // Where the system did not get as far as the bytes.
        0 => "for".to_owned(),
        bytes => format!("to write {bytes} bytes to"),
    }
}

impl WalError {
    pub(crate) fn io(action: &'static str, file: String, source: io::Error) -> WalError {
        if is_no_room(&source) {
            return WalError::NoSpace {
                file,
                needed_bytes: 0,
                retryable: false,
            };
        }
        WalError::Io {
            action,
            file,
            source,
        }
    }

    pub(crate) fn corrupt(
        file: &str,
        offset: u64,
        what: impl Into<String>,
        remedy: &'static str,
    ) -> WalError {
        WalError::Corrupt {
            file: file.to_owned(),
            offset,
            what: what.into(),
            remedy,
        }
    }
}

/// The remedy for a damaged log segment.
pub(crate) const RESTORE_LOG: &str = "acknowledged data may be lost, so nothing was changed; look with `baton wal verify`, and restore the file from a copy";
/// The remedy for a damaged snapshot.
pub(crate) const RESTORE_SNAPSHOT: &str =
    "move the file away to start from an older snapshot, or restore it from a copy";

/// The remedy for a damaged backup.
pub(crate) const USE_ANOTHER: &str = "use another backup, or take one again";

fn pid_text(pid: &Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

/// Refuses a file of another format version. Asked before the file's checksum is: another version
/// may check itself in another way.
pub(crate) fn check_version(file: &str, found: u32) -> Result<(), WalError> {
    if found == FORMAT_VERSION {
        return Ok(());
    }
    Err(WalError::FormatVersion {
        file: file.to_owned(),
        found,
        supported: FORMAT_VERSION,
    })
}

fn version_remedy(found: u32, supported: u32) -> &'static str {
    if found > supported {
        "it was written by a later version of Baton; run that version"
    } else {
        "run the version of Baton that wrote it, export, and import here"
    }
}

fn damaged_text(damaged: &[String]) -> String {
    if damaged.is_empty() {
        return String::new();
    }
    format!(" (damaged: {})", damaged.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_full_before_anything_is_written_names_no_count_of_bytes() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = WalError::io("create", "/data/x".to_owned(), full).to_string();
        assert!(error.starts_with("no space left for /data/x: "), "{error}");
        assert!(error.ends_with(", then start again"), "{error}");
    }

    #[test]
    fn damaged_files_are_listed_where_there_are_any() {
        assert_eq!(damaged_text(&[]), "");
        let damaged = ["a: x".to_owned(), "b: y".to_owned()];
        assert_eq!(damaged_text(&damaged), " (damaged: a: x; b: y)");
    }
}
