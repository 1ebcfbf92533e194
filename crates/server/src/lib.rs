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
//! One thread, the core, owns the log and every change of the tree; sockets are tasks on the
//! caller's tokio runtime and answer reads by themselves. ARCHITECTURE.md follows a write and a
//! read through the modules. A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `simulation` | the same core as a task, without sockets, for deterministic tests |
//! | `builder` | settings, one call each |
//! | `pages` | pages that the program around the server adds to its HTTP, and who looks at them |
//! | `server` | the start and the stop of a server |
//! | `folder_watch` | a data folder that is removed or replaced while the server runs |
//! | `start_line` | the line of the log that says which server serves what |
//! | `offline` | a data folder while no server runs on it |
//! | `restoring` | what becomes of a state from the past before it is served |
//! | `net` | sockets of clients: accepting, handshake, the task of each connection |
//! | `admin` | four-letter words, HTTP commands, metrics |
//! | `http` | a small HTTP listener with bounds, for the server and for other programs |
//! | `core` | log entries: proposed, written, applied; the server as one of several |
//! | `read` | replies to reads, and the watches that they set |
//! | `state` | what the core and the sockets share |
//! | `simulated` | known mistakes of a simulated server, and what is counted there |
//! | `ensemble_status` | what a server of an ensemble knows of its part in it |
//! | `audit` | the record of who did what |
//! | `backups` | backups that operators have asked for |
//! | `auth` | the identity of a client |
//! | `report` | what the log says of clients; long listings for operators |
//! | `watch` | watches of all connections |
//! | `session` | when sessions expire; their ids |
//! | `connections` | open connections as the core sees them: inbox, outbound FIFOs, bounds |
//! | `stats` | counters and measurements |
//! | `time`, `calendar` | the server's clocks; moments as dates |
//! | `tls` | the certificates of the server's ports, read again when their files change |
//! | `listener` | binding listening sockets |
//! | `socket_access` | which users of this machine may connect to a unix socket |
//! | `exposure` | which addresses are open to strangers, and which of them stop the start |
//! | `options`, `audit_options` | every setting |
//! | `observer` | what is shown to an observer of the changes |
//! | `traces` | what is shown to a tracer of writes |
//! | `progress` | the progress of long work, for people who wait for it |
//! | `inherited` | sockets that whoever starts the server has opened |
//! | `error` | why a server does not start or stops |
//! | `sasl_users`, `secret_file` | users with passwords; files that nobody else may read |

#![forbid(unsafe_code)]

mod admin;
mod audit;
mod audit_options;
mod auth;
mod backups;
mod builder;
mod calendar;
mod connections;
mod core;
mod ensemble_status;
mod error;
mod exposure;
mod folder_watch;
pub mod http;
mod inherited;
mod listener;
mod net;
mod observer;
pub mod offline;
mod options;
pub mod pages;
mod progress;
mod read;
mod report;
pub mod restoring;
mod sasl_users;
pub mod secret_file;
mod server;
mod session;
#[cfg(feature = "simulation")]
mod simulated;
#[cfg(feature = "simulation")]
pub mod simulation;
mod socket_access;
mod start_line;
mod state;
mod stats;
mod time;
mod tls;
mod traces;
mod watch;

pub use audit_options::{AuditFormat, AuditOptions, AuditTo};
pub use baton_proto::{ErrorCode, OpCode, TraceContext};
pub use baton_tls::{ClientAuth, Files as TlsFiles, TlsError};
pub use baton_tree::{FormatLevel, PeekedChild, Znode};
pub use baton_wal::{MemoryStorage, Storage};
pub use builder::Builder;
pub use error::{ServerError, StartError};
pub use exposure::Opening;
pub use inherited::InheritedSockets;
pub use observer::{ChangeObserver, ChangedBy, ObservedChange, ObservedTree};
pub use options::{
    CHANGING_WORDS, DEFAULT_WORDS, EnsembleOptions, HARMLESS_WORDS, Options, PeerTlsOptions,
    ServerTlsOptions, StorageChoice,
};
pub use progress::{Progress, Step, Unit};
pub use sasl_users::SaslUsers;
pub use server::Server;
pub use traces::{TracedWrite, TracerCounts, WriteStep, WriteTracer};
