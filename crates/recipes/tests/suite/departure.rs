//! The reason for which a leader went, as an observer receives it.

use std::sync::Arc;
use std::time::Duration;

use baton::Leadership;
use baton::election::{Departure, Observer};
use baton::tree::CreateMode;
use baton_client::OpCode;
use baton_testkit::{Action, Match, Target, Variant};

use crate::common::election::election;
use crate::common::{CUTS, LONG, SHORT, SleptClock, Stage, session, within};

/// An observer that has seen this leader.
async fn observing(stage: &Stage, leader: &Leadership) -> Observer {
    let mut observer = election(&stage.client().await, &stage.path)
        .leaders()
        .with_reasons();
    sees(&mut observer, Some(leader.node())).await;
    assert_eq!(observer.departure(), None);
    observer
}

/// The next report, and why the leader before it went.
async fn sees(observer: &mut Observer, node: Option<&str>) -> Option<Departure> {
    let leader = within(observer.next()).await.unwrap();
    assert_eq!(leader.map(|leader| leader.node).as_deref(), node);
    observer.departure()
}

async fn leader(stage: &Stage) -> Leadership {
    within(election(&stage.client().await, &stage.path).campaign())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_resignation_is_distinguished_from_a_failure_and_from_a_removal() {
    let stage = Stage::new("why").await;
    let (failing, proxy) = stage.proxied(SHORT).await;
    let first = leader(&stage).await;
    let mut observer = observing(&stage, &first).await;
    // Nobody stands behind it.
    within(first.resign()).await.unwrap();
    assert_eq!(sees(&mut observer, None).await, Some(Departure::Resigned));

    let second = within(election(&failing, &stage.path).campaign())
        .await
        .unwrap();
    assert_eq!(
        sees(&mut observer, Some(second.node())).await,
        None,
        "none before"
    );
    let (client, path) = (stage.client().await, stage.path.clone());
    let third = tokio::spawn(async move { election(&client, &path).campaign().await });
    stage.until_children(2).await;
    proxy.partition();
    let third = within(third).await.unwrap().unwrap();
    let why = sees(&mut observer, Some(third.node())).await;
    assert_eq!(why, Some(Departure::Failed));

    let other = election(&stage.client().await, &stage.path);
    let seen = within(other.leader()).await.unwrap().unwrap();
    assert!(within(other.depose(&seen)).await.unwrap());
    assert_eq!(sees(&mut observer, None).await, Some(Departure::Removed));

    // The leader resigns on request, though the request has replaced its record.
    let fourth = leader(&stage).await;
    sees(&mut observer, Some(fourth.node())).await;
    let seen = within(other.leader()).await.unwrap().unwrap();
    assert!(within(other.ask_to_resign(&seen)).await.unwrap());
    within(fourth.on_revoke()).await.unwrap();
    within(fourth.resign()).await.unwrap();
    assert_eq!(sees(&mut observer, None).await, Some(Departure::Resigned));

    let fifth = leader(&stage).await;
    sees(&mut observer, Some(fifth.node())).await;
    let admin = session(&stage.client().await).await;
    within(admin.set_data(fifth.node(), b"not its record", None))
        .await
        .unwrap();
    within(admin.delete(fifth.node(), None)).await.unwrap();
    assert_eq!(
        sees(&mut observer, None).await,
        Some(Departure::Failed),
        "by hand"
    );
}

#[tokio::test]
async fn a_leader_that_had_lost_its_lease_before_has_failed() {
    let stage = Stage::new("why-late").await;
    let clock = Arc::new(SleptClock::default());
    let late = election(&stage.client_by(&clock).await, &stage.path);
    let late = within(late.campaign()).await.unwrap();
    let mut observer = observing(&stage, &late).await;
    clock.sleep(2 * LONG);
    assert!(late.check().is_err());
    drop(late);
    assert_eq!(sees(&mut observer, None).await, Some(Departure::Failed));
}

#[tokio::test]
async fn a_resignation_whose_answer_or_request_is_lost_is_reported_all_the_same() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new("why-cut").await;
            let (client, proxy) = stage.proxied(Duration::from_secs(2)).await;
            let leader = within(election(&client, &stage.path).campaign())
                .await
                .unwrap();
            let mut observer = observing(&stage, &leader).await;
            let cut = proxy.on(message).then(Action::Cut(variant));
            let _ = within(leader.resign()).await;
            assert_eq!(cut.times(), 1);
            let why = sees(&mut observer, None).await;
            assert_eq!(why, Some(Departure::Resigned), "{variant:?}");
        }
    }
}

#[tokio::test]
async fn what_an_observer_could_not_hear_it_does_not_claim_to_know() {
    let stage = Stage::new("why-deaf").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let mut observer = election(&client, &stage.path).leaders().with_reasons();
    let first = leader(&stage).await;
    sees(&mut observer, Some(first.node())).await;
    proxy.refuse();
    proxy.cut_all(Variant::Rst);
    within(first.resign()).await.unwrap();
    proxy.heal();
    assert_eq!(sees(&mut observer, None).await, Some(Departure::Unknown));

    // Back before the leader goes, it hears.
    let second = leader(&stage).await;
    sees(&mut observer, Some(second.node())).await;
    let listening = proxy
        .on(Match::request(OpCode::GetData)
            .path_contains(second.node())
            .every())
        .observe();
    proxy.cut_all(Variant::Rst);
    let seeing = tokio::spawn(async move {
        let why = sees(&mut observer, None).await;
        (observer, why)
    });
    within(listening.fired_times(2)).await;
    within(second.resign()).await.unwrap();
    let (mut observer, why) = within(seeing).await.unwrap();
    assert_eq!(why, Some(Departure::Resigned));

    // Somebody's node where the word is expected, where the server numbers its news.
    let admin = session(&stage.client().await).await;
    if Target::from_env().unwrap() == Target::Baton {
        let third = leader(&stage).await;
        sees(&mut observer, Some(third.node())).await;
        let word = format!("{}.released", third.node());
        within(admin.create(&word, b"", CreateMode::Persistent))
            .await
            .unwrap();
        within(admin.delete(&word, None)).await.unwrap();
        within(admin.delete(third.node(), None)).await.unwrap();
        assert_eq!(sees(&mut observer, None).await, Some(Departure::Unknown));
    }

    // A leader that says nothing of itself.
    let other = election(&stage.client().await, &stage.path).data(b"host-a");
    let quiet = within(other.campaign()).await.unwrap();
    sees(&mut observer, Some(quiet.node())).await;
    within(admin.delete(quiet.node(), None)).await.unwrap();
    assert_eq!(sees(&mut observer, None).await, Some(Departure::Unknown));
    let quiet = within(other.campaign()).await.unwrap();
    sees(&mut observer, Some(quiet.node())).await;
    within(quiet.resign()).await.unwrap();
    assert_eq!(sees(&mut observer, None).await, Some(Departure::Resigned));
}
