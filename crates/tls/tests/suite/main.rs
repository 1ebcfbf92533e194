//! Files, handshakes and identities as the server and the client use them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod chains;
mod files;
mod handshakes;
mod peers;
mod renegotiation;
mod revocation;
mod subjects;
mod support;
