//! Durable log segments and snapshots over a storage trait that tests can break.

#![forbid(unsafe_code)]
