//! The wire codec: golden bytes, round trips, path rules, damaged input.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod fuzz_smoke;
mod golden;
mod round_trip;
mod rules;
