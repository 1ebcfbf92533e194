//! The naming scheme of a wait queue.
//!
//! Owns the difference between the names of mutexes and those of read/write locks. Must never say
//! that a node blocks nobody unless all participants of the same names say so too.

use uuid::Uuid;

use super::sequence_number::NumericTail;
use super::{Child, Dialect, Family, LockMode, RwDialect};

/// The naming scheme of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamingScheme {
    Exclusive(Dialect),
    ReadWrite(RwDialect),
}

impl NamingScheme {
    /// The name of this scheme, as options and messages spell it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive(dialect) => dialect.as_str(),
            Self::ReadWrite(dialect) => dialect.as_str(),
        }
    }

    /// The name of our node without its number.
    pub(crate) fn own_prefix(self, mode: LockMode, marker: &Uuid, session_id: i64) -> String {
        match self {
            Self::Exclusive(dialect) => dialect.own_prefix(marker, session_id),
            Self::ReadWrite(dialect) => dialect.own_prefix(mode, marker),
        }
    }

    /// Returns the meaning of `child`, a name without its directory, in this wait queue.
    pub(crate) fn classify(self, child: &str) -> Child {
        match self {
            Self::Exclusive(dialect) => dialect.classify(child),
            Self::ReadWrite(dialect) => dialect.classify(child),
        }
    }

    /// The scheme by which `child` is a waiter node, and what it is there; without a scheme, what
    /// it is to all of them. A writer of kazoo's read/write lock has the name of a node of kazoo's
    /// mutex, and is read as such.
    pub(crate) fn classify_any(child: &str) -> (Option<Self>, Child) {
        let family = Family::of(child);
        if let Family::Waiter(dialect, number) = family {
            let mode = LockMode::Exclusive;
            return (
                Some(Self::Exclusive(dialect)),
                Child::Waiter { number, mode },
            );
        }
        if let Some(tail) = NumericTail::of(child) {
            for dialect in RwDialect::ALL {
                if let Some(found @ Child::Waiter { .. }) = dialect.among_waiters(&tail) {
                    return (Some(Self::ReadWrite(dialect)), found);
                }
            }
        }
        (None, family.among_others())
    }

    /// The lock mode of a child that was classified as a waiter node.
    pub(crate) fn mode_of(self, child: &str) -> LockMode {
        match self.classify(child) {
            Child::Waiter { mode, .. } => mode,
            _ => LockMode::Exclusive,
        }
    }

    /// Returns whether a node may come before one of ours that was created earlier, and block it: a
    /// writer that becomes a reader keeps its number (H43).
    pub(crate) fn is_overtaken(self, own: LockMode) -> bool {
        matches!((self, own), (Self::ReadWrite(_), LockMode::Exclusive))
    }

    /// Returns whether grants may come in another order than creations, so that a token is minted
    /// at the grant.
    pub(crate) fn mints_tokens(self) -> bool {
        matches!(self, Self::ReadWrite(_))
    }
}
