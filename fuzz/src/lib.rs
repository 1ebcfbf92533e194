//! Fuzz targets for every parser that meets the network. The targets themselves are in [`targets`], where the smoke
//! fuzz test of `crates/proto` finds them too.
#![forbid(unsafe_code)]

pub mod targets;
