//! Hazards of waiting, of numbers past their end, and of guards as values
//! (`docs/internals/hazards.md` §3.2, §3.4, §3.7).

use std::marker::PhantomData;
use std::time::Duration;

use baton::lock::LockError;
use baton::{Guard, LostReason};
use baton_client::{EventKind, OpCode};
use baton_testkit::{Action, Match, inspect};

use crate::common::{LONG, Stage, mutex, plant, session, within};

#[tokio::test]
async fn h19_h21_a_holder_at_the_end_of_the_numbers_keeps_the_lock() {
    for number in ["2147483647", "-2147483648", "0000000000"] {
        let stage = Stage::new("h19").await;
        let client = stage.client().await;
        // Makes the directory, so that ours gets number 1 and would sort before or beside the
        // planted ones by number.
        stage.used().await;
        let other = session(&stage.client().await).await;
        let planted = format!("{}/_c_zz-lock-{number}", stage.path);
        plant(&other, &planted).await;
        let lock = mutex(&client, &stage.path);
        assert!(
            within(lock.try_acquire()).await.unwrap().is_none(),
            "{number}: granted twice"
        );
        let waiting = tokio::spawn(async move { lock.acquire().await });
        stage.until_children(2).await;
        other.delete(&planted, None).await.unwrap();
        within(within(waiting).await.unwrap().unwrap().release())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn h21_a_later_node_with_our_number_does_not_pass_us() {
    let stage = Stage::new("h21").await;
    let client = stage.client().await;
    let held = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let number = held.node().rsplit('-').next().unwrap().to_owned();
    let other = session(&stage.client().await).await;
    // By name it sorts first.
    let twin = format!("{}/_a-lock-{number}", stage.path);
    plant(&other, &twin).await;
    let lock = mutex(&client, &stage.path);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    stage.until_children(3).await;
    within(held.release()).await.unwrap();
    stage.until_children(2).await;
    assert!(!waiting.is_finished(), "the twin stood before it");
    other.delete(&twin, None).await.unwrap();
    within(within(waiting).await.unwrap().unwrap().release())
        .await
        .unwrap();
}

#[tokio::test]
async fn h20_h22_h23_a_number_that_cannot_be_read_ends_the_acquire() {
    let stage = Stage::new("h22").await;
    let client = stage.client().await;
    stage.used().await;
    let other = session(&stage.client().await).await;
    let child = "x-lock-99999999999999999999";
    plant(&other, &format!("{}/{child}", stage.path)).await;
    let error = within(mutex(&client, &stage.path).acquire())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, LockError::Foreign { child: c, .. } if c == child),
        "{error}"
    );
    stage.until_children(1).await;
}

#[tokio::test]
async fn h30_a_waiter_that_gave_up_is_not_enrolled_again_when_its_predecessor_goes() {
    let stage = Stage::new("h30").await;
    let (holder, waiter) = (stage.client().await, stage.client().await);
    let held = within(mutex(&holder, &stage.path).acquire()).await.unwrap();
    let limit = Duration::from_millis(300);
    let gave_up = within(mutex(&waiter, &stage.path).acquire_timeout(limit)).await;
    assert!(matches!(gave_up, Err(LockError::TimedOut { .. })));
    stage.until_children(1).await;
    within(held.release()).await.unwrap();
    // Whatever the release set off at the waiter was sent to it before these answers.
    for _ in 0..20 {
        session(&waiter).await.sync(&stage.path).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert!(stage.children().await.is_empty(), "a ghost waits");
}

#[tokio::test]
async fn h31_a_predecessor_that_vanishes_between_list_and_watch_is_skipped_at_once() {
    let stage = Stage::new("h31").await;
    let held = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    let middle = mutex(&stage.client().await, &stage.path);
    let middle = tokio::spawn(async move { middle.acquire().await });
    let nodes = stage.until_children(2).await;
    let before = nodes
        .iter()
        .find(|node| node.path != held.node())
        .unwrap()
        .path
        .clone();
    let (client, proxy) = stage.proxied(LONG).await;
    let watch = proxy
        .on(Match::request(OpCode::GetData).path_contains(before.as_str()))
        .then(Action::Hold);
    let last = mutex(&client, &stage.path);
    let last = tokio::spawn(async move { last.acquire().await });
    within(watch.fired()).await;
    middle.abort();
    stage.until_children(2).await;
    watch.release();
    let next = proxy
        .on(Match::reply(OpCode::GetData).path_contains(held.node()))
        .observe();
    within(next.fired()).await;
    assert!(!last.is_finished(), "granted while the first still holds");
    within(held.release()).await.unwrap();
    within(within(last).await.unwrap().unwrap().release())
        .await
        .unwrap();
}

#[tokio::test]
async fn h31_a_holder_that_vanishes_between_list_and_watch_is_the_grant() {
    let stage = Stage::new("h31b").await;
    let held = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    let (client, proxy) = stage.proxied(LONG).await;
    let watch = proxy
        .on(Match::request(OpCode::GetData).path_contains(held.node()))
        .then(Action::Hold);
    let lock = mutex(&client, &stage.path);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    within(watch.fired()).await;
    within(held.release()).await.unwrap();
    watch.release();
    within(within(waiting).await.unwrap().unwrap().release())
        .await
        .unwrap();
}

#[tokio::test]
async fn h50_a_limit_counts_from_the_call_however_often_the_waiter_is_woken() {
    let stage = Stage::new("h50").await;
    let client = stage.client().await;
    let _held = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let limit = Duration::from_millis(800);
    let (path, other) = (stage.path.clone(), stage.client().await);
    // Always one more waiter that gives up in front of the next: each departure wakes anyone who
    // stands behind it.
    let churn = tokio::spawn(async move {
        loop {
            let lock = mutex(&other, &path);
            let _ = lock.acquire_timeout(Duration::from_millis(60)).await;
        }
    });
    let waited = within(mutex(&client, &stage.path).acquire_timeout(limit)).await;
    assert!(matches!(waited, Err(LockError::TimedOut { limit: l, .. }) if l == limit));
    churn.abort();
    stage.until_children(1).await;
}

#[tokio::test]
async fn h51_an_acquire_dropped_before_it_began_does_not_touch_the_next() {
    let stage = Stage::new("h51").await;
    let client = stage.client().await;
    let lock = mutex(&client, &stage.path);
    drop(lock.acquire());
    drop(lock.acquire_timeout(Duration::ZERO));
    let guard = within(lock.acquire()).await.unwrap();
    assert_eq!(guard.check(), Ok(()));
}

#[tokio::test]
async fn h52_a_release_wakes_one_waiter() {
    let stage = Stage::new("h52").await;
    let waiters = 40;
    let held = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    let (client, proxy) = stage.proxied(LONG).await;
    let mut waiting = Vec::new();
    for nth in 0..waiters {
        let lock = mutex(&client, &stage.path);
        waiting.push(tokio::spawn(async move { lock.acquire().await }));
        stage.until_children(nth + 2).await;
    }
    let (ends, all) = (Match::event(EventKind::NodeDeleted), Match::any_event());
    let listings = Match::request(OpCode::GetChildren);
    let listed = proxy.count(&listings);
    within(held.release()).await.unwrap();
    let first = within(waiting.remove(0)).await.unwrap().unwrap();
    assert_eq!(proxy.count(&all), 1, "one release, one event");
    within(first.release()).await.unwrap();
    let second = within(waiting.remove(0)).await.unwrap().unwrap();
    assert_eq!(proxy.count(&ends), 2, "another release, another end");
    assert_eq!(
        proxy.count(&all),
        3,
        "and its release marker, for the same waiter"
    );
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
    assert_eq!(
        proxy.count(&listings),
        listed,
        "nobody had to list the queue again"
    );
    drop(second);
    for waiter in waiting {
        waiter.abort();
    }
}

#[tokio::test]
async fn h52_one_that_leaves_before_its_turn_does_not_pass_the_lock_on() {
    let stage = Stage::new("h52-leaves").await;
    let held = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    let (second, third) = (stage.client().await, stage.client().await);
    let gives_up = tokio::spawn({
        let lock = mutex(&second, &stage.path);
        async move { lock.acquire().await }
    });
    stage.until_children(2).await;
    let waits = tokio::spawn({
        let lock = mutex(&third, &stage.path);
        async move { lock.acquire().await }
    });
    stage.until_children(3).await;
    gives_up.abort();
    stage.until_children(2).await;
    // The third has seen the one before it go, and must find out that it did not hold.
    session(&third).await.sync(&stage.path).await.unwrap();
    assert!(!waits.is_finished());
    assert_eq!(held.check(), Ok(()));
    within(held.release()).await.unwrap();
    let guard = within(waits).await.unwrap().unwrap();
    assert_eq!(guard.check(), Ok(()));
}

#[tokio::test]
async fn h53_waits_that_timed_out_leave_no_watches() {
    let stage = Stage::new("h53").await;
    let (holder, client) = (stage.client().await, stage.client().await);
    let held = within(mutex(&holder, &stage.path).acquire()).await.unwrap();
    session(&holder).await.sync("/").await.unwrap();
    let before = within(inspect::watch_count(stage.addr)).await.unwrap();
    for _ in 0..100 {
        let lock = mutex(&client, &stage.path);
        let _ = within(lock.acquire_timeout(Duration::from_millis(5))).await;
    }
    stage.until_children(1).await;
    within(async {
        while inspect::watch_count(stage.addr).await.unwrap() > before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    within(held.release()).await.unwrap();
}

#[tokio::test]
async fn h54_the_news_of_a_loss_may_be_answered_by_acquiring_again() {
    let stage = Stage::new("h54").await;
    let client = stage.client().await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let admin = session(&stage.client().await).await;
    let lock = mutex(&client, &stage.path);
    let lost = guard.lost();
    let reaction = tokio::spawn(async move {
        assert_eq!(lost.await, LostReason::NodeGone);
        lock.acquire().await.unwrap().release().await
    });
    let children = session(&client)
        .await
        .children_watch(&stage.path)
        .await
        .unwrap()
        .1;
    let lock = mutex(&client, &stage.path);
    let by_watch = tokio::spawn(async move {
        let event = children.await.unwrap();
        assert_eq!(event.kind, EventKind::NodeChildrenChanged);
        lock.acquire().await.unwrap().release().await
    });
    admin.delete(guard.node(), None).await.unwrap();
    within(reaction).await.unwrap().unwrap();
    within(by_watch).await.unwrap().unwrap();
}

#[test]
fn h88_a_guard_may_be_dropped_anywhere() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (stage, client) = runtime.block_on(async {
        let stage = Stage::new("h88").await;
        let client = stage.client().await;
        (stage, client)
    });
    let acquire = |path: &str| {
        runtime
            .block_on(within(mutex(&client, path).acquire()))
            .unwrap()
    };

    // Outside the runtime.
    drop(acquire(&stage.path));
    runtime.block_on(stage.until_children(0));

    // While a task panics.
    let guard = acquire(&stage.path);
    let panicked = runtime.spawn(async move {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(runtime.block_on(panicked).unwrap_err().is_panic());
    runtime.block_on(stage.until_children(0));

    // In a task that the shutdown of its runtime drops, and after the shutdown.
    let (in_task, after) = (
        acquire(&stage.path),
        acquire(&format!("{}-after", stage.path)),
    );
    runtime.spawn(async move {
        let _guard = in_task;
        std::future::pending::<()>().await;
    });
    drop(runtime);
    drop(after);
}

#[test]
fn h89_a_guard_cannot_be_cloned() {
    trait NotCloned {
        const CLONES: bool = false;
    }
    struct Probe<T>(PhantomData<T>);
    impl<T> NotCloned for Probe<T> {}
    impl<T: Clone> Probe<T> {
        const CLONES: bool = true;
    }
    const { assert!(Probe::<String>::CLONES, "the probe works") };
    const { assert!(!Probe::<Guard>::CLONES) };
    const { assert!(!Probe::<baton::Leadership>::CLONES) };
}
