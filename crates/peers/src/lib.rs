//! The wire between the servers of one cluster.
//!
//! Owns the bytes of every frame between two servers and the rules of the handshake. Never stores
//! anything and never decides what the cluster does: the server gives it messages and receives
//! messages. It does not depend on the server, so a simulator can use it without one, and TLS is a
//! matter of the stream.
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `bootstrap` | the start of a cluster from a static list |
//! | `net` | connections: dialling, accepting, reading, writing, their events |
//! | `handshake` | which server may connect: what a hello must say |
//! | `credit` | how much a follower may have on its way to the leader |
//! | `codec` | the bytes of frames (`docs/internals/peers.md`) |

#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod codec;
pub mod credit;
pub mod handshake;
pub mod net;
