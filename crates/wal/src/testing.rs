//! A disk in memory that breaks on demand. For tests of this crate and of those above it.
//!
//! It keeps apart what was written and what is durable, file by file and name by name, so that a
//! test can stop a program at any operation and examine every state that a real disk could then be
//! in.

mod fault;

pub use fault::{Fault, FaultStorage, Loss};
