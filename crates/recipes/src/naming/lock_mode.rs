//! Exclusive or shared.
//!
//! Owns which mode waits for which.

/// Whether a waiter shares the lock with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockMode {
    /// One holder at a time: a mutex, a writer.
    Exclusive,
    /// Together with other holders of this mode: a reader.
    Shared,
}

impl LockMode {
    /// Returns whether a waiter of this mode waits for an earlier one of the mode `other`.
    pub(crate) fn waits_for(self, other: Self) -> bool {
        (self, other) != (Self::Shared, Self::Shared)
    }
}
