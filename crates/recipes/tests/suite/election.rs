//! The election, and its hazards (`docs/internals/hazards.md` §3.5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baton::LostReason;
use baton::election::{ElectionError, Stage as Step};
use baton::lock::LockError;
use baton::naming::Dialect;
use baton_client::CreateMode;
use baton_testkit::Target;

use crate::common::election::{election, until};
use crate::common::{SHORT, Stage, session, within};

#[tokio::test]
async fn terms_are_numbered_one_by_one_and_their_tokens_grow() {
    let stage = Stage::new("terms").await;
    let mut last = 0;
    for epoch in 1..=4 {
        let client = stage.client().await;
        let leadership = within(election(&client, &stage.path).campaign())
            .await
            .unwrap();
        assert_eq!(leadership.term().epoch, epoch);
        assert!(leadership.term().token > last);
        last = leadership.term().token;
        within(leadership.resign()).await.unwrap();
    }
}

#[tokio::test]
async fn a_try_leads_only_where_nobody_stands_and_a_limit_ends_the_wait() {
    let stage = Stage::new("try").await;
    let (one, other) = (stage.client().await, stage.client().await);
    let second = election(&other, &stage.path).rejoin_delay(Duration::from_secs(60));
    let mut stages = second.stages();
    let first = election(&one, &stage.path);
    let leadership = within(first.campaign()).await.unwrap();
    assert!(within(second.try_campaign()).await.unwrap().is_none());
    let seen = until(&mut stages, |s| *s == Step::StopComplete).await;
    assert_eq!(
        seen.last_chunk(),
        Some(&[Step::StopStart, Step::StopComplete])
    );
    let limit = Duration::from_millis(50);
    let error = within(second.campaign_timeout(limit)).await.unwrap_err();
    assert!(matches!(&error, ElectionError::TimedOut { limit: l, .. } if *l == limit));
    assert!(error.to_string().starts_with(&stage.path), "{error}");
    stage.until_children(1).await;
    within(leadership.resign()).await.unwrap();
    let leadership = within(second.try_campaign()).await.unwrap().unwrap();
    assert_eq!(leadership.token(), leadership.term().token);
    within(leadership.resign()).await.unwrap();
    // Kept out by its rejoin delay, which a try does not wait for.
    assert!(within(second.try_campaign()).await.unwrap().is_none());
    assert!(within(second.campaign_timeout(limit)).await.is_err());
    assert_eq!(stage.children().await, []);
}

#[tokio::test]
async fn each_stage_is_reported_in_order() {
    let stage = Stage::new("stages").await;
    let (one, other) = (stage.client().await, stage.client().await);
    let first = election(&one, &stage.path);
    let mut stages = first.stages();
    let leadership = within(first.campaign()).await.unwrap();
    let seen = until(&mut stages, |s| matches!(s, Step::ElectedComplete { .. })).await;
    let offer = leadership.node().to_owned();
    let term = leadership.term();
    let expected = [
        Step::Start,
        Step::OfferStart,
        Step::OfferComplete {
            node: offer.clone(),
        },
        Step::DetermineStart,
        Step::DetermineComplete { position: 0 },
        Step::ElectedStart,
        Step::ElectedComplete { term },
    ];
    assert_eq!(seen, expected);

    let second = election(&other, &stage.path);
    let mut following = second.stages();
    let campaign = tokio::spawn({
        let second = second.clone();
        async move { second.campaign().await }
    });
    let seen = until(&mut following, |s| matches!(s, Step::ReadyComplete { .. })).await;
    assert_eq!(
        seen[seen.len() - 3..],
        [
            Step::DetermineComplete { position: 1 },
            Step::ReadyStart,
            Step::ReadyComplete { following: offer }
        ]
    );
    within(leadership.resign()).await.unwrap();
    assert_eq!(stages.try_next(), Some(Step::StopStart));
    assert_eq!(stages.try_next(), Some(Step::StopComplete));

    let leadership = within(campaign).await.unwrap().unwrap();
    let seen = until(&mut following, |s| {
        matches!(s, Step::ElectedComplete { .. })
    })
    .await;
    assert_eq!(seen[0], Step::DetermineStart);
    assert_eq!(leadership.term().epoch, term.epoch + 1);
    drop(leadership);
    until(&mut following, |s| *s == Step::StopComplete).await;
}

#[tokio::test]
async fn a_campaign_that_is_dropped_is_reported_as_stopped_and_leaves_no_offer() {
    let stage = Stage::new("stop").await;
    let _leader = within(election(&stage.client().await, &stage.path).campaign())
        .await
        .unwrap();
    let candidate = election(&stage.client().await, &stage.path);
    let mut stages = candidate.stages();
    let waiting = tokio::spawn(async move { candidate.campaign().await.map(drop) });
    until(&mut stages, |s| matches!(s, Step::ReadyComplete { .. })).await;
    waiting.abort();
    until(&mut stages, |s| *s == Step::StopComplete).await;
    stage.until_children(1).await;
}

#[tokio::test]
async fn work_under_a_term_is_stopped_before_another_leads() {
    let stage = Stage::new("stoppoint").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let first = election(&client, &stage.path);
    let mut stages = first.stages();
    let stopped = Arc::new(std::sync::Mutex::new(None));
    struct DropRecorder(Arc<std::sync::Mutex<Option<Instant>>>);
    impl Drop for DropRecorder {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(Instant::now());
        }
    }
    let leading = tokio::spawn({
        let stopped = Arc::clone(&stopped);
        async move {
            let work = async move |_term| {
                let _note = DropRecorder(stopped);
                std::future::pending::<()>().await;
            };
            first.lead(work).await
        }
    });
    until(&mut stages, |s| matches!(s, Step::ElectedComplete { .. })).await;
    let second = election(&stage.client().await, &stage.path);
    let next = tokio::spawn(async move {
        let leadership = second.campaign().await.unwrap();
        (Instant::now(), leadership)
    });
    stage.until_children(2).await;
    proxy.partition();
    let ended = within(leading).await.unwrap().unwrap_err();
    assert!(matches!(ended, ElectionError::TermEnded { .. }), "{ended}");
    let (led, _leadership) = within(next).await.unwrap();
    assert!(stopped.lock().unwrap().unwrap() < led, "two led at once");
}

#[tokio::test]
async fn an_observer_sees_each_leader_and_the_absence_of_one() {
    let stage = Stage::new("observe").await;
    let (one, other) = (stage.client().await, stage.client().await);
    let mut observer = election(&stage.client().await, &stage.path).leaders();
    assert!(within(observer.next()).await.unwrap().is_none());
    let first = within(election(&one, &stage.path).name("one").campaign())
        .await
        .unwrap();
    let seen = within(observer.next()).await.unwrap().unwrap();
    assert_eq!(seen.node, first.node());
    assert_eq!(seen.token, first.term().token);
    assert_eq!(seen.record.unwrap().name.as_deref(), Some("one"));

    let second = election(&other, &stage.path).name("other");
    let second = tokio::spawn(async move { second.campaign().await });
    stage.until_children(2).await;
    within(first.resign()).await.unwrap();
    let seen = within(observer.next()).await.unwrap().unwrap();
    let second = within(second).await.unwrap().unwrap();
    assert_eq!(seen.node, second.node());
    within(second.resign()).await.unwrap();
    assert!(within(observer.next()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_candidate_for_leader_election_support_waits_in_one_queue_with_theirs() {
    let stage = Stage::new("support").await;
    let client = stage.client().await;
    let admin = stage.occupied().await;
    let offer = admin.create(
        &format!("{}/n_", stage.path),
        b"host-a",
        CreateMode::EphemeralSequential,
    );
    let offer = offer.await.unwrap().path;
    let joined = election(&client, &stage.path).dialect(Dialect::ElectionSupport);
    let leader = within(joined.leader()).await.unwrap().unwrap();
    assert_eq!((&leader.node, &leader.data[..]), (&offer, &b"host-a"[..]));
    let mut stages = joined.stages();
    let campaign = tokio::spawn({
        let joined = joined.clone();
        async move { joined.campaign().await }
    });
    let seen = until(&mut stages, |s| matches!(s, Step::ReadyComplete { .. })).await;
    assert_eq!(
        seen.last(),
        Some(&Step::ReadyComplete {
            following: offer.clone()
        })
    );
    let error = within(election(&client, &stage.path).campaign())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ElectionError::Lock(LockError::Foreign { .. })),
        "{error}"
    );
    admin.delete(&offer, None).await.unwrap();
    let leadership = within(campaign).await.unwrap().unwrap();
    let leader = within(joined.leader()).await.unwrap().unwrap();
    assert_eq!(leader.node, leadership.node());
    assert!(
        !leader.data.is_empty() && leader.record.is_none(),
        "a host's name"
    );
    within(leadership.resign()).await.unwrap();
    let named = joined.clone().data(b"host-b");
    let leadership = within(named.campaign()).await.unwrap();
    assert_eq!(
        within(joined.leader()).await.unwrap().unwrap().data,
        b"host-b"
    );
    within(leadership.resign()).await.unwrap();
}

#[tokio::test]
async fn a_member_that_another_process_names_as_leader_still_follows() {
    let stage = Stage::new("forged").await;
    let leader = within(election(&stage.client().await, &stage.path).campaign())
        .await
        .unwrap();
    let client = stage.client().await;
    let member = election(&client, &stage.path);
    let mut stages = member.stages();
    let acted = Arc::new(AtomicBool::new(false));
    let leading = tokio::spawn({
        let (member, acted) = (member.clone(), Arc::clone(&acted));
        async move {
            let act = async move |_| acted.store(true, Ordering::SeqCst);
            member.lead(act).await
        }
    });
    let seen = until(&mut stages, |s| matches!(s, Step::ReadyComplete { .. })).await;
    let Step::OfferComplete { node } = &seen[2] else {
        panic!("{seen:?}")
    };
    // Another process writes, wherever the member might read it, that it leads: into its waiter
    // node, into the record of terms, into the leader's waiter node, and by a child of the
    // election's path.
    let forger = session(&stage.client().await).await;
    let offer = forger.get_data(node).await.unwrap();
    let record = baton::record::Record::from_bytes(&offer.data).unwrap();
    let forged = format!(
        r#"{{"epoch":7,"token":{},"offer":"{}"}}"#,
        offer.stat.czxid, record.id
    );
    let terms = format!("{}-__term__", stage.path);
    forger
        .set_data(&terms, forged.as_bytes(), None)
        .await
        .unwrap();
    forger
        .set_data(node, b"you are the leader", None)
        .await
        .unwrap();
    forger
        .set_data(leader.node(), &offer.data, None)
        .await
        .unwrap();
    let note = format!("{}/leader", stage.path);
    forger
        .create(&note, node.as_bytes(), CreateMode::Persistent)
        .await
        .unwrap();
    // Whatever that has set off has been dealt with once the member's session has had an answer
    // behind it.
    for _ in 0..3 {
        session(&client).await.sync("/").await.unwrap();
        tokio::task::yield_now().await;
    }
    assert!(!acted.load(Ordering::SeqCst) && !leading.is_finished());
    assert_eq!(leader.check(), Ok(()));
    let seen = within(member.leader()).await.unwrap().unwrap();
    assert_eq!(
        seen.node,
        leader.node(),
        "by the wait queue itself, not by what is written"
    );
    // The server's own event, that the node before it is gone, makes it lead.
    within(leader.resign()).await.unwrap();
    within(leading).await.unwrap().unwrap();
    assert!(acted.load(Ordering::SeqCst));
}

/// The event that a leader has withdrawn its waiter node comes from the server, too: a node that
/// another process creates instead means nothing.
#[tokio::test]
async fn a_follower_that_a_forged_release_marker_notifies_still_follows() {
    if Target::from_env().unwrap() == Target::ZooKeeper {
        // Before 3.9 its news have no numbers, by which the forgery is found.
        return;
    }
    let stage = Stage::new("forged").await;
    let leader = within(election(&stage.client().await, &stage.path).campaign())
        .await
        .unwrap();
    let candidate = election(&stage.client().await, &stage.path);
    let middle = tokio::spawn(async move { candidate.campaign().await });
    let mut offers = stage.until_children(2).await;
    offers.retain(|offer| offer.path != leader.node());
    let forged = format!("{}.released", offers[0].path);
    let candidate = election(&stage.client().await, &stage.path);
    let mut stages = candidate.stages();
    let last = tokio::spawn(async move { candidate.campaign().await });
    until(&mut stages, |s| matches!(s, Step::ReadyComplete { .. })).await;

    let other = session(&stage.client().await).await;
    other
        .create(&forged, b"", CreateMode::Persistent)
        .await
        .unwrap();
    other.delete(&forged, None).await.unwrap();
    middle.abort();
    // It reads the queue, and stays behind the leader.
    let decided = |s: &Step| matches!(s, Step::ReadyComplete { .. } | Step::ElectedStart);
    let seen = until(&mut stages, decided).await.pop().unwrap();
    let following = leader.node().to_owned();
    assert_eq!(seen, Step::ReadyComplete { following });
    assert_eq!(leader.check(), Ok(()));
    within(leader.resign()).await.unwrap();
    drop(within(last).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_leader_that_is_asked_to_resign_stops_its_work_first_and_one_that_is_deposed_is_notified()
{
    let stage = Stage::new("asked").await;
    let client = stage.client().await;
    let candidate = election(&client, &stage.path);
    let mut stages = candidate.stages();
    let leading = tokio::spawn({
        let candidate = candidate.clone();
        async move {
            candidate
                .lead(async |_| std::future::pending::<()>().await)
                .await
        }
    });
    until(&mut stages, |s| matches!(s, Step::ElectedComplete { .. })).await;
    let other = election(&stage.client().await, &stage.path);
    let leader = within(other.leader()).await.unwrap().unwrap();
    assert!(within(other.ask_to_resign(&leader)).await.unwrap());
    let error = within(leading).await.unwrap().unwrap_err();
    assert!(
        matches!(error, ElectionError::AskedToResign { .. }),
        "{error}"
    );
    stage.until_children(0).await;
    assert!(!within(other.ask_to_resign(&leader)).await.unwrap());
    assert!(!within(other.depose(&leader)).await.unwrap());

    let leadership = within(candidate.campaign()).await.unwrap();
    let leader = within(other.leader()).await.unwrap().unwrap();
    assert!(!leadership.revoke_requested());
    assert!(within(other.depose(&leader)).await.unwrap());
    assert_eq!(within(leadership.lost()).await, LostReason::NodeGone);
}

#[tokio::test]
async fn an_observer_goes_on_after_the_loss_of_its_session() {
    let stage = Stage::new("observer").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let first = within(election(&stage.client().await, &stage.path).campaign())
        .await
        .unwrap();
    let mut observer = election(&client, &stage.path).leaders();
    assert_eq!(
        within(observer.next()).await.unwrap().unwrap().node,
        first.node()
    );
    let old = session(&client).await;
    proxy.partition();
    within(old.ended()).await;
    within(first.resign()).await.unwrap();
    let second = within(election(&stage.client().await, &stage.path).campaign())
        .await
        .unwrap();
    proxy.heal();
    assert_eq!(
        within(observer.next()).await.unwrap().unwrap().node,
        second.node()
    );
}
