//! The Baton server: speaks the ZooKeeper client protocol, keeps what it acknowledged, and is
//! embeddable in a process.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let server = baton_server::Server::builder()
//!     .data_dir("/var/lib/baton")
//!     .listen("127.0.0.1:2181")
//!     .start()
//!     .await?;
//! println!("clients connect to {}", server.connect_string());
//! server.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The core, which one thread at a time runs, owns the log and every change of the tree; sockets
//! are tasks on the caller's tokio runtime and answer reads by themselves. ARCHITECTURE.md follows
//! a write and a read through the modules. A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `simulation` | the same core as a task, without sockets, for deterministic tests |
//! | `server` | the start and the stop of a server; its builder; pages of the program around it |
//! | `offline` | a data folder while no server runs on it |
//! | `restoring` | what becomes of a state from the past before it is served |
//! | `net` | sockets of clients: accepting, handshake, the task of each connection |
//! | `operator/` | four-letter words, HTTP commands, metrics |
//! | `core/` | log entries: proposed, written, applied; the server as one of several |
//! | `read` | replies to reads, and the watches that they set |
//! | `state/` | what the core and the sockets share |
//! | `audit` | the record of who did what |
//! | `auth` | the identity of a client |
//! | `report` | what the log says of clients; long listings for operators |
//! | `watch` | watches of all connections |
//! | `session` | when sessions expire; their ids |
//! | `connections` | open connections as the core sees them: inbox, outbound FIFOs, bounds |
//! | `stats` | counters and measurements |
//! | `time` | the server's clocks; moments as dates |
//! | `listening/` | sockets that listen, their certificates, a small HTTP listener |
//! | `options/` | every setting |
//! | `observers/` | what is shown to observers of changes and to tracers of writes |
//! | `progress` | the progress of long work, for people who wait for it |
//! | `error` | why a server does not start or stops |

#![forbid(unsafe_code)]

mod audit;
mod auth;
mod connections;
mod core;
mod error;
mod listening;
mod net;
mod observers;
pub mod offline;
mod operator;
mod options;
mod progress;
mod read;
mod report;
pub mod restoring;
mod server;
mod session;
#[cfg(feature = "simulation")]
pub mod simulation;
mod state;
mod stats;
mod time;
mod watch;

pub use auth::secret_file;
pub use baton_proto::{ErrorCode, OpCode, TraceContext};
pub use baton_tls::{ClientAuth, Files as TlsFiles, TlsError};
pub use baton_tree::{FormatLevel, PeekedChild, Znode};
pub use baton_wal::{MemoryStorage, Storage};
pub use error::{ServerError, StartError};
pub use listening::exposure::Opening;
pub use listening::http;
pub use observers::changes::{ChangeObserver, ChangedBy, ObservedChange, ObservedTree};
pub use observers::traces::{TracedWrite, TracerCounts, WriteStep, WriteTracer};

pub use options::audit::{AuditFormat, AuditOptions, AuditTo};
pub use options::inherited::InheritedSockets;
pub use options::sasl_users::SaslUsers;
pub use options::{
    CHANGING_WORDS, DEFAULT_WORDS, EnsembleOptions, HARMLESS_WORDS, Options, PeerTlsOptions,
    ServerTlsOptions, StorageChoice,
};
pub use progress::{Progress, Step, Unit};
pub use server::builder::Builder;
pub use server::{Server, pages};
