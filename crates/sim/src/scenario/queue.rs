//! Queues: a producer, two consumers, and what becomes of each item.

use std::future::Future;
use std::time::Duration;

use baton::{
    Client, DelayQueue, DistributedQueue, IdQueue, LockingQueue, PriorityQueue, QueueError,
};

use super::Scenario;
use super::ledger::Ledger;
use crate::stage::Stage;

const PATH: &str = "/queues/one";
const ITEMS: usize = 3;
/// Until what a cancelled call had begun has come to its end.
const BACKGROUND_MS: u64 = 15_000;

pub(super) fn scenarios() -> Vec<Scenario> {
    let keeps = |path: &str| {
        let receipts = path.starts_with("/queues/one-__receipts__");
        receipts || path == "/queues" || path == PATH
    };
    let locking = |path: &str| {
        let receipts = path.contains("-__receipts__");
        receipts || ["/queues", PATH, "/queues/one/entries", "/queues/one/taken"].contains(&path)
    };
    vec![
        Scenario::new("queue", 3, |stage| Box::pin(polled(stage))).keeps(keeps),
        Scenario::new("queue-take", 2, |stage| Box::pin(taken(stage))).keeps(keeps),
        Scenario::new("priority-queue", 2, |stage| Box::pin(by_priority(stage))).keeps(keeps),
        Scenario::new("delay-queue", 2, |stage| Box::pin(delayed(stage))).keeps(keeps),
        Scenario::new("id-queue", 2, |stage| Box::pin(by_id(stage))).keeps(keeps),
        Scenario::new("locking-queue", 3, |stage| {
            Box::pin(locked(stage, |client| LockingQueue::new(client, PATH)))
        })
        .keeps(locking),
        Scenario::new("locking-queue-curator", 3, |stage| {
            Box::pin(locked(stage, |client| {
                LockingQueue::curator(client, PATH, "/queues/one-locks")
            }))
        })
        .keeps(|path| {
            let receipts = path.contains("-__receipts__");
            receipts || ["/queues", PATH, "/queues/one-locks"].contains(&path)
        }),
    ]
}

/// Offers every item, once, in calls that may be cancelled.
async fn produce<'a, F>(
    stage: &'a Stage,
    ledger: &Ledger,
    offer: impl Fn(&'a Stage, String, usize) -> F,
) where
    F: Future<Output = Result<(), QueueError>>,
{
    for number in 0..ITEMS {
        let item = format!("item {number}");
        let outcome = stage.cancellable(offer(stage, item.clone(), number)).await;
        ledger.offered(stage, &item, outcome.as_ref());
    }
}

fn judge(stage: &Stage, ledger: &Ledger, folder: &str) {
    let nodes = stage.nodes(folder);
    let left: Vec<Vec<u8>> = nodes
        .iter()
        .filter_map(|(path, _)| stage.data(path))
        .collect();
    ledger.judge(stage, &left);
    stage.expect(left.is_empty(), || {
        format!("{} items were left though all was taken out", left.len())
    });
}

macro_rules! drained {
    ($stage:expr, $ledger:expr, $queue:expr) => {
        loop {
            match $queue.poll().await {
                Ok(Some(item)) => $ledger.taken($stage, item.as_ref()),
                Ok(None) => break,
                Err(error) => $ledger.failed($stage, &error),
            }
        }
    };
}

async fn polled(stage: Stage) {
    let ledger = Ledger::default();
    let act = |stage: Stage, number: usize| {
        let ledger = ledger.clone();
        async move {
            let Ok(queue) = DistributedQueue::new(stage.client(number), PATH) else {
                return stage.fail("no queue");
            };
            if number == 0 {
                let offer = |_, item: String, _| {
                    let queue = queue.clone();
                    async move { queue.offer(item.as_bytes()).await }
                };
                produce(&stage, &ledger, offer).await;
            } else {
                for _ in 0..ITEMS {
                    match stage.cancellable(queue.poll()).await {
                        None | Some(Ok(None)) => stage.pause(8).await,
                        Some(Ok(Some(item))) => ledger.taken(&stage, &item),
                        Some(Err(error)) => ledger.failed(&stage, &error),
                    }
                }
            }
            stage.pause(BACKGROUND_MS).await;
            // What came back to this handle is nobody else's.
            drained!(&stage, ledger, queue);
        }
    };
    stage.crew(3, act).await;
    judge(&stage, &ledger, PATH);
}

async fn taken(stage: Stage) {
    let ledger = Ledger::default();
    let act = |stage: Stage, number: usize| {
        let ledger = ledger.clone();
        async move {
            let Ok(queue) = DistributedQueue::new(stage.client(number), PATH) else {
                return stage.fail("no queue");
            };
            if number == 0 {
                stage.pause(20).await;
                let offer = |_, item: String, _| {
                    let queue = queue.clone();
                    async move { queue.offer(item.as_bytes()).await }
                };
                produce(&stage, &ledger, offer).await;
            } else {
                for _ in 0..ITEMS {
                    // What was cancelled or never offered does not come: so long, and no longer.
                    let take = tokio::time::timeout(Duration::from_secs(12), queue.take());
                    match stage.cancellable(take).await {
                        None | Some(Err(_)) => {}
                        Some(Ok(Ok(item))) => ledger.taken(&stage, &item),
                        Some(Ok(Err(error))) => ledger.failed(&stage, &error),
                    }
                }
            }
            stage.pause(BACKGROUND_MS).await;
            drained!(&stage, ledger, queue);
        }
    };
    stage.crew(2, act).await;
    judge(&stage, &ledger, PATH);
}

async fn by_priority(stage: Stage) {
    let ledger = Ledger::default();
    let act = |stage: Stage, number: usize| {
        let ledger = ledger.clone();
        async move {
            let Ok(queue) = PriorityQueue::new(stage.client(number), PATH) else {
                return stage.fail("no queue");
            };
            if number == 0 {
                let offer = |_, item: String, number: usize| {
                    let queue = queue.clone();
                    let priority = 10 - i32::try_from(number).unwrap_or(0);
                    async move { queue.offer(item.as_bytes(), priority).await }
                };
                produce(&stage, &ledger, offer).await;
            } else {
                for _ in 0..ITEMS {
                    match stage.cancellable(queue.poll()).await {
                        None | Some(Ok(None)) => stage.pause(8).await,
                        Some(Ok(Some(item))) => ledger.taken(&stage, &item),
                        Some(Err(error)) => ledger.failed(&stage, &error),
                    }
                }
            }
            stage.pause(BACKGROUND_MS).await;
            drained!(&stage, ledger, queue);
        }
    };
    stage.crew(2, act).await;
    judge(&stage, &ledger, PATH);
}

async fn delayed(stage: Stage) {
    let ledger = Ledger::default();
    let act = |stage: Stage, number: usize| {
        let ledger = ledger.clone();
        async move {
            let Ok(queue) = DelayQueue::new(stage.client(number), PATH) else {
                return stage.fail("no queue");
            };
            if number == 0 {
                let offer = |_, item: String, number: usize| {
                    let queue = queue.clone();
                    let delay = Duration::from_millis(10 * number as u64);
                    async move { queue.offer(item.as_bytes(), delay).await }
                };
                produce(&stage, &ledger, offer).await;
            } else {
                for _ in 0..ITEMS {
                    match stage.cancellable(queue.poll()).await {
                        None | Some(Ok(None)) => stage.pause(12).await,
                        Some(Ok(Some(item))) => ledger.taken(&stage, &item),
                        Some(Err(error)) => ledger.failed(&stage, &error),
                    }
                }
            }
            stage.pause(BACKGROUND_MS).await;
            drained!(&stage, ledger, queue);
        }
    };
    stage.crew(2, act).await;
    judge(&stage, &ledger, PATH);
}

/// One is removed by its id, by whoever is quicker: the one that removes, or the one that takes.
async fn by_id(stage: Stage) {
    let ledger = Ledger::default();
    let act = |stage: Stage, number: usize| {
        let ledger = ledger.clone();
        async move {
            let Ok(queue) = IdQueue::new(stage.client(number), PATH) else {
                return stage.fail("no queue");
            };
            if number == 0 {
                let offer = |_, item: String, _| {
                    let queue = queue.clone();
                    async move { queue.offer(item.as_bytes(), &item).await }
                };
                produce(&stage, &ledger, offer).await;
                let removed = stage.cancellable(queue.remove("item 1")).await;
                stage.note(|| format!("removed by id: {removed:?}"));
                match removed {
                    Some(Ok(count)) => (0..count).for_each(|_| ledger.taken(&stage, b"item 1")),
                    None | Some(Err(_)) => ledger.perhaps(b"item 1"),
                }
            } else {
                for _ in 0..ITEMS {
                    match stage.cancellable(queue.poll()).await {
                        None | Some(Ok(None)) => stage.pause(12).await,
                        Some(Ok(Some(item))) => {
                            stage.expect(item.id.as_bytes() == &*item.data, || {
                                format!("item {:?} came as {:?}", item.data, item.id)
                            });
                            ledger.taken(&stage, &item.data);
                        }
                        Some(Err(error)) => ledger.failed(&stage, &error),
                    }
                }
            }
            stage.pause(BACKGROUND_MS).await;
            loop {
                match queue.poll().await {
                    Ok(Some(item)) => ledger.taken(&stage, &item.data),
                    Ok(None) => break,
                    Err(error) => ledger.failed(&stage, &error),
                }
            }
        }
    };
    stage.crew(2, act).await;
    judge(&stage, &ledger, PATH);
}

/// Items are locked first and removed when done: one at a time has each, and a consumed one never comes back.
async fn locked(stage: Stage, open: fn(&Client) -> Result<LockingQueue, QueueError>) {
    let ledger = Ledger::default();
    let act = |stage: Stage, number: usize| {
        let ledger = ledger.clone();
        async move {
            let Ok(queue) = open(stage.client(number)) else {
                return stage.fail("no queue");
            };
            if number == 0 {
                let offer = |_, item: String, _| {
                    let queue = queue.clone();
                    async move { queue.offer(item.as_bytes()).await }
                };
                return produce(&stage, &ledger, offer).await;
            }
            for _ in 0..ITEMS {
                if let Some(Ok(Some(item))) = stage.cancellable(queue.poll()).await {
                    let data = item.data().to_vec();
                    stage.pause(4).await;
                    if item.check().is_ok() && item.consume().await.is_ok() {
                        ledger.taken(&stage, &data);
                    }
                } else {
                    stage.pause(8).await;
                }
            }
        }
    };
    stage.crew(3, act).await;
    stage.pause(BACKGROUND_MS).await;
    let Ok(queue) = open(stage.client(1)) else {
        return stage.fail("no queue");
    };
    loop {
        match queue.poll().await {
            Ok(Some(item)) => {
                let data = item.data().to_vec();
                match item.consume().await {
                    Ok(()) => ledger.taken(&stage, &data),
                    // Lost meanwhile, it comes again.
                    Err(error) => stage.note(|| format!("not consumed: {error}")),
                }
            }
            Ok(None) => break,
            Err(error) => return stage.fail(&format!("cannot be polled: {error}")),
        }
    }
    stage.note(|| "all that could be consumed was".to_owned());
    let entries: Vec<Vec<u8>> = stage
        .nodes(queue.items_path())
        .iter()
        .filter_map(|(path, _)| stage.data(path))
        .collect();
    ledger.judge_at_most_once(&stage, &entries);
}
