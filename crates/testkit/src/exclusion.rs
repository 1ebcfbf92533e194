//! A stand-in for the thing that a lock protects: it notices two holders at once, and a fencing
//! token that does not grow. Owns the record of violations; never blocks anyone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Somebody came in while another was inside.
    #[error("{entered} (token {token}) came in while {inside:?} was inside")]
    Overlap {
        /// The newcomer.
        entered: String,
        /// With which token.
        token: u64,
        /// Those inside.
        inside: Vec<String>,
    },
    /// A later holder had a token that is not greater than an earlier one's.
    #[error("{entered} came in with token {token}, after {last_holder} with {last}")]
    TokenNotGrowing {
        /// The newcomer.
        entered: String,
        /// With which token.
        token: u64,
        /// The greatest token before.
        last: u64,
        /// Holder of that token.
        last_holder: String,
    },
}

#[derive(Debug, Default)]
struct State {
    inside: Vec<(u64, String)>,
    entries: u64,
    last: Option<(u64, String)>,
    violations: Vec<Violation>,
}

/// Checks mutual exclusion by time and by token. Clones share one record.
#[derive(Debug, Clone, Default)]
pub struct ExclusionChecker {
    state: Arc<Mutex<State>>,
}

impl ExclusionChecker {
    /// A checker that nobody has entered yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes in, as a lock's holder would use what the lock protects; the drop of what is returned
    /// goes out. Violations are recorded, not thrown, so that a test sees all of them.
    #[must_use = "the holder is inside until this is dropped"]
    pub fn enter(&self, who: impl Into<String>, token: u64) -> Occupancy {
        let who = who.into();
        let mut state = self.state();
        if !state.inside.is_empty() {
            let inside = state.inside.iter().map(|(_, name)| name.clone()).collect();
            state.violations.push(Violation::Overlap {
                entered: who.clone(),
                token,
                inside,
            });
        }
        if let Some((last, last_holder)) = state.last.clone()
            && token <= last
        {
            state.violations.push(Violation::TokenNotGrowing {
                entered: who.clone(),
                token,
                last,
                last_holder,
            });
        }
        if state.last.as_ref().is_none_or(|(last, _)| token > *last) {
            state.last = Some((token, who.clone()));
        }
        state.entries += 1;
        let entry = state.entries;
        state.inside.push((entry, who));
        drop(state);
        Occupancy {
            checker: self.clone(),
            entry,
        }
    }

    /// Number of entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.state().entries
    }

    /// Returns the violations so far, in order.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.state().violations.clone()
    }

    /// The first violation, if there is one, as an error.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), Violation> {
        self.state().violations.first().cloned().map_or(Ok(()), Err)
    }
}

/// Being inside; see [`ExclusionChecker::enter`].
#[derive(Debug)]
pub struct Occupancy {
    checker: ExclusionChecker,
    entry: u64,
}

impl Drop for Occupancy {
    fn drop(&mut self) {
        self.checker
            .state()
            .inside
            .retain(|(entry, _)| *entry != self.entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_and_stale_tokens_are_noticed() {
        let checker = ExclusionChecker::new();
        let first = checker.enter("a", 5);
        drop(first);
        let second = checker.enter("b", 6);
        assert_eq!(checker.check(), Ok(()));
        let third = checker.enter("c", 6);
        drop((second, third));
        assert_eq!(checker.entries(), 3);
        assert!(matches!(
            checker.violations().as_slice(),
            [
                Violation::Overlap { .. },
                Violation::TokenNotGrowing {
                    token: 6,
                    last: 6,
                    ..
                }
            ]
        ));
    }
}
