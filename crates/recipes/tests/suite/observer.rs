//! Watching who leads without competing, while leaders go (`docs/internals/hazards.md` H60).

use baton::LeaderElection;
use baton_client::OpCode;
use baton_testkit::{Action, Match};

use crate::common::{LONG, Stage, within};

#[tokio::test]
async fn h60_an_observer_skips_a_leader_that_went_before_it_could_be_read() {
    let stage = Stage::new("observer").await;
    let first = LeaderElection::new(&stage.client().await, &stage.path).unwrap();
    let first = within(first.campaign()).await.unwrap();
    let second = LeaderElection::new(&stage.client().await, &stage.path).unwrap();
    let second = tokio::spawn(async move { second.campaign().await });
    stage.until_children(2).await;
    let (client, proxy) = stage.proxied(LONG).await;
    let read = Match::request(OpCode::GetData).path_contains(first.node());
    let read = proxy.on(read).then(Action::Hold);
    let mut observer = LeaderElection::new(&client, &stage.path).unwrap().leaders();
    let seen = tokio::spawn(async move { observer.next().await });
    within(read.fired()).await;
    within(first.resign()).await.unwrap();
    let second = within(second).await.unwrap().unwrap();
    read.release();
    let seen = within(seen).await.unwrap().unwrap().unwrap();
    assert_eq!(seen.node, second.node());
    within(second.resign()).await.unwrap();
}
