//! TLS for Baton's server and client: what both share, and what each needs.
//!
//! Owns the files of certificates and keys, the configurations of rustls that are made of them, and
//! the identity that a client's certificate proves. Never opens a listening socket and never logs:
//! whoever uses it decides when, and reports what it returns. The provider of cryptography is
//! `ring`, which builds with a C compiler alone.
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `server` | a server's certificate, and what it asks of clients |
//! | `reload` | notices that files have changed |
//! | `failure` | why a handshake failed, and the remedy |
//! | `subject` | the subject of a certificate as ZooKeeper writes it |
//! | `pem` | certificates, keys and authorities in PEM files |
//! | `error` | why a file or a setting is refused |

#![forbid(unsafe_code)]

mod error;
pub mod failure;
pub mod pem;
mod reload;
mod server;
pub mod subject;

pub use error::{FileRole, TlsError};
pub use pem::Files;
pub use reload::{FileStamps, ReloadOutcome};
pub use server::{ClientAuth, ServerTls};
/// The versions of these crates that this crate's functions take and return.
pub use {rustls, tokio_rustls};
