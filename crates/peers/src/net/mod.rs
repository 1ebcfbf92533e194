//! Connections between servers: dialling, accepting, the handshake, reading and writing.
//!
//! Each server opens one connection per [`Lane`](crate::codec::Lane) to each other server. Each
//! connection has a reader task, a writer task and a generation: what a connection still delivers
//! after a newer one has taken its place is dropped (R11). Every queue has a limit. The tasks are
//! generic over the stream, and take the time from tokio's clock, so that a test decides both.
//!
//! Never logs: the owner receives events with texts and decides how many lines they may cause.
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `transport` | the owner's handle: start, send, stop |
//! | `acceptor` | accepting connections, with a limit |
//! | `dialling` | which servers are dialled, and where |
//! | `dialler` | opening the connection of one lane, again and again |
//! | `connection` | one connection after its handshake: its reader, and how it ends |
//! | `writer` | the writing half of a connection: its task, and writing on the sender's thread |
//! | `exchange` | the handshake over a stream |
//! | `shared` | what all tasks of a transport share |
//! | `peer` | one other server: its connections and their generations, its queues |
//! | `outbound` | frames that wait for one lane of one peer |
//! | `writer_handle` | how a queue reaches the writer of its connection |
//! | `presence` | when a server is certainly gone |
//! | `events` | what the owner is notified of |
//! | `tls` | TCP with TLS, and ports that take both kinds of connections |
//! | `plain` | TCP without encryption, and where a port may listen |
//! | `stream` | what opens and accepts streams |
//! | `backoff` | pauses between attempts |
//! | `options` | times and limits |
//! | `counters` | counters for metrics |

mod acceptor;
mod backoff;
mod connection;
mod counters;
mod dialler;
mod dialling;
mod events;
mod exchange;
mod options;
mod outbound;
mod peer;
mod plain;
mod presence;
mod shared;
mod stream;
mod tls;
mod transport;
mod writer;
mod writer_handle;

pub use counters::{PeerCounters, TransportCounters};
pub use events::{Direction, EndCause, FramePermit, Link, PeerEvent, PeerEvents, RefusedBy};
pub use options::{Limits, Options, Timing, WallClock};
pub use outbound::SendError;
pub use plain::{BindError, Exposure, TcpAcceptor, TcpConnector};
pub use stream::{Acceptor, Connector, DialFailure};
pub use tls::{PeerStream, TlsAcceptor, TlsConnector};
pub use transport::{Peers, Unsent};
