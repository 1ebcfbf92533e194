//! Sockets: listeners, and one task for each connection. Knows the wire, and of the core only its
//! inbox, the tree behind its lock, and each connection's outbound bytes.

mod class;
pub(crate) mod connection;
mod frames;
mod handshake;
pub(crate) mod listen;
pub(crate) mod stream;
