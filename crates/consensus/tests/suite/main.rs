//! The facade over the `raft` crate, with one voter and with several.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod cluster;
mod heartbeats;
mod members_come_and_go;
mod membership;
mod one_voter;
mod rolled_back;
mod several_at_once;
mod several_voters;
mod transcripts;
mod with_log;
