//! Several locks at once: all or none, in one order, under one deadline
//! (`docs/internals/hazards.md` H49).

use std::time::Duration;

use baton::guard::TxnError;
use baton::lock::LockError;
use baton::tree::CreateMode;
use baton::{Client, LostReason, MultiLock};
use baton_client::OpCode;
use baton_testkit::inspect::{self, Znode};
use baton_testkit::{Action, ExclusionChecker, FrameKind, Match};

use crate::common::{CUTS, LONG, Stage, mutex, plant, session, within};

/// Long enough for a client to notice a silent connection and come back on another.
const ROOMY: Duration = Duration::from_secs(4);

/// Paths of a stage: `a`, `b`, `c`.
fn paths(stage: &Stage) -> [String; 3] {
    ["a", "b", "c"].map(|name| format!("{}/{name}", stage.path))
}

fn all(client: &Client, stage: &Stage) -> MultiLock {
    MultiLock::new(client, paths(stage)).unwrap()
}

/// Makes the directories, so that the next multi is that of the waiters.
async fn prepare(stage: &Stage) {
    let guard = within(all(&stage.client().await, stage).acquire())
        .await
        .unwrap();
    within(guard.release()).await.unwrap();
}

async fn nodes(stage: &Stage, path: &str) -> Vec<Znode> {
    inspect::children(stage.addr, path).await.unwrap()
}

/// Waits until the three wait queues have these lengths.
async fn until(stage: &Stage, counts: [usize; 3]) {
    within(async {
        loop {
            let mut found = [0; 3];
            for (count, path) in found.iter_mut().zip(paths(stage)) {
                *count = nodes(stage, &path).await.len();
            }
            if found == counts {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn locks_that_are_free_are_taken_with_one_multi() {
    let stage = Stage::new("free").await;
    prepare(&stage).await;
    let (client, proxy) = stage.proxied(LONG).await;
    let [a, b, c] = paths(&stage);
    let lock = MultiLock::new(&client, [&c, &a, &b, &a])
        .unwrap()
        .name("me");
    assert!(lock.paths().eq([&a, &b, &c]), "sorted, each once");
    let guard = within(lock.acquire()).await.unwrap();
    assert_eq!(guard.check(), Ok(()));
    for path in [&a, &b, &c] {
        let node = nodes(&stage, path).await.remove(0);
        assert_eq!(node.stat.ephemeral_owner, session(&client).await.id());
        let czxid = u64::try_from(node.stat.czxid).unwrap();
        assert_eq!(guard.token(path), Some(czxid));
    }
    assert_eq!(guard.tokens().count(), 3);
    let sent = |op: OpCode| {
        let frames = proxy.frames().into_iter();
        let sent = frames.filter(|frame| {
            matches!(frame.kind, FrameKind::Request { .. }) && frame.op() == Some(op)
        });
        sent.count()
    };
    assert_eq!((sent(OpCode::Multi), sent(OpCode::Create2)), (1, 0));
    within(guard.release()).await.unwrap();
    until(&stage, [0; 3]).await;
}

#[tokio::test]
async fn h49_reversed_lists_do_not_wait_for_each_other() {
    let stage = Stage::new("reversed").await;
    let checker = ExclusionChecker::new();
    let mut workers = Vec::new();
    for reversed in [false, true, false, true] {
        let (client, checker) = (stage.client().await, checker.clone());
        let mut given = paths(&stage).to_vec();
        given.truncate(2);
        let shared = given[1].clone();
        if reversed {
            given.reverse();
        }
        workers.push(tokio::spawn(async move {
            for _ in 0..12 {
                let lock = MultiLock::new(&client, &given).unwrap();
                let guard = lock.acquire().await.unwrap();
                let inside = checker.enter("multi", guard.token(&shared).unwrap());
                tokio::task::yield_now().await;
                drop(inside);
                guard.release().await.unwrap();
                // A caller that takes the same locks one by one, in the same order, is safe too.
                let first = mutex(&client, &given[0].clone().min(given[1].clone()));
                let first = first.acquire().await.unwrap();
                let second = mutex(&client, &shared).acquire().await.unwrap();
                let inside = checker.enter("single", second.token());
                drop(inside);
                second.release().await.unwrap();
                first.release().await.unwrap();
            }
        }));
    }
    for worker in workers {
        within(worker).await.unwrap();
    }
    checker.check().unwrap();
    assert_eq!(checker.entries(), 4 * 12 * 2);
    until(&stage, [0; 3]).await;
}

#[tokio::test]
async fn h49_while_it_waits_for_one_lock_it_waits_in_no_later_queue() {
    let stage = Stage::new("inorder").await;
    let (client, other) = (stage.client().await, stage.client().await);
    let [_, b, c] = paths(&stage);
    let held = within(mutex(&other, &b).acquire()).await.unwrap();
    let lock = all(&client, &stage);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until(&stage, [1, 2, 0]).await;
    // The holder of the middle one can therefore go on to the last one.
    let last = within(mutex(&other, &c).try_acquire()).await.unwrap();
    within(held.release()).await.unwrap();
    until(&stage, [1, 1, 2]).await;
    drop(last);
    let guard = within(waiting).await.unwrap().unwrap();
    assert_eq!(guard.check(), Ok(()));
    // Each was granted later than the one before; the whole is as late as the last.
    let tokens: Vec<_> = guard.tokens().map(|(_, token)| token).collect();
    assert!(tokens.is_sorted() && tokens[0] < tokens[2]);
    assert_eq!(guard.guard().token(), tokens[2]);
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn h49_an_error_on_one_lock_gives_back_the_others_at_once() {
    let stage = Stage::new("error").await;
    let client = stage.client().await;
    prepare(&stage).await;
    let [_, b, _] = paths(&stage);
    let admin = session(&stage.client().await).await;
    let foreign = "5c1b0f546d3c4f0b9d0e0a4b7d3f2e11__lock__0000000001";
    plant(&admin, &format!("{b}/{foreign}")).await;
    for free in [true, false] {
        // The foreign node is met in the first multi, or while the wait queues are passed.
        let held = match free {
            true => None,
            false => Some(
                within(mutex(&stage.client().await, &paths(&stage)[0]).acquire())
                    .await
                    .unwrap(),
            ),
        };
        let lock = all(&client, &stage);
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        if let Some(held) = held {
            until(&stage, [2, 1, 0]).await;
            within(held.release()).await.unwrap();
        }
        let error = within(acquiring).await.unwrap().unwrap_err();
        assert!(
            matches!(&error, LockError::Foreign { path, .. } if *path == b),
            "{error}"
        );
        until(&stage, [0, 1, 0]).await;
    }
}

/// A refusal of the second of three locks, with the deletes of our nodes held back on their way.
async fn refused_with_deletes_held(first_is_free: bool) {
    let stage = Stage::new("h13").await;
    prepare(&stage).await;
    let (client, proxy) = stage.proxied(LONG).await;
    let [a, b, _] = paths(&stage);
    let admin = session(&stage.client().await).await;
    let foreign = "5c1b0f546d3c4f0b9d0e0a4b7d3f2e11__lock__0000000001";
    plant(&admin, &format!("{b}/{foreign}")).await;
    let before = match first_is_free {
        true => None,
        false => {
            let first = mutex(&stage.client().await, &a);
            Some(within(first.acquire()).await.unwrap())
        }
    };
    let lock = all(&client, &stage);
    let mut acquiring = tokio::spawn(async move { lock.acquire().await });
    if let Some(before) = before {
        // Those behind the first one that is not free are left at once.
        until(&stage, [2, 1, 0]).await;
        within(before.release()).await.unwrap();
    }
    let delete = proxy.on(Match::request(OpCode::Delete)).then(Action::Hold);
    within(delete.fired()).await;
    let early = tokio::time::timeout(Duration::from_millis(50), &mut acquiring).await;
    assert!(
        early.is_err(),
        "returned while nodes of ours exist: {early:?}"
    );
    delete.release();
    let error = within(acquiring).await.unwrap().unwrap_err();
    assert!(matches!(error, LockError::Foreign { .. }), "{error}");
    let mut left = Vec::new();
    for path in paths(&stage) {
        left.push(nodes(&stage, &path).await.len());
    }
    assert_eq!(left, [0, 1, 0]);
}

#[tokio::test]
async fn h13_who_was_refused_one_lock_has_left_all_queues_when_it_receives_the_error() {
    refused_with_deletes_held(true).await;
    refused_with_deletes_held(false).await;
}

#[tokio::test]
async fn h49_one_deadline_holds_for_all_locks_together() {
    let stage = Stage::new("deadline").await;
    let other = stage.client().await;
    let [a, b, _] = paths(&stage);
    let first = within(mutex(&other, &a).acquire()).await.unwrap();
    let _second = within(mutex(&other, &b).acquire()).await.unwrap();
    let lock = all(&stage.client().await, &stage);
    let limit = Duration::from_secs(5);
    let waiting = tokio::spawn(async move { lock.acquire_timeout(limit).await });
    until(&stage, [2, 1, 0]).await;
    within(first.release()).await.unwrap();
    until(&stage, [1, 2, 0]).await;
    let error = within(waiting).await.unwrap().unwrap_err();
    assert!(
        matches!(&error, LockError::TimedOut { path, limit: given, .. } if *path == b && *given == limit),
        "{error}"
    );
    until(&stage, [0, 1, 0]).await;
}

#[tokio::test]
async fn a_try_takes_all_or_leaves_all() {
    let stage = Stage::new("try").await;
    let (client, other) = (stage.client().await, stage.client().await);
    let held = within(mutex(&other, &paths(&stage)[2]).acquire())
        .await
        .unwrap();
    assert!(
        within(all(&client, &stage).try_acquire())
            .await
            .unwrap()
            .is_none()
    );
    until(&stage, [0, 0, 1]).await;
    within(held.release()).await.unwrap();
    let guard = within(all(&client, &stage).try_acquire())
        .await
        .unwrap()
        .unwrap();
    assert!(
        within(all(&other, &stage).try_acquire())
            .await
            .unwrap()
            .is_none()
    );
    drop(guard);
    until(&stage, [0; 3]).await;
}

#[tokio::test]
async fn h01_h49_a_lost_multi_leaves_one_node_in_each_queue() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new("h01m").await;
            prepare(&stage).await;
            let (client, proxy) = stage.proxied(ROOMY).await;
            let cut = proxy.on(message).then(Action::Cut(variant));
            let guard = within(all(&client, &stage).acquire()).await.unwrap();
            assert_eq!(cut.times(), 1, "{variant:?}");
            until(&stage, [1; 3]).await;
            for path in paths(&stage) {
                let czxid = nodes(&stage, &path).await[0].stat.czxid;
                assert_eq!(guard.token(&path), Some(u64::try_from(czxid).unwrap()));
            }
            within(guard.release()).await.unwrap();
            until(&stage, [0; 3]).await;
        }
    }
}

/// Drops an acquire while such a frame is held back on the wire; `false` if there is no such frame.
async fn drop_at_frame(frame: Match, behind_a_holder: bool) -> bool {
    let stage = Stage::new("h10m").await;
    let held = match behind_a_holder {
        true => Some(
            within(mutex(&stage.client().await, &paths(&stage)[1]).acquire())
                .await
                .unwrap(),
        ),
        false => None,
    };
    let (client, proxy) = stage.proxied(LONG).await;
    let lock = all(&client, &stage);
    let met = crate::common::dropped_at(&proxy, frame, async move { lock.acquire().await }).await;
    until(&stage, [0, usize::from(behind_a_holder), 0]).await;
    drop(held);
    until(&stage, [0; 3]).await;
    met
}

#[tokio::test]
async fn h10_h49_an_acquire_dropped_at_any_frame_on_the_wire_leaves_no_node() {
    crate::common::at_each_frame_of_an_acquire(drop_at_frame).await;
}

#[tokio::test]
async fn the_loss_of_one_lock_is_the_loss_of_all() {
    let stage = Stage::new("loss").await;
    let client = stage.client().await;
    let guard = within(all(&client, &stage).acquire()).await.unwrap();
    let state = format!("{}-state", stage.path);
    let committed = guard
        .txn()
        .create(&state, b"1", CreateMode::Persistent)
        .commit();
    let committed = within(committed).await.unwrap();
    assert_eq!(committed.results().unwrap().len(), 1);
    assert_eq!(guard.run(async { 7 }).await, Ok(7));

    let second = nodes(&stage, &paths(&stage)[1]).await.remove(0).path;
    let admin = session(&stage.client().await).await;
    within(admin.delete(&second, None)).await.unwrap();
    let lost = within(guard.txn().set(&state, b"2", None).commit()).await;
    assert!(matches!(lost, Err(TxnError::Lost { .. })), "{lost:?}");
    assert_eq!(within(guard.lost()).await, LostReason::NodeGone);
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(&admin.get_data(&state).await.unwrap().data[..], b"1");
    drop(guard);
    until(&stage, [0; 3]).await;
}

#[tokio::test]
async fn h38_the_holder_is_notified_whichever_of_its_nodes_somebody_deletes() {
    let stage = Stage::new("whichever").await;
    let client = stage.client().await;
    let admin = session(&stage.client().await).await;
    for path in paths(&stage) {
        let guard = within(all(&client, &stage).acquire()).await.unwrap();
        let node = nodes(&stage, &path).await.remove(0).path;
        within(admin.delete(&node, None)).await.unwrap();
        assert_eq!(within(guard.lost()).await, LostReason::NodeGone, "{path}");
        drop(guard);
        until(&stage, [0; 3]).await;
    }
}

#[tokio::test]
async fn h49_a_lock_lost_while_waiting_for_the_next_one_is_taken_again_first() {
    let stage = Stage::new("again").await;
    let (client, other) = (stage.client().await, stage.client().await);
    let [a, b, _] = paths(&stage);
    let held = within(mutex(&other, &b).acquire()).await.unwrap();
    let lock = all(&client, &stage);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until(&stage, [1, 2, 0]).await;
    let ours = nodes(&stage, &a).await.remove(0).path;
    let usurper = {
        let (other, a) = (other.clone(), a.clone());
        tokio::spawn(async move { mutex(&other, &a).acquire().await })
    };
    until(&stage, [2, 2, 0]).await;
    within(session(&other).await.delete(&ours, None))
        .await
        .unwrap();
    let usurper = within(usurper).await.unwrap().unwrap();
    // The second one is free now, and still not ours: the first is not.
    until(&stage, [2, 1, 0]).await;
    within(held.release()).await.unwrap();
    assert!(!waiting.is_finished());
    within(usurper.release()).await.unwrap();
    let guard = within(waiting).await.unwrap().unwrap();
    assert_eq!(guard.check(), Ok(()));
}

#[tokio::test]
async fn lists_that_make_no_lock_are_refused_before_anything_is_sent() {
    let stage = Stage::new("path").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let sent = proxy.on(Match::request(OpCode::Multi)).observe();
    for given in [vec![], vec!["/a", "b"], vec!["/"], vec!["/a", "/a//b"]] {
        let error = MultiLock::new(&client, &given).unwrap_err();
        assert!(
            matches!(error, LockError::BadPath { .. }),
            "{given:?}: {error}"
        );
        assert!(!error.to_string().contains('\n'));
    }
    assert_eq!(sent.times(), 0);
}
