//! Common properties of the types (`docs/user/recipes.md`): what every handle, guard, stream and
//! error can be relied on for.
//!
//! Most of it is decided by the compiler: what does not hold does not build.

use std::error::Error;
use std::fmt::Debug;
use std::ops::Deref;
use std::time::Duration;

use baton::barrier::{BarrierEntry, BarrierError};
use baton::cache::{CacheError, CacheEvents, TreeCacheBuilder};
use baton::election::{ElectionError, Observer, StageStream};
use baton::fence::StaleToken;
use baton::guard::{GuardStatus, PendingRelease, ReleaseError, TxnError};
use baton::lock::{
    LockError, MultiGuard, OwnerId, ReadGuard, ReentrantGuard, SimpleMutex, WriteGuard,
};
use baton::membership::{GroupView, MemberError, PersistentNode, Registration};
use baton::naming::UnknownDialect;
use baton::partition::{Partition, PartitionError};
use baton::queue::{DelayQueue, IdQueue, LockedItem, LockingQueue, PriorityQueue, QueueError};
use baton::semaphore::SemaphoreError;
use baton::value::{Numbers, ValueError, Values};
use baton::work_queue::{Claim, WorkError, WorkItem};
use baton::{
    Barrier, Client, CountdownLatch, Counter, DistributedQueue, DoubleBarrier, Fence, Guard,
    LeaderElection, Leadership, LostReason, Membership, MultiLock, Mutex, Partitioner,
    ReentrantMutex, RwLock, Semaphore, SharedValue, TreeCache, WorkQueue,
};

use crate::common::{Stage, within};

/// A handle that a program makes once and hands to its tasks.
const fn handle<T: Clone + Debug + Send + Sync + Unpin + 'static>() {}

/// A guard: not cloned, moved anywhere.
const fn guard<T: Debug + Send + Sync + Unpin + 'static>() {}

/// A type that derefs to a guard.
const fn guard_of_its_kind<T: Deref<Target = Guard> + Debug + Send + Sync + Unpin + 'static>() {}

/// A stream, polled by one task.
const fn stream<T: Debug + Send + Sync + Unpin + 'static>() {}

/// A future that any task may await.
const fn awaited<T: Future + Debug + Send + Unpin + 'static>() {}

const fn error<T: Error + Clone + PartialEq + Send + Sync + Unpin + 'static>() {}

const _: () = {
    handle::<Mutex>();
    handle::<ReentrantMutex>();
    handle::<SimpleMutex>();
    handle::<RwLock>();
    handle::<MultiLock>();
    handle::<Semaphore>();
    handle::<LeaderElection>();
    handle::<Barrier>();
    handle::<DoubleBarrier>();
    handle::<CountdownLatch>();
    handle::<DistributedQueue>();
    handle::<PriorityQueue>();
    handle::<DelayQueue>();
    handle::<IdQueue>();
    handle::<LockingQueue>();
    handle::<WorkQueue>();
    handle::<Membership>();
    handle::<TreeCache>();
    handle::<TreeCacheBuilder>();
    handle::<Counter>();
    handle::<SharedValue>();
    handle::<Partitioner>();
    handle::<GuardStatus>();
    handle::<WorkItem>();

    guard::<Guard>();
    guard::<MultiGuard>();
    guard::<Claim>();
    guard::<LockedItem>();
    guard::<BarrierEntry>();
    guard::<Registration>();
    guard::<PersistentNode>();
    guard::<Partition>();
    guard::<Fence>();
    awaited::<PendingRelease>();
    guard_of_its_kind::<ReadGuard>();
    guard_of_its_kind::<WriteGuard>();
    guard_of_its_kind::<ReentrantGuard>();
    guard_of_its_kind::<Leadership>();

    stream::<StageStream>();
    stream::<Observer>();
    stream::<GroupView>();
    stream::<CacheEvents>();
    stream::<Values>();
    stream::<Numbers>();

    error::<LockError>();
    error::<ReleaseError>();
    error::<TxnError>();
    error::<SemaphoreError>();
    error::<ElectionError>();
    error::<BarrierError>();
    error::<QueueError>();
    error::<WorkError>();
    error::<MemberError>();
    error::<CacheError>();
    error::<ValueError>();
    error::<PartitionError>();
    error::<StaleToken>();
    error::<UnknownDialect>();
};

/// Every waiting future may be spawned.
fn spawned<T: Send>(_: impl Future<Output = T> + Send) {}

/// The three ways to ask, of each that has something to be had: wait, do not wait, wait so long.
macro_rules! asked {
    ($($of:expr => $wait:ident, $now:ident, $limited:ident ($($given:expr),*);)*) => {
        $(
            spawned($of.$wait($($given),*));
            spawned($of.$now($($given),*));
            spawned($of.$limited($($given,)* Duration::ZERO));
        )*
    };
}

/// The answers of every guard.
macro_rules! answers {
    ($($guard:expr),* $(,)?) => {
        $({
            let guard = &$guard;
            let _: Result<(), LostReason> = guard.check();
            let _: Duration = guard.remaining();
            let _: GuardStatus = guard.status();
            let _ = guard.session();
            let _ = guard.txn();
            spawned::<LostReason>(guard.lost());
            spawned(guard.run(async {}));
        })*
    };
}

/// Never run: that it builds is the test.
#[allow(dead_code)]
async fn each_is_asked_in_the_same_way(client: Client, me: OwnerId) -> Result<(), Box<dyn Error>> {
    let path = "/alike";
    asked! {
        Mutex::new(&client, path)? => acquire, try_acquire, acquire_timeout();
        SimpleMutex::new(&client, path)? => acquire, try_acquire, acquire_timeout();
        ReentrantMutex::new(&client, path)? => acquire, try_acquire, acquire_timeout(&me);
        MultiLock::new(&client, [path])? => acquire, try_acquire, acquire_timeout();
        Semaphore::new(&client, path, 3)? => acquire, try_acquire, acquire_timeout(2);
        RwLock::new(&client, path)? => read, try_read, read_timeout();
        RwLock::new(&client, path)? => write, try_write, write_timeout();
        LeaderElection::new(&client, path)? => campaign, try_campaign, campaign_timeout();
        DistributedQueue::new(&client, path)? => take, poll, take_timeout();
        PriorityQueue::new(&client, path)? => take, poll, take_timeout();
        DelayQueue::new(&client, path)? => take, poll, take_timeout();
        IdQueue::new(&client, path)? => take, poll, take_timeout();
        LockingQueue::new(&client, path)? => take, poll, take_timeout();
        WorkQueue::new(&client, path)? => take, poll, take_timeout();
        Barrier::new(&client, path)? => wait, is_closed, wait_timeout();
        CountdownLatch::new(&client, path, 2)? => wait, left, wait_timeout();
    }
    answers![
        Mutex::new(&client, path)?.acquire().await?,
        Semaphore::new(&client, path, 3)?.acquire(1).await?,
        ReentrantMutex::new(&client, path)?.acquire(&me).await?,
        RwLock::new(&client, path)?.read().await?,
        RwLock::new(&client, path)?.write().await?,
        MultiLock::new(&client, [path])?.acquire().await?,
        LeaderElection::new(&client, path)?.campaign().await?,
        LockingQueue::new(&client, path)?.take().await?,
        WorkQueue::new(&client, path)?.take().await?,
    ];
    Ok(())
}

#[tokio::test]
async fn h50_a_take_that_is_given_up_after_its_limit_says_so_and_loses_nothing() {
    let stage = Stage::new("limit").await;
    let client = stage.client().await;
    let limit = Duration::from_millis(30);
    macro_rules! gives_up {
        ($($queue:expr => $timed_out:pat, $offer:expr;)*) => {
            $({
                let queue = $queue;
                let error = within(queue.take_timeout(limit)).await.unwrap_err();
                assert!(matches!(&error, $timed_out), "{error}");
                assert!(error.to_string().starts_with(queue.path()), "{error}");
                let offer = $offer;
                within(offer(&queue)).await.unwrap();
                drop(within(queue.take_timeout(Duration::from_secs(30))).await.unwrap());
            })*
        };
    }
    let path = |name: &str| format!("{}-{name}", stage.path);
    gives_up! {
        DistributedQueue::new(&client, &path("fifo")).unwrap()
            => QueueError::TimedOut { .. }, async |queue: &DistributedQueue| queue.offer(b"x").await;
        PriorityQueue::new(&client, &path("priority")).unwrap()
            => QueueError::TimedOut { .. }, async |queue: &PriorityQueue| queue.offer(b"x", 1).await;
        DelayQueue::new(&client, &path("delay")).unwrap()
            => QueueError::TimedOut { .. }, async |queue: &DelayQueue| queue.offer(b"x", limit).await;
        IdQueue::new(&client, &path("id")).unwrap()
            => QueueError::TimedOut { .. }, async |queue: &IdQueue| queue.offer(b"x", "one").await;
        LockingQueue::new(&client, &path("locking")).unwrap()
            => QueueError::TimedOut { .. }, async |queue: &LockingQueue| queue.offer(b"x").await;
        WorkQueue::new(&client, &path("work")).unwrap()
            => WorkError::TimedOut { .. }, async |queue: &WorkQueue| queue.offer("x").await;
    }
}
