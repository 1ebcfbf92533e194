//! A term being served.
//!
//! Owns the way out of it: first this process no longer takes itself for the leader, then the offer is deleted (H59).

use super::{Shared, Stage, Term};
use crate::guard::{Guard, LostReason, ReleaseError, Standing, Txn};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// This participant leads, while this lives and [`Leadership::check`] says so. Dropping it resigns in the background.
#[must_use = "dropping the leadership resigns"]
#[derive(Debug)]
pub struct Leadership {
    term: Term,
    // Dropped in this order.
    _stopping: Stopping,
    guard: Guard,
    _stopped: Stopped,
}

impl Leadership {
    pub(super) fn new(guard: Guard, term: Term, shared: Arc<Shared>) -> Self {
        Self {
            term,
            _stopping: Stopping(Arc::clone(&shared)),
            guard,
            _stopped: Stopped(shared),
        }
    }

    /// The term being served.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// Whether this participant leads, at this instant, by its own clock. Never waits.
    ///
    /// # Errors
    /// Why it does not; from then on for ever.
    pub fn check(&self) -> Result<(), LostReason> {
        self.guard.check()
    }

    /// For how long leadership is known to last if no server answers from now on.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Resolves when this participant leads no longer. See [`Guard::lost`].
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.guard.lost()
    }

    /// Whether somebody has asked this leader to resign: see [`LeaderElection::ask_to_resign`](crate::LeaderElection::ask_to_resign).
    /// It leads on until it does. Never waits.
    #[must_use]
    pub fn resignation_requested(&self) -> bool {
        self.guard.revoke_requested()
    }

    /// Resolves when somebody asks this leader to resign. It does not borrow, and may be dropped freely.
    ///
    /// # Errors
    /// How the term ended, if nobody asked before.
    pub fn on_resignation_request(
        &self,
    ) -> impl Future<Output = Result<(), LostReason>> + Send + 'static {
        self.guard.on_revoke()
    }

    /// Drives `work`, and drops it the moment leadership ends. See [`Guard::run`].
    ///
    /// # Errors
    /// Why leadership ended, if it did before the work was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostReason> {
        self.guard.run(work).await
    }

    /// Begins a set of changes to the tree that is applied only while this participant leads. See [`Guard::txn`].
    pub fn txn(&self) -> Txn<'_> {
        self.guard.txn()
    }

    /// Whether this participant leads, for those who do not have the leadership. See [`Guard::standing`].
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.guard.standing()
    }

    /// Full path of the offer.
    #[must_use]
    pub fn node(&self) -> &str {
        self.guard.node()
    }

    /// Steps down and waits for the server's word. In this process leadership ends before the server is asked (H59).
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn resign(self) -> Result<(), ReleaseError> {
        let Self {
            _stopping: stopping,
            guard,
            _stopped: stopped,
            ..
        } = self;
        drop(stopping);
        let released = guard.release().await;
        drop(stopped);
        released
    }
}

#[derive(Debug)]
struct Stopping(Arc<Shared>);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.announcer.announce(&Stage::StopStart);
    }
}

#[derive(Debug)]
struct Stopped(Arc<Shared>);

impl Drop for Stopped {
    fn drop(&mut self) {
        *self.0.stepped_down() = Some(Instant::now());
        self.0.announcer.announce(&Stage::StopComplete);
    }
}
