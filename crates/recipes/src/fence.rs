//! Fencing tokens, on the receiver's side: refusal of writes by former holders.
//!
//! [`Fence`] has an example.

// Owns the largest token seen, and the rule that checking it and writing are one step. Must never
// let a smaller token write after a larger one.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Check of fencing tokens: writes pass whose token is not smaller than an earlier one. For a store
/// in one process; where the store is a database or an object store, keep the token beside the data
/// there: see the [guarantees](crate::guide::guarantees#your-part-fencing).
///
/// A fence belongs to one lock: tokens of different locks cannot be compared. Where what is
/// protected outlives the process, so must the token: store [`Fence::newest`] with it, and go on
/// with [`Fence::starting_at`].
///
/// ```
/// let fence = baton::Fence::new();
/// let mut file = Vec::new();
/// fence.pass(17, || file.push("from the first holder")).unwrap();
/// fence.pass(23, || file.push("from the next")).unwrap();
/// // The first one wakes from a long pause, still believing that it holds the lock:
/// let refused = fence.pass(17, || file.push("late")).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "token 17 is refused: token 23 has been here since; stop, and acquire the lock again"
/// );
/// assert_eq!(file.len(), 2);
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    newest: Mutex<u64>,
}

/// A write that came from a holder whose lock has passed on. It was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "token {token} is refused: token {newest} has been here since; stop, and acquire the lock again"
)]
pub struct StaleToken {
    /// The token that came with the write.
    pub token: u64,
    /// The largest that has come before.
    pub newest: u64,
}

impl Fence {
    /// Creates a fence that has seen no token.
    #[must_use]
    pub const fn new() -> Self {
        Self::starting_at(0)
    }

    /// Creates a fence that has seen `token`, as stored with the data that it protects.
    #[must_use]
    pub const fn starting_at(token: u64) -> Self {
        Self {
            newest: Mutex::new(token),
        }
    }

    /// Returns the largest token that has passed.
    #[must_use]
    pub fn newest(&self) -> u64 {
        *self.lock()
    }

    /// Runs `write` if no larger token has passed before. No other write runs between the check of
    /// the token and the end of this one. A token may pass any number of times.
    ///
    /// # Errors
    /// [`StaleToken`]: a later holder has been here, and `write` was not run.
    ///
    /// # Panics
    /// If `write` does; the token counts as seen.
    pub fn pass<R>(&self, token: u64, write: impl FnOnce() -> R) -> Result<R, StaleToken> {
        let mut newest = self.lock();
        if token < *newest {
            let newest = *newest;
            return Err(StaleToken { token, newest });
        }
        *newest = token;
        Ok(write())
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        // What a panicking write has left is its own matter; the token is right.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_passes_never_goes_back(tokens in prop::collection::vec(0u64..20, 0..60)) {
            let fence = Fence::new();
            let mut passed = Vec::new();
            for token in tokens {
                let outcome = fence.pass(token, || passed.push(token));
                prop_assert_eq!(outcome.is_ok(), passed.last() == Some(&token));
                prop_assert_eq!(fence.newest(), passed.last().copied().unwrap_or(0));
            }
            prop_assert!(passed.is_sorted());
        }
    }

    #[test]
    fn a_write_that_panics_leaves_the_fence_standing() {
        let fence = Fence::starting_at(3);
        let write = AssertUnwindSafe(|| fence.pass(5, || panic!("disk full")));
        assert!(catch_unwind(write).is_err());
        assert_eq!(
            fence.pass(4, || ()),
            Err(StaleToken {
                token: 4,
                newest: 5
            })
        );
        assert_eq!(fence.pass(5, || 7), Ok(7));
    }
}
