//! The work queue's other fates: an item that is delayed, one that nobody can finish and that dies,
//! one that is put twice under one id.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baton::WorkQueue;
use baton::work_queue::{WorkError, WorkItem};
use baton_client::Client;
use tokio::time::Instant;

use super::Scenario;
use crate::stage::Stage;

const PATH: &str = "/jobs/one";
const DELAYED: &str = "delayed";
const DELAY: Duration = Duration::from_millis(30);
const DOOMED: &str = "doomed";
const ATTEMPTS: u32 = 2;
const TWICE: &str = "twice";
/// Same time as in the plain scenario.
const BACKGROUND_MS: u64 = 20_000;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("work-queue-fates", 3, |stage| Box::pin(work(stage)))
            .keeps(|path| path.starts_with("/jobs")),
    ]
}

/// Knowledge of the items of one payload.
#[derive(Clone, Copy, Debug, Default)]
struct ItemRecord {
    /// Puts that were confirmed, and all that may have happened.
    put: usize,
    may_be_put: usize,
    claims: u32,
    /// Acknowledgements that were begun, and those of them that were confirmed or are open.
    begun: usize,
    done: usize,
    perhaps: usize,
}

#[derive(Clone, Default)]
struct ItemTable(Arc<Mutex<BTreeMap<String, ItemRecord>>>);

impl ItemTable {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, ItemRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, item: &str, change: impl FnOnce(&mut ItemRecord)) {
        change(self.all().entry(item.to_owned()).or_default());
    }

    fn of(&self, item: &str) -> ItemRecord {
        self.all().get(item).copied().unwrap_or_default()
    }
}

fn queue(client: &Client) -> Result<WorkQueue, WorkError> {
    let first = Duration::from_millis(20);
    Ok(WorkQueue::new(client, PATH)?.backoff(first, first * 4))
}

async fn put(stage: &Stage, queue: &WorkQueue, book: &ItemTable, name: &str, item: WorkItem) {
    let before = book.of(name);
    let outcome = stage.cancellable(queue.offer(item)).await;
    stage.note(|| format!("{name} put: {outcome:?}"));
    let (certain, perhaps) = match outcome {
        Some(Ok(_)) => (1, 1),
        None | Some(Err(WorkError::OfferUnknown { .. })) => (0, 1),
        Some(Err(_)) => (0, 0),
    };
    // The earlier one is there until somebody acknowledges it.
    let there = before.put > 0 && book.of(name).begun == 0;
    stage.expect(certain == 0 || !there, || {
        format!("{name} was queued a second time under its id")
    });
    book.note(name, |known| {
        known.put += certain;
        known.may_be_put += perhaps;
    });
}

async fn consume(stage: &Stage, queue: &WorkQueue, book: &ItemTable, due: Instant) -> bool {
    let claim = match stage.cancellable(queue.poll()).await {
        Some(Ok(Some(claim))) => claim,
        Some(Ok(None)) | None => return false,
        Some(Err(error)) => {
            stage.note(|| format!("not taken: {error}"));
            return false;
        }
    };
    let item = String::from_utf8_lossy(claim.payload()).into_owned();
    stage.expect(item != DELAYED || Instant::now() >= due, || {
        "a delayed item was handed out before its time".to_owned()
    });
    book.note(&item, |known| known.claims += 1);
    stage.pause(4).await;
    if item == DOOMED {
        let settled = stage.cancellable(claim.nack("nobody can")).await;
        stage.note(|| format!("{item} refused: {settled:?}"));
        return true;
    }
    book.note(&item, |known| known.begun += 1);
    let acked = stage.cancellable(claim.ack()).await;
    stage.note(|| format!("{item} acknowledged: {acked:?}"));
    book.note(&item, |known| match acked {
        Some(Ok(())) => known.done += 1,
        None | Some(Err(WorkError::SettleUnknown { .. })) => known.perhaps += 1,
        Some(Err(_)) => known.begun -= 1,
    });
    true
}

async fn work(stage: Stage) {
    let book = ItemTable::default();
    let due = Instant::now() + DELAY;
    let act = |stage: Stage, number: usize| {
        let book = book.clone();
        async move {
            let Ok(queue) = queue(stage.client(number)) else {
                return stage.fail("no queue");
            };
            if number > 0 {
                stage.pause(6 * number as u64).await;
                for _ in 0..4 {
                    consume(&stage, &queue, &book, due).await;
                    stage.pause(12).await;
                }
                let _given_back = queue.give_back().await;
                return;
            }
            let doomed = WorkItem::new(DOOMED).max_attempts(ATTEMPTS);
            put(&stage, &queue, &book, DOOMED, doomed).await;
            let delayed = WorkItem::new(DELAYED).delay(DELAY);
            put(&stage, &queue, &book, DELAYED, delayed).await;
            for _ in 0..2 {
                let twice = WorkItem::new(TWICE).id(TWICE);
                put(&stage, &queue, &book, TWICE, twice).await;
            }
        }
    };
    stage.crew(3, act).await;
    stage.calm();
    stage.pause(BACKGROUND_MS).await;
    let Ok(queue) = queue(stage.client(1)) else {
        return stage.fail("no queue");
    };
    let mut idle = 0;
    while idle < 5 {
        if consume(&stage, &queue, &book, due).await {
            idle = 0;
        } else {
            idle += 1;
            stage.pause(2_000).await;
        }
    }
    judge(&stage, &queue, &book).await;
}

async fn judge(stage: &Stage, queue: &WorkQueue, book: &ItemTable) {
    for item in [DELAYED, TWICE] {
        let known = book.of(item);
        stage.expect(known.done <= known.may_be_put, || {
            format!("{item} was acknowledged too often: {known:?}")
        });
        stage.expect(known.done + known.perhaps >= known.put, || {
            format!("{item} was lost: {known:?}")
        });
    }
    let known = book.of(DOOMED);
    stage.expect(known.claims <= ATTEMPTS, || {
        format!("{DOOMED} was handed out too often: {known:?}")
    });
    let letters = match queue.dead_letters().await {
        Ok(letters) => letters,
        Err(error) => return stage.fail(&format!("dead letters: {error}")),
    };
    let dead = letters
        .iter()
        .filter(|letter| letter.payload == DOOMED)
        .count();
    let right = dead >= known.put && dead <= known.may_be_put;
    stage.expect(right && letters.len() == dead, || {
        format!("{known:?} of {DOOMED}, among the dead: {letters:?}")
    });
}
