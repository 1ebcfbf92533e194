//! The mutex, in each dialect: two clients that take turns; one that only tries; one whose time is limited.

use std::time::Duration;

use baton::{Dialect, LockError, Mutex, SimpleMutex};

use super::Scenario;
use super::hold::{granted, hold, hold_for, stay};
use crate::stage::Stage;

const PATH: &str = "/locks/one";
/// Three session timeouts.
const STAY_MS: u64 = 12_000;
/// How often each has the lock that goes round.
const TURNS: usize = 3;

pub(super) fn scenarios() -> Vec<Scenario> {
    let keeps = |path: &str| path == "/locks" || path == PATH;
    vec![
        Scenario::new("mutex", 2, |stage| {
            Box::pin(async move { turns(stage, Dialect::Curator).await })
        })
        .keeps(keeps),
        Scenario::new("mutex-requeue", 2, |stage| Box::pin(requeues(stage))).keeps(keeps),
        Scenario::new("mutex-kazoo", 2, |stage| {
            Box::pin(async move { turns(stage, Dialect::Kazoo).await })
        })
        .keeps(keeps),
        Scenario::new("mutex-recipes", 2, |stage| {
            Box::pin(async move { turns(stage, Dialect::WriteLock).await })
        })
        .keeps(keeps),
        Scenario::new("simple-mutex", 2, |stage| Box::pin(scrambles(stage))).keeps(keeps),
        Scenario::new("mutex-try", 2, |stage| Box::pin(tries(stage))).keeps(keeps),
        Scenario::new("mutex-stay", 2, |stage| Box::pin(stays(stage))).keeps(keeps),
        Scenario::new("mutex-timeout", 2, |stage| Box::pin(limited(stage))).keeps(keeps),
    ]
}

fn mutex(stage: &Stage, client: usize) -> Option<Mutex> {
    granted(
        stage,
        "no mutex",
        Some(Mutex::new(stage.client(client), PATH)),
    )
}

async fn turns(stage: Stage, dialect: Dialect) {
    let room = stage.occupancy("the lock", 1);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            let Some(mutex) = mutex(&stage, number) else {
                return;
            };
            let mutex = mutex.dialect(dialect);
            for round in 0..2 {
                let who = format!("client {number}, round {round}");
                let outcome = stage.cancellable(mutex.acquire()).await;
                if let Some(guard) = granted(&stage, &who, outcome) {
                    hold(&stage, &who, &room, guard).await;
                }
            }
        }
    };
    stage.crew(2, act).await;
}

/// Each takes turn after turn without leaving the line, and ends with a hold.
async fn requeues(stage: Stage) {
    let room = stage.occupancy("the lock", 1);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            let Some(mutex) = mutex(&stage, number) else {
                return;
            };
            let mut turn = stage.cancellable(mutex.acquire()).await;
            for round in 0..TURNS {
                let who = format!("client {number}, turn {round}");
                let guard = match turn.take() {
                    // Given up; or the guard had ended before it could be passed on.
                    None | Some(Err(LockError::Lost { .. })) => return,
                    Some(Err(error)) => return stage.fail(&format!("{who}: {error}")),
                    Some(Ok(guard)) => guard,
                };
                if round + 1 == TURNS {
                    return hold(&stage, &who, &room, guard).await;
                }
                let token = guard.token();
                let Some(guard) = stay(&stage, &who, &[(&room, 1, token)], guard, 15).await else {
                    return;
                };
                turn = stage.cancellable(mutex.requeue(guard)).await;
            }
        }
    };
    stage.crew(2, act).await;
}

async fn scrambles(stage: Stage) {
    let room = stage.occupancy("the lock", 1);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            let Ok(mutex) = SimpleMutex::new(stage.client(number), PATH) else {
                return stage.fail("no mutex");
            };
            for round in 0..2 {
                let who = format!("client {number}, round {round}");
                let outcome = stage.cancellable(mutex.acquire()).await;
                if let Some(guard) = granted(&stage, &who, outcome) {
                    hold(&stage, &who, &room, guard).await;
                }
            }
        }
    };
    stage.crew(2, act).await;
}

/// Each stays for longer than its session lives without a word from the server: a guard that outlives its lease meets the
/// next one's.
async fn stays(stage: Stage) {
    let room = stage.occupancy("the lock", 1);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            let Some(mutex) = mutex(&stage, number) else {
                return;
            };
            let who = format!("client {number}");
            let outcome = stage.cancellable(mutex.acquire()).await;
            if let Some(guard) = granted(&stage, &who, outcome) {
                let token = guard.token();
                hold_for(&stage, &who, &[(&room, 1, token)], guard, STAY_MS).await;
            }
        }
    };
    stage.crew(2, act).await;
}

async fn tries(stage: Stage) {
    let room = stage.occupancy("the lock", 1);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            let Some(mutex) = mutex(&stage, number) else {
                return;
            };
            for round in 0..3 {
                let who = format!("client {number}, round {round}");
                match stage.cancellable(mutex.try_acquire()).await {
                    None | Some(Ok(None)) => stage.pause(3).await,
                    Some(Ok(Some(guard))) => hold(&stage, &who, &room, guard).await,
                    Some(Err(error)) => stage.fail(&format!("{who}: {error}")),
                }
            }
        }
    };
    stage.crew(2, act).await;
}

async fn limited(stage: Stage) {
    let room = stage.occupancy("the lock", 1);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            let Some(mutex) = mutex(&stage, number) else {
                return;
            };
            for round in 0..2 {
                let who = format!("client {number}, round {round}");
                let limit = Duration::from_millis(12 + 6 * stage.below(4));
                match stage.cancellable(mutex.acquire_timeout(limit)).await {
                    None | Some(Err(LockError::TimedOut { .. })) => stage.pause(2).await,
                    Some(Ok(guard)) => hold(&stage, &who, &room, guard).await,
                    Some(Err(error)) => stage.fail(&format!("{who}: {error}")),
                }
            }
        }
    };
    stage.crew(2, act).await;
}
