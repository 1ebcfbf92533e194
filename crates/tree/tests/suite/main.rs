//! The state machine: against a model, and by the rules of ZooKeeper.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod acls;
mod against_model;
mod as_zookeeper;
mod attachments;
mod batch;
mod common;
mod costs;
mod fuzz_smoke;
mod hazards;
mod quota;
mod reconfigure;
mod rules;
mod session_end;
mod session_ids;
mod snapshot;
