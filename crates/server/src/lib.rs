//! The Baton server: embeddable in a process or run by the command.

#![forbid(unsafe_code)]
