//! A narrow sans-I/O facade over the raft crate.

#![forbid(unsafe_code)]
