//! Fault proxy, server launchers and checkers for testing coordination recipes.

#![forbid(unsafe_code)]
