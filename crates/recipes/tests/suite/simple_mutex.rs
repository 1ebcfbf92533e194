//! The simple lock: it locks, and it wakes everybody.

use std::time::Duration;

use baton::lock::{LockError, SimpleMutex};
use baton::record::Record;
use baton::tree::CreateMode;
use baton::{Client, LostReason};
use baton_client::{EventKind, Op, OpCode};
use baton_testkit::{Action, Match, Variant};

use crate::common::{CUTS, LONG, SHORT, Stage, mutex, session, within};

/// Long enough for a client to notice a silent connection and come back on another.
const ROOMY: Duration = Duration::from_secs(4);

fn simple(client: &Client, stage: &Stage) -> SimpleMutex {
    SimpleMutex::new(client, &stage.path).unwrap()
}

#[tokio::test]
async fn one_holds_the_others_wait_and_the_token_grows() {
    let stage = Stage::new("simple").await;
    let client = stage.client().await;
    let lock = simple(&client, &stage).name("me");
    let first = within(lock.acquire()).await.unwrap();
    assert_eq!(first.node(), format!("{}/lock", stage.path));
    let data = session(&client).await.get_data(first.node()).await.unwrap();
    assert_eq!(
        Record::from_bytes(&data.data).unwrap().name.as_deref(),
        Some("me")
    );
    // Of the same session too (H16).
    assert!(within(lock.try_acquire()).await.unwrap().is_none());
    let limit = Duration::from_millis(30);
    let waited = within(lock.acquire_timeout(limit)).await;
    assert!(matches!(waited, Err(LockError::TimedOut { limit: l, .. }) if l == limit));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let token = first.token();
    within(first.release()).await.unwrap();
    let second = within(waiting).await.unwrap().unwrap();
    assert!(second.token() > token);
    drop(second);
    stage.until_children(0).await;
}

/// The number of waiters, each on a connection of its own, that are notified of a release.
async fn woken_by_a_release(waiters: u64, herd: bool) -> usize {
    let stage = Stage::new("herd").await;
    let (holder, path) = (stage.client().await, stage.path.clone());
    let acquire = move |client: Client| {
        let path = path.clone();
        async move {
            if herd {
                let lock = SimpleMutex::new(&client, &path).unwrap();
                lock.acquire().await.unwrap()
            } else {
                mutex(&client, &path).acquire().await.unwrap()
            }
        }
    };
    let held = within(acquire(holder)).await;
    let mut waiting = tokio::task::JoinSet::new();
    let mut watching = Vec::new();
    for _ in 0..waiters {
        let (client, proxy) = stage.proxied(LONG).await;
        let set = Match::reply(OpCode::GetData).path_contains(&*stage.path);
        let set = proxy.on(set.every()).observe();
        let event = proxy.on(Match::event(EventKind::NodeDeleted)).observe();
        waiting.spawn(acquire(client));
        // In a queue there is a watch on the own node, too.
        within(set.fired_times(if herd { 1 } else { 2 })).await;
        watching.push((proxy, event));
    }
    within(held.release()).await.unwrap();
    // The next waiter keeps it until the counting is over.
    let next = within(waiting.join_next()).await.unwrap().unwrap();
    let events = Match::event(EventKind::NodeDeleted);
    for (_, event) in &watching {
        if herd {
            within(event.fired()).await;
        }
    }
    let count = watching.iter().map(|(proxy, _)| proxy.count(&events)).sum();
    drop(next);
    count
}

#[tokio::test]
async fn h52_a_release_wakes_all_who_wait_for_a_simple_lock_and_one_in_a_queue() {
    assert_eq!(woken_by_a_release(12, true).await, 12);
    assert_eq!(woken_by_a_release(12, false).await, 1);
}

#[tokio::test]
async fn h01_a_lost_reply_to_the_create_leaves_one_node_and_it_is_held() {
    for variant in CUTS {
        for message in [
            Match::request(OpCode::Create2).path_contains("/lock"),
            Match::reply(OpCode::Create2)
                .path_contains("/lock")
                .error(0),
        ] {
            let stage = Stage::new("h01").await;
            let (client, proxy) = stage.proxied(ROOMY).await;
            let cut = proxy.on(message).then(Action::Cut(variant));
            let guard = within(simple(&client, &stage).acquire()).await.unwrap();
            assert_eq!(cut.times(), 1, "{variant:?}");
            let nodes = stage.until_children(1).await;
            assert_eq!(nodes[0].stat.ephemeral_owner, session(&client).await.id());
            assert_eq!(u64::try_from(nodes[0].stat.czxid), Ok(guard.token()));
            within(guard.release()).await.unwrap();
            stage.until_children(0).await;
        }
    }
}

/// The node that a lost answer has left in doubt is there, and our session's: but it is another
/// acquire's.
#[tokio::test]
async fn h16_a_refusal_that_was_lost_does_not_make_another_acquires_node_ours() {
    let stage = Stage::new("h16").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let lock = simple(&client, &stage);
    let held = within(lock.acquire()).await.unwrap();
    let refusal = Match::reply(OpCode::Create2).path_contains("/lock");
    let cut = proxy.on(refusal).then(Action::Cut(Variant::Rst));
    let free = within(lock.try_acquire()).await.unwrap();
    assert_eq!(cut.times(), 1);
    assert!(free.is_none(), "held twice by one session");
    assert_eq!(held.check(), Ok(()));
    within(held.release()).await.unwrap();
    stage.until_children(0).await;
}

/// The answer is lost, and then nobody may read the node any more.
#[tokio::test]
async fn h01_h12_a_node_that_cannot_be_resolved_is_deleted() {
    let stage = Stage::new("h12").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let lock = simple(&client, &stage);
    within(within(lock.acquire()).await.unwrap().release())
        .await
        .unwrap();
    let id = session(&client).await.id();
    proxy.refuse();
    let reply = Match::reply(OpCode::Create2).path_contains("/lock");
    let cut = proxy.on(reply).then(Action::Cut(Variant::Rst));
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    within(cut.fired()).await;
    let node = format!("{}/lock", stage.path);
    let admin = session(&stage.client().await).await;
    crate::common::hide(&admin, &node).await;
    proxy.heal();
    let error = within(acquiring).await.unwrap().unwrap_err();
    assert!(matches!(error, LockError::Client { .. }), "{error}");
    crate::common::until_none(&admin, &node).await;
    assert_eq!(session(&client).await.id(), id);
}

#[tokio::test]
async fn h07_a_release_that_is_cut_off_happens_all_the_same() {
    for variant in CUTS {
        for op in [OpCode::Exists, OpCode::Delete] {
            let stage = Stage::new("h07").await;
            let (client, proxy) = stage.proxied(ROOMY).await;
            let guard = within(simple(&client, &stage).acquire()).await.unwrap();
            proxy.on(Match::request(op)).then(Action::Cut(variant));
            let _ = within(guard.release()).await;
            let id = session(&client).await.id();
            stage.until_children(0).await;
            assert_eq!(session(&client).await.id(), id, "{variant:?}");
        }
    }
}

#[tokio::test]
async fn h10_an_acquire_dropped_at_any_point_leaves_nothing_and_spares_the_holder() {
    let stage = Stage::new("h10").await;
    let client = stage.client().await;
    let lock = simple(&client, &stage);
    for held in [false, true] {
        for polls in 0..12 {
            let holder = match held {
                true => within(lock.try_acquire()).await.unwrap(),
                false => None,
            };
            assert_eq!(holder.is_some(), held);
            drop(crate::common::polled(lock.acquire(), polls).await);
            if let Some(holder) = holder {
                session(&client).await.sync("/").await.unwrap();
                assert_eq!(holder.check(), Ok(()), "{polls}");
                stage.until_children(1).await;
                within(holder.release()).await.unwrap();
            }
            stage.until_children(0).await;
        }
    }
}

#[tokio::test]
async fn h13_who_was_refused_does_not_meet_its_own_node_when_it_asks_otherwise() {
    let stage = Stage::new("h13").await;
    let (holder, client) = (stage.client().await, stage.client().await);
    let held = within(mutex(&holder, &stage.path).acquire()).await.unwrap();
    for _ in 0..10 {
        let error = within(simple(&client, &stage).acquire()).await.unwrap_err();
        assert!(matches!(error, LockError::Foreign { .. }), "{error}");
        let busy = within(mutex(&client, &stage.path).try_acquire()).await;
        assert!(busy.unwrap().is_none());
    }
    within(held.release()).await.unwrap();
}

#[tokio::test]
async fn h13_a_simple_lock_and_a_queue_do_not_hold_one_path_together() {
    let stage = Stage::new("h13").await;
    let client = stage.client().await;
    let line = mutex(&client, &stage.path);
    let held = within(line.acquire()).await.unwrap();
    let error = within(simple(&client, &stage).acquire()).await.unwrap_err();
    assert!(matches!(error, LockError::Foreign { .. }), "{error}");
    stage.until_children(1).await;
    within(held.release()).await.unwrap();
    let held = within(simple(&client, &stage).acquire()).await.unwrap();
    let error = within(line.acquire()).await.unwrap_err();
    assert!(matches!(error, LockError::Foreign { .. }), "{error}");
    stage.until_children(1).await;
    within(held.release()).await.unwrap();
    assert!(SimpleMutex::new(&client, "/").is_err());
}

#[tokio::test]
async fn h09_h38_a_node_that_another_has_put_in_the_place_of_ours_ends_the_guard_and_is_spared() {
    let stage = Stage::new("h09").await;
    let client = stage.client().await;
    let admin = session(&stage.client().await).await;
    let guard = within(simple(&client, &stage).acquire()).await.unwrap();
    let node = guard.node().to_owned();
    let replace = || {
        within(admin.multi(&[
            Op::delete(&*node, None),
            Op::create(&*node, &b"planted"[..], CreateMode::Ephemeral),
        ]))
    };
    replace().await.unwrap();
    assert_eq!(within(guard.lost()).await, LostReason::NodeGone);
    drop(guard);
    within(client.close_timeout(LONG)).await.unwrap();
    stage.until_children(1).await;
    within(admin.delete(&node, None)).await.unwrap();

    // A guard that is dropped before the event comes reads the node first.
    let (client, proxy) = stage.proxied(LONG).await;
    let guard = within(simple(&client, &stage).acquire()).await.unwrap();
    // Its watch on its node is set.
    within(session(&client).await.sync("/")).await.unwrap();
    let event = proxy
        .on(Match::event(EventKind::NodeDeleted))
        .then(Action::Hold);
    replace().await.unwrap();
    within(event.fired()).await;
    drop(guard);
    event.release();
    within(client.close_timeout(LONG)).await.unwrap();
    stage.until_children(1).await;
}

#[tokio::test]
async fn h09_h38_a_node_that_was_replaced_while_its_holder_was_away_ends_the_guard() {
    let stage = Stage::new("away").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let guard = within(simple(&client, &stage).acquire()).await.unwrap();
    // Its watch on its node is set.
    within(session(&client).await.sync("/")).await.unwrap();
    proxy.refuse();
    proxy.cut_all(Variant::Rst);
    let other = stage.client().await;
    within(session(&other).await.delete(guard.node(), None))
        .await
        .unwrap();
    let next = within(simple(&other, &stage).acquire()).await.unwrap();
    assert_eq!(next.node(), guard.node());
    proxy.heal();
    assert_eq!(within(guard.lost()).await, LostReason::NodeGone);
    assert_eq!(next.check(), Ok(()));
}

#[tokio::test]
async fn h32_after_the_session_is_lost_the_guard_is_dead_and_another_holds() {
    let stage = Stage::new("h32").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let guard = within(simple(&client, &stage).acquire()).await.unwrap();
    proxy.partition();
    let other = stage.client().await;
    let next = within(simple(&other, &stage).acquire()).await.unwrap();
    assert!(guard.check().is_err());
    assert!(next.token() > guard.token());
}
