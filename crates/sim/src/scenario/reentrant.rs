//! The reentrant mutex: held until the last of its holder's guards goes, whichever that is.

use baton::ReentrantMutex;
use baton::lock::OwnerId;

use super::Scenario;
use super::hold::{granted, hold};
use crate::stage::Stage;

const PATH: &str = "/locks/again";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("reentrant-mutex", 2, |stage| Box::pin(turns(stage)))
            .keeps(|path| path == "/locks" || path == PATH),
    ]
}

async fn turns(stage: Stage) {
    let room = stage.occupancy("the lock", 1);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            let Ok(lock) = ReentrantMutex::new(stage.client(number), PATH) else {
                return stage.fail("no mutex");
            };
            let owner = OwnerId::from("the program");
            for round in 0..2 {
                let who = format!("client {number}, round {round}");
                let outcome = stage.cancellable(lock.acquire(&owner)).await;
                let Some(outer) = granted(&stage, &who, outcome) else {
                    continue;
                };
                let inner = match stage.cancellable(lock.acquire(&owner)).await {
                    // Lost in the meantime, or nobody waited for it: there is the outer one alone.
                    None | Some(Err(_)) => {
                        hold(&stage, &who, &room, outer).await;
                        continue;
                    }
                    Some(Ok(guard)) => guard,
                };
                stage.expect(inner.token() == outer.token(), || {
                    format!("{who}: tokens {} and {}", outer.token(), inner.token())
                });
                let (first, last) = if round == 0 {
                    (inner, outer)
                } else {
                    (outer, inner)
                };
                let released = first.release().await;
                stage.note(|| format!("{who} released the first: {released:?}"));
                hold(&stage, &who, &room, last).await;
            }
        }
    };
    stage.crew(2, act).await;
}
