//! TLS for Baton's servers and clients: what all share, and what each needs.
//!
//! Owns the files of certificates and keys, the configurations of rustls that are made of them, and
//! the identity that a client's certificate proves. Never opens a listening socket and never logs:
//! anyone who uses it decides when, and reports what it returns. The provider of cryptography is
//! `ring`, which builds with a C compiler alone.
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `authority` | a private authority and its certificates, for a trial or a small fleet |
//! | `peer` | what the servers of an ensemble show each other and ask of each other |
//! | `server` | a server's certificate, and what it asks of clients |
//! | `client` | which servers a client trusts, and the certificate that it shows |
//! | `reload` | notices that files have changed |
//! | `failure` | why a connection with TLS failed, and the remedy |
//! | `subject` | the subject of a certificate as ZooKeeper writes it |
//! | `pem` | certificates, keys, authorities and lists of revoked certificates in PEM files |
//! | `provider` | the provider of cryptography |
//! | `error` | why a file or a setting is refused |

#![forbid(unsafe_code)]

#[cfg(feature = "authority")]
pub mod authority;
mod client;
mod error;
pub mod failure;
mod peer;
pub mod pem;
mod provider;
mod reload;
mod server;
pub mod subject;

pub use client::ClientTls;
pub use error::{FileRole, TlsError};
pub use failure::TlsFailure;
pub use peer::PeerTls;
pub use pem::Files;
pub use reload::{FileStamps, ReloadOutcome};
pub use server::{ClientAuth, ServerTls};
/// The versions of these crates that this crate's functions take and return.
pub use {rustls, tokio_rustls};
