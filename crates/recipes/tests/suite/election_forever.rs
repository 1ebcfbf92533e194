//! Leading again and again: after a loss, after failed work, until the caller ends it.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use baton::LostReason;
use baton::election::{ElectionError, Stage as Step, TermEnd};

use crate::common::election::{election, until};
use crate::common::{SHORT, Stage, session, within};

#[tokio::test]
async fn work_that_is_done_or_fails_is_followed_by_a_further_term() {
    let stage = Stage::new("forever").await;
    let client = stage.client().await;
    let election = election(&client, &stage.path);
    let begun = Instant::now();
    let mut ends = Vec::new();
    let last = election.lead_forever(
        async |term| match term.epoch {
            1 | 4 => Ok(()),
            _ => Err(format!("no {}", term.epoch)),
        },
        |end| {
            ends.push(end.to_string());
            match end {
                TermEnd::Done { term } if term.epoch == 4 => ControlFlow::Break(term),
                _ => ControlFlow::Continue(()),
            }
        },
    );
    assert_eq!(within(last).await.epoch, 4);
    assert_eq!(
        ends,
        [
            "term 1 ended: the work is done",
            "term 2 ended: the work failed: no 2",
            "term 3 ended: the work failed: no 3",
            "term 4 ended: the work is done",
        ]
    );
    // Two failures: pauses of at least 50 and 100 ms.
    assert!(begun.elapsed() >= Duration::from_millis(150));
    stage.until_children(0).await;
}

#[tokio::test]
async fn a_lost_term_is_followed_by_a_campaign_and_no_two_lead_at_once() {
    let stage = Stage::new("forever-lost").await;
    let leading = Arc::new(AtomicUsize::new(0));
    let terms = Arc::new(AtomicUsize::new(0));
    let mut participants = Vec::new();
    for _ in 0..2 {
        let election = election(&stage.client_with(SHORT).await, &stage.path);
        let (leading, terms) = (Arc::clone(&leading), Arc::clone(&terms));
        participants.push(tokio::spawn(async move {
            let work = async |_| {
                let alone = LeaderCount::enter(&leading);
                terms.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
                drop(alone);
                Ok::<_, Infallible>(())
            };
            let lost = |end| match end {
                TermEnd::Election(ElectionError::TermEnded { reason, .. }) => {
                    assert_eq!(reason, LostReason::NodeGone);
                    ControlFlow::Continue(())
                }
                other => ControlFlow::Break(format!("{other:?}")),
            };
            election.lead_forever(work, lost).await
        }));
    }
    let admin = session(&stage.client().await).await;
    for round in 1..=6 {
        within(async {
            while terms.load(Ordering::SeqCst) < round || leading.load(Ordering::SeqCst) != 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        let mut offers = stage.children().await;
        offers.sort_by_key(|offer| offer.stat.czxid);
        within(admin.delete(&offers[0].path, None)).await.unwrap();
    }
    for participant in participants {
        participant.abort();
        assert!(within(participant).await.unwrap_err().is_cancelled());
    }
    assert_eq!(leading.load(Ordering::SeqCst), 0);
    stage.until_children(0).await;
}

/// Count of the leaders at one time.
struct LeaderCount(Arc<AtomicUsize>);

impl LeaderCount {
    fn enter(leading: &Arc<AtomicUsize>) -> Self {
        assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
        Self(Arc::clone(leading))
    }
}

impl Drop for LeaderCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn cancellation_resigns_and_each_stage_is_reported() {
    let stage = Stage::new("forever-cancelled").await;
    let client = stage.client().await;
    let election = election(&client, &stage.path);
    let mut stages = election.stages();
    let leading = tokio::spawn({
        let election = election.clone();
        async move {
            let work = async |_| std::future::pending::<Result<(), Infallible>>().await;
            let never = |_| ControlFlow::<Infallible>::Continue(());
            election.lead_forever(work, never).await
        }
    });
    until(&mut stages, |s| matches!(s, Step::ElectedComplete { .. })).await;
    leading.abort();
    let seen = until(&mut stages, |s| *s == Step::StopComplete).await;
    assert_eq!(
        seen.last_chunk(),
        Some(&[Step::StopStart, Step::StopComplete])
    );
    stage.until_children(0).await;
}

#[tokio::test]
async fn a_campaign_that_fails_is_reported_and_the_caller_ends_it() {
    let stage = Stage::new("forever-closed").await;
    let client = stage.client().await;
    let election = election(&client, &stage.path);
    within(client.close_timeout(Duration::from_secs(5)))
        .await
        .unwrap();
    let mut failures = 0;
    let work = async |_| Ok::<_, Infallible>(());
    let ended = |end| {
        failures += 1;
        match end {
            TermEnd::Election(error) if failures == 3 => ControlFlow::Break(error),
            TermEnd::Election(_) => ControlFlow::Continue(()),
            other => panic!("{other:?}"),
        }
    };
    let error = within(election.lead_forever(work, ended)).await;
    assert!(matches!(error, ElectionError::Lock(_)), "{error}");
}
