//! The lock delay: after a holder that has failed the next leaves the lock alone for a time; after a release it does not.
//!
//! A delay that must not be waited for is longer than the patience of a test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use baton::{Client, Dialect, Guard, LockError, LostReason, MultiLock, Mutex};
use common::{SHORT, Stage, mutex, session, within};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Waited out by these tests.
const BRIEF: Duration = Duration::from_millis(1200);

/// Never waited out by these tests.
const ENDLESS: Duration = Duration::from_secs(60);

fn delaying(client: &Client, path: &str, delay: Duration) -> Mutex {
    mutex(client, path).lock_delay(delay).unwrap()
}

/// An acquire that stands at this place in line, the holder's being 0, and later the guard and when it came.
async fn waiter(stage: &Stage, lock: Mutex, place: usize) -> JoinHandle<(Guard, Instant)> {
    waiting(stage, place, async move { lock.acquire().await.unwrap() }).await
}

/// The same of any way into the line.
async fn waiting<T: Send + 'static>(
    stage: &Stage,
    place: usize,
    acquire: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<(T, Instant)> {
    let waiting = tokio::spawn(async move {
        let guard = acquire.await;
        (guard, Instant::now())
    });
    stage.until_children(place + 1).await;
    // For its watches, which follow its node within two round trips.
    tokio::time::sleep(Duration::from_millis(150)).await;
    waiting
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
    let next = waiter(&stage, mutex(&other, &stage.path), 1).await;
    proxy.partition();
    let seen = last_seen(&other, held.node()).await;
    let (guard, granted) = within(next).await.unwrap();
    assert!(granted.duration_since(seen) >= BRIEF);
    assert!(held.check().is_err());
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_broken_is_left_alone_for_the_delay_and_the_line_is_held_off_as_a_whole() {
    let stage = Stage::new("broken").await;
    let other = stage.client().await;
    let held = within(delaying(&other, &stage.path, BRIEF).acquire())
        .await
        .unwrap();
    let second = waiter(&stage, delaying(&other, &stage.path, BRIEF), 1).await;
    let third = waiter(&stage, delaying(&other, &stage.path, BRIEF), 2).await;
    let broken = Instant::now();
    let breaking = session(&other).await;
    breaking.delete(held.node(), None).await.unwrap();
    // The second, who waits for the delay to pass, gives up: that is not to let the third in at once.
    stage.until_children(2).await;
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
    let next = waiter(&stage, mutex(&other, &stage.path), 1).await;
    let before = Instant::now();
    let held = held.with_liveness(Duration::from_secs(5), || async { false });
    assert_eq!(within(held.lost()).await, LostReason::NotAlive);
    let (guard, granted) = within(next).await.unwrap();
    assert!(granted.duration_since(before) >= BRIEF);
    within(guard.release()).await.unwrap();
}

/// Breaks the lock that `held` holds, and then takes the one who is held off out of the line: that is not to spare it the delay.
async fn loses_its_place<T>(stage: &Stage, held: &Guard, next: JoinHandle<(T, Instant)>) -> T {
    let breaking = session(&stage.client().await).await;
    let broken = Instant::now();
    breaking.delete(held.node(), None).await.unwrap();
    let left = stage.until_children(1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    breaking.delete(&left[0].path, None).await.unwrap();
    let (guard, granted) = within(next).await.unwrap();
    assert!(granted.duration_since(broken) >= 2 * BRIEF);
    guard
}

#[tokio::test]
async fn one_that_loses_its_place_while_it_is_held_off_does_not_forget_the_delay() {
    let stage = Stage::new("place").await;
    let client = stage.client().await;
    let lock = delaying(&client, &stage.path, 2 * BRIEF);
    let held = within(lock.acquire()).await.unwrap();
    let next = waiter(&stage, mutex(&client, &stage.path), 1).await;
    let guard = loses_its_place(&stage, &held, next).await;
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn one_that_has_joined_again_and_loses_its_place_does_not_forget_the_delay() {
    let stage = Stage::new("again").await;
    let client = stage.client().await;
    let lock = delaying(&client, &stage.path, 2 * BRIEF);
    let held = within(lock.acquire()).await.unwrap();
    let next = waiter(&stage, lock.clone(), 1).await;
    let again = waiting(&stage, 1, async move { lock.requeue(held).await.unwrap() }).await;
    let (held, _) = within(next).await.unwrap();
    let guard = loses_its_place(&stage, &held, again).await;
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn one_that_waits_for_several_locks_and_loses_its_place_does_not_forget_the_delay() {
    let stage = Stage::new("several").await;
    let client = stage.client().await;
    let lock = delaying(&client, &stage.path, 2 * BRIEF);
    let held = within(lock.acquire()).await.unwrap();
    let paths = [stage.path.clone(), format!("{}-2", stage.path)];
    let both = MultiLock::new(&client, paths).unwrap();
    let next = waiting(&stage, 1, async move { both.acquire().await.unwrap() }).await;
    let guard = loses_its_place(&stage, &held, next).await;
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn after_a_release_nobody_is_held_off_in_any_dialect_whichever_way_it_was_released() {
    for dialect in [Dialect::Curator, Dialect::Kazoo, Dialect::WriteLock] {
        let stage = Stage::new("released").await;
        let client = stage.client().await;
        let lock = delaying(&client, &stage.path, ENDLESS).dialect(dialect);
        let held = within(lock.acquire()).await.unwrap();
        let second = waiter(&stage, lock.clone(), 1).await;
        let third = waiter(&stage, lock.clone(), 2).await;
        let fourth = waiter(&stage, lock.clone(), 3).await;
        within(held.release()).await.unwrap();
        let (second, _) = within(second).await.unwrap();
        // In the background.
        drop(second);
        let (third, _) = within(third).await.unwrap();
        // In the step that joins the line again.
        let again = tokio::spawn({
            let lock = lock.clone();
            async move { lock.requeue(third).await }
        });
        let (fourth, _) = within(fourth).await.unwrap();
        within(fourth.release()).await.unwrap();
        let again = within(again).await.unwrap().unwrap();
        // In favour of another lock.
        let next = waiter(&stage, lock, 1).await;
        let elsewhere = mutex(&client, &format!("{}-2", stage.path));
        let moved = within(elsewhere.requeue(again)).await.unwrap();
        let (next, _) = within(next).await.unwrap();
        within(moved.release()).await.unwrap();
        within(next.release()).await.unwrap();
    }
}

#[tokio::test]
async fn a_release_is_told_from_a_failure_whenever_it_comes() {
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
async fn a_holder_that_was_asked_to_let_go_is_still_told_from_one_that_failed() {
    let stage = Stage::new("asked").await;
    let client = stage.client().await;
    for releases in [true, false] {
        let delay = if releases { ENDLESS } else { BRIEF };
        let held = within(delaying(&client, &stage.path, delay).acquire())
            .await
            .unwrap();
        let next = waiter(&stage, mutex(&client, &stage.path), 1).await;
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
async fn one_that_gives_up_before_its_turn_holds_nobody_off() {
    let stage = Stage::new("gives-up").await;
    let client = stage.client().await;
    let held = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let second = waiter(&stage, delaying(&client, &stage.path, ENDLESS), 1).await;
    let third = waiter(&stage, mutex(&client, &stage.path), 2).await;
    second.abort();
    stage.until_children(2).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    within(held.release()).await.unwrap();
    let (third, _) = within(third).await.unwrap();
    within(third.release()).await.unwrap();
}

#[tokio::test]
async fn a_delay_of_more_than_a_minute_is_refused_before_anything_is_sent() {
    let stage = Stage::new("too-long").await;
    let lock = mutex(&stage.client().await, &stage.path);
    let asked = Duration::from_secs(61);
    let refused = lock.lock_delay(asked).unwrap_err();
    assert!(matches!(&refused, LockError::LockDelay { asked: a, .. } if *a == asked));
    assert!(refused.to_string().contains("60s"), "{refused}");
    assert_eq!(stage.children().await, []);
}
