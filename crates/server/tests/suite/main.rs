//! The server as its clients and operators see it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod audit;
mod backup;
mod bad_input;
mod bounds;
mod durability;
mod ensemble;
mod first_bytes;
mod full_disk;
mod golden;
mod hostile;
mod http;
mod limits;
mod listings;
mod operations;
mod products;
mod reconfig;
mod reconfig_several;
mod requests;
mod restarts;
mod sasl;
mod secrecy;
mod sessions;
mod slow_readers;
mod starting;
mod starvation;
mod stories;
mod support;
mod tls;
mod traces;
mod words;
