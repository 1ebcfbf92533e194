//! Answers that must not be older than the question: a gate found open (`docs/internals/hazards.md`
//! H64), a view that has caught up (H82).

use std::time::Duration;

use baton::tree::CreateMode;
use baton::{Barrier, TreeCache};
use baton_client::{EventKind, OpCode};
use baton_testkit::{Action, Match};

use crate::common::{LONG, Stage, session, within};

/// Far longer than what must not happen would take.
const A_WHILE: Duration = Duration::from_millis(300);

#[tokio::test]
async fn h64_a_gate_is_not_found_open_before_the_server_has_caught_up() {
    let stage = Stage::new("h64").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let gate = Barrier::new(&client, &stage.path).unwrap();
    let caught_up = proxy.on(Match::reply(OpCode::Sync)).then(Action::Hold);
    let mut waiting = tokio::spawn(async move { gate.wait().await });
    within(caught_up.fired()).await;
    let early = tokio::time::timeout(A_WHILE, &mut waiting).await;
    assert!(early.is_err(), "by a server that may be behind");
    caught_up.release();
    within(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn h82_a_view_has_caught_up_when_what_was_acknowledged_before_is_in_it() {
    let stage = Stage::new("h82").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let other = session(&stage.client().await).await;
    other
        .create(&stage.path, b"before", CreateMode::Persistent)
        .await
        .unwrap();
    let cache = TreeCache::builder(&client, &stage.path).unwrap();
    let cache = cache.start().unwrap();
    within(cache.ready()).await.unwrap();
    let news = Match::event(EventKind::NodeDataChanged).path_contains(&*stage.path);
    let news = proxy.on(news).then(Action::Hold);
    other.set_data(&stage.path, b"after", None).await.unwrap();
    within(news.fired()).await;
    let mut asked = std::pin::pin!(cache.catch_up());
    let early = tokio::time::timeout(A_WHILE, &mut asked).await;
    assert!(early.is_err(), "the change is not in the view");
    news.release();
    let now = within(asked).await.unwrap();
    assert_eq!(now.get(&stage.path).unwrap().data, &b"after"[..]);
}
