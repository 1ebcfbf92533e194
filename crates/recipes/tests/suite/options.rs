//! Options at their limits: refused by name by the first operation, or kept as they are. None is
//! changed in silence.

use std::fmt::Display;
use std::time::Duration;

use baton::lock::LockError;
use baton::queue::{LockingQueue, PriorityQueue, QueueLayout};
use baton::tree::{Acl, Perms};
use baton::work_queue::WorkError;
use baton::{
    Barrier, Client, Config, CountdownLatch, DoubleBarrier, Mutex, Semaphore, TreeCache, WorkQueue,
};

use crate::common::{Stage, session, within};

fn work(client: &Client, path: &str) -> WorkQueue {
    WorkQueue::new(client, path).unwrap()
}

#[track_caller]
fn names<T, E: Display>(outcome: Result<T, E>, path: &str, option: &str) {
    let text = outcome.map(drop).map_err(|error| error.to_string());
    let text = text.unwrap_err();
    assert!(
        text.contains(path) && text.contains(option),
        "{option}: {text}"
    );
    assert!(!text.contains('\n'), "{text}");
}

#[tokio::test]
async fn options_of_a_work_queue_that_cannot_be_are_refused_by_every_operation_before_it_is_sent() {
    let stage = Stage::new("options").await;
    let client = &stage.client().await;
    let path = &*stage.path;
    let open = [Acl::new(Perms::ALL, "world", "anyone")];
    for (option, queue) in [
        ("capacity", work(client, path).capacity(0)),
        ("visibility", work(client, path).visibility(Duration::ZERO)),
        (
            "max_attempts",
            work(client, path).max_attempts(0).acl(&open),
        ),
        ("prefetch", work(client, path).prefetch(0)),
        ("prefetch", work(client, path).prefetch(65)),
    ] {
        names(within(queue.offer("x")).await, path, option);
        names(within(queue.poll()).await, path, option);
        names(within(queue.take_many(1)).await, path, option);
        names(within(queue.depth()).await, path, option);
        names(within(queue.dead_letters()).await, path, option);
    }
    let queue = work(client, path);
    names(within(queue.take_many(0)).await, path, "take_many");
    names(within(queue.set_capacity(Some(0))).await, path, "capacity");
    let idle = |_| async { Ok::<(), WorkError>(()) };
    let run = queue.run(0, idle, std::future::pending());
    names(within(run).await.map(|_| ()), path, "handlers");
    assert!(session(client).await.exists(path).await.unwrap().is_none());
}

#[tokio::test]
async fn the_last_call_of_an_option_counts_and_the_largest_values_are_kept() {
    let stage = Stage::new("largest").await;
    let client = &stage.client().await;
    let queue = work(client, &stage.path)
        .max_attempts(0)
        .max_attempts(u32::MAX)
        .prefetch(0)
        .prefetch(64)
        .capacity(u64::MAX)
        .visibility(Duration::MAX)
        .backoff(Duration::MAX, Duration::MAX);
    within(queue.offer("x")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    assert_eq!(claim.check(), Ok(()));
    within(claim.ack()).await.unwrap();
}

#[tokio::test]
async fn other_options_that_cannot_be_are_refused_by_the_first_operation() {
    let stage = Stage::new("others").await;
    let client = &stage.client().await;
    let path = &*stage.path;
    let delayed = Mutex::new(client, path).unwrap().lock_delay(Duration::MAX);
    for outcome in [
        within(delayed.acquire()).await.map(drop),
        within(delayed.try_acquire()).await.map(drop),
        within(delayed.acquire_timeout(Duration::from_secs(1)))
            .await
            .map(drop),
    ] {
        assert!(
            matches!(outcome, Err(LockError::LockDelay { .. })),
            "{outcome:?}"
        );
    }
    let urgent = PriorityQueue::new(client, path)
        .unwrap()
        .layout(QueueLayout::Recipes);
    names(within(urgent.offer(b"x", 1)).await, path, "qn");
    names(within(urgent.poll()).await, path, "qn");
    let locking = LockingQueue::new(client, path)
        .unwrap()
        .curator_layout(path);
    names(within(locking.offer(b"x")).await, path, "lock path");
    names(within(locking.poll()).await.map(drop), path, "lock path");
    for steps in [0, usize::MAX] {
        let cache = TreeCache::builder(client, path).unwrap().backlog(steps);
        names(cache.start(), path, "backlog");
    }
    for permits in [0, u32::MAX] {
        let semaphore = Semaphore::new(client, path, 3).unwrap();
        names(
            within(semaphore.acquire(permits)).await.map(drop),
            path,
            "permit",
        );
    }
    names(Semaphore::new(client, path, 0), path, "permits");
    for count in [0, u32::MAX] {
        names(DoubleBarrier::new(client, path, count), path, "number");
        names(CountdownLatch::new(client, path, count), path, "number");
    }
    assert!(
        !within(
            Barrier::new(client, &format!("{path}/gate"))
                .unwrap()
                .is_closed()
        )
        .await
        .unwrap()
    );
}

#[tokio::test]
async fn options_of_a_session_that_cannot_be_are_refused_before_a_server_is_asked() {
    let config = || Config::new("127.0.0.1:1").unwrap();
    for (option, config) in [
        ("session_timeout", config().session_timeout(Duration::ZERO)),
        ("connect_timeout", config().connect_timeout(Duration::ZERO)),
        ("connect_within", config().connect_within(Duration::ZERO)),
        (
            "new_session_within",
            config().new_session_within(Duration::ZERO),
        ),
        ("max_pending", config().max_pending(0, 1)),
        ("max_pending", config().max_pending(1, 0)),
        ("max_request_bytes", config().max_request_bytes(0)),
        ("max_reply_bytes", config().max_reply_bytes(0)),
        ("watch_capacity", config().watch_capacity(0)),
        ("chroot", config().chroot("app")),
        ("chroot", config().chroot("/a//b")),
    ] {
        let refused = within(Client::connect(config)).await.unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(option), "{option}: {text}");
        assert!(!text.contains("127.0.0.1"), "{option}: {text}");
    }
}
