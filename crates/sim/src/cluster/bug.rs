//! Seeded bugs: known mistakes that a run makes on purpose, to see that the simulator finds them.
//! Those of the servers are switches in `baton_server`'s feature `simulation`; the others are made
//! where a run meets a folder, a handshake or a decision of the engine.

use baton_server::simulation::ServerBug;
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
    /// A server answers pings by itself.
    B07,
    /// The leader answers touches without a round of the quorum.
    B08,
    /// Clients count answers to reads as proof that their sessions live.
    B09,
    /// A new leader keeps its old clocks.
    B10,
    /// A deposed leader has the next one end sessions.
    B11,
    /// A batch that was sent again is applied again.
    B12,
    /// A write is applied though one before it is missing.
    B13,
    /// A write of a connection that has lost its session is applied.
    B14,
    /// A restart applies configurations from entries that are not committed.
    B17,
    /// Voters change at once, without a joint configuration.
    B18,
    /// A server whose folder was lost takes part under its old identity.
    B19,
    /// A restart brings entries back that were truncated.
    B20,
    /// Handshakes do not show what was committed and acknowledged.
    B21,
}

impl SeededBug {
    /// Returns the bug that the servers themselves have, if it is one of theirs.
    pub(crate) fn mistake(self) -> Option<ServerBug> {
        Some(match self {
            Self::B01 => ServerBug::AcknowledgesUnsynced,
            Self::B02 => ServerBug::ForgetsVotes,
            Self::B04 => ServerBug::CountsItselfUnsynced,
            Self::B07 => ServerBug::AnswersPingsAlone,
            Self::B08 => ServerBug::CountsTouchesAlone,
            Self::B09 => ServerBug::AnnouncesThatReadsCount,
            Self::B10 => ServerBug::KeepsOldClocks,
            Self::B11 => ServerBug::ForwardsItsExpiries,
            Self::B12 => ServerBug::AppliesDuplicates,
            Self::B13 => ServerBug::AppliesAfterGap,
            Self::B14 => ServerBug::AppliesOfOldAttachment,
            Self::B03 | Self::B17 | Self::B18 | Self::B19 | Self::B20 | Self::B21 => return None,
        })
    }
}
