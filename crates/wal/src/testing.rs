//! A disk in memory that breaks on demand. For tests of this crate and of those above it.
