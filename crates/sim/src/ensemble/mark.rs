//! Rare situations that runs must come to: a simulator that never reaches them proves nothing about
//! them.

/// One such situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// A follower installed a snapshot that a leader had sent.
    SnapshotInstalled,
    /// The sending of a snapshot failed, and was reported.
    SnapshotLost,
    /// A crash came while a received snapshot was being written.
    CrashInReceive,
    /// A crash came between a received snapshot's file and its mark in the log.
    CrashBeforeMark,
    /// A start finished the installation that a crash had cut off.
    InstallFinishedAtStart,
    /// A joint configuration was applied.
    JointEntered,
    /// A joint configuration was left.
    JointLeft,
    /// Another leader than the one that entered it left a joint configuration.
    JointLeftByAnother,
    /// A committed change was refused by the state machine.
    ChangeRefusedAtApply,
    /// A leader applied its own removal.
    LeaderRemoved,
    /// A removed node was informed of it when it connected.
    RemovedInformed,
    /// A sole voter became one of several.
    SoleVoterGrew,
    /// A node with a new folder took the place of one that had lost its own.
    FolderReplaced,
    /// An empty folder was refused by a member.
    EmptyFolderRefused,
    /// An older copy of a folder was refused where it had forgotten what it had acknowledged.
    OldCopyRefused,
    /// An older copy that had forgotten nothing went on.
    OldCopyHarmless,
    /// Older copies elected a leader without a committed entry: nobody there could know of it.
    OldCopyLetIn,
    /// An older copy received again what it had forgotten.
    OldCopyFilled,
    /// Two folders or more were replaced by older copies at once.
    SeveralOldCopies,
    /// An entry of an older term was replaced.
    OlderTermReplaced,
    /// An entry of an older term was committed by a leader of a newer one.
    OlderTermCommitted,
    /// Two nodes led at once, in different terms.
    TwoLeaders,
    /// A node that was paused leads when it wakes.
    LeaderPaused,
    /// A crash came in the middle of a write of the log.
    CrashInWrite,
    /// A crash came in the middle of a start.
    CrashInStart,
    /// The log found no room, and went on later.
    DiskFull,
    /// A disk reported an error, and its node stopped.
    DiskFailed,
    /// A sync took a second or longer.
    SyncStalled,
    /// Bytes of an earlier connection arrived after it had ended.
    LateBytes,
    /// Bytes of an earlier connection were dropped, since a newer one was known.
    LateBytesDropped,
    /// A refused append of an earlier connection was dropped.
    StaleReject,
    /// Leadership was handed over.
    HandedOver,
    /// A read index was given.
    ReadIndex,
    /// A change was proposed too early, or during another one, and refused.
    ChangeRefused,
    /// A majority has an entry of an older term, and its leader has committed none of its own.
    FigureEight,
    /// Two voters or more came, or went, with one change.
    SeveralVotersChanged,
    /// A voter moved, and kept its vote.
    VoterMoved,
}

impl Mark {
    /// Every mark.
    pub const ALL: [Mark; 37] = [
        Mark::SnapshotInstalled,
        Mark::SnapshotLost,
        Mark::CrashInReceive,
        Mark::CrashBeforeMark,
        Mark::InstallFinishedAtStart,
        Mark::JointEntered,
        Mark::JointLeft,
        Mark::JointLeftByAnother,
        Mark::ChangeRefusedAtApply,
        Mark::LeaderRemoved,
        Mark::RemovedInformed,
        Mark::SoleVoterGrew,
        Mark::FolderReplaced,
        Mark::EmptyFolderRefused,
        Mark::OldCopyRefused,
        Mark::OldCopyHarmless,
        Mark::OldCopyLetIn,
        Mark::OldCopyFilled,
        Mark::SeveralOldCopies,
        Mark::OlderTermReplaced,
        Mark::OlderTermCommitted,
        Mark::TwoLeaders,
        Mark::LeaderPaused,
        Mark::CrashInWrite,
        Mark::CrashInStart,
        Mark::DiskFull,
        Mark::DiskFailed,
        Mark::SyncStalled,
        Mark::LateBytes,
        Mark::LateBytesDropped,
        Mark::StaleReject,
        Mark::HandedOver,
        Mark::ReadIndex,
        Mark::ChangeRefused,
        Mark::FigureEight,
        Mark::SeveralVotersChanged,
        Mark::VoterMoved,
    ];
}
