//! The reentrant mutex: who holds may take it again, and only who holds.

use std::time::Duration;

use baton::guard::ReleaseError;
use baton::lock::{LockError, OwnerId};
use baton::{LostReason, ReentrantMutex};
use baton_client::OpCode;
use baton_testkit::{Action, ExclusionChecker, Match};

use crate::common::{LONG, SHORT, Stage, mutex, session, within};

#[tokio::test]
async fn an_owner_takes_it_again_at_once_and_it_is_released_with_the_last() {
    let stage = Stage::new("again").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let lock = ReentrantMutex::new(&client, &stage.path).unwrap();
    let (me, other) = (OwnerId::unique(), OwnerId::from("other"));
    let outer = within(lock.acquire(&me)).await.unwrap();
    let node = stage.until_children(1).await[0].path.clone();
    session(&client).await.sync("/").await.unwrap();
    let asked = proxy.count(&Match::any_request());
    let inner = within(lock.acquire(&me)).await.unwrap();
    let third = within(lock.clone().try_acquire(&me))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(proxy.count(&Match::any_request()), asked, "asks no server");
    assert_eq!((outer.count(), third.node()), (3, &*node));
    assert_eq!(
        (inner.token(), third.token()),
        (outer.token(), outer.token())
    );
    assert!(within(lock.try_acquire(&other)).await.unwrap().is_none());
    let limit = Duration::from_millis(30);
    let waited = within(lock.acquire_timeout(&other, limit)).await;
    assert!(matches!(waited, Err(LockError::TimedOut { .. })));

    within(outer.release()).await.unwrap();
    drop(third);
    stage.until_children(1).await;
    assert_eq!(inner.check(), Ok(()));
    within(inner.release()).await.unwrap();
    stage.until_children(0).await;
    let next = within(lock.acquire(&other)).await.unwrap();
    assert_eq!(next.count(), 1);
}

#[tokio::test]
async fn the_release_of_the_last_guard_waits_for_the_servers_answer() {
    let stage = Stage::new("word").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let lock = ReentrantMutex::new(&client, &stage.path).unwrap();
    let me = OwnerId::unique();
    let outer = within(lock.acquire(&me)).await.unwrap();
    let inner = within(lock.acquire(&me)).await.unwrap();
    within(inner.release()).await.unwrap();
    let word = proxy.on(Match::reply(OpCode::Delete)).then(Action::Hold);
    let mut releasing = outer.release();
    let early = tokio::time::timeout(Duration::from_millis(200), &mut releasing).await;
    assert!(early.is_err(), "without the server's word");
    word.release();
    within(releasing).await.unwrap();
}

#[tokio::test]
async fn two_objects_of_one_path_exclude_each_other_even_for_one_owner() {
    let stage = Stage::new("objects").await;
    let client = stage.client().await;
    let new = || ReentrantMutex::new(&client, &stage.path).unwrap();
    let (one, other, me) = (new(), new(), OwnerId::from("me"));
    let _held = within(one.acquire(&me)).await.unwrap();
    assert!(within(other.try_acquire(&me)).await.unwrap().is_none());
    let plain = mutex(&client, &stage.path);
    assert!(within(plain.try_acquire()).await.unwrap().is_none());
}

#[tokio::test]
async fn acquires_of_one_owner_at_once_share_one_waiter_node() {
    let stage = Stage::new("share").await;
    let client = stage.client().await;
    let lock = ReentrantMutex::new(&client, &stage.path).unwrap();
    let held = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let me = OwnerId::unique();
    let both = async { tokio::join!(lock.acquire(&me), lock.acquire(&me)) };
    let release = async {
        stage.until_children(2).await;
        held.release().await.unwrap();
    };
    let ((one, other), ()) = within(async { tokio::join!(both, release) }).await;
    assert_eq!(one.unwrap().token(), other.unwrap().token());
}

#[tokio::test]
async fn h33_a_reentry_after_the_session_is_lost_fails_and_leaves_the_next_holder_alone() {
    let stage = Stage::new("h33").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let lock = ReentrantMutex::new(&client, &stage.path).unwrap();
    let me = OwnerId::from("me");
    let outer = within(lock.acquire(&me)).await.unwrap();
    proxy.partition();
    stage.until_children(0).await;
    let next = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    // Only our own clock knows of the loss so far.
    let lost = |error| matches!(error, LockError::Lost { .. });
    assert!(lost(within(lock.acquire(&me)).await.unwrap_err()));
    assert!(lost(within(lock.try_acquire(&me)).await.unwrap_err()));
    proxy.heal();
    assert!(lost(within(lock.acquire(&me)).await.unwrap_err()));
    let released = within(outer.release()).await;
    assert!(matches!(released, Err(ReleaseError::Lost { .. })));
    // With the old guard gone it waits again.
    assert!(within(lock.try_acquire(&me)).await.unwrap().is_none());
    within(next.release()).await.unwrap();
    let again = within(lock.acquire(&me)).await.unwrap();
    assert_eq!(again.check(), Ok(()));
}

#[tokio::test]
async fn a_guard_whose_node_was_deleted_cannot_be_joined() {
    let stage = Stage::new("gone").await;
    let client = stage.client().await;
    let lock = ReentrantMutex::new(&client, &stage.path).unwrap();
    let me = OwnerId::unique();
    let outer = within(lock.acquire(&me)).await.unwrap();
    session(&client)
        .await
        .delete(outer.node(), None)
        .await
        .unwrap();
    assert_eq!(within(outer.lost()).await, LostReason::NodeGone);
    let error = within(lock.acquire(&me)).await.unwrap_err();
    assert!(
        matches!(
            error,
            LockError::Lost {
                reason: LostReason::NodeGone,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h46_releases_that_race_acquires_of_one_owner_lose_no_hold_and_leave_nothing() {
    let stage = Stage::new("h46").await;
    let client = stage.client().await;
    let lock = ReentrantMutex::new(&client, &stage.path).unwrap();
    let checker = ExclusionChecker::new();
    let mut tasks = Vec::new();
    for owner in 0..2 {
        for _ in 0..2 {
            let (lock, checker, owner) = (lock.clone(), checker.clone(), owner);
            tasks.push(tokio::spawn(async move {
                let id = OwnerId::from(format!("owner-{owner}").as_str());
                for round in 0..30 {
                    let guard = lock.acquire(&id).await.unwrap();
                    guard.check().unwrap();
                    // The two tasks of an owner hold together; only one of them calls the checker.
                    let inside =
                        (guard.count() == 1).then(|| checker.enter(id.to_string(), guard.token()));
                    tokio::task::yield_now().await;
                    drop(inside);
                    if round % 2 == 0 {
                        guard.release().await.unwrap();
                    } else {
                        drop(guard);
                    }
                }
            }));
        }
    }
    for task in tasks {
        within(task).await.unwrap();
    }
    stage.until_children(0).await;
}
