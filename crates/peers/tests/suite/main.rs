//! The wire between servers: bytes of frames, limits, the handshake, connections.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod bootstrap;
mod connections;
mod examples;
mod frames;
mod fuzz_smoke;
mod golden;
mod handshake;
mod memory;
mod owners_room;
mod page;
mod raw;
mod strangers;
mod tcp;
mod tls;
mod tls_certificates;
