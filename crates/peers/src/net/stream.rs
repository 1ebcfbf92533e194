//! Opening and accepting of streams: plain TCP, TCP with TLS, a network in memory.

use std::io;

use baton_tls::TlsFailure;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::codec::Refusal;

/// Opens streams to other servers.
pub trait Connector: Send + Sync + 'static {
    /// A connection whose stream is not ready yet.
    type Connected: Send + 'static;
    /// A stream of bytes in both directions.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Connects to the server `peer`, whose address is resolved again each time. The caller bounds
    /// the time.
    fn connect(
        &self,
        peer: u64,
        address: &str,
    ) -> impl Future<Output = Result<Self::Connected, DialFailure>> + Send;

    /// Makes the stream of a connection to this address ready. Counts towards the time of the
    /// handshake.
    fn secure(
        &self,
        address: &str,
        connected: Self::Connected,
    ) -> impl Future<Output = Result<Self::Stream, DialFailure>> + Send;
}

/// Accepts streams from other servers.
pub trait Acceptor: Send + Sync + 'static {
    /// A connection whose stream is not ready yet.
    type Incoming: Send + 'static;
    /// A stream of bytes in both directions.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection, and a text that names its origin. Must return at once when one is
    /// there: what depends on the other side belongs into [`Acceptor::secure`].
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Incoming, String)>> + Send;

    /// Makes the stream of a connection ready. Counts towards the time of the handshake.
    fn secure(
        &self,
        incoming: Self::Incoming,
    ) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Returns whether the stream may be that of this server, which this one reaches at `address`,
    /// if it knows one.
    ///
    /// # Errors
    /// What the other side is answered.
    fn verify(
        &self,
        stream: &Self::Stream,
        server: u64,
        address: Option<&str>,
    ) -> Result<(), Refusal>;
}

/// Reason why a stream could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialFailure {
    /// Nobody listens there: the process has ended, or was never started.
    #[error("connection refused: nobody listens there")]
    Refused,
    /// No answer in time.
    #[error("no answer in time: check the network")]
    TimedOut,
    /// The host's name could not be resolved.
    #[error("the name could not be resolved: {0}")]
    Unresolved(String),
    /// The connection could not be encrypted, or the other side refused this server's certificate.
    #[error("{0}")]
    Tls(TlsFailure),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

impl From<io::Error> for DialFailure {
    fn from(error: io::Error) -> DialFailure {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => DialFailure::Refused,
            io::ErrorKind::TimedOut => DialFailure::TimedOut,
            _ => DialFailure::Other(error.to_string()),
        }
    }
}
