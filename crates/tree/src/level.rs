//! Format levels: which formats of log entries and snapshots the servers of an ensemble write. Owns
//! the list of levels. The level in force is part of the tree's state; only a command of the log
//! raises it, so that all replicas change at the same entry.

/// Format level of a tree: which formats are written, and which rules of them hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum FormatLevel {
    /// Level 1: log entries and snapshots of version 1. A session does not store which connection
    /// writes for it.
    #[default]
    Initial,
    /// Level 2: log entries and snapshots of version 2. A session stores its attachment, and time
    /// never goes back.
    Attachments,
    /// Level 3: the log may change the servers of an ensemble, and `/zookeeper/config` lists them.
    /// The formats are those of level 2. A server that stands alone does not need it.
    Members,
    /// Level 4: snapshots of version 3. A session is bound to the identities that its client has
    /// proved, and only who proves them again can take it over.
    BoundSessions,
    /// Level 5: one command costs no more than its bounds say. The end of a session deletes
    /// [`MOST_DELETED_AT_ONCE`] of its ephemerals, and each further command of the same kind as
    /// many. The ACLs of a command are bounded after their expansion, and unknown permissions are
    /// refused. The formats are those of level 4.
    BoundedCommands,
    /// Level 6: snapshots of version 4. A session stores a long identity of its connection once,
    /// and log entries refer to it. A command may set the time back. A server may join as `N=…`.
    SessionIdentities,
    /// Level 7: a multi has no more operations than [`MultiBounds`](crate::MultiBounds) say, a
    /// `reconfig` names a bounded number of servers, and a long text of a quota says nothing. The
    /// formats are those of level 6.
    BoundedMultis,
    /// Level 8: snapshots of version 5. The state keeps the newest session id of each server. No id
    /// opens that is not above it: none is given twice, whatever the clocks of servers read.
    UniqueSessionIds,
}

/// Ephemerals that one command deletes whose session has ended, from
/// [`FormatLevel::BoundedCommands`] on.
pub const MOST_DELETED_AT_ONCE: usize = 1000;

/// Bytes of the paths of those ephemerals: once they have as many, no further one is deleted.
pub(crate) const MOST_DELETED_BYTES: usize = 256 << 10;

impl FormatLevel {
    /// The highest level that this version can read and write.
    pub const NEWEST: Self = Self::UniqueSessionIds;

    /// Its number, as it is stored.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Self::Initial => 1,
            Self::Attachments => 2,
            Self::Members => 3,
            Self::BoundSessions => 4,
            Self::BoundedCommands => 5,
            Self::SessionIdentities => 6,
            Self::BoundedMultis => 7,
            Self::UniqueSessionIds => 8,
        }
    }

    /// Version of the payload of log entries.
    pub(crate) const fn batch_version(self) -> u8 {
        match self {
            Self::Initial => 1,
            Self::Attachments
            | Self::Members
            | Self::BoundSessions
            | Self::BoundedCommands
            | Self::SessionIdentities
            | Self::BoundedMultis
            | Self::UniqueSessionIds => 2,
        }
    }

    /// Version of the content of snapshots.
    pub(crate) const fn snapshot_version(self) -> u8 {
        match self {
            Self::Initial => 1,
            Self::Attachments | Self::Members => 2,
            Self::BoundSessions | Self::BoundedCommands => 3,
            Self::SessionIdentities | Self::BoundedMultis => 4,
            Self::UniqueSessionIds => 5,
        }
    }

    /// The level of that number, if this version knows it.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Initial),
            2 => Some(Self::Attachments),
            3 => Some(Self::Members),
            4 => Some(Self::BoundSessions),
            5 => Some(Self::BoundedCommands),
            6 => Some(Self::SessionIdentities),
            7 => Some(Self::BoundedMultis),
            8 => Some(Self::UniqueSessionIds),
            _ => None,
        }
    }
}
