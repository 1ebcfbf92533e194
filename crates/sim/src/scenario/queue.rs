//! Queues: a producer, two consumers, and what becomes of each item.

use std::future::Future;
use std::time::Duration;

use baton::queue::{DelayQueue, IdQueue, LockingQueue, PriorityQueue, QueueError};
use baton::{Client, DistributedQueue};
use bytes::Bytes;

use super::Scenario;
use super::ledger::ItemRecords;
use crate::stage::Stage;

const PATH: &str = "/queues/one";
const ITEMS: usize = 3;
/// Time by which the background work of a cancelled call has come to its end.
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
        Scenario::new("queue", 3, |stage| {
            Box::pin(polled(stage, 3, 8, |client| {
                DistributedQueue::new(client, PATH)
            }))
        })
        .keeps(keeps),
        Scenario::new("queue-take", 2, |stage| Box::pin(taken(stage))).keeps(keeps),
        Scenario::new("priority-queue", 2, |stage| {
            Box::pin(polled(stage, 2, 8, |client| {
                PriorityQueue::new(client, PATH)
            }))
        })
        .keeps(keeps),
        Scenario::new("delay-queue", 2, |stage| {
            Box::pin(polled(stage, 2, 12, |client| DelayQueue::new(client, PATH)))
        })
        .keeps(keeps),
        Scenario::new("id-queue", 2, |stage| Box::pin(by_id(stage))).keeps(keeps),
        Scenario::new("locking-queue", 3, |stage| {
            Box::pin(locked(stage, |client| LockingQueue::new(client, PATH)))
        })
        .keeps(locking),
        Scenario::new("locking-queue-curator", 3, |stage| {
            Box::pin(locked(stage, |client| {
                Ok(LockingQueue::new(client, PATH)?.curator_layout("/queues/one-locks"))
            }))
        })
        .keeps(|path| {
            let receipts = path.contains("-__receipts__");
            receipts || ["/queues", PATH, "/queues/one-locks"].contains(&path)
        }),
    ]
}

/// A queue whose items are taken out as they are handed out.
trait Queue: Send + Sync + 'static {
    /// Offers the item with this number.
    fn put(&self, item: &str, number: usize) -> impl Future<Output = Put> + Send;
    fn next(&self) -> impl Future<Output = NextItem> + Send;
}

type Put = Result<(), QueueError>;
type NextItem = Result<Option<Bytes>, QueueError>;

impl Queue for DistributedQueue {
    async fn put(&self, item: &str, _: usize) -> Put {
        self.offer(item.as_bytes()).await
    }
    async fn next(&self) -> NextItem {
        self.poll().await
    }
}

impl Queue for PriorityQueue {
    async fn put(&self, item: &str, number: usize) -> Put {
        let priority = 10 - i32::try_from(number).unwrap_or(0);
        self.offer(item.as_bytes(), priority).await
    }
    async fn next(&self) -> NextItem {
        self.poll().await
    }
}

impl Queue for DelayQueue {
    async fn put(&self, item: &str, number: usize) -> Put {
        let delay = Duration::from_millis(10 * number as u64);
        self.offer(item.as_bytes(), delay).await
    }
    async fn next(&self) -> NextItem {
        self.poll().await
    }
}

impl Queue for IdQueue {
    async fn put(&self, item: &str, _: usize) -> Put {
        self.offer(item.as_bytes(), item).await
    }
    /// An item that comes with another id than its own is none that was offered.
    async fn next(&self) -> NextItem {
        let item = self.poll().await?;
        Ok(item.map(|item| match item.id.as_bytes() == &*item.data {
            true => item.data,
            false => format!("item {:?} as {:?}", item.data, item.id).into(),
        }))
    }
}

async fn put_all(stage: &Stage, ledger: &ItemRecords, queue: &impl Queue) {
    let put = |item: String, number| async move { queue.put(&item, number).await };
    produce(stage, ledger, put).await;
}

/// Offers every item, once, in calls that may be cancelled.
async fn produce<F: Future<Output = Put>>(
    stage: &Stage,
    ledger: &ItemRecords,
    offer: impl Fn(String, usize) -> F,
) {
    for number in 0..ITEMS {
        let item = format!("item {number}");
        let outcome = stage.cancellable(offer(item.clone(), number)).await;
        ledger.offered(stage, &item, outcome.as_ref());
    }
}

/// Asks for as many items as there are, in calls that may be cancelled.
async fn consume(stage: &Stage, ledger: &ItemRecords, queue: &impl Queue, pause_ms: u64) {
    for _ in 0..ITEMS {
        match stage.cancellable(queue.next()).await {
            None | Some(Ok(None)) => stage.pause(pause_ms).await,
            Some(Ok(Some(item))) => ledger.taken(stage, &item),
            Some(Err(error)) => ledger.failed(stage, &error),
        }
    }
}

/// Takes out what is there once all that was cancelled has come to its end: what came back to this
/// handle is nobody else's.
async fn drain(stage: &Stage, ledger: &ItemRecords, queue: &impl Queue) {
    stage.pause(BACKGROUND_MS).await;
    loop {
        match queue.next().await {
            Ok(Some(item)) => ledger.taken(stage, &item),
            Ok(None) => break,
            Err(error) => ledger.failed(stage, &error),
        }
    }
}

async fn judge(stage: &Stage, ledger: &ItemRecords, folder: &str) {
    let Some(state) = stage.final_state().await else {
        return;
    };
    let nodes = state.nodes(folder);
    let left: Vec<Vec<u8>> = nodes
        .iter()
        .filter_map(|(path, _)| state.data(path))
        .collect();
    ledger.judge(stage, &left);
    stage.expect(left.is_empty(), || {
        format!("{} items were left though all was taken out", left.len())
    });
}

/// One offers, the others ask.
async fn polled<Q: Queue>(
    stage: Stage,
    clients: usize,
    pause_ms: u64,
    open: fn(&Client) -> Result<Q, QueueError>,
) {
    let ledger = ItemRecords::default();
    let act = |stage: Stage, number: usize| {
        let ledger = ledger.clone();
        async move {
            let Ok(queue) = open(stage.client(number)) else {
                return stage.fail("no queue");
            };
            if number == 0 {
                put_all(&stage, &ledger, &queue).await;
            } else {
                consume(&stage, &ledger, &queue, pause_ms).await;
            }
            drain(&stage, &ledger, &queue).await;
        }
    };
    stage.crew(clients, act).await;
    judge(&stage, &ledger, PATH).await;
}

async fn taken(stage: Stage) {
    let ledger = ItemRecords::default();
    let act = |stage: Stage, number: usize| {
        let ledger = ledger.clone();
        async move {
            let Ok(queue) = DistributedQueue::new(stage.client(number), PATH) else {
                return stage.fail("no queue");
            };
            if number == 0 {
                stage.pause(20).await;
                put_all(&stage, &ledger, &queue).await;
            } else {
                for _ in 0..ITEMS {
                    // What was cancelled or never offered does not come: the wait is limited.
                    let take = queue.take_timeout(Duration::from_secs(12));
                    match stage.cancellable(take).await {
                        None | Some(Err(QueueError::TimedOut { .. })) => {}
                        Some(Ok(item)) => ledger.taken(&stage, &item),
                        Some(Err(error)) => ledger.failed(&stage, &error),
                    }
                }
            }
            drain(&stage, &ledger, &queue).await;
        }
    };
    stage.crew(2, act).await;
    judge(&stage, &ledger, PATH).await;
}

/// One is removed by its id, by the quicker of two: the one that removes, or the one that takes.
async fn by_id(stage: Stage) {
    let ledger = ItemRecords::default();
    let act = |stage: Stage, number: usize| {
        let ledger = ledger.clone();
        async move {
            let Ok(queue) = IdQueue::new(stage.client(number), PATH) else {
                return stage.fail("no queue");
            };
            if number == 0 {
                put_all(&stage, &ledger, &queue).await;
                let removed = stage.cancellable(queue.remove("item 1")).await;
                stage.note(|| format!("removed by id: {removed:?}"));
                match removed {
                    Some(Ok(count)) => (0..count).for_each(|_| ledger.taken(&stage, b"item 1")),
                    None | Some(Err(_)) => ledger.perhaps(b"item 1"),
                }
            } else {
                consume(&stage, &ledger, &queue, 12).await;
            }
            drain(&stage, &ledger, &queue).await;
        }
    };
    stage.crew(2, act).await;
    judge(&stage, &ledger, PATH).await;
}

/// Items are locked first and removed when done: one at a time has each, and a consumed one never
/// comes back.
async fn locked(stage: Stage, open: fn(&Client) -> Result<LockingQueue, QueueError>) {
    let ledger = ItemRecords::default();
    let act = |stage: Stage, number: usize| {
        let ledger = ledger.clone();
        async move {
            let Ok(queue) = open(stage.client(number)) else {
                return stage.fail("no queue");
            };
            if number == 0 {
                let queue = &queue;
                let put = |item: String, _| async move { queue.offer(item.as_bytes()).await };
                return produce(&stage, &ledger, put).await;
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
    let mut idle = 0;
    while idle < 2 {
        match queue.poll().await {
            Ok(Some(item)) => {
                idle = 0;
                let data = item.data().to_vec();
                match item.consume().await {
                    Ok(()) => ledger.taken(&stage, &data),
                    // Lost meanwhile, it comes again.
                    Err(error) => stage.note(|| format!("not consumed: {error}")),
                }
            }
            // An item whose claim is lost is there again once that claim is deleted.
            Ok(None) => {
                idle += 1;
                stage.pause(1_000).await;
            }
            Err(error) => return stage.fail(&format!("cannot be polled: {error}")),
        }
    }
    stage.note(|| "all that could be consumed was".to_owned());
    let Some(state) = stage.final_state().await else {
        return;
    };
    let entries: Vec<Vec<u8>> = state
        .nodes(queue.items_path())
        .iter()
        .filter_map(|(path, _)| state.data(path))
        .collect();
    ledger.judge_at_most_once(&stage, &entries);
}
