//! Signs of life, and the end of a connection.

use crate::codec::input::{Input, Malformed};
use crate::codec::pieces::Body;

/// A sign of life, sent where nothing else was. Measures the round trip too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alive {
    /// A number of the sender's choice that the receiver sends back; 0: it need not.
    pub stamp: u64,
    /// The newest such number that the sender has received; 0 for none.
    pub echo: u64,
}

impl Alive {
    pub(crate) fn write(&self, out: &mut Body) {
        out.u64(self.stamp);
        out.u64(self.echo);
    }

    pub(crate) fn read(input: &mut Input) -> Result<Alive, Malformed> {
        Ok(Alive {
            stamp: input.u64()?,
            echo: input.u64()?,
        })
    }
}

/// Why the sender ends a connection after the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bye {
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

impl Bye {
    /// The byte on the wire.
    pub fn code(self) -> u8 {
        match self {
            Bye::Stopping => 1,
            Bye::Superseded => 2,
            Bye::Silent => 3,
            Bye::BadFrame => 4,
            Bye::Removed => 5,
            Bye::Other(code) => code,
        }
    }

    /// The reason that a byte stands for.
    pub fn from_code(code: u8) -> Bye {
        match code {
            1 => Bye::Stopping,
            2 => Bye::Superseded,
            3 => Bye::Silent,
            4 => Bye::BadFrame,
            5 => Bye::Removed,
            other => Bye::Other(other),
        }
    }

    pub(crate) fn write(self, out: &mut Body) {
        out.u8(self.code());
    }

    pub(crate) fn read(input: &mut Input) -> Result<Bye, Malformed> {
        input.u8().map(Bye::from_code)
    }
}

impl std::fmt::Display for Bye {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bye::Stopping => f.write_str("the server stops"),
            Bye::Superseded => f.write_str("a newer connection has taken its place"),
            Bye::Silent => f.write_str("nothing arrived for too long"),
            Bye::BadFrame => f.write_str("a frame was refused"),
            Bye::Removed => f.write_str("the server was removed from the cluster"),
            Bye::Other(code) => write!(f, "reason {code}, which a later version knows"),
        }
    }
}
