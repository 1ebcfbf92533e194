//! Fuzz targets for every parser that meets the network or the disk. The targets themselves are in
//! [`targets`], [`peers_targets`], [`sasl_targets`], [`tls_targets`], [`tree_targets`],
//! [`wal_targets`] and [`zkdata_targets`], where the smoke fuzz tests of `crates/proto`,
//! `crates/peers`, `crates/sasl`, `crates/tls`, `crates/tree`, `crates/wal` and `crates/zkdata`
//! find them too.
#![forbid(unsafe_code)]

pub mod peers_targets;
pub mod sasl_targets;
pub mod targets;
pub mod tls_targets;
pub mod tree_targets;
pub mod wal_targets;
pub mod zkdata_targets;
