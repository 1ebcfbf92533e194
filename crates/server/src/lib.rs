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
//! caller's tokio runtime and answer reads by themselves. ARCHITECTURE.md tells the way of a write
//! and of a read.

#![forbid(unsafe_code)]

mod admin;
mod auth;
mod builder;
mod commit;
mod connections;
mod error;
pub mod http;
mod net;
pub mod offline;
mod options;
mod read;
mod report;
mod server;
mod session;
#[cfg(feature = "simulation")]
pub mod simulation;
mod state;
mod stats;
mod watch;

pub use builder::Builder;
pub use error::{ServerError, StartError};
pub use options::{CHANGING_WORDS, DEFAULT_WORDS, HARMLESS_WORDS, Options, StorageChoice};
pub use server::Server;
