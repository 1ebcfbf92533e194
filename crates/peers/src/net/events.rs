//! Events for the owner of a transport.

use baton_tls::TlsFailure;
use tokio::sync::OwnedSemaphorePermit;

use crate::codec::{CloseReason, Frame, FrameError, Hello, Lane, Refusal};
use crate::net::stream::DialFailure;

/// Receives what happens on the connections.
pub trait PeerEvents: Send + Sync + 'static {
    /// Takes one event. Called by the tasks of connections, in the order of what happens to one
    /// peer; must not block. Of the transport it may call only what sends.
    fn event(&self, event: PeerEvent);

    /// All frames that came with one read have been given to [`event`](PeerEvents::event), or the
    /// next one waits until the owner holds less. The owner may handle them on this thread.
    fn frames_arrived(&self) {}
}

/// Side that has opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// This server: it sends frames.
    Outbound,
    /// The peer: it sends frames.
    Inbound,
}

/// One connection to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link {
    /// The peer.
    pub peer: u64,
    /// Purpose of the connection.
    pub lane: Lane,
    /// Side that has opened it.
    pub direction: Direction,
    /// Grows with each connection to this peer.
    pub generation: u64,
}

/// Counts received bytes against the limit of what the owner may hold; drop it when the frame has
/// been handled.
#[derive(Debug)]
pub struct FramePermit {
    /// Held for its drop.
    pub(crate) _permit: Option<OwnedSemaphorePermit>,
}

impl FramePermit {
    /// Counts nothing: of a frame that no transport has received, as in a simulation.
    pub const fn nothing() -> FramePermit {
        FramePermit { _permit: None }
    }
}

/// Side that refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusedBy {
    /// This server.
    Us,
    /// The other one.
    Them,
}

/// Reason why a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndCause {
    /// The peer's end was closed.
    #[error("the peer has closed the connection")]
    Closed,
    /// The peer's system has reset the connection.
    #[error("the connection was reset")]
    Reset,
    /// Nothing arrived for too long.
    #[error("nothing arrived in time")]
    Silent,
    /// The peer has said why it ends the connection.
    #[error("the peer has ended the connection: {0}")]
    Bye(CloseReason),
    /// A newer connection has taken its place.
    #[error("a newer connection has taken its place")]
    Superseded,
    /// A frame was refused.
    #[error(transparent)]
    BadFrame(#[from] FrameError),
    /// This server has ended the connection.
    #[error("this server has ended the connection: {0}")]
    Ended(CloseReason),
    /// TLS failed.
    #[error("{0}")]
    Tls(TlsFailure),
    /// Another error of the stream.
    #[error("the connection failed: {0}")]
    Failed(String),
}

impl EndCause {
    /// Returns whether a connection ends like this when the peer's process does.
    pub fn is_end_of_process(&self) -> bool {
        matches!(
            self,
            EndCause::Closed | EndCause::Reset | EndCause::Bye(CloseReason::Stopping)
        )
    }
}

impl From<std::io::Error> for EndCause {
    fn from(error: std::io::Error) -> EndCause {
        use std::io::ErrorKind;
        if let Some(failure) = TlsFailure::of(&error) {
            return EndCause::Tls(failure);
        }
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::WriteZero => EndCause::Closed,
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected => EndCause::Reset,
            ErrorKind::TimedOut => EndCause::Silent,
            _ => EndCause::Failed(error.to_string()),
        }
    }
}

/// Event of a transport.
#[derive(Debug)]
#[non_exhaustive]
pub enum PeerEvent {
    /// A connection is established.
    Connected {
        /// The connection.
        link: Link,
        /// Hello of the peer.
        hello: Hello,
        /// The peer's wall clock minus this server's, in milliseconds.
        clock_offset_ms: i64,
    },
    /// A frame has arrived.
    Frame {
        /// The connection.
        link: Link,
        /// The frame; never one of the handshake, a sign of life or a bye.
        frame: Frame,
        /// To be dropped when the frame has been handled.
        held: FramePermit,
    },
    /// A connection has ended. Of an outbound one, the consensus wants to know that the peer may
    /// have lost messages.
    Disconnected {
        /// The connection.
        link: Link,
        /// The reason.
        cause: EndCause,
        /// Frames that waited to be sent, and are dropped.
        dropped: usize,
    },
    /// An attempt to connect has failed, in another way than the one before it.
    DialFailed {
        /// The peer.
        peer: u64,
        /// Purpose that the connection would have had.
        lane: Lane,
        /// Its address, as it was configured.
        address: String,
        /// The reason.
        failure: DialFailure,
    },
    /// A handshake was refused. On an outbound connection, only if it is another reason than
    /// before.
    Refused {
        /// The peer, as far as it is known: it has not proved anything.
        peer: Option<u64>,
        /// The address, as it was configured or as the system shows it.
        remote: String,
        /// Side that refused.
        by: RefusedBy,
        /// The reason.
        refusal: Refusal,
        /// Hello of the peer, if it sent one.
        hello: Option<Hello>,
    },
    /// A connection of another server, or of a stranger, could not be encrypted.
    TlsFailed {
        /// Its address, as the system shows it.
        remote: String,
        /// The reason.
        failure: TlsFailure,
    },
    /// The peer's process has certainly ended: all connections, in both directions, were ended by
    /// its system, and a new one was refused.
    Gone {
        /// The peer.
        peer: u64,
    },
    /// The system cannot give a connection that waits; it is tried again.
    AcceptFailed {
        /// Error of the system.
        error: String,
    },
}
