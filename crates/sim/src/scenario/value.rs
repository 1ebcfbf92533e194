//! Counters and shared values: each increment counts once, or is reported as unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use baton::value::ValueError;
use baton::{Counter, SharedValue};

use super::Scenario;
use crate::stage::Stage;

const PATH: &str = "/values/one";
const ROUNDS: usize = 3;

pub(super) fn scenarios() -> Vec<Scenario> {
    let keeps = |path: &str| {
        path == "/values" || path == PATH || path.starts_with("/values/one-__receipts__")
    };
    vec![
        Scenario::new("counter", 2, |stage| Box::pin(count(stage))).keeps(keeps),
        Scenario::new("shared-value", 2, |stage| Box::pin(compare(stage))).keeps(keeps),
    ]
}

/// Number of increments that are certain, and of those that may have happened beside them.
#[derive(Clone, Default)]
struct Tally {
    certain: Arc<AtomicI64>,
    open: Arc<AtomicI64>,
}

impl Tally {
    async fn judge(&self, stage: &Stage) {
        let Some(state) = stage.final_state().await else {
            return;
        };
        let data = state.data(PATH).unwrap_or_default();
        let text = String::from_utf8_lossy(&data).into_owned();
        let value: i64 = text.parse().unwrap_or(0);
        let (certain, open) = (self.certain.load(SeqCst), self.open.load(SeqCst));
        stage.expect(value >= certain && value <= certain + open, || {
            format!("the value is {value}; {certain} increments are certain, {open} more possible")
        });
    }
}

async fn count(stage: Stage) {
    let tally = Tally::default();
    let act = |stage: Stage, number: usize| {
        let tally = tally.clone();
        async move {
            let Ok(counter) = Counter::new(stage.client(number), PATH) else {
                return stage.fail("no counter");
            };
            let mut newest = 0;
            for _ in 0..ROUNDS {
                match stage.cancellable(counter.add(1)).await {
                    Some(Ok(value)) => {
                        tally.certain.fetch_add(1, SeqCst);
                        stage.expect(value > newest, || {
                            format!("the counter went from {newest} to {value}")
                        });
                        newest = value;
                    }
                    None | Some(Err(ValueError::Unknown { .. })) => {
                        tally.open.fetch_add(1, SeqCst);
                    }
                    Some(Err(error)) => stage.fail(&error.to_string()),
                }
            }
        }
    };
    stage.crew(2, act).await;
    // What a cancelled call had sent may still be on its way.
    stage.pause(15_000).await;
    tally.judge(&stage).await;
}

async fn compare(stage: Stage) {
    let tally = Tally::default();
    let act = |stage: Stage, number: usize| {
        let tally = tally.clone();
        async move {
            let Ok(shared) = SharedValue::new(stage.client(number), PATH) else {
                return stage.fail("no value");
            };
            for _ in 0..ROUNDS {
                let seen = match stage.cancellable(shared.get()).await {
                    Some(Ok(seen)) => seen,
                    None => continue,
                    Some(Err(error)) => return stage.fail(&error.to_string()),
                };
                let text = seen
                    .as_ref()
                    .map(|seen| String::from_utf8_lossy(&seen.data).into_owned());
                let value: i64 = text.and_then(|text| text.parse().ok()).unwrap_or(0);
                let next = (value + 1).to_string();
                let set = shared.compare_and_set(seen.as_ref(), next.as_bytes());
                match stage.cancellable(set).await {
                    Some(Ok(true)) => {
                        tally.certain.fetch_add(1, SeqCst);
                    }
                    Some(Ok(false)) => {}
                    None | Some(Err(ValueError::Unknown { .. })) => {
                        tally.open.fetch_add(1, SeqCst);
                    }
                    Some(Err(error)) => stage.fail(&error.to_string()),
                }
            }
        }
    };
    stage.crew(2, act).await;
    stage.pause(15_000).await;
    tally.judge(&stage).await;
}
