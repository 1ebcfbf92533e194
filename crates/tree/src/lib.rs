//! The replicated state machine: znodes, sessions, ACLs. Pure; no clock, no I/O, no randomness.

#![forbid(unsafe_code)]
