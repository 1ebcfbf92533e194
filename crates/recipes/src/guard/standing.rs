//! A look at a guard from elsewhere in the process.
//!
//! Owns nothing of the guard: it can neither release it nor keep it from ending.

use super::core::{Core, LostReason};
use std::sync::Arc;
use std::time::Duration;

/// Whether a guard is held, for those who do not have it: worker threads, a health endpoint. Cheap to clone, wait-free to ask;
/// it may outlive the guard.
///
/// ```no_run
/// # async fn example(guard: baton::Guard) {
/// let standing = guard.standing();
/// std::thread::spawn(move || {
///     while standing.check().is_ok() {
///         // One step of the work.
///     }
/// });
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Standing(Arc<Core>);

impl Standing {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Self(Arc::clone(core))
    }

    /// As [`Guard::check`](crate::Guard::check).
    ///
    /// # Errors
    /// How the guard ended.
    pub fn check(&self) -> Result<(), LostReason> {
        self.0.check()
    }

    /// As [`Guard::remaining`](crate::Guard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }
}
