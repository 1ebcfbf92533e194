//! Barriers: a gate that is closed and opened, a meeting of two or three, and a count that goes
//! down.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use baton::barrier::BarrierError;
use baton::{Barrier, CountdownLatch, DoubleBarrier};
use tokio::sync::Notify;

use super::Scenario;
use crate::boundary;
use crate::stage::Stage;

const PATH: &str = "/meetings/one";
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn scenarios() -> Vec<Scenario> {
    // Rounds and counts are persistent: the clients that meet there next go on from them.
    let keeps = |path: &str| path.starts_with("/meetings");
    vec![
        Scenario::new("barrier", 2, |stage| Box::pin(gate(stage))).keeps(keeps),
        Scenario::new("double-barrier", 2, |stage| Box::pin(meeting(stage, 2))).keeps(keeps),
        Scenario::new("double-barrier-three", 3, |stage| {
            Box::pin(meeting(stage, 3))
        })
        .keeps(keeps),
        Scenario::new("double-barrier-abort", 2, |stage| {
            Box::pin(short_of_time(stage))
        })
        .keeps(keeps),
        Scenario::new("latch", 3, |stage| Box::pin(countdown(stage))).keeps(keeps),
    ]
}

/// A gate: clients that wait at it go on only once its opening has begun.
async fn gate(stage: Stage) {
    let opening = Arc::new(AtomicUsize::new(0));
    let closed = Arc::new(Notify::new());
    let act = |stage: Stage, number: usize| {
        let (opening, closed) = (Arc::clone(&opening), Arc::clone(&closed));
        async move {
            let Ok(barrier) = Barrier::new(stage.client(number), PATH) else {
                return stage.fail("no barrier");
            };
            if number == 0 {
                until_closed(&stage, &barrier).await;
                closed.notify_one();
                stage.pause(20).await;
                opening.store(1, SeqCst);
                until_done(&stage, || barrier.open()).await;
                return;
            }
            closed.notified().await;
            until_done(&stage, || barrier.wait()).await;
            stage.expect(opening.load(SeqCst) == 1, || {
                "the gate was passed while it was closed".to_owned()
            });
        }
    };
    stage.crew(2, act).await;
}

/// Closes a gate that nobody else opens: again, too, where the answer was lost together with the
/// session.
async fn until_closed(stage: &Stage, gate: &Barrier) {
    loop {
        match stage.cancellable(gate.close()).await {
            Some(Ok(())) => return,
            Some(Err(BarrierError::Client { source, .. })) if source.is_maybe_applied() => {}
            Some(Err(error)) => return stage.fail(&error.to_string()),
            None => {}
        }
    }
}

/// Calls, in place of a cancelled call again, until it is done.
async fn until_done<F>(stage: &Stage, call: impl Fn() -> F)
where
    F: Future<Output = Result<(), BarrierError>>,
{
    loop {
        match stage.cancellable(call()).await {
            Some(Ok(())) => return,
            Some(Err(error)) => return stage.fail(&error.to_string()),
            None => {}
        }
    }
}

/// Nobody is inside before all have come, nor out before all go, and all are notified of the same
/// round.
async fn meeting(stage: Stage, members: u32) {
    let come = Arc::new(AtomicU32::new(0));
    let going = Arc::new(AtomicU32::new(0));
    let rounds = Arc::new(std::sync::Mutex::new(Vec::new()));
    let act = |stage: Stage, number: usize| {
        let (come, going) = (Arc::clone(&come), Arc::clone(&going));
        let rounds = Arc::clone(&rounds);
        async move {
            let Ok(barrier) = DoubleBarrier::new(stage.client(number), PATH, members) else {
                return stage.fail("no barrier");
            };
            stage.pause(6 * number as u64).await;
            come.fetch_add(1, SeqCst);
            let entered = match stage.cancellable(barrier.enter_timeout(PATIENCE)).await {
                Some(Ok(entered)) => entered,
                // Without the others there is no meeting, and that is the answer.
                Some(Err(
                    BarrierError::TimedOut { .. }
                    | BarrierError::Aborted { .. }
                    | BarrierError::Lost { .. },
                ))
                | None => return,
                Some(Err(error)) => return stage.fail(&format!("member {number}: {error}")),
            };
            stage.expect(come.load(SeqCst) == members, || {
                format!("member {number} was let in before all had come")
            });
            stage.note(|| format!("member {number} is in round {:?}", entered.round()));
            if let Ok(mut rounds) = rounds.lock() {
                rounds.push(entered.round());
            }
            stage.pause(4 + 6 * number as u64).await;
            going.fetch_add(1, SeqCst);
            let left = stage.cancellable(entered.leave_timeout(PATIENCE)).await;
            stage.note(|| format!("member {number} left: {left:?}"));
            if let Some(Ok(left)) = left {
                let going = going.load(SeqCst);
                stage.expect(going == members || left.lost > 0, || {
                    format!("member {number} was let out while another was inside")
                });
            }
        }
    };
    stage.crew(members as usize, act).await;
    if let Ok(rounds) = rounds.lock() {
        let same = rounds.windows(2).all(|pair| pair.first() == pair.last());
        stage.expect(same, || format!("members met in rounds {rounds:?}"));
    }
}

/// Each has about as much time as the other takes to come: what a round came to is the same for
/// both.
async fn short_of_time(stage: Stage) {
    let results = Arc::new(std::sync::Mutex::new(Vec::new()));
    let act = |stage: Stage, number: usize| {
        let results = Arc::clone(&results);
        async move {
            let Ok(barrier) = DoubleBarrier::new(stage.client(number), PATH, 2) else {
                return stage.fail("no barrier");
            };
            for _ in 0..2 {
                stage.pause(12 * number as u64 + stage.below(3)).await;
                let limit = Duration::from_millis(14 + 3 * stage.below(4));
                let outcome = stage.cancellable(barrier.enter_timeout(limit)).await;
                stage.note(|| format!("member {number}: {outcome:?}"));
                if matches!(outcome, Some(Err(BarrierError::Aborted { .. }))) {
                    stage.mark(boundary::ROUND_ABORTED);
                }
                let result = match &outcome {
                    Some(Ok(entered)) => entered.round().map(|round| (round, true)),
                    Some(Err(BarrierError::Aborted { round, .. })) => Some((*round, false)),
                    None | Some(Err(BarrierError::TimedOut { .. } | BarrierError::Lost { .. })) => {
                        None
                    }
                    Some(Err(error)) => return stage.fail(&format!("member {number}: {error}")),
                };
                if let Ok(mut results) = results.lock() {
                    results.extend(result);
                }
                if let Some(Ok(entered)) = outcome {
                    let left = stage.cancellable(entered.leave_timeout(PATIENCE)).await;
                    stage.note(|| format!("member {number} left: {left:?}"));
                }
            }
        }
    };
    stage.crew(2, act).await;
    if let Ok(results) = results.lock() {
        let torn = results
            .iter()
            .find(|(round, entered)| results.contains(&(*round, !entered)));
        stage.expect(torn.is_none(), || {
            format!("members received different results of one round: {results:?}")
        });
    }
}

/// The count is at zero only once all have begun to count.
async fn countdown(stage: Stage) {
    let counted = Arc::new(AtomicUsize::new(0));
    let act = |stage: Stage, number: usize| {
        let counted = Arc::clone(&counted);
        async move {
            let Ok(latch) = CountdownLatch::new(stage.client(number), PATH, 2) else {
                return stage.fail("no latch");
            };
            if number == 2 {
                until_done(&stage, || latch.wait()).await;
                stage.expect(counted.load(SeqCst) == 2, || {
                    "the latch opened before both had counted".to_owned()
                });
                return;
            }
            stage.pause(5 * number as u64).await;
            counted.fetch_add(1, SeqCst);
            let id = format!("member-{number}");
            // By the same name as often as it takes: it counts once.
            until_done(&stage, || async { latch.count_down(&id).await.map(drop) }).await;
        }
    };
    stage.crew(3, act).await;
}
