//! A running term of leadership.
//!
//! Owns the way out of it: first this process no longer takes itself for the leader, then the offer
//! is deleted (H59).

use std::ops::Deref;
use std::sync::Arc;

use tokio::time::Instant;

use super::{Participant, Stage, Term};
use crate::guard::{Guard, ReleaseError};

/// RAII guard of a term: this participant leads while the guard exists and [`Guard::check`]
/// succeeds. Dropping it resigns in the background.
///
/// See [`Guard`] for all that it offers. [`Guard::on_revoke`] resolves when somebody asks this
/// leader to resign ([`LeaderElection::ask_to_resign`](crate::LeaderElection::ask_to_resign)); it
/// leads on until it does. Its [`Guard::token`] is that of the term.
#[must_use = "dropping the leadership resigns"]
#[derive(Debug)]
pub struct Leadership {
    term: Term,
    // Dropped in this order.
    _stopping: AnnounceStopStart,
    guard: Guard,
    _stopped: AnnounceStopComplete,
}

impl Leadership {
    pub(super) fn new(guard: Guard, term: Term, participant: Arc<Participant>) -> Self {
        Self {
            term,
            _stopping: AnnounceStopStart(Arc::clone(&participant)),
            guard,
            _stopped: AnnounceStopComplete(participant),
        }
    }

    /// Returns the running term.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// Resigns and waits for the server's answer. In this process leadership ends before the server
    /// is asked.
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

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

#[derive(Debug)]
struct AnnounceStopStart(Arc<Participant>);

impl Drop for AnnounceStopStart {
    fn drop(&mut self) {
        self.0.announcer.announce(&Stage::StopStart);
    }
}

#[derive(Debug)]
struct AnnounceStopComplete(Arc<Participant>);

impl Drop for AnnounceStopComplete {
    fn drop(&mut self) {
        *self.0.stepped_down() = Some(Instant::now());
        self.0.announcer.announce(&Stage::StopComplete);
    }
}
