//! The semaphore: three permits, wanted one, two and three at a time; and fewer for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use baton::Semaphore;
use baton::semaphore::SemaphoreError;

use super::Scenario;
use super::hold::{granted, hold_in};
use crate::boundary;
use crate::stage::Stage;

const PATH: &str = "/pools/one";
const PERMITS: u32 = 3;

pub(super) fn scenarios() -> Vec<Scenario> {
    let keeps =
        |path: &str| ["/pools", PATH, "/pools/one/locks", "/pools/one/leases"].contains(&path);
    let resized = Scenario::new("semaphore-resize", 3, |stage| Box::pin(resized(stage)));
    vec![
        Scenario::new("semaphore", 3, |stage| Box::pin(turns(stage))).keeps(keeps),
        resized.keeps(keeps),
    ]
}

async fn turns(stage: Stage) {
    let room = stage.occupancy("the permits", PERMITS as usize);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            let Ok(semaphore) = Semaphore::new(stage.client(number), PATH, PERMITS) else {
                return stage.fail("no semaphore");
            };
            let wanted = u32::try_from(number).unwrap_or(0) + 1;
            for round in 0..2 {
                let who = format!("client {number}, round {round}");
                let outcome = stage.cancellable(semaphore.acquire(wanted)).await;
                if let Some(guard) = granted(&stage, &who, outcome) {
                    let token = guard.token();
                    hold_in(&stage, &who, &[(&room, number + 1, token)], guard).await;
                }
            }
        }
    };
    stage.crew(3, act).await;
}

/// The number goes down to one and up again, while others hold and wait. Who asks and is granted
/// while it is one is alone.
async fn resized(stage: Stage) {
    let room = stage.occupancy("the permits", PERMITS as usize);
    // Odd while the number is known to be one.
    let era = Arc::new(AtomicUsize::new(0));
    let act = |stage: Stage, number: usize| {
        let (room, era) = (room.clone(), Arc::clone(&era));
        async move {
            let Ok(semaphore) = Semaphore::new(stage.client(number), PATH, PERMITS) else {
                return stage.fail("no semaphore");
            };
            if number == 2 {
                for _ in 0..2 {
                    stage.pause(10).await;
                    resize(&stage, &semaphore, 1).await;
                    era.fetch_add(1, SeqCst);
                    stage.pause(25).await;
                    era.fetch_add(1, SeqCst);
                    resize(&stage, &semaphore, PERMITS).await;
                }
                return;
            }
            for round in 0..4 {
                let who = format!("client {number}, round {round}");
                let wanted = if round == 1 { 2 } else { 1 };
                let begun = era.load(SeqCst);
                let outcome = stage.cancellable(semaphore.acquire(wanted)).await;
                if matches!(outcome, Some(Err(SemaphoreError::BadPermits { .. }))) {
                    stage.mark(boundary::FEWER_PERMITS);
                }
                let guard = match outcome {
                    Some(Ok(guard)) => guard,
                    // More than there are by now; or the number was first read too late.
                    Some(Err(
                        SemaphoreError::BadPermits { .. } | SemaphoreError::MaximumDiffers { .. },
                    ))
                    | None => {
                        stage.pause(7).await;
                        continue;
                    }
                    Some(Err(error)) => return stage.fail(&format!("{who}: {error}")),
                };
                if begun % 2 == 1 && era.load(SeqCst) == begun && guard.check().is_ok() {
                    let held = room.held();
                    stage.expect(held == 0, || {
                        format!("{who} was granted the only permit beside {held}")
                    });
                }
                let token = guard.token();
                let rooms = [(&room, wanted as usize, token)];
                hold_in(&stage, &who, &rooms, guard).await;
            }
        }
    };
    stage.crew(3, act).await;
}

/// Changes the number, however often it takes.
async fn resize(stage: &Stage, semaphore: &Semaphore, permits: u32) {
    loop {
        match stage.cancellable(semaphore.resize(permits)).await {
            Some(Ok(before)) => return stage.note(|| format!("{before} permits become {permits}")),
            failed => stage.note(|| format!("not resized to {permits}: {failed:?}")),
        }
        stage.pause(100).await;
    }
}
