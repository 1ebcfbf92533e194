//! The lock delay: after a holder that has failed the next leaves the lock alone for a time; after
//! a release it does not.
//!
//! A delay that must not be waited for is longer than the patience of a test.

use std::time::{Duration, Instant};

use baton::lock::LockError;
use baton::naming::Dialect;
use baton::{Client, Guard, LostReason, MultiLock, Mutex};
use baton_client::{EventKind, OpCode};
use baton_testkit::inspect::Znode;
use baton_testkit::{Match, Proxy};
use tokio::task::JoinHandle;

use crate::common::{LONG, SHORT, Stage, mutex, session, until_quiet, within};

/// Waited out by these tests.
const BRIEF: Duration = Duration::from_millis(1200);

/// Never waited out by these tests.
const ENDLESS: Duration = Duration::from_secs(60);

fn delaying(client: &Client, path: &str, delay: Duration) -> Mutex {
    mutex(client, path).lock_delay(delay)
}

/// A client, and the proxy on its way, which sees what it asks.
type ProxiedClient = (Client, Proxy);

/// Number of times that a waiter reads the node before its own until it has its watches: twice if
/// it is the next, and that node asks for a lock delay; the second time with the watch for the
/// release.
const ONCE: u64 = 1;
const TWICE: u64 = 2;

/// An acquire that waits at the end of the queue on a client of its own, which reads the node
/// before its own that often; later the guard and when it came.
async fn waiter(
    stage: &Stage,
    reads: u64,
    lock: impl FnOnce(&Client) -> Mutex,
) -> (JoinHandle<(Guard, Instant)>, ProxiedClient) {
    let watched = stage.proxied(LONG).await;
    let lock = lock(&watched.0);
    let acquire = async move { lock.acquire().await.unwrap() };
    (waiting(stage, &watched, reads, acquire).await, watched)
}

/// The same of any way into the queue.
async fn waiting<T: Send + 'static>(
    stage: &Stage,
    (_, proxy): &ProxiedClient,
    reads: u64,
    acquire: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<(T, Instant)> {
    let number = |node: &Znode| node.path[node.path.len() - 10..].to_owned();
    let last = stage.children().await.into_iter().max_by_key(number);
    let read = Match::reply(OpCode::GetData).path_contains(last.unwrap().path);
    let read = proxy.on(read.every()).observe();
    let waiting = tokio::spawn(async move {
        let guard = acquire.await;
        (guard, Instant::now())
    });
    within(read.fired_times(reads)).await;
    waiting
}

/// Deletes `node` behind the back of its holder; returns when the waiter on this client knows of
/// it.
async fn break_before(stage: &Stage, node: &str, (client, proxy): &ProxiedClient) {
    let end = Match::event(EventKind::NodeDeleted).path_contains(node);
    let end = proxy.on(end).observe();
    let breaking = session(&stage.client().await).await;
    within(breaking.delete(node, None)).await.unwrap();
    within(end.fired()).await;
    until_quiet(client, proxy).await;
}

/// An instant at which `node` was still there, with nothing but its end after it.
async fn last_seen(client: &Client, node: &str) -> Instant {
    let session = session(client).await;
    within(async {
        let mut seen = Instant::now();
        loop {
            let asked = Instant::now();
            if session.exists(node).await.unwrap().is_none() {
                return seen;
            }
            seen = asked;
        }
    })
    .await
}

#[tokio::test]
async fn a_holder_whose_session_expires_holds_the_next_off_for_its_delay() {
    let stage = Stage::new("expired").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let held = within(delaying(&client, &stage.path, BRIEF).acquire())
        .await
        .unwrap();
    let other = stage.client().await;
    let (next, _w) = waiter(&stage, TWICE, |client| mutex(client, &stage.path)).await;
    proxy.partition();
    let seen = last_seen(&other, held.node()).await;
    let (guard, granted) = within(next).await.unwrap();
    assert!(granted.duration_since(seen) >= BRIEF);
    assert!(held.check().is_err());
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_broken_is_left_alone_for_the_delay_and_the_whole_wait_queue_is_held_off() {
    let stage = Stage::new("broken").await;
    let other = stage.client().await;
    let held = within(delaying(&other, &stage.path, BRIEF).acquire())
        .await
        .unwrap();
    let lock = |client: &Client| delaying(client, &stage.path, BRIEF);
    let (second, of_second) = waiter(&stage, TWICE, lock).await;
    let (third, _w) = waiter(&stage, ONCE, lock).await;
    let broken = Instant::now();
    break_before(&stage, held.node(), &of_second).await;
    // The second, who waits for the delay to pass, gives up: that is not to let the third in at
    // once.
    assert!(!second.is_finished());
    second.abort();
    let (guard, granted) = within(third).await.unwrap();
    assert!(granted.duration_since(broken) >= BRIEF);
    assert!(within(held.release()).await.is_err());
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn a_holder_whose_application_hangs_holds_the_next_off() {
    let stage = Stage::new("hangs").await;
    let other = stage.client().await;
    let held = within(delaying(&other, &stage.path, BRIEF).acquire())
        .await
        .unwrap();
    let (next, _w) = waiter(&stage, TWICE, |client| mutex(client, &stage.path)).await;
    let before = Instant::now();
    let held = held.with_liveness(Duration::from_secs(5), || async { false });
    assert_eq!(within(held.lost()).await, LostReason::NotAlive);
    let (guard, granted) = within(next).await.unwrap();
    assert!(granted.duration_since(before) >= BRIEF);
    within(guard.release()).await.unwrap();
}

/// Breaks the lock that `held` holds, and then takes the one who is held off out of the queue: that
/// is not to spare it the delay.
async fn loses_its_position<T>(
    stage: &Stage,
    held: &Guard,
    next: JoinHandle<(T, Instant)>,
    of_next: &ProxiedClient,
) -> T {
    let broken = Instant::now();
    break_before(stage, held.node(), of_next).await;
    let left = stage.until_children(1).await;
    let breaking = session(&stage.client().await).await;
    within(breaking.delete(&left[0].path, None)).await.unwrap();
    let (guard, granted) = within(next).await.unwrap();
    assert!(granted.duration_since(broken) >= 2 * BRIEF);
    guard
}

#[tokio::test]
async fn one_that_loses_its_position_while_it_is_held_off_does_not_forget_the_delay() {
    let stage = Stage::new("place").await;
    let client = stage.client().await;
    let lock = delaying(&client, &stage.path, 2 * BRIEF);
    let held = within(lock.acquire()).await.unwrap();
    let (next, of_next) = waiter(&stage, TWICE, |client| mutex(client, &stage.path)).await;
    let guard = loses_its_position(&stage, &held, next, &of_next).await;
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn one_that_has_joined_again_and_loses_its_position_does_not_forget_the_delay() {
    let stage = Stage::new("again").await;
    let first = stage.proxied(LONG).await;
    let delaying = |client: &Client| delaying(client, &stage.path, 2 * BRIEF);
    let lock = delaying(&first.0);
    let held = within(lock.acquire()).await.unwrap();
    let (next, _w) = waiter(&stage, TWICE, delaying).await;
    let again = async move { lock.requeue(held).await.unwrap() };
    let again = waiting(&stage, &first, TWICE, again).await;
    let (held, _) = within(next).await.unwrap();
    let guard = loses_its_position(&stage, &held, again, &first).await;
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn one_that_waits_for_several_locks_and_loses_its_position_does_not_forget_the_delay() {
    let stage = Stage::new("several").await;
    let client = stage.client().await;
    let lock = delaying(&client, &stage.path, 2 * BRIEF);
    let held = within(lock.acquire()).await.unwrap();
    let paths = [stage.path.clone(), format!("{}-2", stage.path)];
    let of_both = stage.proxied(LONG).await;
    let both = MultiLock::new(&of_both.0, paths).unwrap();
    let next = async move { both.acquire().await.unwrap() };
    let next = waiting(&stage, &of_both, TWICE, next).await;
    let guard = loses_its_position(&stage, &held, next, &of_both).await;
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn after_a_release_nobody_is_held_off_in_any_dialect_whichever_way_it_was_released() {
    for dialect in [Dialect::Curator, Dialect::Kazoo, Dialect::WriteLock] {
        let stage = Stage::new("released").await;
        let client = stage.client().await;
        let delaying = |client: &Client| delaying(client, &stage.path, ENDLESS).dialect(dialect);
        let lock = delaying(&client);
        let held = within(lock.acquire()).await.unwrap();
        let (second, _second) = waiter(&stage, TWICE, delaying).await;
        let (third, of_third) = waiter(&stage, ONCE, delaying).await;
        let (fourth, _fourth) = waiter(&stage, ONCE, delaying).await;
        within(held.release()).await.unwrap();
        let (second, _) = within(second).await.unwrap();
        // In the background.
        drop(second);
        let (third, _) = within(third).await.unwrap();
        // In the change that joins the queue again.
        let lock = delaying(&of_third.0);
        let again = tokio::spawn(async move { lock.requeue(third).await });
        let (fourth, _) = within(fourth).await.unwrap();
        within(fourth.release()).await.unwrap();
        let again = within(again).await.unwrap().unwrap();
        // In favour of another lock.
        let (next, _next) = waiter(&stage, TWICE, delaying).await;
        let elsewhere = mutex(&client, &format!("{}-2", stage.path));
        let moved = within(elsewhere.requeue(again)).await.unwrap();
        let (next, _) = within(next).await.unwrap();
        within(moved.release()).await.unwrap();
        within(next.release()).await.unwrap();
    }
}

#[tokio::test]
async fn a_release_is_distinguished_from_a_failure_whenever_it_comes() {
    let stage = Stage::new("races").await;
    // Turns so short that many a waiter joins while the holder releases.
    let mut at_work = Vec::new();
    for _ in 0..3 {
        let lock = delaying(&stage.client().await, &stage.path, ENDLESS);
        at_work.push(tokio::spawn(async move {
            for _ in 0..60 {
                let guard = lock.acquire().await.unwrap();
                guard.release().await.unwrap();
            }
        }));
    }
    for work in at_work {
        within(work).await.unwrap();
    }
}

#[tokio::test]
async fn a_holder_that_was_asked_to_let_go_is_still_distinguished_from_one_that_failed() {
    let stage = Stage::new("asked").await;
    let client = stage.client().await;
    for releases in [true, false] {
        let delay = if releases { ENDLESS } else { BRIEF };
        let held = within(delaying(&client, &stage.path, delay).acquire())
            .await
            .unwrap();
        let (next, _w) = waiter(&stage, TWICE, |client| mutex(client, &stage.path)).await;
        let session = session(&client).await;
        let asking = session.set_data(held.node(), b"__REVOKE__", None);
        within(asking).await.unwrap();
        within(held.on_revoke()).await.unwrap();
        let ended = Instant::now();
        if releases {
            within(held.release()).await.unwrap();
        } else {
            session.delete(held.node(), None).await.unwrap();
        }
        let (guard, granted) = within(next).await.unwrap();
        assert!(releases || granted.duration_since(ended) >= BRIEF);
        within(guard.release()).await.unwrap();
    }
}

#[tokio::test]
async fn a_release_is_seen_by_one_that_finds_it_and_an_earlier_request_to_release_together() {
    let stage = Stage::new("together").await;
    let client = stage.client().await;
    let held = within(delaying(&client, &stage.path, ENDLESS).acquire()).await;
    let held = held.unwrap();
    let (other, proxy) = stage.proxied(LONG).await;
    let read = Match::reply(OpCode::GetData).path_contains(held.node());
    let read = proxy.on(read.every()).observe();
    let marker = proxy.on(Match::event(EventKind::NodeCreated)).observe();
    let lock = mutex(&other, &stage.path);
    let mut next = std::pin::pin!(lock.acquire());
    tokio::select! {
        _ = within(read.fired_times(TWICE)) => {}
        granted = &mut next => panic!("granted beside another: {granted:?}"),
    }
    // While it is not polled, as on a machine that is busy.
    let asking = session(&client)
        .await
        .set_data(held.node(), b"__REVOKE__", None);
    within(asking).await.unwrap();
    within(held.release()).await.unwrap();
    within(marker.fired()).await;
    until_quiet(&other, &proxy).await;
    let guard = within(next).await.unwrap();
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn one_that_gives_up_before_its_turn_holds_nobody_off() {
    let stage = Stage::new("gives-up").await;
    let client = stage.client().await;
    let held = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let lock = |client: &Client| delaying(client, &stage.path, ENDLESS);
    let (second, _second) = waiter(&stage, ONCE, lock).await;
    let (third, of_third) = waiter(&stage, ONCE, |client| mutex(client, &stage.path)).await;
    // Whom the third follows then.
    let read = Match::reply(OpCode::GetData).path_contains(held.node());
    let read = of_third.1.on(read).observe();
    second.abort();
    within(read.fired()).await;
    within(held.release()).await.unwrap();
    let (third, _) = within(third).await.unwrap();
    within(third.release()).await.unwrap();
}

#[tokio::test]
async fn a_delay_of_more_than_a_minute_is_refused_before_anything_is_sent() {
    let stage = Stage::new("too-long").await;
    let lock = mutex(&stage.client().await, &stage.path);
    let asked = Duration::from_secs(61);
    let refused = within(lock.lock_delay(asked).acquire()).await.unwrap_err();
    assert!(matches!(&refused, LockError::LockDelay { asked: a, .. } if *a == asked));
    assert!(refused.to_string().contains("60s"), "{refused}");
    assert_eq!(stage.children().await, []);
}
