//! The election: two candidates, terms that are numbered.

use baton::LeaderElection;

use super::Scenario;
use super::hold::{granted, hold};
use crate::stage::Stage;

const PATH: &str = "/elections/one";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("election", 2, |stage| Box::pin(terms(stage))).keeps(|path| {
            path == "/elections" || path == PATH || path == "/elections/one-__term__"
        }),
    ]
}

async fn terms(stage: Stage) {
    let room = stage.occupancy("the leadership", 1);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            let Ok(election) = LeaderElection::new(stage.client(number), PATH) else {
                return stage.fail("no election");
            };
            for round in 0..2 {
                let who = format!("candidate {number}, round {round}");
                let outcome = stage.cancellable(election.campaign()).await;
                if let Some(leadership) = granted(&stage, &who, outcome) {
                    hold(&stage, &who, &room, leadership).await;
                }
            }
        }
    };
    stage.crew(2, act).await;
}
