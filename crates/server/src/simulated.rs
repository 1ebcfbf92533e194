//! What a simulation has a server do wrong, and what it counts there: known mistakes, by which the
//! simulator shows that it finds them. Nothing of it is in a server that is built without the
//! feature `simulation`.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use baton_consensus::RoleChange;
use baton_tree::Unapplied;

/// A known mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A command that was sent twice is applied twice.
    AppliesDuplicates,
    /// A command is applied though one before it is missing.
    AppliesAfterGap,
    /// A command of a connection that has lost its session is applied.
    AppliesOfOldAttachment,
    /// A server answers pings without asking the leader.
    AnswersPingsAlone,
    /// The leader answers touches without asking a quorum.
    CountsTouchesAlone,
    /// A new leader ends sessions by what it knew of them when it followed.
    KeepsOldClocks,
}

/// Commands of the log that were not applied, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnappliedCounts {
    /// Another connection owned the session.
    pub moved: u64,
    /// They had been applied before.
    pub duplicates: u64,
    /// A command before them was missing.
    pub after_gap: u64,
}

/// How far a server of an ensemble is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberProgress {
    /// Role, term and leader, as it knows them.
    pub role: RoleChange,
    /// The newest entry that it has applied.
    pub applied: u64,
    /// The digest of its tree there.
    pub digest: u64,
    /// Commands that it has not applied, since it started.
    pub unapplied: UnappliedCounts,
}

/// A server's part in a simulation.
#[derive(Debug, Default)]
pub(crate) struct Simulated {
    /// The mistake that it makes, if any.
    pub(crate) mistake: OnceLock<Mistake>,
    moved: AtomicU64,
    duplicates: AtomicU64,
    after_gap: AtomicU64,
}

impl Simulated {
    /// Counts a command that is not to be applied. Whether it is applied all the same, by mistake.
    pub(crate) fn ignores(&self, why: Unapplied) -> bool {
        let (counter, mistake) = match why {
            Unapplied::SessionMoved => (&self.moved, Mistake::AppliesOfOldAttachment),
            Unapplied::Duplicate => (&self.duplicates, Mistake::AppliesDuplicates),
            Unapplied::AfterGap => (&self.after_gap, Mistake::AppliesAfterGap),
        };
        counter.fetch_add(1, Relaxed);
        self.makes(mistake)
    }

    /// Whether the server makes this mistake.
    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake.get() == Some(&mistake)
    }

    pub(crate) fn unapplied(&self) -> UnappliedCounts {
        UnappliedCounts {
            moved: self.moved.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            after_gap: self.after_gap.load(Relaxed),
        }
    }
}
