//! Several locks at once, named in either order, beside somebody who wants only one of them.

use baton::{MultiLock, Mutex};

use super::Scenario;
use super::hold::{granted, hold, hold_in};
use crate::stage::Stage;

const ONE: &str = "/many/a";
const OTHER: &str = "/many/b";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("multi-lock", 3, |stage| Box::pin(turns(stage)))
            .keeps(|path| ["/many", ONE, OTHER].contains(&path)),
    ]
}

async fn turns(stage: Stage) {
    let rooms = (stage.occupancy(ONE, 1), stage.occupancy(OTHER, 1));
    let act = |stage: Stage, number: usize| {
        let (one, other) = rooms.clone();
        async move {
            for round in 0..2 {
                let who = format!("client {number}, round {round}");
                if number == 2 {
                    let Ok(mutex) = Mutex::new(stage.client(number), OTHER) else {
                        return stage.fail("no mutex");
                    };
                    let outcome = stage.cancellable(mutex.acquire()).await;
                    if let Some(guard) = granted(&stage, &who, outcome) {
                        hold(&stage, &who, &other, guard).await;
                    }
                    continue;
                }
                let named = if number == 0 {
                    [ONE, OTHER]
                } else {
                    [OTHER, ONE]
                };
                let Ok(both) = MultiLock::new(stage.client(number), named) else {
                    return stage.fail("no locks");
                };
                let outcome = stage.cancellable(both.acquire()).await;
                if let Some(guard) = granted(&stage, &who, outcome) {
                    let tokens = [ONE, OTHER].map(|path| guard.token(path).unwrap_or(0));
                    let [first, second] = tokens;
                    let rooms = [(&one, 1, first), (&other, 1, second)];
                    hold_in(&stage, &who, &rooms, guard).await;
                }
            }
        }
    };
    stage.crew(3, act).await;
}
