//! Reports of a wait whose time is up: who holds, or that no server answers (H50). A release whose
//! answer was lost can be awaited until it is certain (H07).

use std::time::Duration;

use baton::barrier::BarrierError;
use baton::election::ElectionError;
use baton::error::WaitReason;
use baton::guard::ReleaseError;
use baton::lock::{LockError, OwnerId, SimpleMutex};
use baton::queue::{LockingQueue, QueueError};
use baton::semaphore::SemaphoreError;
use baton::work_queue::WorkError;
use baton::{
    Barrier, Client, CountdownLatch, DistributedQueue, DoubleBarrier, LeaderElection, MultiLock,
    Mutex, ReentrantMutex, RwLock, Semaphore, WorkQueue,
};
use baton_client::OpCode;
use baton_testkit::{Action, Match};

use crate::common::{CUTS, LONG, Outage, Stage, within};

/// Long enough for many answers of a server that runs.
const LIMIT: Duration = Duration::from_millis(1500);

macro_rules! lacks {
    ($wait:expr, $error:ident) => {{
        let error = within($wait).await.map(drop).unwrap_err();
        let text = error.to_string();
        match error {
            $error::TimedOut { waited_for, .. } => (waited_for, text),
            other => panic!("{other}"),
        }
    }};
}

/// The wait reason of each wait of the library that ends now. Those that come first have been used
/// by nobody.
async fn all_waits(
    client: &Client,
    path: &str,
    limit: Duration,
) -> Vec<(&'static str, WaitReason, String)> {
    let at = |name: &str| format!("{path}/{name}");
    let mut all = Vec::new();
    let mut add = |name, (waited_for, text)| all.push((name, waited_for, text));
    let mutex = Mutex::new(client, &at("mutex")).unwrap();
    add("mutex", lacks!(mutex.acquire_timeout(limit), LockError));
    let simple = SimpleMutex::new(client, &at("simple")).unwrap();
    add("simple", lacks!(simple.acquire_timeout(limit), LockError));
    let reentrant = ReentrantMutex::new(client, &at("reentrant")).unwrap();
    let owner = OwnerId::unique();
    let wait = reentrant.acquire_timeout(&owner, limit);
    add("reentrant", lacks!(wait, LockError));
    let lock = RwLock::new(client, &at("rw")).unwrap();
    add("read", lacks!(lock.read_timeout(limit), LockError));
    add("write", lacks!(lock.write_timeout(limit), LockError));
    let multi = MultiLock::new(client, [at("mutex"), at("b")]).unwrap();
    add("multi", lacks!(multi.acquire_timeout(limit), LockError));
    let semaphore = Semaphore::new(client, &at("semaphore"), 1).unwrap();
    let wait = semaphore.acquire_timeout(1, limit);
    add("semaphore", lacks!(wait, SemaphoreError));
    let election = LeaderElection::new(client, &at("election")).unwrap();
    let wait = election.campaign_timeout(limit);
    add("election", lacks!(wait, ElectionError));
    let queue = DistributedQueue::new(client, &at("queue")).unwrap();
    add("queue", lacks!(queue.take_timeout(limit), QueueError));
    let queue = LockingQueue::new(client, &at("locking")).unwrap();
    add("locking", lacks!(queue.take_timeout(limit), QueueError));
    let queue = WorkQueue::new(client, &at("work")).unwrap();
    add("work", lacks!(queue.take_timeout(limit), WorkError));
    let barrier = Barrier::new(client, &at("gate")).unwrap();
    add("gate", lacks!(barrier.wait_timeout(limit), BarrierError));
    let latch = CountdownLatch::new(client, &at("latch"), 2).unwrap();
    add("latch", lacks!(latch.wait_timeout(limit), BarrierError));
    all
}

#[tokio::test]
async fn h50_a_wait_that_ends_without_servers_blames_nobody_else() {
    for away in [Outage::Silent, Outage::Refusing] {
        let stage = Stage::new("away").await;
        let (client, proxy) = stage.proxied(LONG).await;
        crate::common::session(&client).await;
        away.begin(&client, &proxy).await;
        for (name, waited_for, text) in all_waits(&client, &stage.path, LIMIT).await {
            assert!(
                matches!(waited_for, WaitReason::Servers { silent_for } if silent_for >= LIMIT / 2),
                "{away:?} {name}: {text}"
            );
            assert!(text.contains("no server has answered"), "{name}: {text}");
        }
        let double = DoubleBarrier::new(&client, &stage.path, 2).unwrap();
        let (waited_for, text) = lacks!(double.enter_timeout(LIMIT), BarrierError);
        assert!(!waited_for.is_others(), "{away:?}: {text}");
    }
}

#[tokio::test]
async fn h50_a_wait_that_ends_behind_a_holder_names_it() {
    let stage = Stage::new("held").await;
    let (client, other) = (stage.client().await, stage.client().await);
    let at = |name: &str| format!("{}/{name}", stage.path);
    let mutex = Mutex::new(&other, &at("mutex")).unwrap();
    let simple = SimpleMutex::new(&other, &at("simple")).unwrap();
    let reentrant = Mutex::new(&other, &at("reentrant")).unwrap();
    let lock = RwLock::new(&other, &at("rw")).unwrap();
    let semaphore = Semaphore::new(&other, &at("semaphore"), 1).unwrap();
    let election = LeaderElection::new(&other, &at("election")).unwrap();
    let gate = Barrier::new(&other, &at("gate")).unwrap();
    let held = within(mutex.acquire()).await.unwrap();
    let simple = within(simple.acquire()).await.unwrap();
    let reentrant = within(reentrant.acquire()).await.unwrap();
    let writer = within(lock.write()).await.unwrap();
    let _permit = within(semaphore.acquire(1)).await.unwrap();
    let leadership = within(election.campaign()).await.unwrap();
    within(gate.close()).await.unwrap();
    let holder = |name: &str| match name {
        "mutex" => Some(held.node().to_owned()),
        "simple" => Some(simple.node().to_owned()),
        "reentrant" => Some(reentrant.node().to_owned()),
        "read" | "write" => Some(writer.node().to_owned()),
        "election" => Some(leadership.node().to_owned()),
        _ => None,
    };
    for (name, waited_for, text) in all_waits(&client, &stage.path, LIMIT).await {
        let expected = WaitReason::Others {
            holder: holder(name),
        };
        assert_eq!(waited_for, expected, "{name}: {text}");
        assert!(!text.contains("no server"), "{name}: {text}");
    }
    // Too short for an answer, mostly: no server is blamed for that.
    for (name, waited_for, text) in all_waits(&client, &stage.path, Duration::ZERO).await {
        assert!(
            waited_for.is_others() || waited_for == WaitReason::Answer,
            "{name}: {text}"
        );
        assert!(!text.contains("no server"), "{name}: {text}");
    }
}

#[tokio::test]
async fn h50_a_second_waiter_names_the_holder_and_not_the_waiter_before_it() {
    let stage = Stage::new("second").await;
    let mutex = crate::common::mutex(&stage.client().await, &stage.path);
    let held = within(mutex.acquire()).await.unwrap();
    let first = crate::common::mutex(&stage.client().await, &stage.path);
    let first = tokio::spawn(async move { first.acquire().await.map(drop) });
    stage.until_children(2).await;
    let second = crate::common::mutex(&stage.client().await, &stage.path);
    let (waited_for, text) = lacks!(second.acquire_timeout(LIMIT), LockError);
    let holder = Some(held.node().to_owned());
    assert_eq!(waited_for, WaitReason::Others { holder }, "{text}");
    assert!(text.contains(held.node()), "{text}");
    drop(held);
    within(first).await.unwrap().unwrap();
}

#[tokio::test]
async fn h07_a_release_can_be_awaited_until_it_is_certain() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Delete), Match::reply(OpCode::Delete)] {
            let stage = Stage::new("certain").await;
            let (client, proxy) = stage.proxied(LONG).await;
            let mutex = crate::common::mutex(&client, &stage.path);
            let guard = within(mutex.acquire()).await.unwrap();
            let id = crate::common::session(&client).await.id();
            let cut = proxy.on(message).then(Action::Cut(variant));
            let releasing = tokio::spawn(guard.release().confirmed());
            within(cut.fired()).await;
            proxy.heal();
            within(releasing).await.unwrap().unwrap();
            assert!(stage.children().await.is_empty(), "{variant:?}");
            assert_eq!(
                crate::common::session(&client).await.id(),
                id,
                "{variant:?}"
            );
        }
    }
}

#[tokio::test]
async fn h07_a_release_of_a_session_that_ends_first_says_so() {
    let stage = Stage::new("ended").await;
    let (client, proxy) = stage.proxied(crate::common::SHORT).await;
    let mutex = crate::common::mutex(&client, &stage.path);
    let guard = within(mutex.acquire()).await.unwrap();
    let node = guard.node().to_owned();
    proxy.partition();
    let ended = within(guard.release().confirmed()).await;
    assert_eq!(ended, Err(ReleaseError::SessionEnded { node }));
}
