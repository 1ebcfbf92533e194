//! Signs of life, and the end of a connection.

use crate::codec::fields::{fields, reasons};

/// A sign of life, which each side sends from time to time. Measures the round trip too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LivenessFrame {
    /// The sender's time in microseconds, from a moment of its choice, which the receiver sends
    /// back; 0: it need not.
    pub stamp: u64,
    /// The newest such number that the sender has received and not sent back, and the microseconds
    /// since it came; 0 for none.
    pub echo: u64,
}

fields!(LivenessFrame { stamp, echo });

reasons! {
    /// Reason why the sender ends a connection after the handshake.
    CloseReason {
        /// The sender's process stops.
        Stopping = 1: "the server stops",
        /// A newer connection of the same server and lane has replaced this one.
        Superseded = 2: "a newer connection has taken its place",
        /// The sender has received nothing for too long.
        Silent = 3: "nothing arrived for too long",
        /// The sender has received a frame that it refuses.
        BadFrame = 4: "a frame was refused",
        /// The receiver is no longer a member of the cluster.
        Removed = 5: "the server was removed from the cluster",
    }
}
