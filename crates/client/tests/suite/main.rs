//! One session against servers and a faulty network: outcomes, the lease, watches.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod ensemble;
mod lifetime;
mod live;
mod membership;
mod outcomes;
mod sasl;
mod set_up;
mod supervisor;
mod support;
mod tls;
mod traces;
mod watches;
