//! Seeded bugs of whole servers: known mistakes that a run makes on purpose, to see that the
//! simulator finds them. The switches are in `baton_server`'s feature `simulation`.

use baton_server::simulation::Mistake;
use clap::ValueEnum;

/// A known mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[clap(rename_all = "UPPER")]
pub enum ServerBug {
    /// A server answers pings by itself.
    B07,
    /// The leader answers touches without a round of the quorum.
    B08,
    /// Clients take answers to reads for signs that their sessions live.
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
}

impl ServerBug {
    /// Every seeded bug.
    pub const ALL: [ServerBug; 8] = [
        ServerBug::B07,
        ServerBug::B08,
        ServerBug::B09,
        ServerBug::B10,
        ServerBug::B11,
        ServerBug::B12,
        ServerBug::B13,
        ServerBug::B14,
    ];

    /// What the servers do wrong.
    pub(crate) fn mistake(self) -> Mistake {
        match self {
            Self::B07 => Mistake::AnswersPingsAlone,
            Self::B08 => Mistake::CountsTouchesAlone,
            Self::B09 => Mistake::AnnouncesThatReadsCount,
            Self::B10 => Mistake::KeepsOldClocks,
            Self::B11 => Mistake::ForwardsItsExpiries,
            Self::B12 => Mistake::AppliesDuplicates,
            Self::B13 => Mistake::AppliesAfterGap,
            Self::B14 => Mistake::AppliesOfOldAttachment,
        }
    }
}
