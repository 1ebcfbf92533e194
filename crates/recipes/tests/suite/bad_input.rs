//! Arguments that no recipe accepts: a typed error each, with nothing left behind and the session
//! unharmed. What is peculiar to one recipe is tested with it.

use std::fmt::{Debug, Display};
use std::time::Duration;

use baton::election::ElectionError;
use baton::guard::TxnError;
use baton::lock::{LockError, OwnerId, SimpleMutex};
use baton::membership::PersistentNode;
use baton::partition::PartitionEvent;
use baton::queue::{DelayQueue, IdQueue, LockingQueue, PriorityQueue, QueueError};
use baton::semaphore::SemaphoreError;
use baton::work_queue::WorkError;
use baton::{
    Barrier, Client, Config, CountdownLatch, DistributedQueue, DoubleBarrier, LeaderElection,
    LostReason, MultiLock, Partitioner, ReentrantMutex, RwLock, Semaphore, SharedValue, TreeCache,
    WorkQueue,
};
use baton_client::{CreateMode, LeaseError, LeaseMode, LeaseOptions};
use baton_testkit::{Match, Proxy, inspect};

use crate::common::{LONG, SHORT, Stage, mutex, session, within};

/// More than a node can hold.
const TOO_MUCH: usize = 2 << 20;

/// The text of a refusal, which has to be one line.
#[track_caller]
fn refusal<T: Debug, E: Display>(outcome: Result<T, E>) -> String {
    let text = outcome.map_err(|error| error.to_string()).unwrap_err();
    assert!(!text.contains('\n'), "{text}");
    text
}

#[tokio::test]
async fn a_path_that_breaks_the_rules_is_refused_by_every_recipe_before_anything_is_sent() {
    let stage = Stage::new("paths").await;
    let client = &stage.client().await;
    for bad in ["", "relative", "/a//b", "/a/", "/a/./b", "/a/../b", "/a\0b"] {
        let of_two = [stage.path.as_str(), bad];
        let of_curator = LockingQueue::new(client, "/items").unwrap();
        let of_curator = of_curator.curator_layout(bad);
        let refusals = [
            refusal(baton::Mutex::new(client, bad)),
            refusal(SimpleMutex::new(client, bad)),
            refusal(ReentrantMutex::new(client, bad)),
            refusal(RwLock::new(client, bad)),
            refusal(Semaphore::new(client, bad, 1)),
            refusal(Semaphore::open(client, bad)),
            refusal(MultiLock::new(client, of_two)),
            refusal(LeaderElection::new(client, bad)),
            refusal(DistributedQueue::new(client, bad)),
            refusal(PriorityQueue::new(client, bad)),
            refusal(DelayQueue::new(client, bad)),
            refusal(IdQueue::new(client, bad)),
            refusal(LockingQueue::new(client, bad)),
            refusal(LockingQueue::new(client, bad)),
            refusal(within(of_curator.offer(b"item")).await),
            refusal(WorkQueue::new(client, bad)),
            refusal(Barrier::new(client, bad)),
            refusal(DoubleBarrier::new(client, bad, 2)),
            refusal(CountdownLatch::new(client, bad, 2)),
            refusal(baton::Counter::new(client, bad)),
            refusal(SharedValue::new(client, bad)),
            refusal(baton::Membership::new(client, bad)),
            refusal(PersistentNode::start(client, bad, b"")),
            refusal(TreeCache::builder(client, bad).map(drop)),
            refusal(Partitioner::new(client, bad, ["item"])),
        ];
        for refusal in refusals {
            assert!(refusal.contains("not a legal path"), "{bad:?}: {refusal}");
        }
    }
    let stat = session(client).await.exists(&stage.path).await.unwrap();
    assert!(stat.is_none());
}

#[tokio::test]
async fn a_session_timeout_too_short_for_a_sound_lease_is_refused_with_the_smallest_that_is_not() {
    let stage = Stage::new("lease").await;
    let path = &*stage.path;
    let lease = LeaseOptions {
        tick: Some(Duration::from_secs(2)),
        mode: LeaseMode::Strict,
        ..LeaseOptions::default()
    };
    let config = Config::new(&stage.addr.to_string()).unwrap();
    let config = config.session_timeout(SHORT).lease(lease);
    let client = &within(Client::connect(config)).await.unwrap();
    let of_lock = |error: LockError| {
        assert!(matches!(error, LockError::Lease { .. }), "{error}");
        assert!(error.to_string().contains("use at least 4s"), "{error}");
    };
    let lock = mutex(client, path);
    of_lock(within(lock.acquire()).await.unwrap_err());
    of_lock(within(lock.try_acquire()).await.unwrap_err());
    let simple = SimpleMutex::new(client, path).unwrap();
    of_lock(within(simple.acquire()).await.unwrap_err());
    let reentrant = ReentrantMutex::new(client, path).unwrap();
    let me = OwnerId::unique();
    of_lock(within(reentrant.acquire(&me)).await.unwrap_err());
    let rw = RwLock::new(client, path).unwrap();
    of_lock(within(rw.read()).await.unwrap_err());
    of_lock(within(rw.write()).await.unwrap_err());
    let several = MultiLock::new(client, [path, "/another"]).unwrap();
    of_lock(within(several.acquire()).await.unwrap_err());
    let semaphore = Semaphore::new(client, path, 1).unwrap();
    match within(semaphore.acquire(1)).await.unwrap_err() {
        SemaphoreError::Lock(error) => of_lock(error),
        error => panic!("{error}"),
    }
    let election = LeaderElection::new(client, path).unwrap();
    match within(election.campaign()).await.unwrap_err() {
        ElectionError::Lock(error) => of_lock(error),
        error => panic!("{error}"),
    }
    let stat = session(client).await.exists(path).await.unwrap();
    assert!(stat.is_none());

    // Queues take items in without a lease, and hand none out.
    let locking = LockingQueue::new(client, &format!("{path}-l")).unwrap();
    within(locking.offer(b"x")).await.unwrap();
    let error = within(locking.take()).await.unwrap_err();
    assert!(matches!(error, QueueError::Lease { .. }), "{error}");
    assert_eq!(within(locking.depth()).await.unwrap(), 1);
    let work = WorkQueue::new(client, &format!("{path}-w")).unwrap();
    within(work.offer("x")).await.unwrap();
    for error in [
        within(work.take()).await.unwrap_err(),
        within(work.poll()).await.unwrap_err(),
    ] {
        assert!(
            matches!(
                error,
                WorkError::Lease {
                    source: LeaseError::TimeoutTooShort { .. },
                    ..
                }
            ),
            "{error}"
        );
    }
    assert!(within(work.claims()).await.unwrap().is_empty());
    let partitioner = Partitioner::new(client, &format!("{path}-p"), ["item"]).unwrap();
    let mut partition = partitioner.join("me").unwrap();
    match within(partition.next()).await.unwrap() {
        PartitionEvent::Failed { error, .. } => of_lock(error),
        other => panic!("{other:?}"),
    }
    within(partition.leave()).await;
}

#[tokio::test]
async fn more_data_than_a_node_holds_is_refused_before_it_is_sent() {
    let stage = Stage::new("large").await;
    let client = stage.client().await;
    let much = vec![b'x'; TOO_MUCH];
    let name = String::from_utf8(much.clone()).unwrap();

    let lock = mutex(&client, &stage.path).name(&name);
    let error = within(lock.acquire()).await.unwrap_err();
    assert!(matches!(error, LockError::Client { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("store less in one node"), "{text}");

    let election = LeaderElection::new(&client, &stage.path).unwrap();
    let error = within(election.data(&much).campaign()).await.unwrap_err();
    assert!(error.to_string().contains("store less"), "{error}");

    let queue = DistributedQueue::new(&client, &format!("{}-q", stage.path)).unwrap();
    let error = within(queue.offer(&much)).await.unwrap_err();
    assert!(matches!(error, QueueError::Client { .. }), "{error}");
    assert_eq!(within(queue.depth()).await.unwrap(), 0);

    let value = SharedValue::new(&client, &format!("{}-v", stage.path)).unwrap();
    let error = within(value.set(&much)).await.unwrap_err();
    assert!(error.to_string().contains("store less"), "{error}");

    stage.until_children(0).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let beside = format!("{}-t", stage.path);
    let large = guard.txn().create(&beside, &much, CreateMode::Persistent);
    let error = within(large.commit()).await.unwrap_err();
    assert!(matches!(error, TxnError::NotApplied { .. }), "{error}");
    assert!(error.to_string().contains("store less"), "{error}");
    assert_eq!(guard.check(), Ok(()));
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn more_data_than_a_node_holds_is_refused_by_the_other_recipes_too() {
    let stage = Stage::new("larger").await;
    let client = &stage.client().await;
    let path = &*stage.path;
    let much = vec![b'x'; TOO_MUCH];
    let name = &String::from_utf8(much.clone()).unwrap();

    let simple = SimpleMutex::new(client, path).unwrap().name(name);
    let rw = RwLock::new(client, path).unwrap().name(name);
    let several = MultiLock::new(client, [path]).unwrap().name(name);
    let semaphore = Semaphore::new(client, path, 1).unwrap().name(name);
    let barrier = DoubleBarrier::new(client, &format!("{path}-b"), 2)
        .unwrap()
        .name(name);
    let ids = IdQueue::new(client, &format!("{path}-i")).unwrap();
    let delayed = DelayQueue::new(client, &format!("{path}-d")).unwrap();
    let urgent = PriorityQueue::new(client, &format!("{path}-u")).unwrap();
    let locking = LockingQueue::new(client, &format!("{path}-l")).unwrap();
    let refusals = [
        refusal(within(simple.acquire()).await),
        refusal(within(rw.read()).await),
        refusal(within(rw.write()).await),
        refusal(within(several.acquire()).await),
        refusal(within(semaphore.acquire(1)).await),
        refusal(within(barrier.enter()).await),
        refusal(within(ids.offer(&much, "id")).await),
        refusal(within(delayed.offer(&much, Duration::ZERO)).await),
        refusal(within(urgent.offer(&much, 1)).await),
        refusal(within(locking.offer(&much)).await),
    ];
    for refusal in refusals {
        assert!(refusal.contains("store less in one node"), "{refusal}");
        assert!(refusal.contains(path), "{refusal}");
    }
    for node in inspect::tree(stage.addr, path).await.unwrap() {
        // Containers and the semaphore's own node, of the number of its permits; no waiter node.
        assert_eq!(node.stat.ephemeral_owner, 0, "{}", node.path);
    }
    assert_eq!(within(ids.depth()).await.unwrap(), 0);
    assert_eq!(within(locking.depth()).await.unwrap(), 0);
}

/// Data that is not ours in a node that others read is no reason to fail, unless the node is to be
/// counted on.
#[tokio::test]
async fn data_that_is_not_ours_is_passed_over_in_a_wait_queue_and_refused_where_it_is_counted_on() {
    let stage = Stage::new("theirs").await;
    let client = stage.client().await;
    let admin = session(&stage.client().await).await;
    let junk = b"\xff{not json";

    let held = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    admin.set_data(held.node(), junk, None).await.unwrap();
    let (lock, first) = (mutex(&client, &stage.path), held.node().to_owned());
    let waiting = tokio::spawn(async move { lock.acquire().await });
    stage.until_children(2).await;
    for node in stage.children().await {
        if node.path != first {
            admin.set_data(&node.path, junk, None).await.unwrap();
        }
    }
    assert_eq!(held.check(), Ok(()));
    within(held.release()).await.unwrap();
    let held = within(waiting).await.unwrap().unwrap();
    within(held.release()).await.unwrap();

    let path = format!("{}-e", stage.path);
    let election = LeaderElection::new(&client, &path).unwrap();
    let terms = format!("{path}-__term__");
    admin
        .create(&terms, junk, CreateMode::Persistent)
        .await
        .unwrap();
    let error = within(election.campaign()).await.unwrap_err();
    assert!(
        matches!(&error, ElectionError::TermNode { node } if *node == terms),
        "{error}"
    );
    crate::common::until_empty(&stage, &path).await;
    assert_eq!(admin.get_data(&terms).await.unwrap().data, &junk[..]);
}

/// A guard is gone with its release; what was made of it before says so.
#[tokio::test]
async fn what_outlives_a_guard_says_that_it_was_released() {
    let stage = Stage::new("released").await;
    let client = stage.client().await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let (status, lost, asked) = (guard.status(), guard.lost(), guard.on_revoke());
    assert_eq!(status.check(), Ok(()));
    assert!(status.remaining() > Duration::ZERO);
    let node = guard.node().to_owned();
    within(guard.release()).await.unwrap();
    assert_eq!(status.check(), Err(LostReason::Released));
    assert_eq!(status.clone().remaining(), Duration::ZERO);
    assert_eq!(within(lost).await, LostReason::Released);
    assert_eq!(within(asked).await, Err(LostReason::Released));
    let left = session(&client).await.exists(&node).await.unwrap();
    assert!(left.is_none());

    let rw = RwLock::new(&client, &format!("{}-rw", stage.path)).unwrap();
    let reader = within(rw.read()).await.unwrap();
    let (status, lost) = (reader.status(), reader.lost());
    within(reader.release()).await.unwrap();
    assert_eq!(status.check(), Err(LostReason::Released));
    assert_eq!(within(lost).await, LostReason::Released);

    let election = LeaderElection::new(&client, &format!("{}-e", stage.path)).unwrap();
    let leadership = within(election.campaign()).await.unwrap();
    let (status, lost) = (leadership.status(), leadership.lost());
    let asked = leadership.on_revoke();
    within(leadership.resign()).await.unwrap();
    assert_eq!(status.check(), Err(LostReason::Released));
    assert_eq!(within(lost).await, LostReason::Released);
    assert_eq!(within(asked).await, Err(LostReason::Released));

    let work = WorkQueue::new(&client, &format!("{}-w", stage.path)).unwrap();
    within(work.offer("x")).await.unwrap();
    let claim = within(work.take()).await.unwrap();
    let lost = claim.lost();
    within(claim.ack()).await.unwrap();
    assert_eq!(within(lost).await, LostReason::Released);

    let locking = LockingQueue::new(&client, &format!("{}-l", stage.path)).unwrap();
    within(locking.offer(b"x")).await.unwrap();
    let item = within(locking.take()).await.unwrap();
    let lost = item.lost();
    within(item.consume()).await.unwrap();
    assert_eq!(within(lost).await, LostReason::Released);
}

#[tokio::test]
async fn a_root_that_does_not_exist_is_reported_by_every_recipe_that_would_write_there() {
    let stage = Stage::new("chroot").await;
    let proxy = Proxy::start_recording(stage.addr).await.unwrap();
    let root = format!("{}/root", stage.path);
    let config = Config::new(&format!("{}{root}", proxy.addr())).unwrap();
    // It is there at first: a client refuses one that is not.
    let admin = stage.occupied().await;
    within(admin.create(&root, b"", CreateMode::Persistent))
        .await
        .unwrap();
    let connecting = Client::connect(config.session_timeout(LONG));
    let client = &within(connecting).await.unwrap();
    for node in [&root, &stage.path] {
        within(admin.delete(node, None)).await.unwrap();
    }
    let semaphore = Semaphore::new(client, "/a", 2).unwrap();
    let work = WorkQueue::new(client, "/a").unwrap();
    let refusals = [
        refusal(within(mutex(client, "/a").acquire()).await),
        refusal(within(RwLock::new(client, "/a").unwrap().read()).await),
        refusal(within(semaphore.acquire(1)).await),
        refusal(within(semaphore.resize(3)).await),
        refusal(within(work.offer("x")).await),
        refusal(within(work.poll()).await),
        refusal(within(work.set_capacity(Some(1))).await),
        refusal(within(DistributedQueue::new(client, "/a").unwrap().take()).await),
        refusal(within(LockingQueue::new(client, "/a").unwrap().take()).await),
        refusal(within(SharedValue::new(client, "/a").unwrap().set(b"x")).await),
        refusal(within(Barrier::new(client, "/a").unwrap().close()).await),
        refusal(within(DoubleBarrier::new(client, "/a", 1).unwrap().enter()).await),
        refusal(within(CountdownLatch::new(client, "/a", 1).unwrap().left()).await),
    ];
    for refusal in refusals {
        assert!(refusal.contains("NoNode"), "{refusal}");
    }
    assert!(proxy.count(&Match::any_request()) < 150);
}

#[tokio::test]
async fn a_bare_node_that_was_written_to_becomes_a_work_queue_like_any_other() {
    let stage = Stage::new("bare").await;
    let client = stage.client().await;
    let session = stage.occupied().await;
    within(session.set_data(&stage.path, b"", None))
        .await
        .unwrap();
    let work = WorkQueue::new(&client, &stage.path).unwrap();
    within(work.offer("x")).await.unwrap();
    within(within(work.take()).await.unwrap().ack())
        .await
        .unwrap();
}
