//! A guard that ended by its lease while its session lives on deletes its node, even where the
//! program still has the guard.

use std::time::Duration;

use baton::guard::ReleaseError;
use baton::lock::{LockError, OwnerId, SimpleMutex};
use baton::queue::LockingQueue;
use baton::{
    Guard, LeaderElection, LostReason, MultiLock, Mutex, ReentrantMutex, RwLock, Semaphore,
    WorkQueue,
};
use baton_client::{Client, EventKind, OpCode};
use baton_testkit::{Match, Proxy, Variant};
use tokio::task::JoinHandle;

use crate::common::{LAPSE, Stage, lapsing, mutex, polled, session, within};

/// Cuts the connection until `lost`, and heals it then. The session lives on.
async fn lapse(client: &Client, proxy: &Proxy, lost: impl Future<Output = LostReason>) {
    let id = session(client).await.id();
    proxy.refuse();
    proxy.cut_all(Variant::Rst);
    assert_eq!(within(lost).await, LostReason::LeaseEnded);
    proxy.heal();
    let lives = session(client).await;
    within(lives.exists("/")).await.unwrap();
    assert_eq!(lives.id(), id, "the session was to live on");
}

#[tokio::test]
async fn h92_a_dead_guard_of_any_kind_gives_its_node_away_while_its_session_lives() {
    let stage = Stage::new("h92").await;
    let (client, proxy) = lapsing(&stage).await;
    let other = stage.client().await;
    let at = |name: &str| format!("{}-{name}", stage.path);

    let lock = within(mutex(&client, &at("mutex")).acquire())
        .await
        .unwrap();
    let simple = SimpleMutex::new(&client, &at("simple")).unwrap();
    let simple = within(simple.acquire()).await.unwrap();
    let reentrant = ReentrantMutex::new(&client, &at("reentrant")).unwrap();
    let owner = OwnerId::unique();
    let outer = within(reentrant.acquire(&owner)).await.unwrap();
    let inner = within(reentrant.acquire(&owner)).await.unwrap();
    let rw = RwLock::new(&client, &at("rw")).unwrap();
    let reader = within(rw.read()).await.unwrap();
    let permits = Semaphore::new(&client, &at("sem"), 3).unwrap();
    let permits = within(permits.acquire(3)).await.unwrap();
    let multi = MultiLock::new(&client, [at("one"), at("two")]).unwrap();
    let multi = within(multi.acquire()).await.unwrap();
    let election = LeaderElection::new(&client, &at("election")).unwrap();
    let leadership = within(election.campaign()).await.unwrap();
    let locking = LockingQueue::new(&client, &at("locking")).unwrap();
    within(locking.offer(b"item")).await.unwrap();
    let locked = within(locking.take()).await.unwrap();
    let work = WorkQueue::new(&client, &at("work")).unwrap();
    within(work.offer(b"item")).await.unwrap();
    let claim = within(work.take()).await.unwrap();

    let all = [
        lock.status(),
        simple.status(),
        outer.status(),
        reader.status(),
        permits.status(),
        multi.status(),
        leadership.status(),
        locked.status(),
        claim.status(),
    ];
    let lost = lock.lost();
    lapse(&client, &proxy, async {
        let reason = lost.await;
        for status in &all {
            assert_eq!(status.check(), Err(LostReason::LeaseEnded));
        }
        reason
    })
    .await;

    // All of these are kept by the program that has lost them, and the others get them
    // nevertheless.
    drop(within(mutex(&other, &at("mutex")).acquire()).await.unwrap());
    let next = SimpleMutex::new(&other, &at("simple")).unwrap();
    let next_simple = within(next.acquire()).await.unwrap();
    drop(
        within(mutex(&other, &at("reentrant")).acquire())
            .await
            .unwrap(),
    );
    let next = RwLock::new(&other, &at("rw")).unwrap();
    drop(within(next.write()).await.unwrap());
    let next = Semaphore::new(&other, &at("sem"), 3).unwrap();
    drop(within(next.acquire(3)).await.unwrap());
    let next = MultiLock::new(&other, [at("one"), at("two")]).unwrap();
    drop(within(next.acquire()).await.unwrap());
    let next = LeaderElection::new(&other, &at("election")).unwrap();
    drop(within(next.campaign()).await.unwrap());
    let next = LockingQueue::new(&other, &at("locking")).unwrap();
    let next_locked = within(next.take()).await.unwrap();
    let next = WorkQueue::new(&other, &at("work")).unwrap();
    let next_claim = within(next.take()).await.unwrap();

    // What is dropped late touches nothing of the others', whose nodes may have the same names.
    assert_eq!(next_simple.node(), simple.node());
    let error = within(lock.release()).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost { .. }), "{error}");
    let again = within(reentrant.acquire(&owner)).await.unwrap_err();
    assert!(matches!(again, LockError::Lost { .. }), "{again}");
    drop((simple, outer, inner, reader, permits, multi, leadership));
    drop((locked, claim));
    within(session(&client).await.sync("/")).await.unwrap();
    assert_eq!(next_simple.check(), Ok(()));
    within(next_locked.consume()).await.unwrap();
    within(next_claim.ack()).await.unwrap();
}

#[tokio::test]
async fn h92_a_dead_guard_deletes_its_node_once_and_signals_no_release() {
    let stage = Stage::new("h92b").await;
    let (client, proxy) = lapsing(&stage).await;
    let delayed = mutex(&client, &stage.path).lock_delay(Duration::from_millis(300));
    let guard = within(delayed.acquire()).await.unwrap();
    let other = mutex(&stage.client().await, &stage.path);
    let next = tokio::spawn(async move { other.acquire().await.unwrap() });
    let last = mutex(&stage.client().await, &stage.path);
    stage.until_children(2).await;
    let last = tokio::spawn(async move { last.acquire().await.unwrap() });
    stage.until_children(3).await;
    let observer = session(&stage.client().await).await;
    let marker = format!("{}.released", guard.node());
    let mut signalled = within(observer.exists_watch(&marker)).await.unwrap().1;
    lapse(&client, &proxy, guard.lost()).await;
    let next = within(next).await.unwrap();
    assert!(!last.is_finished(), "one waiter was woken, the next");
    drop(guard);
    within(session(&client).await.sync("/")).await.unwrap();
    assert_eq!(proxy.count(&Match::request(OpCode::Delete)), 1);
    within(observer.sync("/")).await.unwrap();
    assert_eq!(signalled.try_event(), None, "a release was signalled");
    within(next.release()).await.unwrap();
    drop(within(last).await.unwrap());
}

#[tokio::test]
async fn h92_who_keeps_the_node_keeps_it_until_the_guard_goes() {
    let stage = Stage::new("h92c").await;
    let (client, proxy) = lapsing(&stage).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    guard.keep_node().unwrap();
    lapse(&client, &proxy, guard.lost()).await;
    // Behind whatever the loss has had sent.
    within(session(&client).await.sync("/")).await.unwrap();
    let nodes = stage.children().await;
    assert_eq!(nodes.len(), 1, "the node goes no sooner than its guard");
    assert_eq!(nodes[0].path, guard.node());
    assert_eq!(guard.keep_node(), Err(LostReason::LeaseEnded));
    drop(guard);
    stage.until_children(0).await;
}

#[tokio::test]
async fn h92_who_keeps_the_nodes_of_several_locks_keeps_the_others_when_one_goes() {
    let stage = Stage::new("h92f").await;
    let (one, two) = (format!("{}-1", stage.path), format!("{}-2", stage.path));
    let client = stage.client().await;
    let multi = MultiLock::new(&client, [&one, &two]).unwrap();
    let guard = within(multi.acquire()).await.unwrap();
    guard.guard().keep_node().unwrap();
    let admin = session(&stage.client().await).await;
    within(admin.delete(guard.guard().node(), None))
        .await
        .unwrap();
    assert_eq!(within(guard.lost()).await, LostReason::NodeGone);
    // Behind whatever the loss has had sent.
    within(session(&client).await.sync("/")).await.unwrap();
    let left = within(admin.children(&two)).await.unwrap().names;
    assert_eq!(left.len(), 1, "the node goes no sooner than its guard");
    drop(guard);
    drop(within(mutex(&client, &two).acquire()).await.unwrap());
}

#[tokio::test]
async fn h92_the_release_of_a_guard_that_was_lost_waits_for_no_server() {
    let stage = Stage::new("h92g").await;
    let (client, proxy) = lapsing(&stage).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    guard.keep_node().unwrap();
    let lost = guard.lost();
    proxy.refuse();
    proxy.cut_all(Variant::Rst);
    assert_eq!(within(lost).await, LostReason::LeaseEnded);
    let released = polled(guard.release(), 20).await;
    assert!(
        matches!(released, Some(Err(ReleaseError::Lost { .. }))),
        "{released:?}"
    );
    proxy.heal();
    stage.until_children(0).await;
}

#[tokio::test]
async fn h92_a_node_that_was_kept_over_a_loss_goes_without_a_signalled_release() {
    for drops in [false, true] {
        let stage = Stage::new("h92e").await;
        let (client, clock) = stage.lapsing_by_clock().await;
        // One that others wait for, one that asks for a lock delay, and one that notifies
        // observers.
        let at = |name: &str| format!("{}-{name}", stage.path);
        let awaited = mutex(&client, &at("awaited"));
        let first = within(awaited.acquire()).await.unwrap();
        let (first, second) = behind(first, awaited).await;
        let delayed = mutex(&client, &at("delayed")).lock_delay(Duration::from_secs(60));
        let delayed = within(delayed.acquire()).await.unwrap();
        let election = LeaderElection::new(&client, &at("election")).unwrap();
        let leader = within(election.campaign()).await.unwrap();
        within(first.release()).await.unwrap();
        let second = within(second).await.unwrap();
        let guards = [&second, &delayed, &*leader];
        let other = session(&stage.client().await).await;
        let mut ends = Vec::new();
        for guard in guards {
            guard.keep_node().unwrap();
            let marker = format!("{}.released", guard.node());
            let signalled = within(other.exists_watch(&marker)).await.unwrap().1;
            let gone = within(other.get_data_watch(guard.node())).await.unwrap().1;
            ends.push((signalled, gone));
        }
        clock.sleep(LAPSE);
        for guard in guards {
            assert_eq!(guard.check(), Err(LostReason::LeaseEnded));
        }
        if drops {
            drop((second, delayed, leader));
        } else {
            within(second.release()).await.unwrap_err();
            within(delayed.release()).await.unwrap_err();
            within(leader.resign()).await.unwrap_err();
        }
        for (mut signalled, gone) in ends {
            // The marker's event would come before that of the deletion, which is part of the same
            // change.
            assert_eq!(within(gone).await.unwrap().kind, EventKind::NodeDeleted);
            assert_eq!(signalled.try_event(), None);
        }
    }
}

/// Has another acquire wait behind `guard`.
async fn behind(guard: Guard, lock: Mutex) -> (Guard, JoinHandle<Guard>) {
    let folder = guard.node().rsplit_once('/').unwrap().0.to_owned();
    let observer = guard.session().clone();
    let next = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let joined = async {
        while observer.children(&folder).await.unwrap().names.len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    within(joined).await;
    (guard, next)
}

#[tokio::test]
async fn h92_who_loses_one_of_several_locks_gives_the_others_away() {
    let stage = Stage::new("h92d").await;
    let (one, two) = (format!("{}-1", stage.path), format!("{}-2", stage.path));
    let multi = MultiLock::new(&stage.client().await, [&one, &two]).unwrap();
    let guard = within(multi.acquire()).await.unwrap();
    let client = stage.client().await;
    let admin = session(&client).await;
    within(admin.delete(guard.guard().node(), None))
        .await
        .unwrap();
    assert_eq!(within(guard.lost()).await, LostReason::NodeGone);
    drop(within(mutex(&client, &one).acquire()).await.unwrap());
    drop(within(mutex(&client, &two).acquire()).await.unwrap());
    drop(guard);
}
