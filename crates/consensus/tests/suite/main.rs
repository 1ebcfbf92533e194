//! The facade over the `raft` crate, with one voter.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod one_voter;
mod with_log;
