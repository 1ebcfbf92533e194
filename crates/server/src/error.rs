//! Errors of a server's start and run: one line each, which names the thing and the remedy.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use baton_consensus::{ConsensusError, StepError};
use baton_peers::bootstrap::ListError;
use baton_peers::net::BindError;
use baton_tls::TlsError;
use baton_tree::{BatchError, RestoreError};
use baton_wal::{FolderError, WalError};

/// Reasons for which a server cannot be started. Nothing is left running or locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting out of its range.
    #[error("the server's setting {setting} is not possible: it {remedy}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// The server cannot listen on a TCP address.
    #[error("cannot listen on {address}: {source}; {}", listen_remedy(.source))]
    Listen {
        /// The address as given.
        address: String,
        /// The system's answer.
        r#source: io::Error,
    },
    /// The server cannot listen on a unix socket.
    #[error("cannot listen on the unix socket {}: {source}; {}", .path.display(), listen_remedy(.source))]
    UnixSocket {
        /// Its path.
        path: PathBuf,
        /// The system's answer.
        r#source: io::Error,
    },
    /// The data folder cannot be made or opened.
    #[error("cannot use the data folder {}: {source}; choose a folder that this user may write to", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's answer.
        r#source: io::Error,
    },
    /// The data folder is open to other users.
    #[error(transparent)]
    FolderNotPrivate(FolderError),
    /// The data folder's content: in use, damaged, of another version.
    #[error(transparent)]
    Log(#[from] WalError),
    /// The log or a snapshot cannot be applied.
    #[error(transparent)]
    State(#[from] ServerError),
    /// The file of the audit record cannot be used.
    #[error("cannot write the audit record to {}: {why}", .path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// The reason, and the remedy.
        why: String,
    },
    /// The file of tokens for HTTP.
    #[error("http_token_file: {0}")]
    Tokens(String),
    /// A file or a setting of TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The list of the ensemble's servers cannot be one.
    #[error(transparent)]
    Servers(#[from] ListError),
    /// The server cannot listen for the other servers of its ensemble.
    #[error(transparent)]
    PeerPort(#[from] BindError),
    /// A restored folder on which no server was started for long.
    #[error(
        "the data was restored from a backup, and its folder made {hours} h ago: restore the backup again, since fencing \
         tokens may have been given by another server meanwhile; if none was, remove the folder's file RESTORED once all \
         servers of before have been stopped for longer than the longest session timeout"
    )]
    RestoredLongAgo {
        /// Age in hours.
        hours: i64,
    },
    /// The server was stopped before its ensemble was there.
    #[error("the server was stopped while it waited for the other servers of its ensemble")]
    Stopped,
    /// The system gave no thread or no random bytes.
    #[error("cannot start the server: {0}; close other programs or raise the limits of this user")]
    System(io::Error),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl StartError {
    /// Whether another program listens on one of the server's addresses, be it for clients or for
    /// other servers.
    #[must_use]
    pub fn is_address_in_use(&self) -> bool {
        let refused = match self {
            Self::Listen { source, .. }
            | Self::UnixSocket { source, .. }
            | Self::PeerPort(BindError::Listen { source, .. }) => source,
            _ => return false,
        };
        refused.kind() == io::ErrorKind::AddrInUse
    }

    /// An error of the log at start, without the words for a server that was running.
    pub(crate) fn of_recovery(error: ServerError) -> StartError {
        match error {
            ServerError::Log(error) => match Arc::try_unwrap(error) {
                // A start is not retried.
                Ok(WalError::NoSpace {
                    file, needed_bytes, ..
                }) => StartError::Log(WalError::NoSpace {
                    file,
                    needed_bytes,
                    retryable: false,
                }),
                Ok(error) => StartError::Log(error),
                Err(error) => StartError::State(ServerError::Log(error)),
            },
            other => StartError::State(other),
        }
    }
}

fn listen_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "stop the program that has it, or choose another",
        io::ErrorKind::PermissionDenied => "choose one that this user may use",
        io::ErrorKind::NotFound => "make it, or choose another path",
        _ => "choose one that this machine has",
    }
}

/// Reasons for which a running server had to stop. What it acknowledged is on its disk.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The log refused; after a failed sync nothing more is written.
    #[error("the server stopped: {0}")]
    Log(Arc<WalError>),
    /// Consensus refused.
    #[error("the server stopped: {0}; keep the data folder and report this")]
    Consensus(ConsensusError),
    /// The data folder was removed or replaced while the server ran.
    #[error(
        "the server stopped: its data folder {folder} was removed or replaced while it ran, so no later start would find \
         what it writes; put the folder back if it was moved, and start again; if it is lost, start a server of an ensemble \
         with an empty folder and admit it with `baton server replace`, one that stands alone from a backup"
    )]
    FolderGone {
        /// The folder.
        folder: String,
    },
    /// This server's log lacks entries that it has acknowledged.
    #[error("the server stopped: {0}")]
    LostLog(StepError),
    /// This server's state is another one than that of a majority of the servers.
    #[error(
        "the server stopped: its state after log entry {index} is not that of the other servers; keep every data folder and \
         report this: whose state is right has to be known before this server is admitted again with another folder"
    )]
    Diverged {
        /// The entry after which the states were compared.
        index: u64,
    },
    /// A log entry that cannot be applied.
    #[error("log entry {index} cannot be applied: {source}")]
    Entry {
        /// Its place in the log.
        index: u64,
        /// The error.
        r#source: BatchError,
    },
    /// A snapshot that cannot be restored.
    #[error(
        "snapshot {name} cannot be restored: {source}; move the file away to start from an older one"
    )]
    Snapshot {
        /// Its file.
        name: String,
        /// The error.
        r#source: RestoreError,
    },
    /// The core ended without saying why.
    #[error(
        "the server's core ended by a defect; what was acknowledged is on disk: start the server again and report this"
    )]
    Defect,
}

impl From<ConsensusError> for ServerError {
    fn from(error: ConsensusError) -> Self {
        Self::Consensus(error)
    }
}

impl From<WalError> for ServerError {
    fn from(error: WalError) -> Self {
        ServerError::Log(Arc::new(error))
    }
}
