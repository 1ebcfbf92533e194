//! The gate and the latch, and their hazards (`docs/internals/hazards.md` §3.5).

use std::time::Duration;

use baton::barrier::BarrierError;
use baton::{Barrier, CountdownLatch};
use baton_client::OpCode;
use baton_testkit::inspect;
use baton_testkit::{Action, Match};

use crate::common::{CUTS, SHORT, Stage, session, within};

/// Cut connections are to be found dead before the test's patience is.
const CUT_TIMEOUT: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_gate_lets_nobody_pass_while_it_is_closed_and_all_once_it_is_open() {
    let stage = Stage::new("gate").await;
    let client = stage.client().await;
    let gate = Barrier::new(&client, &format!("{}/a/b", stage.path)).unwrap();
    within(gate.wait()).await.unwrap();
    within(gate.close()).await.unwrap();
    within(gate.close()).await.unwrap();
    assert!(within(gate.is_closed()).await.unwrap());
    let before = within(inspect::watch_count(stage.addr)).await.unwrap();
    let error = within(gate.wait_timeout(Duration::from_millis(50)))
        .await
        .unwrap_err();
    assert!(matches!(error, BarrierError::TimedOut { .. }), "{error}");
    within(async {
        while inspect::watch_count(stage.addr).await.unwrap() > before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let gate = gate.clone();
            tokio::spawn(async move { gate.wait().await })
        })
        .collect();
    within(gate.open()).await.unwrap();
    within(gate.open()).await.unwrap();
    for waiter in waiting {
        within(waiter).await.unwrap().unwrap();
    }
    assert!(!within(gate.is_closed()).await.unwrap());
}

#[tokio::test]
async fn h64_a_wait_at_a_gate_goes_on_with_the_next_session_and_ends() {
    let stage = Stage::new("h64").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let gate = Barrier::new(&stage.client().await, &stage.path).unwrap();
    within(gate.close()).await.unwrap();
    let waiting = Barrier::new(&client, &stage.path).unwrap();
    let watched = proxy.on(Match::reply(OpCode::GetData)).observe();
    let waiting = tokio::spawn(async move { waiting.wait().await });
    within(watched.fired()).await;
    let old = session(&client).await;
    proxy.partition();
    within(old.ended()).await;
    // Opened while nobody could notify the one who waits.
    within(gate.open()).await.unwrap();
    proxy.heal();
    within(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn h64_neither_an_event_nor_a_new_session_opens_a_closed_gate() {
    let stage = Stage::new("h64").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let other = stage.client().await;
    let gate = Barrier::new(&other, &stage.path).unwrap();
    within(gate.close()).await.unwrap();
    let waiting = Barrier::new(&client, &stage.path).unwrap();
    let reads = Match::reply(OpCode::GetData).path_contains(&*stage.path);
    let reads = proxy.on(reads.every()).observe();
    let waiting = tokio::spawn(async move { waiting.wait().await });
    within(reads.fired_times(1)).await;
    let touched = session(&other).await.set_data(&stage.path, b"", None).await;
    touched.unwrap();
    within(reads.fired_times(2)).await;
    let old = session(&client).await;
    proxy.partition();
    within(old.ended()).await;
    proxy.heal();
    within(reads.fired_times(3)).await;
    assert!(!waiting.is_finished());
    within(gate.open()).await.unwrap();
    within(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_gate_closed_again_is_not_opened_by_an_answer_that_was_lost() {
    for variant in CUTS {
        let stage = Stage::new("reclosed").await;
        let (client, proxy) = stage.proxied(CUT_TIMEOUT).await;
        let gate = Barrier::new(&client, &stage.path).unwrap();
        within(gate.close()).await.unwrap();
        let cut = proxy
            .on(Match::reply(OpCode::Delete))
            .then(Action::Cut(variant));
        let opening = tokio::spawn({
            let gate = gate.clone();
            async move { gate.open().await }
        });
        within(cut.fired()).await;
        let other = Barrier::new(&stage.client().await, &stage.path).unwrap();
        within(other.close()).await.unwrap();
        within(opening).await.unwrap().unwrap();
        assert!(within(other.is_closed()).await.unwrap(), "{variant:?}");
    }
}

#[tokio::test]
async fn a_gate_opened_by_another_is_not_closed_again_by_an_answer_that_was_lost() {
    for variant in CUTS {
        let stage = Stage::new("reopened").await;
        let (client, proxy) = stage.proxied(CUT_TIMEOUT).await;
        let gate = Barrier::new(&client, &stage.path).unwrap();
        // Its own helpers are there from now on.
        within(gate.close()).await.unwrap();
        within(gate.open()).await.unwrap();
        let answers = [OpCode::Create2, OpCode::Multi]
            .map(|op| proxy.on(Match::reply(op)).then(Action::Hold));
        let closing = tokio::spawn({
            let gate = gate.clone();
            async move { gate.close().await }
        });
        let other = Barrier::new(&stage.client().await, &stage.path).unwrap();
        tokio::select! {
            _ = within(answers[0].fired()) => {}
            _ = within(answers[1].fired()) => {}
        }
        within(other.open()).await.unwrap();
        proxy.cut_all(variant);
        within(closing).await.unwrap().unwrap();
        assert!(!within(other.is_closed()).await.unwrap(), "{variant:?}");
    }
}

#[tokio::test]
async fn a_latch_opens_after_its_number_of_count_downs_each_counted_once() {
    let stage = Stage::new("latch").await;
    let client = stage.client().await;
    let path = format!("{}/deep", stage.path);
    let latch = CountdownLatch::new(&client, &path, 3).unwrap();
    let waiting = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait().await }
    });
    assert_eq!(within(latch.count_down("a")).await.unwrap(), 2);
    assert_eq!(within(latch.count_down("a")).await.unwrap(), 2);
    let error = within(latch.wait_timeout(Duration::from_millis(20)))
        .await
        .unwrap_err();
    assert!(matches!(error, BarrierError::TimedOut { .. }), "{error}");
    let more: Vec<_> = (0..2)
        .map(|_| {
            let latch = latch.clone();
            tokio::spawn(async move { latch.count_down_anonymously().await })
        })
        .collect();
    for one in more {
        within(one).await.unwrap().unwrap();
    }
    within(waiting).await.unwrap().unwrap();
    within(latch.wait()).await.unwrap();
    assert_eq!(within(latch.left()).await.unwrap(), 0);
    assert_eq!(within(latch.count_down("late")).await.unwrap(), 0);
    let other = CountdownLatch::new(&client, &path, 4).unwrap();
    let error = within(other.count_down("a")).await.unwrap_err();
    assert!(
        matches!(error, BarrierError::CountMismatch { .. }),
        "{error}"
    );
    let none = CountdownLatch::new(&client, &path, 0).unwrap_err();
    for text in [error.to_string(), none.to_string()] {
        assert!(
            !text.contains("barrier") && !text.contains("meet"),
            "{text}"
        );
    }
    for id in ["", "a/b", "\u{1}"] {
        let error = within(latch.count_down(id)).await.unwrap_err();
        assert!(matches!(error, BarrierError::BadPath { .. }), "{error}");
    }
    within(latch.remove()).await.unwrap();
    within(latch.remove()).await.unwrap();
    stage.until_children(0).await;
}

#[tokio::test]
async fn a_count_down_whose_answer_is_lost_counts_once() {
    for variant in CUTS {
        for point in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new("counted").await;
            let (client, proxy) = stage.proxied(CUT_TIMEOUT).await;
            let direct = CountdownLatch::new(&stage.client().await, &stage.path, 3).unwrap();
            assert_eq!(within(direct.left()).await.unwrap(), 3);
            let latch = CountdownLatch::new(&client, &stage.path, 3).unwrap();
            proxy.on(point).then(Action::Cut(variant));
            assert_eq!(
                within(latch.count_down("a")).await.unwrap(),
                2,
                "{variant:?}"
            );
            assert_eq!(within(direct.left()).await.unwrap(), 2);
        }
    }
}
