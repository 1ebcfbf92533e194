//! ZooKeeper's own files: read, written, damaged.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod fuzz_smoke;
mod golden;
mod variants;
