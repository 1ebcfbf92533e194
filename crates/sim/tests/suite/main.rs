//! The simulator: every scenario in its short form, and runs that repeat.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod determinism;
mod recipes;
mod servers;
