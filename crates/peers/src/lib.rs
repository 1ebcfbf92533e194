//! The wire between the servers of one cluster.
//!
//! Owns the bytes of every frame between two servers and the rules of the handshake. Never stores
//! anything and never decides what the cluster does: the server gives it messages and receives
//! messages. It does not depend on the server, so a simulator can use it without one. Whether its
//! streams are encrypted is a matter of what opens and accepts them.
//!
//! How a server uses it:
//!
//! 1. [`net::TcpAcceptor::bind`], with TLS [`net::TlsAcceptor`] and [`net::TlsConnector`], then
//!    [`net::Peers::start`] with what the server says of itself,
//!    then [`net::Peers::set_addresses`]. Events come to its [`net::PeerEvents`].
//! 2. A server with a static list gives the events to [`bootstrap::Bootstrap::event`], stores what
//!    the decision asks for, and sends what the calls return, until the decision is *member*.
//! 3. Effects of the consensus go into [`net::Peers::send_raft`]. What it returns, and the end of
//!    an outbound connection, mean that the peer has lost messages:
//!    `Consensus::report_unreachable`, or `report_snapshot` where it was a snapshot.
//!    [`net::PeerEvent::Gone`] of the leader means `Consensus::forget_leader`.
//! 4. A frame's [`net::FramePermit`] is dropped when the frame has been handled, not before: it
//!    bounds what the server holds.
//! 5. With each membership that is applied, and each sync, [`net::Peers::update_local`]: the
//!    handshake decides by it who is a member, and whose data folder is an older copy.
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
