//! Sockets: listeners, one task for each connection, and what an operator is told. Knows the wire,
//! and of the core only its inbox, the tree behind its lock, and each connection's outbound bytes.

mod auth;
mod class;
mod connection;
mod facts;
mod frames;
mod handshake;
pub(crate) mod http;
pub(crate) mod listen;
mod metrics;
pub(crate) mod stream;
mod words;
