//! The double barrier, and its hazards (`docs/internals/hazards.md` §3.5).

use std::time::Duration;

use baton::barrier::{BarrierEntry, BarrierError, BarrierLayout, RoundEnd};
use baton::tree::CreateMode;
use baton::{Client, CountdownLatch, DoubleBarrier};
use baton_client::OpCode;
use baton_testkit::inspect;
use baton_testkit::{Action, Match};
use tokio::task::JoinHandle;

use crate::common::{CUTS, LONG, SHORT, Stage, pass, plant, polled, round_trips, session, within};

/// Found dead after two thirds of this, before the patience of a test is at its end; long, since
/// many tests run at once.
const CUT_TIMEOUT: Duration = LONG;

type EnterOutcome = Result<BarrierEntry, BarrierError>;

fn barrier(client: &Client, stage: &Stage, count: u32) -> DoubleBarrier {
    DoubleBarrier::new(client, &stage.path, count).unwrap()
}

fn entering(barrier: &DoubleBarrier) -> JoinHandle<EnterOutcome> {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.enter().await })
}

/// The limit of those whose time is to be up, which is when the test has let it [`pass`].
const LIMIT: Duration = Duration::from_secs(20);

/// A member with a limit, once its node stands in the round as the `nth`.
async fn hasty(
    stage: &Stage,
    barrier: &DoubleBarrier,
    round: u64,
    nth: usize,
) -> JoinHandle<EnterOutcome> {
    let barrier = barrier.clone();
    let hasty = tokio::spawn(async move { barrier.enter_timeout(LIMIT).await });
    stage.until_in_round(round, nth).await;
    hasty
}

fn leaving(inside: BarrierEntry) -> JoinHandle<Result<RoundEnd, BarrierError>> {
    tokio::spawn(async move { inside.leave().await })
}

impl Stage {
    /// Waits until the newest round has `count` children.
    async fn until_in_round(&self, round: u64, count: usize) -> Vec<inspect::Znode> {
        let path = format!("{}/round-{round:010}", self.path);
        within(async {
            loop {
                let children = inspect::children(self.addr, &path).await.unwrap();
                if children.len() == count {
                    return children;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }
}

#[tokio::test]
async fn all_enter_when_all_have_come_and_leave_when_all_are_done_round_after_round() {
    let stage = Stage::new("rounds").await;
    let client = stage.client().await;
    let meeting = barrier(&client, &stage, 3);
    for round in 1..=3 {
        let two = [entering(&meeting), entering(&meeting)];
        stage.until_in_round(round, 2).await;
        assert!(two.iter().all(|member| !member.is_finished()));
        let mut inside = vec![within(meeting.enter()).await.unwrap()];
        for member in two {
            inside.push(within(member).await.unwrap().unwrap());
        }
        assert!(inside.iter().all(|member| member.round() == Some(round)));
        let last = inside.pop().unwrap();
        let out: Vec<_> = inside.into_iter().map(leaving).collect();
        stage.until_in_round(round, 3).await;
        assert!(out.iter().all(|member| !member.is_finished()));
        let left = within(last.leave()).await.unwrap();
        assert_eq!(left.lost, 0);
        for member in out {
            assert_eq!(within(member).await.unwrap().unwrap(), left);
        }
    }
    stage.until_children(0).await;
}

#[tokio::test]
async fn h63_a_round_that_crashed_after_it_had_entered_lets_nobody_else_in() {
    let stage = Stage::new("h63a").await;
    let doomed = stage.client().await;
    let meeting = barrier(&doomed, &stage, 2);
    let first = entering(&meeting);
    let inside = [
        within(meeting.enter()).await.unwrap(),
        within(first).await.unwrap().unwrap(),
    ];
    session(&doomed).await.close_timeout(LONG).await.unwrap();
    let client = stage.client().await;
    let alone = barrier(&client, &stage, 2);
    let waiting = entering(&alone);
    stage.until_in_round(2, 1).await;
    assert!(!waiting.is_finished());
    let second = within(alone.enter()).await.unwrap();
    assert_eq!(second.round(), Some(2));
    assert_eq!(within(waiting).await.unwrap().unwrap().round(), Some(2));
    let [one, other] = inside;
    for member in [one, other] {
        within(member.lost()).await;
        let error = within(member.leave()).await.unwrap_err();
        assert!(matches!(error, BarrierError::Lost { .. }), "{error}");
    }
}

#[tokio::test]
async fn h63_who_comes_after_the_decision_belongs_to_the_next_round_and_holds_nobody_up() {
    let stage = Stage::new("h63b").await;
    let client = stage.client().await;
    let meeting = barrier(&client, &stage, 2);
    let first = entering(&meeting);
    let second = within(meeting.enter()).await.unwrap();
    let first = within(first).await.unwrap().unwrap();
    let late = entering(&meeting);
    stage.until_in_round(2, 1).await;
    let first = leaving(first);
    assert_eq!(within(second.leave()).await.unwrap().lost, 0);
    assert_eq!(within(first).await.unwrap().unwrap().lost, 0);
    assert!(!late.is_finished());
    let other = within(meeting.enter()).await.unwrap();
    assert_eq!(other.round(), Some(2));
    assert_eq!(within(late).await.unwrap().unwrap().round(), Some(2));
}

#[tokio::test]
async fn h63_a_node_that_is_made_after_the_decision_belongs_to_the_next_round() {
    for aborted in [false, true] {
        let stage = Stage::new("h63late").await;
        let client = stage.client_here().await;
        let meeting = barrier(&client, &stage, 2);
        let first = entering(&meeting);
        stage.until_in_round(1, 1).await;
        let (client, proxy) = stage.proxied(LONG).await;
        let creation = proxy
            .on(Match::request(OpCode::Create2).path_contains("/m-"))
            .then(Action::Hold);
        let late = entering(&barrier(&client, &stage, 2));
        within(creation.fired()).await;
        let mut inside = Vec::new();
        if aborted {
            // A foreign child keeps the round in the tree, as a member that has yet to read the
            // decision would.
            let admin = session(&stage.client_here().await).await;
            let child = format!("{}/round-{:010}/kept", stage.path, 1);
            let kept = admin.create(&child, b"", CreateMode::Persistent);
            within(kept).await.unwrap();
            first.abort();
            stage.until_in_round(1, 1).await;
            let hasty = hasty(&stage, &meeting, 1, 2).await;
            pass(LIMIT).await;
            let error = within(hasty).await.unwrap().unwrap_err();
            assert!(matches!(error, BarrierError::Aborted { .. }), "{error}");
        } else {
            inside.push(within(meeting.enter()).await.unwrap());
            inside.push(within(first).await.unwrap().unwrap());
        }
        creation.release();
        stage.until_in_round(2, 1).await;
        assert!(!late.is_finished());
        assert_eq!(within(meeting.enter()).await.unwrap().round(), Some(2));
        assert_eq!(within(late).await.unwrap().unwrap().round(), Some(2));
    }
}

#[tokio::test]
async fn h63_a_spurious_wake_up_is_no_decision() {
    let stage = Stage::new("h63c").await;
    let client = stage.client().await;
    let meeting = barrier(&client, &stage, 2);
    let waiting = entering(&meeting);
    stage.until_in_round(1, 1).await;
    let admin = session(&stage.client().await).await;
    let round = format!("{}/round-{:010}", stage.path, 1);
    for _ in 0..5 {
        let record = admin.get_data(&round).await.unwrap();
        admin.set_data(&round, &record.data, None).await.unwrap();
        let foreign = format!("{round}/ready");
        admin
            .create(&foreign, b"", CreateMode::Persistent)
            .await
            .unwrap();
        admin.delete(&foreign, None).await.unwrap();
    }
    session(&client).await.sync("/").await.unwrap();
    assert!(!waiting.is_finished());
    assert_eq!(within(meeting.enter()).await.unwrap().round(), Some(1));
    drop(within(waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn h63_a_member_whose_time_is_up_ends_the_round_for_all_and_is_not_counted() {
    let stage = Stage::new("h63d").await;
    let client = stage.client_here().await;
    let meeting = barrier(&client, &stage, 3);
    let patient = entering(&meeting);
    stage.until_in_round(1, 1).await;
    let hasty = hasty(&stage, &meeting.clone().name("hasty"), 1, 2).await;
    assert!(!hasty.is_finished());
    pass(LIMIT).await;
    let error = within(hasty).await.unwrap().unwrap_err();
    let BarrierError::Aborted { round: 1, by, .. } = &error else {
        panic!("{error}")
    };
    assert!(by.starts_with("hasty ("), "{by}");
    assert_eq!(within(patient).await.unwrap().unwrap_err(), error);
    // Neither counts in the next round.
    let next = [entering(&meeting), entering(&meeting)];
    stage.until_in_round(2, 2).await;
    assert!(next.iter().all(|member| !member.is_finished()));
    let third = within(meeting.enter()).await.unwrap();
    assert_eq!(third.round(), Some(2));
    for member in next {
        assert_eq!(within(member).await.unwrap().unwrap().round(), Some(2));
    }
}

#[tokio::test]
async fn h63_a_member_that_crashes_while_others_leave_is_reported_to_all_as_lost() {
    for crashed in 0..3 {
        let stage = Stage::new("h63e").await;
        let mut members = Vec::new();
        for _ in 0..3 {
            let client = stage.client().await;
            members.push((entering(&barrier(&client, &stage, 3)), client));
            // In this order, so that each one is the lowest once.
            let come = members.len();
            if come < 3 {
                stage.until_in_round(1, come).await;
            }
        }
        let mut inside = Vec::new();
        for (member, client) in members {
            inside.push((within(member).await.unwrap().unwrap(), client));
        }
        let (lost, client) = inside.remove(crashed);
        let out: Vec<_> = inside
            .into_iter()
            .map(|(member, _)| leaving(member))
            .collect();
        stage.until_in_round(1, 3).await;
        session(&client).await.close_timeout(LONG).await.unwrap();
        for member in out {
            let left = within(member).await.unwrap();
            assert_eq!(left.unwrap().lost, 1, "{crashed}");
        }
        drop(lost);
        stage.until_children(0).await;
    }
}

#[tokio::test]
async fn h63_a_foreign_child_of_the_round_is_never_counted() {
    let stage = Stage::new("h63f").await;
    let client = stage.client().await;
    let meeting = barrier(&client, &stage, 2);
    let waiting = entering(&meeting);
    stage.until_in_round(1, 1).await;
    let admin = session(&stage.client().await).await;
    for name in ["ready", "m-", "m-ready-0-0000000001"] {
        let foreign = format!("{}/round-{:010}/{name}", stage.path, 1);
        admin
            .create(&foreign, b"", CreateMode::Persistent)
            .await
            .unwrap();
    }
    let round = format!("{}/round-{:010}", stage.path, 1);
    let record = admin.get_data(&round).await.unwrap();
    // Wakes the one that waits, which now sees four children.
    admin.set_data(&round, &record.data, None).await.unwrap();
    session(&client).await.sync("/").await.unwrap();
    assert!(!waiting.is_finished());
    drop(within(meeting.enter()).await.unwrap());
    drop(within(waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn h63_a_leaver_whose_time_is_up_breaks_the_round_for_all_that_leave() {
    let stage = Stage::new("broken").await;
    let client = stage.client_here().await;
    let meeting = barrier(&client, &stage, 3);
    let others = [entering(&meeting), entering(&meeting)];
    let third = within(meeting.enter()).await.unwrap();
    let [one, other] = others;
    let one = within(one).await.unwrap().unwrap();
    let other = within(other).await.unwrap().unwrap();
    let patient = leaving(one);
    let hasty = tokio::spawn(async move { other.leave_timeout(LIMIT).await });
    // Both have exchanged their nodes, and the third is inside.
    within(async {
        let left = async || {
            let nodes = stage.until_in_round(1, 3).await;
            let gone_out = nodes.iter().filter(|node| node.path.contains("/out-"));
            gone_out.count()
        };
        while left().await < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(!hasty.is_finished());
    pass(LIMIT).await;
    let error = within(hasty).await.unwrap().unwrap_err();
    assert!(
        matches!(error, BarrierError::Broken { round: 1, .. }),
        "{error}"
    );
    assert_eq!(within(patient).await.unwrap().unwrap_err(), error);
    assert_eq!(within(third.leave()).await.unwrap_err(), error);
    stage.until_children(0).await;
}

#[tokio::test]
async fn h63_a_cut_at_any_message_leaves_one_decision() {
    let points = [
        Match::request(OpCode::Create2),
        Match::reply(OpCode::Create2),
        Match::request(OpCode::Multi),
        Match::reply(OpCode::Multi),
        // The second multi is the exchange on leaving.
        Match::request(OpCode::Multi).nth(2),
        Match::reply(OpCode::Multi).nth(2),
        Match::reply(OpCode::GetData),
        Match::request(OpCode::SetData),
        Match::reply(OpCode::SetData),
        Match::reply(OpCode::Delete),
    ];
    let mut cases = tokio::task::JoinSet::new();
    for point in points {
        for variant in CUTS {
            let point = point.clone();
            cases.spawn(async move {
                let stage = Stage::new("h63cut").await;
                let (client, proxy) = stage.proxied(CUT_TIMEOUT).await;
                let steady = entering(&barrier(&stage.client().await, &stage, 2));
                stage.until_in_round(1, 1).await;
                proxy.on(point.clone()).then(Action::Cut(variant));
                let inside = within(barrier(&client, &stage, 2).enter()).await.unwrap();
                let steady = within(steady).await.unwrap().unwrap();
                assert_eq!((inside.round(), steady.round()), (Some(1), Some(1)));
                let steady = leaving(steady);
                let left = within(inside.leave()).await.unwrap();
                let theirs = within(steady).await.unwrap().unwrap();
                assert_eq!((left.lost, theirs), (0, left), "{point:?} {variant:?}");
                stage.until_children(0).await;
            });
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

#[tokio::test]
async fn h63_a_cut_while_a_round_is_begun_begins_one_round() {
    let mut cases = tokio::task::JoinSet::new();
    for point in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
        for variant in CUTS {
            let point = point.clone();
            cases.spawn(async move {
                let stage = Stage::new("h63begin").await;
                let (client, proxy) = stage.proxied(CUT_TIMEOUT).await;
                let cut = proxy.on(point).then(Action::Cut(variant));
                let first = entering(&barrier(&client, &stage, 2));
                within(cut.fired()).await;
                stage.until_in_round(1, 1).await;
                let second = barrier(&stage.client().await, &stage, 2);
                let second = within(second.enter()).await.unwrap();
                let first = within(first).await.unwrap().unwrap();
                assert_eq!((first.round(), second.round()), (Some(1), Some(1)));
                stage.until_children(1).await;
            });
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

#[tokio::test]
async fn h63_a_dropped_entry_leaves_nothing_and_a_member_that_lost_its_session_counts_once() {
    let stage = Stage::new("dropped").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let meeting = barrier(&client, &stage, 2);
    let dropped = entering(&meeting);
    stage.until_in_round(1, 1).await;
    dropped.abort();
    stage.until_in_round(1, 0).await;
    let again = entering(&meeting);
    let before = stage.until_in_round(1, 1).await;
    let old = session(&client).await;
    proxy.partition();
    within(old.ended()).await;
    proxy.heal();
    within(async {
        while stage.until_in_round(1, 1).await[0].path == before[0].path {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let other = within(barrier(&stage.client().await, &stage, 2).enter())
        .await
        .unwrap();
    let again = within(again).await.unwrap().unwrap();
    assert_eq!(other.round(), again.round());
}

#[tokio::test]
async fn h63_a_decision_that_comes_behind_an_abort_is_refused() {
    let stage = Stage::new("overtaken").await;
    let (client, hasty_proxy) = stage.proxied(LONG).await;
    let aborting = hasty_proxy
        .on(Match::request(OpCode::SetData))
        .then(Action::Hold);
    let hasty = hasty(&stage, &barrier(&client, &stage, 2), 1, 1).await;
    pass(LIMIT).await;
    within(aborting.fired()).await;
    let (last, last_proxy) = stage.proxied(LONG).await;
    let deciding = last_proxy
        .on(Match::request(OpCode::Multi))
        .then(Action::Hold);
    let last = entering(&barrier(&last, &stage, 2));
    within(deciding.fired()).await;
    // Anyone who has aborted still stands there, so the members' nodes alone would let the decision
    // pass.
    let going = hasty_proxy
        .on(Match::request(OpCode::Delete))
        .then(Action::Hold);
    aborting.release();
    within(going.fired()).await;
    deciding.release();
    let aborted = within(last).await.unwrap().map(drop).unwrap_err();
    assert!(matches!(aborted, BarrierError::Aborted { .. }), "{aborted}");
    going.release();
    assert_eq!(within(hasty).await.unwrap().unwrap_err(), aborted);
}

#[tokio::test]
async fn h63_an_abort_that_comes_behind_the_decision_is_refused() {
    let stage = Stage::new("decided").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let aborting = proxy.on(Match::request(OpCode::SetData)).then(Action::Hold);
    let hasty = hasty(&stage, &barrier(&client, &stage, 2), 1, 1).await;
    pass(LIMIT).await;
    within(aborting.fired()).await;
    let last = barrier(&stage.client_here().await, &stage, 2);
    let last = within(last.enter()).await.unwrap();
    aborting.release();
    let hasty = within(hasty).await.unwrap().unwrap();
    assert_eq!((last.round(), hasty.round()), (Some(1), Some(1)));
}

#[tokio::test]
async fn h63_a_member_that_goes_before_the_decision_is_not_entered_with() {
    let stage = Stage::new("gone").await;
    let doomed = stage.client().await;
    let lost = entering(&barrier(&doomed, &stage, 2));
    stage.until_in_round(1, 1).await;
    let (client, proxy) = stage.proxied(LONG).await;
    let deciding = proxy.on(Match::request(OpCode::Multi)).then(Action::Hold);
    let waiting = entering(&barrier(&client, &stage, 2));
    within(deciding.fired()).await;
    lost.abort();
    session(&doomed).await.close_timeout(LONG).await.unwrap();
    deciding.release();
    let third = barrier(&stage.client().await, &stage, 2);
    assert_eq!(within(third.enter()).await.unwrap().round(), Some(1));
    assert_eq!(within(waiting).await.unwrap().unwrap().round(), Some(1));
}

#[tokio::test]
async fn h63_a_leave_dropped_on_its_way_leaves_no_node() {
    let stage = Stage::new("dropped-leave").await;
    let client = stage.client().await;
    let meeting = barrier(&client, &stage, 2);
    let first = entering(&meeting);
    let stays = within(meeting.enter()).await.unwrap();
    let goes = within(first).await.unwrap().unwrap();
    // What it sends with the first poll is on its way when it is dropped.
    assert!(polled(goes.leave(), 1).await.is_none());
    stage.until_in_round(1, 1).await;
    assert_eq!(within(stays.leave()).await.unwrap().lost, 1);
}

#[tokio::test]
async fn a_member_is_woken_by_the_decision_and_by_nothing_before() {
    let stage = Stage::new("herd").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let first = entering(&barrier(&client, &stage, 12));
    stage.until_in_round(1, 1).await;
    let others = stage.client().await;
    let others = barrier(&others, &stage, 12);
    let rest: Vec<_> = (0..11).map(|_| entering(&others)).collect();
    drop(within(first).await.unwrap().unwrap());
    for member in rest {
        drop(within(member).await.unwrap().unwrap());
    }
    assert_eq!(proxy.count(&Match::any_event()), 1);
}

#[tokio::test]
async fn what_others_agreed_on_and_what_is_not_ours_is_refused_and_left_alone() {
    let stage = Stage::new("refused").await;
    let client = stage.client().await;
    let waiting = entering(&barrier(&client, &stage, 3));
    stage.until_in_round(1, 1).await;
    let error = within(barrier(&client, &stage, 2).enter())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            BarrierError::CountMismatch {
                ours: 2,
                theirs: 3,
                ..
            }
        ),
        "{error}"
    );
    let shared = barrier(&client, &stage, 3).layout(BarrierLayout::Curator);
    let error = within(shared.enter()).await.unwrap_err();
    assert!(matches!(error, BarrierError::Foreign { .. }), "{error}");
    stage.until_in_round(1, 1).await;
    stage.until_children(1).await;
    waiting.abort();
    for count in [0, 5000] {
        let error = DoubleBarrier::new(&client, &stage.path, count).unwrap_err();
        assert!(matches!(error, BarrierError::BadCount { .. }), "{error}");
    }
    for path in ["/", "x", "/x/", ""] {
        let error = DoubleBarrier::new(&client, path, 2).unwrap_err();
        assert!(matches!(error, BarrierError::BadPath { .. }), "{error}");
    }
    let stage = Stage::new("refused").await;
    let client = stage.client().await;
    let admin = session(&client).await;
    admin
        .create(&stage.path, b"theirs", CreateMode::Persistent)
        .await
        .unwrap();
    let error = within(barrier(&client, &stage, 2).enter())
        .await
        .unwrap_err();
    assert!(matches!(error, BarrierError::Foreign { .. }), "{error}");
    let latch = CountdownLatch::new(&client, &stage.path, 2).unwrap();
    let error = within(latch.wait()).await.unwrap_err();
    assert!(matches!(error, BarrierError::Foreign { .. }), "{error}");
    assert!(stage.children().await.is_empty());
}

#[tokio::test]
async fn h63_in_the_layout_of_curator_the_first_by_name_leaves_last() {
    let stage = Stage::new("lowest").await;
    let client = stage.client().await;
    let admin = session(&client).await;
    let meeting = barrier(&client, &stage, 2).layout(BarrierLayout::Curator);
    let first = entering(&meeting);
    stage.until_children(1).await;
    // Another library's, behind ours by name: it watches ours while it leaves.
    let theirs = format!("{}/{}", stage.path, uuid::Uuid::max());
    crate::common::plant(&admin, &theirs).await;
    let ready = format!("{}/ready", stage.path);
    admin
        .create(&ready, b"", CreateMode::Persistent)
        .await
        .unwrap();
    let first = leaving(within(first).await.unwrap().unwrap());
    // What ours would do too early it has begun by then.
    round_trips(&client).await;
    within(admin.sync(&stage.path)).await.unwrap();
    assert_eq!(stage.children().await.len(), 3, "ours, theirs and ready");
    admin.delete(&theirs, None).await.unwrap();
    within(first).await.unwrap().unwrap();
    stage.until_children(0).await;
}

#[tokio::test]
async fn h63_in_the_layout_of_curator_stale_ready_is_removed_and_never_counted() {
    let stage = Stage::new("shared").await;
    let client = stage.client().await;
    let admin = stage.occupied().await;
    let ready = format!("{}/ready", stage.path);
    admin
        .create(&ready, b"", CreateMode::Persistent)
        .await
        .unwrap();
    let meeting = barrier(&client, &stage, 2).layout(BarrierLayout::Curator);
    let first = entering(&meeting);
    stage.until_children(1).await;
    within(async {
        while stage.names().await.contains(&"ready".to_owned()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    stage.until_children(1).await;
    assert!(!first.is_finished(), "one of two, beside a stale ready");
    // The second is another library's: a plain child, and it makes `ready`. Before all of ours by
    // name, so that ours goes first.
    let theirs = format!("{}/{}", stage.path, uuid::Uuid::nil());
    crate::common::plant(&admin, &theirs).await;
    admin
        .create(&ready, b"", CreateMode::Persistent)
        .await
        .unwrap();
    let first = within(first).await.unwrap().unwrap();
    let first = leaving(first);
    stage.until_children(2).await;
    assert!(!first.is_finished());
    admin.delete(&theirs, None).await.unwrap();
    within(first).await.unwrap().unwrap();
    stage.until_children(0).await;

    let error = within(meeting.enter_timeout(Duration::from_millis(50)))
        .await
        .unwrap_err();
    assert!(matches!(error, BarrierError::TimedOut { .. }), "{error}");
    stage.until_children(0).await;
    let two = [entering(&meeting), entering(&meeting)];
    for member in two {
        leaving(within(member).await.unwrap().unwrap());
    }
    stage.until_children(0).await;
}

#[tokio::test]
async fn h63_who_came_after_ready_is_not_waited_for_in_the_shared_layout() {
    let stage = Stage::new("h63l").await;
    let client = stage.client().await;
    let other = session(&stage.client().await).await;
    // The first by name waits for all others before it goes, each other one afterwards.
    for late in ["0-late", "z-late"] {
        let path = format!("{}-{late}", stage.path);
        let barrier = DoubleBarrier::new(&client, &path, 1)
            .unwrap()
            .layout(BarrierLayout::Curator);
        let inside = within(barrier.enter()).await.unwrap();
        plant(&other, &format!("{path}/{late}")).await;
        within(inside.leave()).await.unwrap();
    }
}
