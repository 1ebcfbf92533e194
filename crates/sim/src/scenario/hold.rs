//! Holding something for a while under the eyes of an [`Occupancy`], whatever kind of guard it is.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use baton::guard::ReleaseError;
use baton::lock::{MultiGuard, ReadGuard, ReentrantGuard, WriteGuard};
use baton::{Guard, Leadership};

use crate::boundary;
use crate::occupancy::Occupancy;
use crate::stage::Stage;

/// A guard of any kind.
pub(super) trait HeldGuard: Send + Sync + 'static {
    fn valid(&self) -> bool;
    fn number(&self) -> u64;
    fn give_back(self) -> impl Future<Output = Result<(), ReleaseError>> + Send;
}

/// A kind of guard by its token and its release.
macro_rules! held {
    ($guard:ty, $number:expr, $give_back:expr) => {
        impl HeldGuard for $guard {
            fn valid(&self) -> bool {
                self.check().is_ok()
            }
            fn number(&self) -> u64 {
                $number(self)
            }
            async fn give_back(self) -> Result<(), ReleaseError> {
                $give_back(self).await
            }
        }
    };
}

held!(Guard, Guard::token, Guard::release);
held!(ReadGuard, Guard::token, ReadGuard::release);
held!(WriteGuard, Guard::token, WriteGuard::release);
held!(ReentrantGuard, Guard::token, ReentrantGuard::release);
held!(
    MultiGuard,
    |many: &Self| many.guard().token(),
    MultiGuard::release
);
// Terms are numbered one by one.
held!(
    Leadership,
    |leads: &Self| leads.term().epoch,
    Leadership::resign
);

/// Returns the guard of an acquire, which may have been cancelled. An error is a failure of the
/// run.
pub(super) fn granted<G>(
    stage: &Stage,
    who: &str,
    outcome: Option<Result<G, impl Display>>,
) -> Option<G> {
    match outcome? {
        Ok(guard) => Some(guard),
        Err(error) => {
            stage.fail(&format!("{who}: {error}"));
            None
        }
    }
}

/// Holds alone for a while, asks the guard before each step, and releases.
pub(super) async fn hold(stage: &Stage, who: &str, room: &Occupancy, guard: impl HeldGuard) {
    let token = guard.number();
    hold_in(stage, who, &[(room, 1, token)], guard).await;
}

/// Holds several things like [`hold`], each with the weight and the token that the guard has there.
pub(super) async fn hold_in(
    stage: &Stage,
    who: &str,
    rooms: &[(&Occupancy, usize, u64)],
    guard: impl HeldGuard,
) {
    hold_for(stage, who, rooms, guard, 15).await;
}

/// Holds like [`hold_in`] for a limited time: a guard that is not lost is given back then.
pub(super) async fn hold_for(
    stage: &Stage,
    who: &str,
    rooms: &[(&Occupancy, usize, u64)],
    guard: impl HeldGuard,
    millis: u64,
) {
    let Some(guard) = stay(stage, who, rooms, guard, millis).await else {
        return;
    };
    // What a release may come to under faults is the guard's matter; the checks afterwards see what
    // it left.
    let outcome = guard.give_back().await;
    stage.note(|| format!("{who} released: {outcome:?}"));
}

/// Holds for a limited time, asks the guard before each step, and hands it back.
pub(super) async fn stay<G: HeldGuard>(
    stage: &Stage,
    who: &str,
    rooms: &[(&Occupancy, usize, u64)],
    guard: G,
    millis: u64,
) -> Option<G> {
    let guard = Arc::new(guard);
    for (room, weight, token) in rooms {
        let asked = Arc::downgrade(&guard);
        room.enter(who, *weight, *token, move || {
            asked.upgrade().is_some_and(|guard| guard.valid())
        });
    }
    for _ in 0..3 {
        if !guard.valid() {
            stage.mark(boundary::GUARD_ENDS);
            break;
        }
        stage.pause(millis / 3).await;
    }
    let guard = Arc::into_inner(guard);
    if guard.is_none() {
        stage.fail("a guard is held twice");
    }
    guard
}
