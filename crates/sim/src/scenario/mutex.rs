//! The mutex, in each dialect: two clients that take turns; one that only tries; one whose time is limited.

use std::sync::Arc;
use std::time::Duration;

use baton::{Dialect, Guard, LockError, Mutex};

use super::Scenario;
use crate::occupancy::Occupancy;
use crate::stage::{Actor, Stage};

const PATH: &str = "/locks/one";

pub(super) fn scenarios() -> Vec<Scenario> {
    let keeps = |path: &str| path == "/locks" || path == PATH;
    vec![
        Scenario::new("mutex", 2, |stage| {
            Box::pin(async move { turns(stage, Dialect::Curator).await })
        })
        .keeps(keeps),
        Scenario::new("mutex-kazoo", 2, |stage| {
            Box::pin(async move { turns(stage, Dialect::Kazoo).await })
        })
        .keeps(keeps),
        Scenario::new("mutex-try", 2, |stage| Box::pin(tries(stage))).keeps(keeps),
        Scenario::new("mutex-timeout", 2, |stage| Box::pin(limited(stage))).keeps(keeps),
    ]
}

/// Holds for a while, asks the guard before each step, and releases.
pub(super) async fn hold(stage: &Stage, who: &str, room: &Occupancy, guard: Guard) {
    let guard = Arc::new(guard);
    let asked = Arc::downgrade(&guard);
    room.enter(who, 1, guard.token(), move || {
        asked.upgrade().is_some_and(|guard| guard.check().is_ok())
    });
    for _ in 0..3 {
        if guard.check().is_err() {
            break;
        }
        stage.pause(5).await;
    }
    match Arc::try_unwrap(guard) {
        Ok(guard) => {
            // What a release may come to under faults is the guard's matter; the checks afterwards see what it left.
            let outcome = guard.release().await;
            stage.note(|| format!("{who} released: {outcome:?}"));
        }
        Err(_) => stage.fail("a guard is held twice"),
    }
}

async fn turns(stage: Stage, dialect: Dialect) {
    let room = stage.occupancy("the lock", 1);
    let actors = (0..2).map(|number| {
        let (stage, room) = (stage.clone(), room.clone());
        let who = format!("client {number}");
        let actor = async move {
            for round in 0..2 {
                let Ok(mutex) = Mutex::new(stage.client(number), PATH) else {
                    return stage.fail("no mutex");
                };
                let mutex = mutex.dialect(dialect);
                let who = format!("client {number}, round {round}");
                match stage.cancellable(mutex.acquire()).await {
                    None => {}
                    Some(Ok(guard)) => hold(&stage, &who, &room, guard).await,
                    Some(Err(error)) => stage.fail(&format!("{who}: {error}")),
                }
            }
        };
        (who, Box::pin(actor) as _)
    });
    let actors: Vec<Actor> = actors.collect();
    stage.together(actors).await;
}

async fn tries(stage: Stage) {
    let room = stage.occupancy("the lock", 1);
    let actors = (0..2).map(|number| {
        let (stage, room) = (stage.clone(), room.clone());
        let actor = async move {
            for round in 0..3 {
                let Ok(mutex) = Mutex::new(stage.client(number), PATH) else {
                    return stage.fail("no mutex");
                };
                let who = format!("client {number}, round {round}");
                match stage.cancellable(mutex.try_acquire()).await {
                    None | Some(Ok(None)) => stage.pause(3).await,
                    Some(Ok(Some(guard))) => hold(&stage, &who, &room, guard).await,
                    Some(Err(error)) => stage.fail(&format!("{who}: {error}")),
                }
            }
        };
        (format!("client {number}"), Box::pin(actor) as _)
    });
    let actors: Vec<Actor> = actors.collect();
    stage.together(actors).await;
}

async fn limited(stage: Stage) {
    let room = stage.occupancy("the lock", 1);
    let actors = (0..2).map(|number| {
        let (stage, room) = (stage.clone(), room.clone());
        let actor = async move {
            for round in 0..2 {
                let Ok(mutex) = Mutex::new(stage.client(number), PATH) else {
                    return stage.fail("no mutex");
                };
                let who = format!("client {number}, round {round}");
                let limit = Duration::from_millis(12 + 6 * stage.below(4));
                match stage.cancellable(mutex.acquire_timeout(limit)).await {
                    None | Some(Err(LockError::TimedOut { .. })) => stage.pause(2).await,
                    Some(Ok(guard)) => hold(&stage, &who, &room, guard).await,
                    Some(Err(error)) => stage.fail(&format!("{who}: {error}")),
                }
            }
        };
        (format!("client {number}"), Box::pin(actor) as _)
    });
    let actors: Vec<Actor> = actors.collect();
    stage.together(actors).await;
}
