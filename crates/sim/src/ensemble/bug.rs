//! Seeded bugs: known mistakes that the simulator makes on purpose, to see that it finds them. They
//! are in the code that drives the facade and the log, never in those.

use clap::ValueEnum;

/// A known mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[clap(rename_all = "UPPER")]
pub enum SeededBug {
    /// A follower acknowledges entries before they are synced.
    B01,
    /// Term and vote are not stored.
    B02,
    /// The leader counts an entry of an older term as committed once a majority has it.
    B03,
    /// The leader counts itself before its own disk has the entry.
    B04,
    /// A restart applies configurations from entries that are not committed.
    B17,
    /// Two voters change at once, without a joint configuration.
    B18,
    /// A node whose folder was lost takes part as the one it was.
    B19,
    /// A restart brings entries back that were truncated.
    B20,
    /// Handshakes do not show what was committed and acknowledged.
    B21,
}

impl SeededBug {
    /// Every seeded bug.
    pub const ALL: [SeededBug; 9] = [
        SeededBug::B01,
        SeededBug::B02,
        SeededBug::B03,
        SeededBug::B04,
        SeededBug::B17,
        SeededBug::B18,
        SeededBug::B19,
        SeededBug::B20,
        SeededBug::B21,
    ];
}
