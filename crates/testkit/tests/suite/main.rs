//! The test kit itself, and Baton beside Apache ZooKeeper where that is installed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod acl;
mod differential;
mod launch;
mod proxy;
mod zkcli;
