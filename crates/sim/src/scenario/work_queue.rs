//! The work queue: a producer, two consumers; an acknowledged item never comes back, and no item is
//! lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use baton::WorkQueue;
use baton::work_queue::{WorkError, WorkItem};

use super::Scenario;
use crate::boundary;
use crate::stage::Stage;

const PATH: &str = "/jobs/one";
const ITEMS: usize = 3;
/// Time by which every claim of a lost session has come back, and the work of cancelled calls is
/// over.
const BACKGROUND_MS: u64 = 20_000;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("work-queue", 3, |stage| Box::pin(work(stage)))
            .keeps(|path| path.starts_with("/jobs")),
    ]
}

/// Knowledge of each item.
#[derive(Clone, Copy, Debug, Default)]
struct ItemRecord {
    /// The put was confirmed.
    certain: bool,
    /// Acknowledged for certain, how often.
    done: usize,
    /// An acknowledgement whose outcome is not known, or a call that was cancelled after it had
    /// begun.
    perhaps: usize,
}

#[derive(Clone, Default)]
struct ItemTable(Arc<Mutex<BTreeMap<String, ItemRecord>>>);

impl ItemTable {
    fn note(&self, item: &[u8], change: impl FnOnce(&mut ItemRecord)) {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(
            book.entry(String::from_utf8_lossy(item).into_owned())
                .or_default(),
        );
    }
}

async fn consume(stage: &Stage, queue: &WorkQueue, book: &ItemTable) -> bool {
    let claim = match stage.cancellable(queue.poll()).await {
        Some(Ok(Some(claim))) => claim,
        Some(Ok(None)) | None => return false,
        Some(Err(error)) => {
            stage.note(|| format!("not taken: {error}"));
            return false;
        }
    };
    let payload = claim.payload().to_vec();
    stage.pause(4).await;
    let acked = stage.cancellable(claim.ack()).await;
    stage.note(|| {
        format!(
            "{} acknowledged: {acked:?}",
            String::from_utf8_lossy(&payload)
        )
    });
    if matches!(acked, Some(Err(WorkError::SettleUnknown { .. }))) {
        stage.mark(boundary::ACK_UNKNOWN);
    }
    book.note(&payload, |known| match acked {
        Some(Ok(())) => known.done += 1,
        None | Some(Err(WorkError::SettleUnknown { .. })) => known.perhaps += 1,
        Some(Err(_)) => {}
    });
    true
}

async fn work(stage: Stage) {
    let book = ItemTable::default();
    let act = |stage: Stage, number: usize| {
        let book = book.clone();
        async move {
            let Ok(queue) = WorkQueue::new(stage.client(number), PATH) else {
                return stage.fail("no queue");
            };
            if number > 0 {
                for _ in 0..ITEMS {
                    consume(&stage, &queue, &book).await;
                    stage.pause(8).await;
                }
                let _given_back = queue.give_back().await;
                return;
            }
            for item in 0..ITEMS {
                let item = format!("item {item}");
                let put = queue.offer(WorkItem::new(item.clone()));
                let outcome = stage.cancellable(put).await;
                stage.note(|| format!("{item} put: {outcome:?}"));
                book.note(item.as_bytes(), |known| {
                    known.certain = matches!(outcome, Some(Ok(_)));
                });
            }
        }
    };
    stage.crew(3, act).await;
    stage.calm();
    stage.pause(BACKGROUND_MS).await;
    let Ok(queue) = WorkQueue::new(stage.client(1), PATH) else {
        return stage.fail("no queue");
    };
    // An attempt that came to nothing is followed by a pause.
    let mut idle = 0;
    while idle < 5 {
        if consume(&stage, &queue, &book).await {
            idle = 0;
        } else {
            idle += 1;
            stage.pause(2_000).await;
        }
    }
    let book = book.0.lock().unwrap_or_else(PoisonError::into_inner);
    for (item, known) in book.iter() {
        stage.expect(known.done <= 1, || {
            format!("{item} was acknowledged twice: {known:?}")
        });
        stage.expect(!known.certain || known.done + known.perhaps > 0, || {
            format!("{item} was lost: {known:?}")
        });
    }
}
