//! Hazards of losing the session, of leases and of pauses (`docs/internals/hazards.md` §3.3).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baton::guard::{PendingRelease, ReleaseError, TxnError};
use baton::lock::{LockError, OwnerId, SimpleMutex};
use baton::tree::CreateMode;
use baton::{LeaderElection, LostReason, MultiLock, ReentrantMutex, RwLock, Semaphore};
use baton_client::{AddWatchMode, EventKind, OpCode, State};
use baton_testkit::{Action, Match, Variant};

use crate::common::{LAPSE, LONG, SHORT, SleptClock, Stage, elsewhere, mutex, session, within};

fn is_over(reason: LostReason) -> bool {
    matches!(reason, LostReason::LeaseEnded | LostReason::SessionLost)
}

#[tokio::test]
async fn h25_after_a_pause_the_first_call_on_the_guard_fails_before_any_side_effect() {
    let stage = Stage::new("h25").await;
    let client = stage.client_here_with(SHORT).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let addr = stage.addr;
    let path = stage.path.clone();
    let next = elsewhere().spawn(async move {
        let client = crate::common::connect(addr, LONG).await;
        mutex(&client, &path).acquire().await.unwrap()
    });

    // Nothing of this client runs meanwhile: it is all on this thread.
    std::thread::sleep(2 * SHORT + Duration::from_secs(1));
    assert!(is_over(guard.check().unwrap_err()));
    assert_eq!(guard.remaining(), Duration::ZERO);
    let poked = AtomicBool::new(false);
    let work = guard.run(async { poked.store(true, Ordering::Relaxed) });
    assert!(is_over(within(work).await.unwrap_err()));
    assert!(
        !poked.load(Ordering::Relaxed),
        "a step of the work was taken"
    );
    let state = format!("{}-state", stage.path);
    let txn = within(
        guard
            .txn()
            .create(&state, b"", CreateMode::Persistent)
            .commit(),
    )
    .await;
    assert!(matches!(txn, Err(TxnError::Lost { .. })), "{txn:?}");
    let second = within(next).await.unwrap();
    assert!(second.token() > guard.token());
    let observer = session(&stage.client().await).await;
    assert!(observer.exists(&state).await.unwrap().is_none());
}

#[tokio::test]
async fn h25_run_asks_before_each_step_of_the_work() {
    let stage = Stage::new("h25b").await;
    let client = stage.client_here_with(SHORT).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let steps_after = AtomicBool::new(false);
    let work = guard.run(async {
        tokio::task::yield_now().await;
        std::thread::sleep(2 * SHORT);
        tokio::task::yield_now().await;
        steps_after.store(true, Ordering::Relaxed);
    });
    assert!(is_over(within(work).await.unwrap_err()));
    assert!(!steps_after.load(Ordering::Relaxed));
}

#[tokio::test]
async fn h25_run_asks_the_clock_and_waits_for_no_timer() {
    let stage = Stage::new("h25c").await;
    let clock = Arc::new(SleptClock::default());
    let client = stage.client_by(&clock).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let steps_after = AtomicBool::new(false);
    let work = guard.run(async {
        tokio::task::yield_now().await;
        clock.sleep(2 * LONG);
        tokio::task::yield_now().await;
        steps_after.store(true, Ordering::Relaxed);
    });
    assert!(is_over(within(work).await.unwrap_err()));
    assert!(!steps_after.load(Ordering::Relaxed));
}

/// Returns whether a release says that what was held had been lost by then.
async fn is_lost(releasing: PendingRelease) -> bool {
    matches!(
        within(releasing).await,
        Err(ReleaseError::Lost {
            reason: LostReason::LeaseEnded,
            ..
        })
    )
}

#[tokio::test]
async fn h25_after_a_pause_that_nobody_has_noticed_no_release_says_that_all_was_well() {
    let stage = Stage::new("h25d").await;
    let (client, clock) = stage.lapsing_by_clock().await;
    let id = session(&client).await.id();
    let at = |name: &str| format!("{}-{name}", stage.path);
    // Nobody is asked between a sleep and the release behind it: no task of this client has run.
    let guard = within(mutex(&client, &at("mutex")).acquire())
        .await
        .unwrap();
    clock.sleep(LAPSE);
    assert!(is_lost(guard.release()).await, "a mutex");
    let simple = SimpleMutex::new(&client, &at("simple")).unwrap();
    let guard = within(simple.acquire()).await.unwrap();
    clock.sleep(LAPSE);
    assert!(is_lost(guard.release()).await, "a simple mutex");
    let reentrant = ReentrantMutex::new(&client, &at("reentrant")).unwrap();
    let guard = within(reentrant.acquire(&OwnerId::unique())).await.unwrap();
    clock.sleep(LAPSE);
    assert!(is_lost(guard.release()).await, "a reentrant mutex");
    let owner = OwnerId::unique();
    let outer = within(reentrant.acquire(&owner)).await.unwrap();
    let inner = within(reentrant.acquire(&owner)).await.unwrap();
    clock.sleep(LAPSE);
    assert!(is_lost(inner.release()).await, "a guard among several");
    assert!(is_lost(outer.release()).await, "the last of them");
    let rw = RwLock::new(&client, &at("rw")).unwrap();
    let guard = within(rw.read()).await.unwrap();
    clock.sleep(LAPSE);
    assert!(is_lost(guard.release()).await, "a reader");
    let guard = within(rw.write()).await.unwrap();
    clock.sleep(LAPSE);
    assert!(is_lost(guard.release()).await, "a writer");
    let guard = within(rw.write()).await.unwrap();
    clock.sleep(LAPSE);
    let reader = within(guard.downgrade()).await;
    assert!(
        matches!(reader, Err(LockError::Lost { .. })),
        "a writer that becomes a reader"
    );
    let permits = Semaphore::new(&client, &at("semaphore"), 2).unwrap();
    let guard = within(permits.acquire(2)).await.unwrap();
    clock.sleep(LAPSE);
    assert!(is_lost(guard.release()).await, "permits");
    let multi = MultiLock::new(&client, [at("one"), at("two")]).unwrap();
    let guard = within(multi.acquire()).await.unwrap();
    clock.sleep(LAPSE);
    assert!(is_lost(guard.release()).await, "several locks");
    let election = LeaderElection::new(&client, &at("election")).unwrap();
    let leadership = within(election.campaign()).await.unwrap();
    clock.sleep(LAPSE);
    let resigned = within(leadership.resign()).await;
    assert!(
        matches!(resigned, Err(ReleaseError::Lost { .. })),
        "{resigned:?}"
    );
    // In the change that joins the queue again.
    let lock = mutex(&client, &at("mutex"));
    let guard = within(lock.acquire()).await.unwrap();
    clock.sleep(LAPSE);
    let again = within(lock.requeue(guard)).await;
    assert!(matches!(again, Err(LockError::Lost { .. })), "{again:?}");
    // All of it on one session.
    assert_eq!(session(&client).await.id(), id);
}

/// Returns when the lock is granted to `next`, which waits on a runtime of its own.
fn granted_elsewhere(next: baton::Mutex) -> tokio::task::JoinHandle<(Instant, baton::Guard)> {
    elsewhere().spawn(async move {
        let guard = next.acquire().await.unwrap();
        (Instant::now(), guard)
    })
}

#[tokio::test]
async fn h26_a_holder_that_is_cut_off_ends_by_its_own_clock_before_the_next_grant() {
    for timeout_ms in [800, 1200, 1600, 2500, 4000] {
        let stage = Stage::new("h26").await;
        let (client, proxy) = stage.proxied(Duration::from_millis(timeout_ms)).await;
        let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
        let next = mutex(&stage.client().await, &stage.path);
        let granted = granted_elsewhere(next);
        stage.until_children(2).await;
        proxy.partition();
        let reason = within(guard.lost()).await;
        let ended = Instant::now();
        assert!(is_over(reason), "{reason}");
        let (granted, _guard) = within(granted).await.unwrap();
        assert!(ended < granted, "T = {timeout_ms} ms: two held at once");
    }
}

#[tokio::test]
async fn h27_bytes_that_arrive_prove_nothing_when_ours_do_not() {
    let stage = Stage::new("h27").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let noisy = format!("{}-noisy", stage.path);
    let talker = session(&stage.client().await).await;
    talker
        .create(&noisy, b"", CreateMode::Persistent)
        .await
        .unwrap();
    let holder = session(&client).await;
    let mut events = holder
        .watch_persistent(&noisy, AddWatchMode::Persistent)
        .await
        .unwrap();
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let next = mutex(&stage.client().await, &stage.path);
    let granted = granted_elsewhere(next);
    stage.until_children(2).await;
    proxy.cut_all(Variant::BlackHoleToServer);
    proxy.set_door(baton_testkit::proxy::ConnectPolicy::Silent);
    let quiet = Arc::new(AtomicBool::new(false));
    let talking = elsewhere().spawn({
        let quiet = Arc::clone(&quiet);
        async move {
            while !quiet.load(Ordering::Relaxed) {
                talker.set_data(&noisy, b"x", None).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    assert!(within(events.next()).await.is_ok(), "events still arrive");
    let reason = within(guard.lost()).await;
    let ended = Instant::now();
    assert!(is_over(reason), "{reason}");
    let (granted, _guard) = within(granted).await.unwrap();
    assert!(ended < granted, "two held at once");
    quiet.store(true, Ordering::Relaxed);
    within(talking).await.unwrap();
}

#[tokio::test]
async fn h29_a_grant_that_arrives_after_the_lease_ended_gives_no_stale_guard() {
    let stage = Stage::new("h29").await;
    let held = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    let (client, proxy) = stage.proxied(SHORT).await;
    let waiter = session(&client).await;
    let lock = mutex(&client, &stage.path);
    let event = proxy
        .on(Match::event(EventKind::NodeDeleted))
        .then(Action::Hold);
    // With the answer its watch is set.
    let watched = Match::reply(OpCode::GetData).path_contains(held.node());
    let watched = proxy.on(watched).observe();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    within(watched.fired()).await;
    within(held.release()).await.unwrap();
    within(event.fired()).await;
    proxy.refuse();
    within(waiter.lease_ended()).await;
    event.release();
    proxy.heal();
    let guard = within(waiting).await.unwrap().unwrap();
    assert_eq!(guard.check(), Ok(()));
    assert!(guard.remaining() > Duration::ZERO);
    let nodes = stage.until_children(1).await;
    assert_eq!(nodes[0].path, guard.node());
    assert_eq!(nodes[0].stat.ephemeral_owner, guard.session().id());
}

#[tokio::test]
async fn h32_a_guard_outlives_a_reconnect_of_its_session() {
    for variant in [Variant::Rst, Variant::Fin] {
        let stage = Stage::new("h32").await;
        let (client, proxy) = stage.proxied(LONG).await;
        let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
        let session = session(&client).await;
        let mut states = session.states();
        for _ in 0..5 {
            proxy.cut_all(variant);
            assert_eq!(within(states.next()).await, Some(State::Suspended));
            assert!(matches!(
                within(states.next()).await,
                Some(State::Connected { .. })
            ));
            assert_eq!(guard.check(), Ok(()));
        }
        let nodes = stage.children().await;
        assert_eq!(nodes.len(), 1);
        assert_eq!(nodes[0].path, guard.node(), "no new position in the queue");
        within(guard.release()).await.unwrap();
    }
}

#[tokio::test]
async fn h32_h33_h34_after_the_session_is_lost_the_guard_is_dead_and_the_lock_contended_again() {
    let stage = Stage::new("h33").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let lock = mutex(&client, &stage.path);
    let guard = within(lock.acquire()).await.unwrap();
    let old = session(&client).await;
    proxy.partition();
    within(old.ended()).await;
    assert!(is_over(guard.check().unwrap_err()));
    let other = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    proxy.heal();
    assert!(
        within(lock.try_acquire()).await.unwrap().is_none(),
        "granted from memory"
    );
    assert!(is_over(guard.check().unwrap_err()), "revived");
    let old_node = guard.node().to_owned();
    drop(guard);
    within(other.release()).await.unwrap();
    let again = within(lock.acquire()).await.unwrap();
    assert_ne!(again.node(), old_node);
    assert_ne!(again.session().id(), old.id());
}

#[tokio::test]
async fn h33_acquiring_again_after_the_session_is_lost_waits_for_the_next_holder() {
    let stage = Stage::new("h33b").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let lock = mutex(&client, &stage.path);
    let dead = within(lock.acquire()).await.unwrap();
    let old = session(&client).await;
    let next = mutex(&stage.client().await, &stage.path);
    let next = tokio::spawn(async move { next.acquire().await });
    stage.until_children(2).await;
    proxy.partition();
    within(old.ended()).await;
    let next = within(next).await.unwrap().unwrap();
    proxy.heal();

    // The guard of the lost session is still alive as a value while the same mutex is asked again.
    let again = tokio::spawn(async move { lock.acquire().await });
    let queue = stage.until_children(2).await;
    let queued = queue.iter().find(|node| node.path != next.node()).unwrap();
    assert_ne!(queued.stat.ephemeral_owner, old.id());
    assert!(!again.is_finished(), "granted while another holds");
    assert_eq!(next.check(), Ok(()));
    within(next.release()).await.unwrap();
    let again = within(again).await.unwrap().unwrap();
    assert_eq!(again.check(), Ok(()));
    assert!(
        again.token() > dead.token(),
        "not the queue position of before"
    );
    assert!(is_over(dead.check().unwrap_err()), "revived");
    drop(dead);
    stage.until_children(1).await;
    assert_eq!(
        again.check(),
        Ok(()),
        "the old guard's drop is not the new one's end"
    );
    within(again.release()).await.unwrap();
}

#[tokio::test]
async fn h38_the_holder_is_notified_when_somebody_deletes_its_node() {
    let stage = Stage::new("h38").await;
    let client = stage.client().await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let admin = session(&stage.client().await).await;
    // A change of its data is none of the holder's business, and must not hide the deletion.
    admin.set_data(guard.node(), b"note", None).await.unwrap();
    let lost = guard.lost();
    admin.delete(guard.node(), None).await.unwrap();
    assert_eq!(within(lost).await, LostReason::NodeGone);
    assert_eq!(guard.check(), Err(LostReason::NodeGone));
    assert_eq!(guard.remaining(), Duration::ZERO);
}

#[tokio::test]
async fn h38_a_deletion_during_an_outage_is_reported_at_the_reconnect() {
    let stage = Stage::new("h38b").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let admin = session(&stage.client().await).await;
    proxy.refuse();
    proxy.cut_all(Variant::Rst);
    admin.delete(guard.node(), None).await.unwrap();
    proxy.heal();
    assert_eq!(within(guard.lost()).await, LostReason::NodeGone);
}

#[tokio::test]
async fn h36_an_answer_from_before_the_loss_that_is_read_after_it_grants_nothing() {
    let stage = Stage::new("h36").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let old = session(&client).await;
    let lock = mutex(&client, &stage.path);
    let mut acquiring = Box::pin(lock.acquire());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    // Not once more after the answer to its create may have come: it has not passed the proxy yet
    // when this asks.
    let created = Match::reply(OpCode::Create2).error(0);
    while proxy.count(&created) == 0 {
        assert!(acquiring.as_mut().poll(&mut cx).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Its answers are here, and nobody reads them until the lock is another's.
    old.sync("/").await.unwrap();
    proxy.partition();
    within(old.ended()).await;
    let other = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    proxy.heal();
    let early = tokio::time::timeout(Duration::from_millis(300), &mut acquiring).await;
    assert!(early.is_err(), "granted on old news");
    assert_eq!(other.check(), Ok(()));
    within(other.release()).await.unwrap();
    let guard = within(acquiring).await.unwrap();
    assert_ne!(guard.session().id(), old.id());
}

#[tokio::test]
async fn h37_an_operation_is_bound_to_its_session_and_fails_with_it() {
    let stage = Stage::new("h37").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let old = session(&client).await;
    proxy.partition();
    let waiting = old.create(&stage.path, b"", CreateMode::Ephemeral);
    within(old.ended()).await;
    proxy.heal();
    let new = session(&client).await;
    assert_ne!(new.id(), old.id());
    let error = within(waiting).await.unwrap_err();
    assert!(!error.is_no_node(), "{error}");
    let error = within(old.create(&stage.path, b"", CreateMode::Ephemeral))
        .await
        .unwrap_err();
    assert!(error.is_session_ended() && error.had_no_effect(), "{error}");
    // What was under way at the loss may still arrive, as the old session's; never as the new
    // one's.
    let node = new.exists(&stage.path).await.unwrap();
    assert!(
        node.is_none_or(|stat| stat.ephemeral_owner == old.id()),
        "became the new session's"
    );
}
