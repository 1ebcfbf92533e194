//! Fuzz targets for every parser that meets the network or the disk. The targets themselves are in [`targets`] and
//! [`wal_targets`], where the smoke fuzz tests of `crates/proto` and `crates/wal` find them too.
#![forbid(unsafe_code)]

pub mod targets;
pub mod wal_targets;
