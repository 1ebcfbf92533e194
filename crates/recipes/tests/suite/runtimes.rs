//! Programs whose calls do not all run on one runtime: a runtime per call, a runtime that ends with
//! an operation under way, no runtime at all, a process that ends at once.

use std::any::Any;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use baton::barrier::{Barrier, CountdownLatch, DoubleBarrier};
use baton::blocking::Blocking;
use baton::lock::{OwnerId, SimpleMutex};
use baton::queue::LockingQueue;
use baton::work_queue::Claim;
use baton::{
    Client, Config, Counter, DistributedQueue, LeaderElection, LostReason, Membership, MultiLock,
    Mutex, ReentrantMutex, RwLock, Semaphore, SharedValue, TreeCache, WorkQueue,
};
use baton_client::{CreateMode, EndReason};
use baton_testkit::{Action, Fault, Match, Proxy};

use crate::common::{LONG, SHORT, Stage, connect, mutex, session, within};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Polls that most operations of these tests need at most.
const MOST_POLLS: usize = 14;

/// The moment at which the runtime of a call ends.
enum RuntimeEnd {
    /// After this number of polls of the call.
    Polls(usize),
    /// Time at which this frame is on the wire, which is held back until the runtime has ended.
    Frame(Fault),
}

/// Runs `work` on a runtime of its own, which ends at `end`, with whatever was started on it. The
/// output, if there was one by then.
async fn on_a_runtime_that_ends<T: Send + 'static>(
    end: RuntimeEnd,
    work: impl FnOnce() -> BoxFuture<T> + Send + 'static,
) -> Option<T> {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let output = runtime.block_on(async {
            let mut work = work();
            match &end {
                RuntimeEnd::Polls(polls) => {
                    let mut left = *polls;
                    poll_fn(|context| {
                        if let Poll::Ready(output) = work.as_mut().poll(context) {
                            return Poll::Ready(Some(output));
                        }
                        left -= 1;
                        if left == 0 {
                            Poll::Ready(None)
                        } else {
                            Poll::Pending
                        }
                    })
                    .await
                }
                RuntimeEnd::Frame(frame) => tokio::select! {
                    biased;
                    output = work => Some(output),
                    _ = frame.fired() => None,
                },
            }
        });
        drop(runtime);
        if let RuntimeEnd::Frame(frame) = end {
            frame.release();
        }
        output
    };
    within(tokio::task::spawn_blocking(run)).await.unwrap()
}

/// Ends the runtime of a call at each number of polls, and at each frame of the client behind the
/// proxy. `experiment` makes the call and returns its output, and how often it was called.
async fn at_each_end<T>(proxy: &Proxy, experiment: impl AsyncFn(RuntimeEnd, usize) -> Option<T>) {
    let mut calls = 0;
    for polls in 1..=MOST_POLLS {
        calls += 1;
        drop(experiment(RuntimeEnd::Polls(polls), calls).await);
    }
    for frames in [Match::any_request, Match::any_reply] {
        // A call may find an item that was claimed for an earlier one, and ask the server nothing.
        let (mut nth, mut missed) = (1, 0);
        while missed < 3 {
            calls += 1;
            let end = RuntimeEnd::Frame(proxy.on(frames().nth(nth)).then(Action::Hold));
            let output = experiment(end, calls).await;
            proxy.clear_rules();
            if output.is_some() {
                missed += 1;
            } else {
                (nth, missed) = (nth + 1, 0);
            }
        }
        assert!(nth > 1, "some frames were met: {nth}");
    }
}

/// Runs `work` to its end on a runtime that ends then.
async fn whole_on_a_runtime_that_ends<T: Send + 'static>(
    work: impl FnOnce() -> BoxFuture<T> + Send + 'static,
) -> T {
    on_a_runtime_that_ends(RuntimeEnd::Polls(usize::MAX), work)
        .await
        .unwrap()
}

/// Waits until the client's session has no node below `path`.
async fn until_no_node_is_left(client: &Client, path: &str, case: &str) {
    let session = session(client).await;
    let gone = async {
        loop {
            let left = session.ephemerals(path).await.unwrap();
            if left.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(20), gone).await;
    assert!(gone.is_ok(), "{case}: a node stays behind");
}

type AnyGuard = Box<dyn Any + Send>;

fn held(value: impl Send + 'static) -> AnyGuard {
    Box::new(value)
}

/// An operation that ends with something held at the path.
struct AcquireCase {
    name: &'static str,
    acquire: fn(Client, String) -> BoxFuture<AnyGuard>,
}

const ACQUIRING: [AcquireCase; 12] = [
    AcquireCase {
        name: "mutex",
        acquire: |client, path| {
            Box::pin(async move { held(mutex(&client, &path).acquire().await.unwrap()) })
        },
    },
    AcquireCase {
        name: "simple mutex",
        acquire: |client, path| {
            Box::pin(async move {
                let lock = SimpleMutex::new(&client, &path).unwrap();
                held(lock.acquire().await.unwrap())
            })
        },
    },
    AcquireCase {
        name: "reentrant mutex",
        acquire: |client, path| {
            Box::pin(async move {
                let lock = ReentrantMutex::new(&client, &path).unwrap();
                held(lock.acquire(&OwnerId::unique()).await.unwrap())
            })
        },
    },
    AcquireCase {
        name: "read lock",
        acquire: |client, path| {
            Box::pin(async move {
                let lock = RwLock::new(&client, &path).unwrap();
                held(lock.read().await.unwrap())
            })
        },
    },
    AcquireCase {
        name: "write lock",
        acquire: |client, path| {
            Box::pin(async move {
                let lock = RwLock::new(&client, &path).unwrap();
                held(lock.write().await.unwrap())
            })
        },
    },
    AcquireCase {
        name: "several locks",
        acquire: |client, path| {
            Box::pin(async move {
                let paths = [format!("{path}/a"), format!("{path}/b")];
                let locks = MultiLock::new(&client, paths).unwrap();
                held(locks.acquire().await.unwrap())
            })
        },
    },
    AcquireCase {
        name: "semaphore",
        acquire: |client, path| {
            Box::pin(async move {
                let semaphore = Semaphore::new(&client, &path, 2).unwrap();
                held(semaphore.acquire(2).await.unwrap())
            })
        },
    },
    AcquireCase {
        name: "election",
        acquire: |client, path| {
            Box::pin(async move {
                let election = LeaderElection::new(&client, &path).unwrap();
                held(election.campaign().await.unwrap())
            })
        },
    },
    AcquireCase {
        name: "double barrier",
        acquire: |client, path| {
            Box::pin(async move {
                let meeting = DoubleBarrier::new(&client, &path, 1).unwrap();
                held(meeting.enter().await.unwrap())
            })
        },
    },
    AcquireCase {
        name: "membership",
        acquire: |client, path| {
            Box::pin(async move {
                let group = Membership::new(&client, &path).unwrap();
                let member = group.join("m", b"").unwrap();
                member.registered().await.unwrap();
                held(member)
            })
        },
    },
    AcquireCase {
        name: "locking queue",
        acquire: |client, path| {
            Box::pin(async move {
                let queue = LockingQueue::new(&client, &path).unwrap();
                queue.offer(b"item").await.unwrap();
                held(queue.take().await.unwrap())
            })
        },
    },
    AcquireCase {
        name: "work queue",
        acquire: |client, path| {
            Box::pin(async move {
                let queue = WorkQueue::new(&client, &path).unwrap();
                queue.offer("item").await.unwrap();
                held(queue.take().await.unwrap())
            })
        },
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn h88_no_node_stays_behind_where_the_runtime_of_the_call_ends_at_any_poll() {
    let stage = Stage::new("ended").await;
    let (client, proxy) = stage.proxied(LONG).await;
    for AcquireCase { name, acquire } in ACQUIRING {
        at_each_end(&proxy, async |end, call| {
            let path = format!("{}/{}-{call:03}", stage.path, name.replace(' ', "-"));
            let (of_call, at) = (client.clone(), path.clone());
            let outcome = on_a_runtime_that_ends(end, move || acquire(of_call, at)).await;
            let is_held = outcome.is_some();
            // Nothing that is held needs the runtime on which it was acquired.
            drop(outcome);
            until_no_node_is_left(&client, &path, &format!("{name}, call {call}")).await;
            is_held.then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h25_a_guard_hears_of_its_node_after_the_runtime_of_its_call_has_ended() {
    let stage = Stage::new("two-runtimes").await;
    let (client, admin) = (stage.client().await, session(&stage.client().await).await);
    let lock = mutex(&client, &stage.path);
    let guard = whole_on_a_runtime_that_ends(move || Box::pin(async move { lock.acquire().await }))
        .await
        .unwrap();
    let asked = admin.set_data(guard.node(), b"__REVOKE__", None);
    within(asked).await.unwrap();
    within(guard.on_revoke()).await.unwrap();
    assert!(guard.revoke_requested());
    within(admin.delete(guard.node(), None)).await.unwrap();
    assert_eq!(within(guard.lost()).await, LostReason::NodeGone);
    let next = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    assert_eq!(guard.check(), Err(LostReason::NodeGone));
    assert_eq!(next.check(), Ok(()));
}

/// Takes items by calls whose runtime ends, and then the rest: each item comes out once.
async fn assert_no_item_is_lost<Q, T>(
    queue: Q,
    proxy: &Proxy,
    offer: impl AsyncFn(&Q, String),
    poll: fn(Arc<Q>) -> BoxFuture<Option<T>>,
    settle: impl AsyncFn(T) -> String,
) where
    Q: Send + Sync + 'static,
    T: Send + 'static,
{
    let queue = Arc::new(queue);
    let (offered, taken) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    at_each_end(proxy, async |end, call| {
        let item = format!("item-{call:03}");
        // The frame that ends the call is one of the call's.
        if offered.borrow().is_empty() {
            for spare in 0..3 {
                let item = format!("spare-{spare}");
                within(offer(&queue, item.clone())).await;
                offered.borrow_mut().push(item);
            }
        }
        let of_call = Arc::clone(&queue);
        let outcome = on_a_runtime_that_ends(end, move || poll(of_call)).await;
        within(offer(&queue, item.clone())).await;
        offered.borrow_mut().push(item);
        let item = outcome.flatten()?;
        let text = within(settle(item)).await;
        taken.borrow_mut().push(text);
        Some(())
    })
    .await;
    let (mut offered, mut taken) = (offered.into_inner(), taken.into_inner());
    let rest = async {
        while taken.len() < offered.len() {
            match poll(Arc::clone(&queue)).await {
                Some(item) => taken.push(settle(item).await),
                // A claim for a call that is gone is being freed.
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let rest = tokio::time::timeout(Duration::from_secs(20), rest).await;
    offered.sort();
    taken.sort();
    assert_eq!(taken, offered, "{rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h65_no_item_is_lost_where_the_runtime_of_a_poll_ends() {
    let stage = Stage::new("polled-queue").await;
    let (client, proxy) = stage.proxied(LONG).await;
    assert_no_item_is_lost(
        DistributedQueue::new(&client, &stage.path).unwrap(),
        &proxy,
        async |queue, item| queue.offer(item.as_bytes()).await.unwrap(),
        |queue| Box::pin(async move { queue.poll().await.unwrap() }),
        async |item| String::from_utf8(item.to_vec()).unwrap(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h69_no_locked_item_is_kept_where_the_runtime_of_a_poll_ends() {
    let stage = Stage::new("polled-locking").await;
    let (client, proxy) = stage.proxied(LONG).await;
    assert_no_item_is_lost(
        LockingQueue::new(&client, &stage.path).unwrap(),
        &proxy,
        async |queue, item| queue.offer(item.as_bytes()).await.unwrap(),
        |queue| Box::pin(async move { queue.poll().await.unwrap() }),
        async |item| {
            let text = String::from_utf8(item.data().to_vec()).unwrap();
            item.consume().await.unwrap();
            text
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h71_no_claim_is_kept_where_the_runtime_of_a_poll_ends() {
    let stage = Stage::new("polled-work").await;
    let (client, proxy) = stage.proxied(LONG).await;
    assert_no_item_is_lost(
        WorkQueue::new(&client, &stage.path).unwrap(),
        &proxy,
        async |queue, item| drop(queue.offer(&*item).await.unwrap()),
        |queue| Box::pin(async move { queue.poll().await.unwrap() }),
        async |claim: Claim| {
            let text = String::from_utf8(claim.payload().to_vec()).unwrap();
            claim.ack().await.unwrap();
            text
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_caches_and_changes_outlive_the_runtime_of_their_call() {
    let stage = Stage::new("outlives").await;
    let (client, other) = (stage.client().await, stage.client().await);
    let group = Membership::new(&client, &stage.path).unwrap();
    let of_call = group.clone();
    let member = whole_on_a_runtime_that_ends(move || {
        Box::pin(async move {
            let member = of_call.join("m", b"").unwrap();
            member.registered().await.unwrap();
            member
        })
    })
    .await;
    let seen = Membership::new(&other, &stage.path).unwrap();
    assert_eq!(within(seen.members()).await.unwrap().len(), 1);
    whole_on_a_runtime_that_ends(move || Box::pin(member.leave())).await;
    assert_eq!(within(seen.members()).await.unwrap().len(), 0);

    let (of_call, path) = (client.clone(), stage.path.clone());
    let cache = whole_on_a_runtime_that_ends(move || {
        Box::pin(async move { TreeCache::builder(&of_call, &path).unwrap().start() })
    })
    .await
    .unwrap();
    let admin = session(&other).await;
    let child = format!("{}/child", stage.path);
    within(admin.create(&child, b"", CreateMode::Persistent))
        .await
        .unwrap();
    assert!(
        within(cache.catch_up())
            .await
            .unwrap()
            .get(&child)
            .is_some()
    );

    // Each change that was called is applied or not, and the handle goes on.
    let counter = Counter::new(&client, &format!("{}-counter", stage.path)).unwrap();
    let mut counted = 0;
    for polls in 1..=MOST_POLLS {
        let of_call = counter.clone();
        let added = on_a_runtime_that_ends(RuntimeEnd::Polls(polls), move || {
            Box::pin(async move { of_call.add(1).await.unwrap() })
        });
        counted += i64::from(added.await.is_some());
    }
    assert!(counted > 0);
    let sum = within(counter.get()).await.unwrap();
    assert!((counted..=14).contains(&sum), "{counted} of {sum}");
}

#[test]
fn a_pending_acquire_is_woken_by_the_expiry_while_the_runtime_of_its_connect_is_not_polled() {
    let server = tokio::runtime::Runtime::new().unwrap();
    let stage = server.block_on(Stage::new("unpolled"));
    let proxy = server.block_on(Proxy::start(stage.addr)).unwrap();
    let unpolled = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client = unpolled.block_on(connect(proxy.addr(), SHORT));
    server.block_on(async {
        let session = session(&client).await;
        let holder = mutex(&stage.client().await, &stage.path).acquire().await;
        let waiting = mutex(&client, &stage.path);
        let waiting = tokio::spawn(async move { waiting.acquire().await });
        stage.until_children(2).await;
        proxy.partition();
        assert_eq!(within(session.ended()).await, EndReason::ExpiredLocally);
        proxy.heal();
        // With a session of its own again, behind the holder.
        drop(holder);
        let guard = within(waiting).await.unwrap().unwrap();
        assert_ne!(guard.session().id(), session.id());
    });
}

/// Every kind of call, without a runtime.
#[test]
fn each_recipe_works_without_a_runtime() {
    let server = tokio::runtime::Runtime::new().unwrap();
    let stage = server.block_on(Stage::new("blocking"));
    let limit = Duration::from_secs(20);
    let config = Config::new(&stage.addr.to_string()).unwrap();
    let client = Client::connect(config).block().unwrap();
    let at = |name: &str| format!("{}/{name}", stage.path);

    let lock = Mutex::new(&client, &at("lock")).unwrap();
    let guard = lock.acquire_timeout(limit).block().unwrap();
    assert!(lock.try_acquire().block().unwrap().is_none());
    let timed_out = lock.acquire_timeout(Duration::from_millis(20)).block();
    assert!(timed_out.is_err());
    let created = guard
        .txn()
        .create(&at("under-lock"), b"", CreateMode::Persistent);
    created.commit().block().unwrap();
    assert_eq!(guard.run(async { 7 }).block(), Ok(7));
    let guard = guard.with_liveness(limit, || async { true });
    guard.check().unwrap();
    guard.release().confirmed().block().unwrap();

    let simple = SimpleMutex::new(&client, &at("simple")).unwrap();
    drop(simple.acquire_timeout(limit).block().unwrap());
    let owner = OwnerId::unique();
    let reentrant = ReentrantMutex::new(&client, &at("reentrant")).unwrap();
    drop(reentrant.acquire_timeout(&owner, limit).block().unwrap());
    let shared = RwLock::new(&client, &at("rw")).unwrap();
    let reading = shared.read_timeout(limit).block().unwrap();
    let writing = reading.upgrade().block().unwrap();
    drop(writing.downgrade().block().unwrap());
    let locks = MultiLock::new(&client, [at("m1"), at("m2")]).unwrap();
    drop(locks.acquire_timeout(limit).block().unwrap());
    let permits = Semaphore::new(&client, &at("semaphore"), 3).unwrap();
    let two = permits.acquire_timeout(2, limit).block().unwrap();
    assert_eq!(permits.maximum().block().unwrap(), 3);
    drop(two);

    let election = LeaderElection::new(&client, &at("election")).unwrap();
    let led = election.lead(|_term| async { "led" });
    assert_eq!(led.block().unwrap(), "led");
    let leadership = election.campaign_timeout(limit).block().unwrap();
    assert!(election.leader().block().unwrap().is_some());
    leadership.resign().block().unwrap();

    let queue = DistributedQueue::new(&client, &at("queue")).unwrap();
    queue.offer(b"a").block().unwrap();
    assert_eq!(&queue.take_timeout(limit).block().unwrap()[..], b"a");
    assert!(queue.poll().block().unwrap().is_none());
    let locking = LockingQueue::new(&client, &at("locking")).unwrap();
    locking.offer(b"b").block().unwrap();
    let item = locking.take_timeout(limit).block().unwrap();
    item.consume().block().unwrap();
    let work = WorkQueue::new(&client, &at("work")).unwrap();
    for item in ["c", "d"] {
        work.offer(item).block().unwrap();
    }
    let claim = work.take_timeout(limit).block().unwrap();
    claim.extend().block().unwrap();
    claim.ack().block().unwrap();
    let (done, stop) = tokio::sync::oneshot::channel::<()>();
    let mut done = Some(done);
    let summary = work
        .run(
            2,
            |_claim| {
                let (done, audit) = (done.take(), queue.clone());
                async move {
                    // A handler may block: it has a thread of its own.
                    audit.offer(b"handled").block().unwrap();
                    drop(done);
                    Ok::<(), String>(())
                }
            },
            async { drop(stop.await) },
        )
        .block()
        .unwrap();
    assert_eq!((summary.acked, summary.failed, summary.lost), (1, 0, 0));
    assert_eq!(queue.depth().block().unwrap(), 1);

    let counter = Counter::new(&client, &at("counter")).unwrap();
    assert_eq!(counter.add(2).block().unwrap(), 2);
    let value = SharedValue::new(&client, &at("value")).unwrap();
    value.set(b"v").block().unwrap();
    let group = Membership::new(&client, &at("group")).unwrap();
    let member = group.join("me", b"").unwrap();
    member.registered().block().unwrap();
    assert_eq!(group.members().block().unwrap().len(), 1);
    member.leave().block();

    let barrier = Barrier::new(&client, &at("barrier")).unwrap();
    barrier.close().block().unwrap();
    let still_closed = barrier.wait_timeout(Duration::from_millis(20)).block();
    assert!(still_closed.is_err());
    barrier.open().block().unwrap();
    barrier.wait_timeout(limit).block().unwrap();
    let latch = CountdownLatch::new(&client, &at("latch"), 1).unwrap();
    latch.count_down("part").block().unwrap();
    latch.wait_timeout(limit).block().unwrap();
    let meeting = DoubleBarrier::new(&client, &at("meeting"), 1).unwrap();
    let inside = meeting.enter_timeout(limit).block().unwrap();
    inside.leave_timeout(limit).block().unwrap();
    let cache = TreeCache::builder(&client, &stage.path).unwrap().start();
    let seen = cache.unwrap();
    assert!(seen.ready().block().unwrap().get(&stage.path).is_some());
    client.close_timeout(limit).block().unwrap();
}

/// Names the server to [`a_program_that_ends_with_its_guards`].
const SERVER: &str = "BATON_TEST_ENDING_PROGRAM";

/// The program that the next test starts.
#[test]
fn a_program_that_ends_with_its_guards() {
    let Ok(target) = std::env::var(SERVER) else {
        return;
    };
    let (server, path) = target.split_once(' ').unwrap();
    let run = async {
        let client = Client::connect(Config::new(server).unwrap().session_timeout(LONG));
        let client = client.await.unwrap();
        let guard = Mutex::new(&client, &format!("{path}/lock")).unwrap();
        let guard = guard.acquire().await.unwrap();
        let group = Membership::new(&client, &format!("{path}/group")).unwrap();
        let member = group.join("m", b"").unwrap();
        member.registered().await.unwrap();
        // The client first: whatever is dropped last waits.
        drop(client);
        drop((guard, member, group));
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run);
    // As the end of `main`: nothing that still runs is waited for.
    std::process::exit(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_has_dropped_its_guards_and_its_client_leaves_no_lock_behind() {
    let stage = Stage::new("ending").await;
    for _ in 0..5 {
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        program
            .args(["--exact", "runtimes::a_program_that_ends_with_its_guards"])
            .env(SERVER, format!("{} {}", stage.addr, stage.path));
        let running = tokio::task::spawn_blocking(move || program.output());
        let ended = within(running).await.unwrap().unwrap();
        assert!(ended.status.success());
        let admin = session(&stage.client().await).await;
        for name in ["lock", "group"] {
            let children = admin.children(&format!("{}/{name}", stage.path));
            let names = within(children).await.unwrap().names;
            assert!(names.is_empty(), "{name}: {names:?}");
        }
    }
}
