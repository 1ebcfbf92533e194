//! The log on disk: damage, crashes, full disks, purges.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod append;
mod backup;
mod checksums;
mod crash;
mod cut_off;
mod damage;
mod fixture;
mod full_disk;
mod fuzz_smoke;
mod kill;
mod member;
mod privacy;
mod purge;
mod raw_snapshot;
mod received;
mod support;
