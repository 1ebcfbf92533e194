//! The agent as a program in another language meets it: bytes on its socket.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod bad_input;
mod hostile;
mod locks;
mod open_bodies;
mod openapi;
mod others;
mod support;
