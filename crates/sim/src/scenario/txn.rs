//! Changes under a guard: applied while it is held, in the order of tokens, or not at all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex};

use baton::guard::TxnError;
use baton::tree::CreateMode;
use baton::{Guard, Mutex};

use super::Scenario;
use super::hold::{granted, hold};
use crate::boundary;
use crate::stage::{FinalState, Stage};

const LOCK: &str = "/locks/one";
const LOG: &str = "/log";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("mutex-txn", 2, |stage| Box::pin(write(stage)))
            .keeps(|path| path == "/locks" || path.starts_with(LOCK) || path.starts_with(LOG))
            .with_check(no_waiter_node),
    ]
}

/// The lock's receipts may stay while the sessions live; its waiter nodes may not.
fn no_waiter_node(stage: &Stage, state: &FinalState) {
    for (path, _) in state.nodes(LOCK) {
        stage.fail(&format!("left behind: {path}"));
    }
}

/// Least and greatest number of times that a token may be in the log.
type ExpectedWrites = Arc<StdMutex<BTreeMap<u64, (usize, usize)>>>;

async fn write(stage: Stage) {
    stage.ensure(0, LOG).await;
    let room = stage.occupancy("the lock", 1);
    let expected = ExpectedWrites::default();
    let act = |stage: Stage, number: usize| {
        let (room, expected) = (room.clone(), Arc::clone(&expected));
        async move {
            let Ok(mutex) = Mutex::new(stage.client(number), LOCK) else {
                return stage.fail("no mutex");
            };
            for round in 0..2 {
                let who = format!("client {number}, round {round}");
                let outcome = stage.cancellable(mutex.acquire()).await;
                if let Some(guard) = granted(&stage, &who, outcome) {
                    for _ in 0..2 {
                        commit(&stage, &guard, &expected).await;
                    }
                    hold(&stage, &who, &room, guard).await;
                }
            }
        }
    };
    stage.crew(2, act).await;
    stage.pause(15_000).await;
    if let Some(state) = stage.final_state().await {
        judge(&stage, &state, &expected);
    }
}

async fn commit(stage: &Stage, guard: &Guard, expected: &ExpectedWrites) {
    let token = guard.token();
    let entry = format!("{LOG}/{token}-");
    let txn = guard
        .txn()
        .create(&entry, b"", CreateMode::PersistentSequential);
    let outcome = stage.cancellable(txn.commit()).await;
    stage.note(|| format!("token {token} committed: {outcome:?}"));
    match &outcome {
        Some(Err(TxnError::Unknown { .. })) => stage.mark(boundary::CHANGE_UNKNOWN),
        Some(Err(_)) => stage.mark(boundary::CHANGE_REFUSED),
        _ => {}
    }
    let (least, most) = match outcome {
        Some(Ok(_)) => (1, 1),
        None | Some(Err(TxnError::Unknown { .. })) => (0, 1),
        Some(Err(_)) => (0, 0),
    };
    if let Ok(mut expected) = expected.lock() {
        let sum = expected.entry(token).or_default();
        *sum = (sum.0 + least, sum.1 + most);
    }
}

fn judge(stage: &Stage, state: &FinalState, expected: &ExpectedWrites) {
    let mut entries: Vec<(i64, u64)> = state
        .nodes(LOG)
        .iter()
        .filter_map(|(path, stat)| {
            let name = path.strip_prefix("/log/")?;
            Some((stat.czxid, name.split('-').next()?.parse().ok()?))
        })
        .collect();
    entries.sort_unstable();
    let in_order = entries.windows(2).all(|pair| match pair {
        [(_, earlier), (_, later)] => earlier <= later,
        _ => true,
    });
    stage.expect(in_order, || {
        format!("a token wrote after a larger one: {entries:?}")
    });
    if let Ok(expected) = expected.lock() {
        for (token, (least, most)) in expected.iter() {
            let found = entries.iter().filter(|(_, by)| by == token).count();
            stage.expect((*least..=*most).contains(&found), || {
                format!("token {token} wrote {found} entries, {least} to {most} were reported")
            });
        }
    }
}
