//! The semaphore where its wait queue and its node change hands: tokens in the order of the grants,
//! and a node that was made again (`docs/internals/hazards.md` H48, §3.8).

use std::time::Duration;

use baton::semaphore::SemaphoreError;
use baton::{Client, Semaphore};
use baton_client::OpCode;
use baton_testkit::{Action, Match, inspect};

use crate::common::{LONG, Stage, session, within};

/// Waits until this number waits in the queue of the mutex.
async fn until_queued(stage: &Stage, count: usize) {
    let line = format!("{}/locks", stage.path);
    within(async {
        while inspect::children(stage.addr, &line).await.unwrap().len() != count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_next_waiter_is_not_granted_before_the_token_of_the_one_before_it_is_minted() {
    let stage = Stage::new("mint").await;
    let of = |client: &Client| Semaphore::new(client, &stage.path, 2).unwrap();
    let all = within(of(&stage.client().await).acquire(2)).await.unwrap();
    let (slow, proxy) = stage.proxied(LONG).await;
    let (first, second) = (of(&slow), of(&stage.client().await));
    let first = tokio::spawn(async move { first.acquire(1).await });
    until_queued(&stage, 1).await;
    let mut second = tokio::spawn(async move { second.acquire(1).await });
    until_queued(&stage, 2).await;
    let minting = Match::request(OpCode::SetData).path_contains("/leases/");
    let minting = proxy.on(minting).then(Action::Hold);
    within(all.release()).await.unwrap();
    within(minting.fired()).await;
    // There is a permit for it, and nothing else to wait for.
    let limit = Duration::from_millis(300);
    let early = tokio::time::timeout(limit, &mut second).await;
    assert!(early.is_err(), "granted before the one before it");
    minting.release();
    let first = within(first).await.unwrap().unwrap();
    let second = within(second).await.unwrap().unwrap();
    assert!(first.token() < second.token());
    within(first.release()).await.unwrap();
    within(second.release()).await.unwrap();
}

#[tokio::test]
async fn h48_a_semaphore_that_was_removed_and_made_again_is_not_taken_for_the_one_that_was_known() {
    let stage = Stage::new("h48").await;
    let client = stage.client().await;
    let known = Semaphore::new(&client, &stage.path, 2).unwrap();
    let guard = within(known.acquire(2)).await.unwrap();
    within(guard.release()).await.unwrap();

    // Made again with another number, which its node has in the same version.
    let admin = session(&stage.client().await).await;
    let version = |stat: Option<baton_client::Stat>| stat.unwrap().version;
    let before = version(admin.exists(&stage.path).await.unwrap());
    for dir in ["leases", "locks"] {
        // There only once somebody has stood in it.
        let _ = admin.delete(&format!("{}/{dir}", stage.path), None).await;
    }
    within(admin.delete(&stage.path, None)).await.unwrap();
    let other = Semaphore::new(&stage.client().await, &stage.path, 1).unwrap();
    let held = within(other.acquire(1)).await.unwrap();
    let after = version(admin.exists(&stage.path).await.unwrap());
    assert_eq!(before, after);

    // There were two permits in the one that was known.
    let more = within(known.try_acquire(1)).await.unwrap();
    assert!(more.is_none(), "more permits than there are");
    let refused = within(known.try_acquire(2)).await.unwrap_err();
    let most = matches!(refused, SemaphoreError::BadPermits { most: 1, .. });
    assert!(most, "{refused}");
    assert_eq!(held.check(), Ok(()));
    within(held.release()).await.unwrap();
}
