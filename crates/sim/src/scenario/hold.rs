//! Holding something for a while under the eyes of an [`Occupancy`], whatever kind of guard it is.

use std::future::Future;
use std::sync::Arc;

use baton::{Guard, Leadership, MultiGuard, ReadGuard, ReentrantGuard, ReleaseError, WriteGuard};

use crate::occupancy::Occupancy;
use crate::stage::Stage;

/// A guard of any kind.
pub(super) trait Held: Send + Sync + 'static {
    fn valid(&self) -> bool;
    fn number(&self) -> u64;
    fn give_back(self) -> impl Future<Output = Result<(), ReleaseError>> + Send;
}

impl Held for Guard {
    fn valid(&self) -> bool {
        self.check().is_ok()
    }
    fn number(&self) -> u64 {
        self.token()
    }
    async fn give_back(self) -> Result<(), ReleaseError> {
        self.release().await
    }
}

impl Held for ReadGuard {
    fn valid(&self) -> bool {
        self.check().is_ok()
    }
    fn number(&self) -> u64 {
        self.token()
    }
    async fn give_back(self) -> Result<(), ReleaseError> {
        self.release().await
    }
}

impl Held for WriteGuard {
    fn valid(&self) -> bool {
        self.check().is_ok()
    }
    fn number(&self) -> u64 {
        self.token()
    }
    async fn give_back(self) -> Result<(), ReleaseError> {
        self.release().await
    }
}

impl Held for ReentrantGuard {
    fn valid(&self) -> bool {
        self.check().is_ok()
    }
    fn number(&self) -> u64 {
        self.token()
    }
    async fn give_back(self) -> Result<(), ReleaseError> {
        self.release().await
    }
}

impl Held for MultiGuard {
    fn valid(&self) -> bool {
        self.check().is_ok()
    }
    fn number(&self) -> u64 {
        self.guard().token()
    }
    async fn give_back(self) -> Result<(), ReleaseError> {
        self.release().await
    }
}

impl Held for Leadership {
    fn valid(&self) -> bool {
        self.check().is_ok()
    }
    /// Terms are numbered one by one.
    fn number(&self) -> u64 {
        self.term().epoch
    }
    async fn give_back(self) -> Result<(), ReleaseError> {
        self.resign().await
    }
}

/// Holds alone for a while, asks the guard before each step, and releases.
pub(super) async fn hold(stage: &Stage, who: &str, room: &Occupancy, guard: impl Held) {
    let token = guard.number();
    hold_in(stage, who, &[(room, 1, token)], guard).await;
}

/// As [`hold`], of several things, each with the weight and the token that the guard has there.
pub(super) async fn hold_in(
    stage: &Stage,
    who: &str,
    rooms: &[(&Occupancy, usize, u64)],
    guard: impl Held,
) {
    hold_for(stage, who, rooms, guard, 15).await;
}

/// As [`hold_in`], for so long at most: a guard that is not lost is given back then.
pub(super) async fn hold_for(
    stage: &Stage,
    who: &str,
    rooms: &[(&Occupancy, usize, u64)],
    guard: impl Held,
    millis: u64,
) {
    let Some(guard) = stay(stage, who, rooms, guard, millis).await else {
        return;
    };
    // What a release may come to under faults is the guard's matter; the checks afterwards see what it left.
    let outcome = guard.give_back().await;
    stage.note(|| format!("{who} released: {outcome:?}"));
}

/// Holds for so long at most, asks the guard before each step, and hands it back.
pub(super) async fn stay<G: Held>(
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
