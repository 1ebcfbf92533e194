//! What no recipe can do: a typed error each, with nothing left behind and the session unharmed. What is peculiar to one recipe is
//! tested with it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use baton::{DistributedQueue, LeaderElection, LockError, LostReason, QueueError, SharedValue};
use common::{Stage, mutex, session, within};
use std::time::Duration;

/// More than a node can hold.
const TOO_MUCH: usize = 2 << 20;

#[tokio::test]
async fn more_data_than_a_node_holds_is_refused_before_it_is_sent() {
    let stage = Stage::new("large").await;
    let client = stage.client().await;
    let much = vec![b'x'; TOO_MUCH];
    let name = String::from_utf8(much.clone()).unwrap();

    let lock = mutex(&client, &stage.path).name(&name);
    let error = within(lock.acquire()).await.unwrap_err();
    assert!(matches!(error, LockError::Client { .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("store less in one node"), "{told}");

    let election = LeaderElection::new(&client, &stage.path).unwrap();
    let error = within(election.data(&much).campaign()).await.unwrap_err();
    assert!(error.to_string().contains("store less"), "{error}");

    let queue = DistributedQueue::new(&client, &format!("{}-q", stage.path)).unwrap();
    let error = within(queue.offer(&much)).await.unwrap_err();
    assert!(matches!(error, QueueError::Client { .. }), "{error}");
    assert_eq!(within(queue.depth()).await.unwrap(), 0);

    let value = SharedValue::new(&client, &format!("{}-v", stage.path)).unwrap();
    let error = within(value.set(&much)).await.unwrap_err();
    assert!(error.to_string().contains("store less"), "{error}");

    stage.until_children(0).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    within(guard.release()).await.unwrap();
}

/// A guard is gone with its release; what was made of it before says so.
#[tokio::test]
async fn what_outlives_a_guard_says_that_it_was_released() {
    let stage = Stage::new("released").await;
    let client = stage.client().await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let (standing, lost, asked) = (guard.standing(), guard.lost(), guard.on_revoke());
    assert_eq!(standing.check(), Ok(()));
    assert!(standing.remaining() > Duration::ZERO);
    let node = guard.node().to_owned();
    within(guard.release()).await.unwrap();
    assert_eq!(standing.check(), Err(LostReason::Released));
    assert_eq!(standing.clone().remaining(), Duration::ZERO);
    assert_eq!(within(lost).await, LostReason::Released);
    assert_eq!(within(asked).await, Err(LostReason::Released));
    let left = session(&client).await.exists(&node).await.unwrap();
    assert!(left.is_none());
}
