//! The survey against a tree that changes between any two reads, and against a server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod churn;
mod http;
mod metrics;
mod model;
mod scene;
mod survey;
