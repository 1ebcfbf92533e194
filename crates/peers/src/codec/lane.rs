//! The three connections that a server has to each other server, so that nothing small waits behind
//! something large.

/// One of the three connections from one server to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Small frames that must not wait: heartbeats, votes, acknowledgements, touches, credit.
    Urgent,
    /// Log entries, and client requests that a follower passes on.
    Log,
    /// Snapshots.
    Snapshot,
}

impl Lane {
    /// Every lane.
    pub const ALL: [Lane; 3] = [Lane::Urgent, Lane::Log, Lane::Snapshot];

    /// The number on the wire: 0, 1, 2.
    pub fn as_byte(self) -> u8 {
        match self {
            Lane::Urgent => 0,
            Lane::Log => 1,
            Lane::Snapshot => 2,
        }
    }

    /// The lane of a number.
    pub fn from_byte(byte: u8) -> Option<Lane> {
        Lane::ALL.into_iter().find(|lane| lane.as_byte() == byte)
    }
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Lane::Urgent => "urgent",
            Lane::Log => "log",
            Lane::Snapshot => "snapshot",
        })
    }
}
