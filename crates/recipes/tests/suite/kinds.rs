//! Every recipe at the path of every other one: refused by name, with nothing left there, wherever
//! going on would mislead either of the two.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use baton::lock::SimpleMutex;
use baton::queue::{DelayQueue, IdQueue, LockingQueue, PriorityQueue, QueueLayout};
use baton::{
    Barrier, Client, CountdownLatch, Counter, DistributedQueue, DoubleBarrier, LeaderElection,
    Membership, Mutex, RwLock, Semaphore, SharedValue, WorkQueue,
};
use baton_testkit::inspect;

use crate::common::{Stage, within};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Owner of a recipe that was made.
type AnyRecipe = Box<dyn Any + Send>;

/// A recipe that is in use at a path.
struct Kind {
    name: &'static str,
    make: fn(Client, String) -> BoxFuture<AnyRecipe>,
}

/// An operation of a recipe, and its text where it fails.
struct RecipeUse {
    name: &'static str,
    /// Its own kind, and those that go on beside it as if it were not there: nothing there shows
    /// whose it is, or both keep to children of their own.
    beside: &'static [&'static str],
    run: fn(Client, String) -> BoxFuture<Result<(), String>>,
}

macro_rules! kind {
    ($name:literal, |$client:ident, $path:ident| $body:expr) => {
        Kind {
            name: $name,
            make: |$client, $path| {
                Box::pin(async move {
                    let kept: AnyRecipe = Box::new($body);
                    kept
                })
            },
        }
    };
}

macro_rules! operation {
    ($name:literal, $beside:expr, |$client:ident, $path:ident| $body:expr) => {
        RecipeUse {
            name: $name,
            beside: $beside,
            run: |$client, $path| {
                Box::pin(async move { $body.map(drop).map_err(|error| error.to_string()) })
            },
        }
    };
}

fn layout(client: &Client, path: &str, layout: QueueLayout) -> DistributedQueue {
    DistributedQueue::new(client, path).unwrap().layout(layout)
}

fn kinds() -> Vec<Kind> {
    vec![
        kind!("mutex", |c, p| Mutex::new(&c, &p)
            .unwrap()
            .acquire()
            .await
            .unwrap()),
        kind!("reader", |c, p| RwLock::new(&c, &p)
            .unwrap()
            .read()
            .await
            .unwrap()),
        kind!("simple", |c, p| SimpleMutex::new(&c, &p)
            .unwrap()
            .acquire()
            .await
            .unwrap()),
        kind!("semaphore", |c, p| {
            let semaphore = Semaphore::new(&c, &p, 3).unwrap();
            semaphore.acquire(1).await.unwrap()
        }),
        kind!("election", |c, p| {
            let election = LeaderElection::new(&c, &p).unwrap();
            election.campaign().await.unwrap()
        }),
        kind!("queue", |c, p| layout(&c, &p, QueueLayout::Recipes)
            .offer(b"x")
            .await
            .unwrap()),
        kind!("curator", |c, p| layout(&c, &p, QueueLayout::Curator)
            .offer(b"x")
            .await
            .unwrap()),
        kind!("kazoo", |c, p| layout(&c, &p, QueueLayout::Kazoo)
            .offer(b"x")
            .await
            .unwrap()),
        kind!("priority", |c, p| PriorityQueue::new(&c, &p)
            .unwrap()
            .offer(b"x", 5)
            .await
            .unwrap()),
        kind!("delay", |c, p| {
            let queue = DelayQueue::new(&c, &p).unwrap();
            queue.offer(b"x", Duration::ZERO).await.unwrap()
        }),
        kind!("id", |c, p| IdQueue::new(&c, &p)
            .unwrap()
            .offer(b"x", "one")
            .await
            .unwrap()),
        kind!("locking", |c, p| LockingQueue::new(&c, &p)
            .unwrap()
            .offer(b"x")
            .await
            .unwrap()),
        kind!("work", |c, p| WorkQueue::new(&c, &p)
            .unwrap()
            .offer("x")
            .await
            .unwrap()),
        kind!("gate", |c, p| Barrier::new(&c, &p)
            .unwrap()
            .close()
            .await
            .unwrap()),
        kind!("double", |c, p| DoubleBarrier::new(&c, &p, 1)
            .unwrap()
            .enter()
            .await
            .unwrap()),
        kind!("latch", |c, p| {
            let latch = CountdownLatch::new(&c, &p, 2).unwrap();
            latch.count_down("a").await.unwrap()
        }),
        kind!("group", |c, p| {
            let registration = Membership::new(&c, &p).unwrap().join("web-1", b"").unwrap();
            registration.registered().await.unwrap();
            registration
        }),
        kind!("counter", |c, p| Counter::new(&c, &p)
            .unwrap()
            .add(3)
            .await
            .unwrap()),
        kind!("value", |c, p| SharedValue::new(&c, &p)
            .unwrap()
            .set(b"red")
            .await
            .unwrap()),
    ]
}

const SOON: Duration = Duration::from_millis(300);

fn uses() -> Vec<RecipeUse> {
    vec![
        operation!(
            "mutex",
            &[
                "semaphore",
                "locking",
                "work",
                "gate",
                "latch",
                "group",
                "counter",
                "value",
                "mutex"
            ],
            |c, p| Mutex::new(&c, &p).unwrap().try_acquire().await
        ),
        operation!(
            "reader",
            &[
                "semaphore",
                "locking",
                "work",
                "gate",
                "latch",
                "group",
                "counter",
                "value",
                "reader"
            ],
            |c, p| RwLock::new(&c, &p).unwrap().try_read().await
        ),
        operation!(
            "simple",
            &[
                "semaphore",
                "locking",
                "work",
                "gate",
                "latch",
                "group",
                "counter",
                "value",
                "simple"
            ],
            |c, p| SimpleMutex::new(&c, &p).unwrap().try_acquire().await
        ),
        operation!("semaphore", &["semaphore", "group", "counter"], |c, p| {
            Semaphore::new(&c, &p, 3).unwrap().try_acquire(1).await
        }),
        operation!(
            "election",
            &[
                "semaphore",
                "locking",
                "work",
                "gate",
                "latch",
                "group",
                "counter",
                "value",
                "election"
            ],
            |c, p| LeaderElection::new(&c, &p).unwrap().try_campaign().await
        ),
        operation!(
            "queue poll",
            &["gate", "group", "counter", "value", "queue"],
            |c, p| layout(&c, &p, QueueLayout::Recipes).poll().await
        ),
        operation!(
            "queue offer",
            &["group", "counter", "value", "queue"],
            |c, p| layout(&c, &p, QueueLayout::Recipes).offer(b"y").await
        ),
        operation!(
            "curator poll",
            &["gate", "group", "counter", "value", "curator", "priority"],
            |c, p| layout(&c, &p, QueueLayout::Curator).poll().await
        ),
        operation!(
            "kazoo poll",
            &["gate", "group", "counter", "value", "kazoo"],
            |c, p| layout(&c, &p, QueueLayout::Kazoo).poll().await
        ),
        operation!(
            "priority poll",
            &["gate", "group", "counter", "value", "priority"],
            |c, p| PriorityQueue::new(&c, &p).unwrap().poll().await
        ),
        operation!(
            "delay poll",
            &[
                "gate", "group", "counter", "value", "curator", "priority", "delay"
            ],
            |c, p| DelayQueue::new(&c, &p).unwrap().poll().await
        ),
        operation!(
            "id poll",
            &[
                "gate", "group", "counter", "value", "curator", "priority", "delay", "id"
            ],
            |c, p| IdQueue::new(&c, &p).unwrap().poll().await
        ),
        operation!(
            "locking poll",
            &["group", "counter", "value", "locking"],
            |c, p| LockingQueue::new(&c, &p).unwrap().poll().await
        ),
        operation!(
            "locking offer",
            &["group", "counter", "value", "locking"],
            |c, p| LockingQueue::new(&c, &p).unwrap().offer(b"y").await
        ),
        operation!("work poll", &["work"], |c, p| WorkQueue::new(&c, &p)
            .unwrap()
            .poll()
            .await),
        operation!("work offer", &["work"], |c, p| WorkQueue::new(&c, &p)
            .unwrap()
            .offer("y")
            .await),
        operation!("gate close", &["gate", "counter", "value"], |c, p| {
            Barrier::new(&c, &p).unwrap().close().await
        }),
        operation!("gate open", &["gate", "counter", "value"], |c, p| {
            Barrier::new(&c, &p).unwrap().open().await
        }),
        operation!("gate wait", &["gate", "counter", "value"], |c, p| {
            Barrier::new(&c, &p).unwrap().wait_timeout(SOON).await
        }),
        operation!("double", &["double"], |c, p| DoubleBarrier::new(&c, &p, 2)
            .unwrap()
            .enter_timeout(SOON)
            .await),
        operation!("latch left", &["latch"], |c, p| CountdownLatch::new(
            &c, &p, 3
        )
        .unwrap()
        .left()
        .await),
        operation!("latch count", &["latch"], |c, p| CountdownLatch::new(
            &c, &p, 3
        )
        .unwrap()
        .count_down("b")
        .await),
        operation!("counter add", &["counter", "value", "group"], |c, p| {
            Counter::new(&c, &p).unwrap().add(1).await
        }),
        operation!("counter set", &["counter", "value", "group"], |c, p| {
            Counter::new(&c, &p).unwrap().set(9).await
        }),
        operation!("value set", &["counter", "value", "group"], |c, p| {
            SharedValue::new(&c, &p).unwrap().set(b"9").await
        }),
    ]
}

/// The nodes at a path and below it, but receipts, which come and go with sessions.
async fn content(stage: &Stage, path: &str) -> Vec<(String, Vec<u8>)> {
    let nodes = inspect::tree(stage.addr, path).await.unwrap();
    let nodes = nodes
        .into_iter()
        .filter(|node| !node.path.contains("__receipts__"));
    nodes
        .map(|node| (node.path, node.data.unwrap_or_default().to_vec()))
        .collect()
}

async fn refused_by_name(kind: Kind) {
    let stage = Stage::new("kinds").await;
    for one in uses() {
        if one.beside.contains(&kind.name) {
            continue;
        }
        let path = format!("{}/{}", stage.path, one.name.replace(' ', "-"));
        let (maker, user) = (stage.client().await, stage.client().await);
        let kept = within((kind.make)(maker, path.clone())).await;
        let before = content(&stage, &path).await;
        let pair = format!("{} at the path of a {}", one.name, kind.name);
        let refusal = match within((one.run)(user, path.clone())).await {
            Err(refusal) => refusal,
            Ok(()) => panic!("{pair}: not refused"),
        };
        assert!(refusal.contains(&path), "{pair}: {refusal}");
        assert!(!refusal.contains("within"), "{pair}: {refusal}");
        assert_eq!(content(&stage, &path).await, before, "{pair}: {refusal}");
        drop(kept);
    }
}

#[tokio::test]
async fn a_recipe_at_the_path_of_another_is_refused_by_name_and_changes_nothing() {
    let mut kinds: tokio::task::JoinSet<()> = kinds().into_iter().map(refused_by_name).collect();
    while let Some(kind) = kinds.join_next().await {
        kind.unwrap();
    }
}
