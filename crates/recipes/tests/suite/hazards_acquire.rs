//! Hazards of creating, finding again and cleaning up our node (`docs/internals/hazards.md` §3.1).

use std::time::Duration;

use baton::LostReason;
use baton::guard::{ReleaseError, TxnError};
use baton::lock::LockError;
use baton::naming::Dialect;
use baton::tree::CreateMode;
use baton_client::{Acl, ErrorCode, Op, OpCode, Perms};
use baton_testkit::{Action, FrameKind, Match, Variant};

use crate::common::{CUTS, LONG, SHORT, Stage, mutex, plant, session, within};

/// Long enough for a client to notice a silent connection and come back on another.
const ROOMY: Duration = Duration::from_secs(4);

#[tokio::test]
async fn h01_h15_a_lost_reply_to_the_create_leaves_one_node_and_it_is_held() {
    for variant in CUTS {
        let stage = Stage::new("h01").await;
        stage.used().await;
        let (client, proxy) = stage.proxied(ROOMY).await;
        let cut = proxy
            .on(Match::reply(OpCode::Create2))
            .then(Action::Cut(variant));
        let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
        assert_eq!(cut.times(), 1, "{variant:?}");
        let nodes = stage.children().await;
        assert_eq!(nodes.len(), 1, "{variant:?}: {nodes:?}");
        assert_eq!(
            nodes[0].path,
            guard.node(),
            "{variant:?}: found again by its full path (H15)"
        );
        assert_eq!(nodes[0].stat.ephemeral_owner, session(&client).await.id());
        within(guard.release()).await.unwrap();
        assert!(stage.children().await.is_empty(), "{variant:?}");
    }
}

#[tokio::test]
async fn h01_a_create_that_never_arrived_is_made_again() {
    for variant in CUTS {
        let stage = Stage::new("h01b").await;
        stage.used().await;
        let (client, proxy) = stage.proxied(ROOMY).await;
        proxy
            .on(Match::request(OpCode::Create2))
            .then(Action::Cut(variant));
        let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
        assert_eq!(stage.children().await.len(), 1, "{variant:?}");
        within(guard.release()).await.unwrap();
    }
}

#[tokio::test]
async fn h03_a_node_with_our_marker_of_another_session_is_not_ours() {
    let stage = Stage::new("h03").await;
    stage.used().await;
    let (client, proxy) = stage.proxied(LONG).await;
    let cut = proxy
        .on(Match::request(OpCode::Create2))
        .then(Action::Cut(Variant::Rst));
    let lock = mutex(&client, &stage.path);
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    proxy.refuse();
    let sent = within(cut.fired()).await;
    let other = session(&stage.client().await).await;
    plant(&other, &format!("{}0000000000", sent.path.unwrap())).await;
    proxy.heal();
    let guard = within(acquiring).await.unwrap().unwrap();
    let nodes = stage.until_children(1).await;
    assert_eq!(nodes[0].path, guard.node());
    assert_eq!(nodes[0].stat.ephemeral_owner, session(&client).await.id());
}

#[tokio::test]
async fn h04_after_the_session_expired_in_mid_create_the_node_is_new_and_of_the_new_session() {
    let stage = Stage::new("h04").await;
    stage.used().await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let old = session(&client).await;
    let cut = proxy
        .on(Match::reply(OpCode::Create2))
        .then(Action::Cut(Variant::Rst));
    let lock = mutex(&client, &stage.path);
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    within(cut.fired()).await;
    proxy.refuse();
    let first = stage.until_children(1).await;
    stage.until_children(0).await;
    within(old.ended()).await;
    proxy.heal();
    let guard = within(acquiring).await.unwrap().unwrap();
    let nodes = stage.until_children(1).await;
    assert_ne!(nodes[0].stat.ephemeral_owner, old.id());
    let marker = |path: &str| path.rsplit('/').next().unwrap()[..39].to_owned();
    assert_ne!(
        marker(&first[0].path),
        marker(guard.node()),
        "a marker is never used twice"
    );
}

#[tokio::test]
async fn h05_an_abandoned_create_is_reaped_once_the_server_can_be_reached() {
    for variant in CUTS {
        let stage = Stage::new("h05").await;
        stage.used().await;
        let (client, proxy) = stage.proxied(ROOMY).await;
        let cut = proxy
            .on(Match::reply(OpCode::Create2))
            .then(Action::Cut(variant));
        let lock = mutex(&client, &stage.path);
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        within(cut.fired()).await;
        proxy.refuse();
        stage.until_children(1).await;
        acquiring.abort();
        let id = session(&client).await.id();
        proxy.heal();
        stage.until_children(0).await;
        assert_eq!(
            session(&client).await.id(),
            id,
            "{variant:?}: not by the session's end"
        );
    }
}

#[tokio::test]
async fn h06_a_restarted_process_of_the_same_name_waits_for_its_own_dead_session() {
    let stage = Stage::new("h06").await;
    let (before, after) = (stage.client().await, stage.client().await);
    let held = within(mutex(&before, &stage.path).name("worker-1").acquire())
        .await
        .unwrap();
    let again = mutex(&after, &stage.path).name("worker-1");
    assert!(within(again.try_acquire()).await.unwrap().is_none());
    assert_eq!(held.check(), Ok(()));
}

#[tokio::test]
async fn h07_a_release_that_is_not_confirmed_says_so_and_happens_all_the_same() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Delete), Match::reply(OpCode::Delete)] {
            let stage = Stage::new("h07").await;
            let (client, proxy) = stage.proxied(ROOMY).await;
            let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
            proxy.on(message).then(Action::Cut(variant));
            let error = within(guard.release()).await.unwrap_err();
            assert!(
                matches!(error, ReleaseError::Unknown { .. }),
                "{variant:?}: {error}"
            );
            let id = session(&client).await.id();
            stage.until_children(0).await;
            assert_eq!(
                session(&client).await.id(),
                id,
                "{variant:?}: not by the session's end"
            );
        }
    }
}

#[tokio::test]
async fn h08_a_failed_try_leaves_nothing_though_its_cleanup_was_cut_off() {
    for variant in CUTS {
        let stage = Stage::new("h08").await;
        let _held = within(mutex(&stage.client().await, &stage.path).acquire())
            .await
            .unwrap();
        let (client, proxy) = stage.proxied(ROOMY).await;
        let cut = proxy
            .on(Match::request(OpCode::Delete))
            .then(Action::Cut(variant));
        assert!(
            within(mutex(&client, &stage.path).try_acquire())
                .await
                .unwrap()
                .is_none()
        );
        within(cut.fired()).await;
        stage.until_children(1).await;
    }
}

#[tokio::test]
async fn h09_a_node_at_our_path_that_is_not_ours_satisfies_no_guard_and_is_not_deleted() {
    let stage = Stage::new("h09").await;
    let client = stage.client().await;
    let admin = session(&stage.client().await).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let node = guard.node().to_owned();
    // In one change: anyone who reads again finds a node.
    let replaced = admin.multi(&[
        Op::delete(&*node, None),
        Op::create(&*node, &b"not yours"[..], CreateMode::Persistent),
    ]);
    within(replaced).await.unwrap();
    assert_eq!(within(guard.lost()).await, LostReason::NodeGone);
    let txn = guard
        .txn()
        .create(&format!("{node}-x"), b"", CreateMode::Persistent)
        .commit()
        .await;
    assert!(matches!(txn, Err(TxnError::Lost { .. })), "{txn:?}");
    drop(guard);
    within(client.close_timeout(LONG)).await.unwrap();
    assert_eq!(
        stage.names().await.len(),
        1,
        "deleted a node that was not ours"
    );
}

#[tokio::test]
async fn h10_an_acquire_dropped_at_any_point_leaves_no_node() {
    for behind_a_holder in [false, true] {
        let mut polls = 0;
        loop {
            let stage = Stage::new("h10").await;
            let client = stage.client().await;
            let held = match behind_a_holder {
                true => Some(within(mutex(&client, &stage.path).acquire()).await.unwrap()),
                false => None,
            };
            let lock = mutex(&client, &stage.path);
            let acquired = crate::common::polled(lock.acquire(), polls).await.is_some();
            stage.until_children(usize::from(behind_a_holder)).await;
            drop(held);
            stage.until_children(0).await;
            within(within(lock.acquire()).await.unwrap().release())
                .await
                .unwrap();
            polls += 1;
            if acquired || polls > 25 {
                break;
            }
        }
        // Answers that come together make it fewer; the next test holds each frame back.
        assert!(polls > 2, "it waits for an answer: {polls}");
    }
}

/// Drops an acquire while such a frame is held back on the wire; `false` if there is no such frame.
async fn drop_at_frame(frame: Match, behind_a_holder: bool) -> bool {
    let stage = Stage::new("h10c").await;
    let held = match behind_a_holder {
        true => Some(
            within(mutex(&stage.client().await, &stage.path).acquire())
                .await
                .unwrap(),
        ),
        false => None,
    };
    let (client, proxy) = stage.proxied(LONG).await;
    let lock = mutex(&client, &stage.path);
    let met = crate::common::dropped_at(&proxy, frame, async move { lock.acquire().await }).await;
    stage.until_children(usize::from(behind_a_holder)).await;
    drop(held);
    stage.until_children(0).await;
    met
}

#[tokio::test]
async fn h10_an_acquire_dropped_at_any_frame_on_the_wire_leaves_no_node() {
    crate::common::at_each_frame_of_an_acquire(drop_at_frame).await;
}

/// Lets the time of a wait be up while the event that would grant it is held back; `false` if it
/// was up before.
async fn wait_ends_as_the_grant_arrives(limit: Duration) -> bool {
    let stage = Stage::new("h11").await;
    let held = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    let (client, proxy) = stage.proxied(LONG).await;
    let event = proxy
        .on(Match::event(baton_client::EventKind::NodeDeleted))
        .then(Action::Hold);
    let lock = mutex(&client, &stage.path);
    let mut waiting =
        tokio::spawn(async move { lock.acquire_timeout(limit).await.map(drop).unwrap_err() });
    let grant = async {
        stage.until_children(2).await;
        within(held.release()).await.unwrap();
        within(event.fired()).await;
    };
    tokio::select! {
        biased;
        () = grant => {}
        _ = &mut waiting => return false,
    }
    let error = within(waiting).await.unwrap();
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
    event.release();
    stage.until_children(0).await;
    true
}

#[tokio::test]
async fn h11_a_wait_that_ends_as_the_grant_arrives_is_held_or_clean() {
    let mut limit = Duration::from_millis(600);
    while !wait_ends_as_the_grant_arrives(limit).await {
        // The machine is too busy for so short a wait.
        limit *= 3;
        assert!(limit < Duration::from_secs(20), "{limit:?}");
    }
}

#[tokio::test]
async fn h12_an_error_after_the_create_takes_the_node_along() {
    let stage = Stage::new("h12").await;
    let client = stage.client().await;
    let admin = session(&stage.client().await).await;
    let blind = Acl::new(
        Perms::CREATE | Perms::DELETE | Perms::ADMIN,
        "world",
        "anyone",
    );
    let dir = admin.create_with_acl(&stage.path, b"", CreateMode::Persistent, &[blind]);
    within(dir).await.unwrap();
    let error = within(mutex(&client, &stage.path).acquire())
        .await
        .unwrap_err();
    match &error {
        LockError::Client { source, .. } => assert_eq!(source.code(), Some(ErrorCode::NoAuth)),
        _ => panic!("{error}"),
    }
    admin
        .set_acl(&stage.path, &[Acl::open_unsafe()], None)
        .await
        .unwrap();
    stage.until_children(0).await;
}

#[tokio::test]
async fn h13_a_foreign_child_is_refused_or_skipped_and_never_waited_for() {
    let stage = Stage::new("h13").await;
    stage.used().await;
    let (client, admin) = (stage.client().await, session(&stage.client().await).await);
    plant(&admin, &format!("{}/config", stage.path)).await;
    plant(&admin, &format!("{}/0", stage.path)).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    within(guard.release()).await.unwrap();

    let kazoo = "5c1b0f546d3c4f0b9d0e0a4b7d3f2e11__lock__0000000001";
    plant(&admin, &format!("{}/{kazoo}", stage.path)).await;
    let error = within(mutex(&client, &stage.path).acquire())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, LockError::Foreign { child, .. } if child == kazoo),
        "{error}"
    );
    stage.until_children(3).await;

    admin
        .delete(&format!("{}/{kazoo}", stage.path), None)
        .await
        .unwrap();
    let other = mutex(&client, &stage.path).dialect(Dialect::Kazoo);
    within(within(other.acquire()).await.unwrap().release())
        .await
        .unwrap();
}

#[tokio::test]
async fn h14_a_directory_that_vanishes_is_made_again_and_its_holder_is_notified() {
    let stage = Stage::new("h14").await;
    let admin = session(&stage.client().await).await;
    let held = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    let lock = mutex(&stage.client().await, &stage.path);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let nodes = stage.until_children(2).await;
    let waiter = nodes.iter().find(|node| node.path != held.node()).unwrap();
    let all = [waiter.path.as_str(), held.node(), &stage.path].map(|path| Op::delete(path, None));
    within(admin.multi(&all)).await.unwrap();
    assert_eq!(within(held.lost()).await, LostReason::NodeGone);
    let guard = within(waiting).await.unwrap().unwrap();
    assert_eq!(guard.check(), Ok(()));
    assert_eq!(stage.until_children(1).await[0].path, guard.node());
}

#[tokio::test]
async fn h15_after_a_lost_reply_the_node_is_known_by_its_full_path_at_every_queue_position() {
    for dialect in [Dialect::Curator, Dialect::Kazoo, Dialect::WriteLock] {
        let stage = Stage::new("h15").await;
        let other = stage.client().await;
        let lock = || mutex(&other, &stage.path).dialect(dialect);
        let held = within(lock().acquire()).await.unwrap();

        // Our node is between the holder and a later waiter.
        let (client, proxy) = stage.proxied(ROOMY).await;
        let cut = proxy
            .on(Match::reply(OpCode::Create2))
            .then(Action::Cut(Variant::Rst));
        let watched = proxy
            .on(Match::reply(OpCode::GetData).path_contains(held.node()))
            .observe();
        let ours = mutex(&client, &stage.path).dialect(dialect);
        let ours = tokio::spawn(async move { ours.acquire().await });
        within(cut.fired()).await;
        within(watched.fired()).await;
        let node = stage.until_children(2).await;
        let node = node.into_iter().find(|node| node.path != held.node());
        let node = node.unwrap().path;
        let later = lock();
        let later = tokio::spawn(async move { later.acquire().await });
        stage.until_children(3).await;
        assert!(!ours.is_finished(), "{dialect}: granted beside the holder");

        // A waiter that watched its own node would now wait for ever.
        within(held.release()).await.unwrap();
        let guard = within(ours).await.unwrap().unwrap();
        assert_eq!(guard.node(), node, "{dialect}");
        assert_eq!(guard.check(), Ok(()), "{dialect}");
        assert!(!later.is_finished(), "{dialect}: two hold");
        within(guard.release()).await.unwrap();
        within(within(later).await.unwrap().unwrap().release())
            .await
            .unwrap();
        assert!(stage.children().await.is_empty(), "{dialect}");
    }
}

#[tokio::test]
async fn h16_two_acquires_of_one_session_are_two_waiters() {
    for dialect in [Dialect::Curator, Dialect::Kazoo, Dialect::WriteLock] {
        let stage = Stage::new("h16").await;
        let client = stage.client().await;
        let lock = || mutex(&client, &stage.path).dialect(dialect);
        let first = within(lock().acquire()).await.unwrap();
        assert!(
            within(lock().try_acquire()).await.unwrap().is_none(),
            "{dialect}"
        );
        let (second, third) = (lock(), lock());
        let second = tokio::spawn(async move { second.acquire().await });
        stage.until_children(2).await;
        let third = tokio::spawn(async move { third.acquire().await });
        stage.until_children(3).await;
        within(first.release()).await.unwrap();
        let second = within(second).await.unwrap().unwrap();
        within(second.release()).await.unwrap();
        within(within(third).await.unwrap().unwrap().release())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn h16_a_create_that_never_arrived_is_not_found_in_another_node_of_the_session() {
    for dialect in [Dialect::Curator, Dialect::Kazoo, Dialect::WriteLock] {
        let stage = Stage::new("h16").await;
        let (client, proxy) = stage.proxied(ROOMY).await;
        let lock = || mutex(&client, &stage.path).dialect(dialect);
        let first = within(lock().acquire()).await.unwrap();
        proxy
            .on(Match::request(OpCode::Create2))
            .then(Action::Cut(Variant::Rst));
        let second = lock();
        let second = tokio::spawn(async move { second.acquire().await });
        stage.until_children(2).await;
        assert_eq!(first.check(), Ok(()), "{dialect}");
        assert!(!second.is_finished(), "{dialect}");
        within(first.release()).await.unwrap();
        let second = within(second).await.unwrap().unwrap();
        within(second.release()).await.unwrap();
    }
}

#[tokio::test]
async fn h17_locks_on_many_paths_leave_no_directories_behind() {
    let stage = Stage::with_reaping("h17").await;
    let client = stage.client().await;
    for nth in 0..300 {
        let lock = mutex(&client, &format!("{}/many/{nth}", stage.path));
        within(within(lock.acquire()).await.unwrap().release())
            .await
            .unwrap();
    }
    let observer = session(&client).await;
    within(async {
        while observer.exists(&stage.path).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn h18_a_cleanup_that_comes_late_deletes_no_other_clients_node() {
    let stage = Stage::new("h18").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let node = guard.node().to_owned();
    let old = session(&client).await;
    proxy.partition();
    drop(guard);
    stage.until_children(0).await;
    let admin = session(&stage.client().await).await;
    plant(&admin, &node).await;
    proxy.heal();
    within(old.ended()).await;
    let new = session(&client).await;
    assert_ne!(new.id(), old.id());
    new.sync(&stage.path).await.unwrap();
    assert!(
        new.exists(&node).await.unwrap().is_some(),
        "another's node was deleted"
    );
    // What was sent at the drop went out on the first connection, as the old session's; nothing was
    // sent again.
    let mut deletes = proxy.frames().into_iter().filter(|frame| {
        matches!(frame.kind, FrameKind::Request { .. }) && frame.op() == Some(OpCode::Delete)
    });
    assert!(deletes.all(|frame| frame.connection == 1));
}

#[tokio::test]
async fn h45_who_has_no_node_any_more_at_its_first_read_is_not_granted() {
    for dialect in [Dialect::Curator, Dialect::Kazoo, Dialect::WriteLock] {
        let stage = Stage::new("h45").await;
        let path = stage.path.clone();
        let acquire = async move |client| {
            mutex(&client, &path)
                .dialect(dialect)
                .acquire()
                .await
                .unwrap()
        };
        let (guard, gone, _proxy) = crate::common::deleted_before_its_read(&stage, acquire).await;
        assert_ne!(guard.node(), gone, "{dialect}");
        let nodes = stage.until_children(1).await;
        assert_eq!(nodes[0].path, guard.node(), "{dialect}");
    }
}

#[tokio::test]
async fn h05_a_create_whose_answer_is_lost_is_found_again_where_nobody_may_list() {
    let stage = Stage::new("h05l").await;
    let admin = session(&stage.client().await).await;
    within(admin.create(&stage.path, b"", baton::tree::CreateMode::Persistent))
        .await
        .unwrap();
    let unreadable = Acl::new(
        Perms::CREATE | Perms::DELETE | Perms::ADMIN,
        "world",
        "anyone",
    );
    within(admin.set_acl(&stage.path, &[unreadable], None))
        .await
        .unwrap();
    let (client, proxy) = stage.proxied(LONG).await;
    let session = session(&client).await;
    proxy
        .on(Match::reply(OpCode::Create2))
        .then(Action::Cut(Variant::Rst));
    let prefix = format!("m-{}-", uuid::Uuid::new_v4().simple());
    let mode = baton::tree::CreateMode::EphemeralSequential;
    let open = [Acl::open_unsafe()];
    let made = within(session.create_protected(&stage.path, &prefix, b"", mode, &open))
        .await
        .unwrap();
    let (_, above) = within(admin.get_acl(&stage.path)).await.unwrap();
    assert_eq!(above.num_children, 1);
    let found = within(admin.exists(&made.path)).await.unwrap().unwrap();
    assert_eq!(found.czxid, made.stat.czxid);
    assert_eq!(found.ephemeral_owner, session.id());
}

#[tokio::test]
async fn h07_a_release_that_may_not_be_announced_is_a_release() {
    let stage = Stage::new("h07a").await;
    let (one, other) = (stage.client().await, stage.client().await);
    let first = within(mutex(&one, &stage.path).acquire()).await.unwrap();
    let lock = mutex(&other, &stage.path);
    // Who had to wait announces its release to the next.
    let waiting = tokio::spawn(async move { lock.acquire().await });
    stage.until_children(2).await;
    within(first.release()).await.unwrap();
    let second = within(waiting).await.unwrap().unwrap();
    let sealed = Acl::new(
        Perms::READ | Perms::WRITE | Perms::DELETE | Perms::ADMIN,
        "world",
        "anyone",
    );
    let admin = session(&one).await;
    within(admin.set_acl(&stage.path, &[sealed], None))
        .await
        .unwrap();
    within(second.release()).await.unwrap();
    stage.until_children(0).await;
}
