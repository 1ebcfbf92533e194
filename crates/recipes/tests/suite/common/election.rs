//! Shared parts of the election tests: candidates, and the stages that they report.

use baton::election::Stage as Step;
use baton::{Client, LeaderElection};

use super::within;

pub fn election(client: &Client, path: &str) -> LeaderElection {
    LeaderElection::new(client, path).unwrap()
}

/// Reads stages until one that `wanted` picks.
pub async fn until(
    stages: &mut baton::election::StageStream,
    mut wanted: impl FnMut(&Step) -> bool,
) -> Vec<Step> {
    within(async {
        let mut seen = Vec::new();
        loop {
            let stage = stages.next().await.unwrap();
            let found = wanted(&stage);
            seen.push(stage);
            if found {
                return seen;
            }
        }
    })
    .await
}
