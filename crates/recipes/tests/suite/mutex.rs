//! The mutex where nothing goes wrong.

use std::time::Duration;

use baton::guard::TxnError;
use baton::lock::LockError;
use baton::record::Record;
use baton::tree::CreateMode;
use baton::{LostReason, Mutex};
use baton_client::OpCode;
use baton_testkit::{Action, ExclusionChecker, Match};

use crate::common::{LONG, Stage, mutex, session, within};

#[tokio::test]
async fn a_free_lock_is_acquired_and_released_and_leaves_nothing() {
    let stage = Stage::new("free").await;
    let client = stage.client().await;
    let deep = format!("{}/a/b", stage.path);
    let guard = within(mutex(&client, &deep).name("me").acquire())
        .await
        .unwrap();
    assert_eq!(guard.check(), Ok(()));
    assert!(guard.remaining() > Duration::ZERO);
    assert!(guard.node().starts_with(&format!("{deep}/_c_")));

    let session = session(&client).await;
    let node = session.get_data(guard.node()).await.unwrap();
    assert_eq!(node.stat.ephemeral_owner, session.id());
    assert_eq!(u64::try_from(node.stat.czxid).unwrap(), guard.token());
    assert_eq!(
        Record::from_bytes(&node.data).unwrap().name.as_deref(),
        Some("me")
    );

    within(guard.release()).await.unwrap();
    assert!(session.children(&deep).await.unwrap().names.is_empty());
}

#[tokio::test]
async fn the_lock_goes_from_hand_to_hand_in_order_and_never_to_two() {
    let stage = Stage::new("order").await;
    let checker = ExclusionChecker::new();
    let holder = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    let mut waiters = Vec::new();
    for nth in 0..8usize {
        let client = stage.client().await;
        let (path, checker) = (stage.path.clone(), checker.clone());
        waiters.push(tokio::spawn(async move {
            let guard = mutex(&client, &path).acquire().await.unwrap();
            let inside = checker.enter(nth.to_string(), guard.token());
            tokio::task::yield_now().await;
            let entered = checker.entries();
            drop(inside);
            guard.release().await.unwrap();
            entered
        }));
        stage.until_children(nth + 2).await;
    }
    within(holder.release()).await.unwrap();
    for (nth, waiter) in waiters.into_iter().enumerate() {
        let entered = within(waiter).await.unwrap();
        assert_eq!(
            entered,
            u64::try_from(nth).unwrap() + 1,
            "first come, first served"
        );
    }
    checker.check().unwrap();
    stage.until_children(0).await;
}

#[tokio::test]
async fn a_holder_that_goes_to_the_end_of_the_queue_lets_all_others_have_their_turn() {
    let stage = Stage::new("requeue").await;
    let client = stage.client().await;
    let lock = mutex(&client, &stage.path);
    let first = within(lock.acquire()).await.unwrap();
    let (token, node) = (first.token(), first.node().to_owned());
    let checker = ExclusionChecker::new();
    let mut waiters = Vec::new();
    for nth in 0..3usize {
        let (lock, checker) = (mutex(&stage.client().await, &stage.path), checker.clone());
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            drop(checker.enter(nth.to_string(), guard.token()));
            guard.release().await.unwrap();
        }));
        stage.until_children(nth + 2).await;
    }
    let again = within(lock.requeue(first)).await.unwrap();
    assert_eq!(checker.entries(), 3, "all that stood behind came first");
    drop(checker.enter("again".to_owned(), again.token()));
    checker.check().unwrap();
    assert!(again.token() > token && again.node() != node);
    stage.until_children(1).await;
    within(again.release()).await.unwrap();
    stage.until_children(0).await;
}

#[tokio::test]
async fn requeueing_alone_costs_one_write_and_leaves_one_node() {
    let stage = Stage::new("requeue-alone").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let lock = mutex(&client, &stage.path).name("me");
    let first = within(lock.acquire()).await.unwrap();
    let token = first.token();
    let (creates, deletes, multis) = (
        Match::request(OpCode::Create2),
        Match::request(OpCode::Delete),
        Match::request(OpCode::Multi),
    );
    let before = (proxy.count(&creates), proxy.count(&deletes));
    let multis_before = proxy.count(&multis);
    let again = within(lock.requeue(first)).await.unwrap();
    assert_eq!((proxy.count(&creates), proxy.count(&deletes)), before);
    assert_eq!(proxy.count(&multis), multis_before + 1);
    assert!(again.token() > token);
    assert_eq!(again.check(), Ok(()));
    let node = session(&client).await.get_data(again.node()).await.unwrap();
    assert_eq!(u64::try_from(node.stat.czxid).unwrap(), again.token());
    let record = Record::from_bytes(&node.data).unwrap();
    assert_eq!(record.name.as_deref(), Some("me"));
    stage.until_children(1).await;
}

#[tokio::test]
async fn h07_a_requeue_whose_answer_is_lost_is_resolved_and_not_sent_again() {
    for variant in crate::common::CUTS {
        let stage = Stage::new("h07").await;
        let (client, proxy) = stage.proxied(LONG).await;
        let lock = mutex(&client, &stage.path);
        let first = within(lock.acquire()).await.unwrap();
        let multis = Match::request(OpCode::Multi);
        let before = proxy.count(&multis);
        proxy
            .on(Match::reply(OpCode::Multi))
            .then(Action::Cut(variant));
        let again = within(lock.requeue(first)).await.unwrap();
        assert_eq!(proxy.count(&multis), before + 1, "{variant:?}");
        assert_eq!(again.check(), Ok(()));
        stage.until_children(1).await;
    }
}

#[tokio::test]
async fn a_requeue_of_what_was_lost_says_so_and_leaves_nothing() {
    let stage = Stage::new("requeue-of-lost").await;
    let client = stage.client().await;
    let lock = mutex(&client, &stage.path);
    let guard = within(lock.acquire()).await.unwrap();
    let other = session(&stage.client().await).await;
    other.delete(guard.node(), None).await.unwrap();
    within(guard.lost()).await;
    let error = within(lock.requeue(guard)).await.unwrap_err();
    let reason = LostReason::NodeGone;
    assert!(matches!(error, LockError::Lost { reason: r, .. } if r == reason));
    stage.until_children(0).await;
}

#[tokio::test]
async fn a_guard_of_another_lock_is_released_before_this_one_is_acquired() {
    let stage = Stage::new("requeue-elsewhere").await;
    let client = stage.client().await;
    let elsewhere = format!("{}-other", stage.path);
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let moved = within(mutex(&client, &elsewhere).requeue(guard)).await;
    assert!(moved.unwrap().node().starts_with(&elsewhere));
    stage.until_children(0).await;
}

#[tokio::test]
async fn try_acquire_takes_a_free_lock_and_leaves_a_held_one() {
    let stage = Stage::new("try").await;
    let (one, other) = (stage.client().await, stage.client().await);
    let guard = within(mutex(&one, &stage.path).try_acquire())
        .await
        .unwrap()
        .unwrap();
    assert!(
        within(mutex(&other, &stage.path).try_acquire())
            .await
            .unwrap()
            .is_none()
    );
    stage.until_children(1).await;
    within(guard.release()).await.unwrap();
    assert!(
        within(mutex(&other, &stage.path).try_acquire())
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_wait_that_is_too_long_says_so_and_leaves_the_queue() {
    let stage = Stage::new("timeout").await;
    let client = stage.client().await;
    let _guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let limit = Duration::from_millis(200);
    let error = within(mutex(&client, &stage.path).acquire_timeout(limit))
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
    stage.until_children(1).await;
}

#[tokio::test]
async fn a_dropped_guard_lets_the_next_one_in() {
    let stage = Stage::new("drop").await;
    let client = stage.client().await;
    drop(within(mutex(&client, &stage.path).acquire()).await.unwrap());
    let _next = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
}

#[tokio::test]
async fn run_drives_the_work_to_its_end_or_drops_it_with_the_guard() {
    let stage = Stage::new("run").await;
    let client = stage.client().await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    assert_eq!(guard.run(async { 7 }).await, Ok(7));
    let session = session(&client).await;
    let node = guard.node().to_owned();
    let endless = guard.run(async {
        session.delete(&node, None).await.unwrap();
        std::future::pending::<()>().await;
    });
    assert_eq!(within(endless).await, Err(LostReason::NodeGone));
    // Also where the work itself is woken by nothing.
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let admin = crate::common::session(&stage.client().await).await;
    let node = guard.node().to_owned();
    let endless = tokio::spawn(async move { guard.run(std::future::pending::<()>()).await });
    tokio::task::yield_now().await;
    within(admin.delete(&node, None)).await.unwrap();
    assert_eq!(within(endless).await.unwrap(), Err(LostReason::NodeGone));
}

#[tokio::test]
async fn a_transaction_is_applied_only_while_the_lock_is_held() {
    let stage = Stage::new("txn").await;
    let client = stage.client().await;
    let session = session(&client).await;
    let state = format!("{}-state", stage.path);
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let made = guard
        .txn()
        .create(&state, b"1", CreateMode::Persistent)
        .commit()
        .await
        .unwrap();
    assert_eq!(made.results().unwrap().len(), 1);
    guard
        .txn()
        .set(&state, b"2", Some(0))
        .check(&stage.path, None)
        .commit()
        .await
        .unwrap();

    let conflict = guard
        .txn()
        .check(&state, None)
        .set(&state, b"x", Some(0))
        .commit()
        .await;
    assert!(
        matches!(conflict, Err(TxnError::Conflict { index: 1, .. })),
        "{conflict:?}"
    );
    assert_eq!(
        guard.check(),
        Ok(()),
        "a conflict of data is no loss of the lock"
    );

    session.delete(guard.node(), None).await.unwrap();
    let lost = guard.txn().set(&state, b"3", None).commit().await;
    assert!(matches!(lost, Err(TxnError::Lost { .. })), "{lost:?}");
    assert_eq!(&session.get_data(&state).await.unwrap().data[..], b"2");
}

#[tokio::test]
async fn a_path_that_cannot_be_a_lock_is_refused_before_anything_is_sent() {
    let stage = Stage::new("path").await;
    let client = stage.client().await;
    for path in ["", "relative", "/", "/a//b", "/a/", "/a/../b"] {
        let error = Mutex::new(&client, path).unwrap_err();
        assert!(
            matches!(error, LockError::BadPath { .. }),
            "{path}: {error}"
        );
        assert!(!error.to_string().contains('\n'));
    }
}

#[tokio::test]
async fn a_release_and_the_next_acquire_travel_together() {
    let stage = Stage::new("eager").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let lock = mutex(&client, &stage.path);
    let guard = within(lock.acquire()).await.unwrap();
    let answer = proxy.on(Match::reply(OpCode::Delete)).then(Action::Hold);
    let create = proxy.on(Match::request(OpCode::Create2)).observe();
    let released = guard.release();
    let next = tokio::spawn(async move { lock.acquire().await });
    // The release is not answered yet, and nobody has asked for its answer.
    within(create.fired()).await;
    answer.release();
    within(released).await.unwrap();
    assert_eq!(within(next).await.unwrap().unwrap().check(), Ok(()));
}

#[tokio::test]
async fn a_release_that_nobody_awaits_happens() {
    let stage = Stage::new("unawaited").await;
    let client = stage.client().await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    guard.release();
    stage.until_children(0).await;
}

#[tokio::test]
async fn a_holder_that_is_asked_for_the_lock_is_notified_and_holds_until_it_releases() {
    let stage = Stage::new("revoke").await;
    let client = stage.client().await;
    let admin = session(&stage.client().await).await;
    for word in ["__REVOKE__", "unlock"] {
        let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
        assert!(!guard.revoke_requested());
        let asked = guard.on_revoke();
        let other_data = admin.set_data(guard.node(), b"anything", None);
        within(other_data).await.unwrap();
        let request = admin.set_data(guard.node(), word.as_bytes(), None);
        within(request).await.unwrap();
        // Notified at once, not at the next check of the lease.
        let asked = tokio::time::timeout(LONG / 2, asked).await;
        assert_eq!(asked, Ok(Ok(())));
        assert!(guard.revoke_requested());
        assert_eq!(within(guard.on_revoke()).await, Ok(()), "asked before");
        assert_eq!(guard.check(), Ok(()), "cooperative");
        let late = guard.on_revoke();
        within(guard.release()).await.unwrap();
        assert_eq!(within(late).await, Err(LostReason::Released));
    }
}

#[tokio::test]
async fn a_guard_whose_node_may_not_be_read_is_held_as_long_as_its_session_lives() {
    let stage = Stage::new("unreadable").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let admin = session(&stage.client().await).await;
    // The read that sets the watch on our own node.
    let read = Match::request(OpCode::GetData).path_contains(&stage.path);
    let read = proxy.on(read).then(Action::Hold);
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    within(read.fired()).await;
    crate::common::hide(&admin, guard.node()).await;
    read.release();
    crate::common::until_quiet(&client, &proxy).await;
    assert_eq!(guard.check(), Ok(()));
    let lost = guard.lost();
    within(client.close_timeout(LONG)).await.unwrap();
    assert_eq!(within(lost).await, LostReason::SessionLost);
}
