//! The semaphore: three permits, wanted one, two and three at a time.

use baton::Semaphore;

use super::Scenario;
use super::hold::{granted, hold_in};
use crate::stage::Stage;

const PATH: &str = "/pools/one";
const PERMITS: u32 = 3;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("semaphore", 3, |stage| Box::pin(turns(stage))).keeps(|path| {
            ["/pools", PATH, "/pools/one/locks", "/pools/one/leases"].contains(&path)
        }),
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
