//! Signs of life, and the end of a connection.

use crate::codec::input::{Input, Malformed};
use crate::codec::pieces::FrameBody;

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

impl LivenessFrame {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        out.u64(self.stamp);
        out.u64(self.echo);
    }

    pub(crate) fn read(input: &mut Input) -> Result<LivenessFrame, Malformed> {
        Ok(LivenessFrame {
            stamp: input.u64()?,
            echo: input.u64()?,
        })
    }
}

/// Reason why the sender ends a connection after the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The sender's process stops.
    Stopping,
    /// A newer connection of the same server and lane has taken the place of this one.
    Superseded,
    /// The sender has received nothing for too long.
    Silent,
    /// The sender has received a frame that it refuses.
    BadFrame,
    /// The receiver is no longer a member of the cluster.
    Removed,
    /// A reason that this version does not know.
    Other(u8),
}

impl CloseReason {
    /// The byte on the wire.
    pub fn code(self) -> u8 {
        match self {
            CloseReason::Stopping => 1,
            CloseReason::Superseded => 2,
            CloseReason::Silent => 3,
            CloseReason::BadFrame => 4,
            CloseReason::Removed => 5,
            CloseReason::Other(code) => code,
        }
    }

    /// The reason that a byte stands for.
    pub fn from_code(code: u8) -> CloseReason {
        match code {
            1 => CloseReason::Stopping,
            2 => CloseReason::Superseded,
            3 => CloseReason::Silent,
            4 => CloseReason::BadFrame,
            5 => CloseReason::Removed,
            other => CloseReason::Other(other),
        }
    }

    pub(crate) fn write(self, out: &mut FrameBody) {
        out.u8(self.code());
    }

    pub(crate) fn read(input: &mut Input) -> Result<CloseReason, Malformed> {
        input.u8().map(CloseReason::from_code)
    }
}

impl std::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CloseReason::Stopping => f.write_str("the server stops"),
            CloseReason::Superseded => f.write_str("a newer connection has taken its place"),
            CloseReason::Silent => f.write_str("nothing arrived for too long"),
            CloseReason::BadFrame => f.write_str("a frame was refused"),
            CloseReason::Removed => f.write_str("the server was removed from the cluster"),
            CloseReason::Other(code) => write!(f, "reason {code}, which a later version knows"),
        }
    }
}
