//! The work queue with a time limit for each claim: a consumer that takes too long loses its item
//! to the other one, knows it by its own clock before that, and cannot acknowledge it any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baton::WorkQueue;
use baton::work_queue::{Claim, WorkError, WorkItem};
use tokio::time::Instant;

use super::Scenario;
use crate::boundary;
use crate::occupancy::Occupancy;
use crate::stage::Stage;

const PATH: &str = "/jobs/one";
const ITEMS: [&str; 2] = ["first", "second"];
/// On one server: on several, a claim that lasts no longer would be over when its answer comes.
const VISIBILITY_MS: u64 = 40;
/// More than the claims that can be handed out here: a claim that is over before anybody has it
/// uses no attempt, so that no item becomes a dead letter, which nobody would take.
const ATTEMPTS: u32 = 40;
/// Same time as in the plain scenario.
const BACKGROUND_MS: u64 = 20_000;

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = Scenario::new("work-queue-visibility", 3, |stage| Box::pin(work(stage)))
        .keeps(|path| path.starts_with("/jobs"));
    // Where the making of the queue is disturbed, all three make it, five nodes in each attempt.
    vec![Scenario {
        more_creates: 23,
        // Each server stamps what its own clients write, and others read off that when a claim is
        // over.
        clocks_agree: true,
        ..scenario
    }]
}

/// The tokens of an item's claims: the newest, those that were acknowledged, and whether one may
/// have been.
#[derive(Clone, Debug, Default)]
struct ItemRecord {
    put: bool,
    newest: u64,
    acked: Vec<u64>,
    perhaps: bool,
}

#[derive(Clone)]
struct ItemTable {
    rooms: BTreeMap<&'static str, Occupancy>,
    known: Arc<Mutex<BTreeMap<String, ItemRecord>>>,
}

impl ItemTable {
    fn note(&self, item: &str, change: impl FnOnce(&mut ItemRecord)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(known.entry(item.to_owned()).or_default());
    }
}

fn visibility(stage: &Stage) -> Duration {
    Duration::from_millis(stage.paced(VISIBILITY_MS))
}

fn queue(stage: &Stage, client: usize) -> Result<WorkQueue, WorkError> {
    let queue = WorkQueue::new(stage.client(client), PATH)?;
    Ok(queue.visibility(visibility(stage)).max_attempts(ATTEMPTS))
}

async fn consume(
    stage: &Stage,
    who: &str,
    queue: &WorkQueue,
    book: &ItemTable,
    millis: u64,
) -> bool {
    let asked = Instant::now();
    let taken = stage.cancellable(queue.poll()).await;
    if asked.elapsed() > visibility(stage) && matches!(taken, Some(Ok(_))) {
        stage.mark(boundary::CLAIM_LATE);
    }
    let claim = match taken {
        Some(Ok(Some(claim))) => Arc::new(claim),
        Some(Ok(None)) | None => return false,
        Some(Err(error)) => {
            stage.note(|| format!("not taken: {error}"));
            return false;
        }
    };
    let item = String::from_utf8_lossy(claim.payload()).into_owned();
    let token = claim.token();
    book.note(&item, |known| known.newest = known.newest.max(token));
    if let Some(room) = book.rooms.get(&*item) {
        let asked = Arc::downgrade(&claim);
        room.enter(who, 1, token, move || {
            asked.upgrade().is_some_and(|claim| claim.check().is_ok())
        });
    }
    stage.pause(millis).await;
    let Some(claim) = Arc::into_inner(claim) else {
        stage.fail("a claim is held twice");
        return false;
    };
    if claim.check().is_err() {
        stage.mark(boundary::ACK_LATE);
    }
    let acked = stage.cancellable(Claim::ack(claim)).await;
    if matches!(acked, Some(Err(WorkError::SettleUnknown { .. }))) {
        stage.mark(boundary::ACK_UNKNOWN);
    }
    stage.note(|| format!("{who} acknowledged {item}, token {token}: {acked:?}"));
    book.note(&item, |known| match acked {
        Some(Ok(())) => known.acked.push(token),
        None | Some(Err(WorkError::SettleUnknown { .. })) => known.perhaps = true,
        Some(Err(_)) => {}
    });
    true
}

async fn work(stage: Stage) {
    let book = ItemTable {
        rooms: ITEMS
            .iter()
            .map(|item| (*item, stage.occupancy(item, 1)))
            .collect(),
        known: Arc::default(),
    };
    let act = |stage: Stage, number: usize| {
        let book = book.clone();
        async move {
            let Ok(queue) = queue(&stage, number) else {
                return stage.fail("no queue");
            };
            if number == 0 {
                for item in ITEMS {
                    let put = stage.cancellable(queue.offer(WorkItem::new(item))).await;
                    stage.note(|| format!("{item} put: {put:?}"));
                    book.note(item, |known| known.put = matches!(put, Some(Ok(_))));
                }
                return;
            }
            stage.pause(stage.paced(10 * number as u64)).await;
            // The first takes longer than it may, and is done when the other one has the item.
            let millis = stage.paced(if number == 1 { 65 } else { 30 });
            for _ in 0..8 {
                consume(&stage, &format!("client {number}"), &queue, &book, millis).await;
                stage.pause(stage.paced(5)).await;
            }
            let _given_back = queue.give_back().await;
        }
    };
    stage.crew(3, act).await;
    stage.calm();
    stage.pause(BACKGROUND_MS).await;
    let Ok(queue) = queue(&stage, 2) else {
        return stage.fail("no queue");
    };
    let mut idle = 0;
    while idle < 5 {
        if consume(&stage, "the last one", &queue, &book, 5).await {
            idle = 0;
        } else {
            idle += 1;
            stage.pause(2_000).await;
        }
    }
    let known = book.known.lock().unwrap_or_else(PoisonError::into_inner);
    for (item, known) in known.iter() {
        stage.expect(known.acked.len() <= 1, || {
            format!("{item} was acknowledged twice: {known:?}")
        });
        stage.expect(
            known.acked.iter().all(|token| *token == known.newest),
            || format!("{item} was acknowledged under a claim that had passed on: {known:?}"),
        );
        stage.expect(
            !known.put || known.perhaps || !known.acked.is_empty(),
            || format!("{item} was lost: {known:?}"),
        );
    }
}
