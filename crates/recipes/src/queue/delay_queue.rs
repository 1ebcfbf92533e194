//! The queue whose items can be taken once they are due.
//!
//! Owns the times in names. Producers and consumers use the server's time, so a machine whose own
//! clock is minutes off changes nothing (H76).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_client::{Acl, Client};
use bytes::Bytes;

use super::error::QueueError;
use super::folder::Folder;
use super::layout::{QueueKind, curator_delay_prefix};
use crate::server_clock::millis;

/// A queue whose items can be taken once they are due, the earliest due time first.
///
/// The layout is that of Curator's `DistributedDelayQueue`. Time is measured by the server's clock,
/// read when it is first needed and each minute after; this machine's wall clock does not matter.
/// An item becomes available at the earliest one round trip before its time, and at the latest a
/// round trip and a message later. To this adds the drift between the two clocks in a minute, and,
/// after a change of the leader, the difference of the servers' clocks for up to a minute. A
/// Curator process on the same path uses its own clock.
///
/// Delivery is at most once, as with [`crate::DistributedQueue`]. Each take lists the queue. Cheap
/// to clone.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// let queue = baton::queue::DelayQueue::new(&client, "/reminders")?;
/// queue.offer(b"tea is ready", Duration::from_secs(180)).await?;
/// assert_eq!(queue.poll().await?, None);
/// let item = queue.take().await?; // three minutes later
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DelayQueue {
    folder: Folder,
}

impl DelayQueue {
    /// A queue at `path`. Nothing is sent.
    ///
    /// # Errors
    /// [`QueueError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, QueueError> {
        let folder = Folder::new(client, path, QueueKind::CuratorDelay)?;
        Ok(Self { folder })
    }

    /// The ACL of every node that this handle creates, missing parents included. Default: open to
    /// everybody. Give all who use the queue the same, and the permissions that they need: all but
    /// `ADMIN`. Nodes that exist already keep theirs.
    #[must_use]
    pub fn acl(mut self, acl: &[Acl<'_>]) -> Self {
        self.folder.client = self.folder.client.with_acl(acl);
        self
    }

    /// The queue's path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.folder.path()
    }

    /// Puts an item into the queue that is due after `delay`, counted from now by the server's
    /// clock. When this returns `Ok`, the item is in the queue exactly once.
    ///
    /// Dropping the future does not cancel an offer that is under way.
    ///
    /// # Errors
    /// [`QueueError::OfferUnknown`] where the session ended before the outcome was known; else
    /// nothing was offered.
    pub async fn offer(&self, item: &[u8], delay: Duration) -> Result<(), QueueError> {
        let now = self.folder.server_ms().await?;
        self.put(item, now.saturating_add(millis(delay))).await
    }

    /// Puts an item into the queue that is due at `time` by the server's clock.
    ///
    /// # Errors
    /// [`QueueError::BadArgument`] for a time before 1970; else as [`DelayQueue::offer`].
    pub async fn offer_at(&self, item: &[u8], time: SystemTime) -> Result<(), QueueError> {
        let due = time
            .duration_since(UNIX_EPOCH)
            .map_err(|_| QueueError::BadArgument {
                path: self.path().to_owned(),
                why: "a time before 1970 cannot be written; use a later one".to_owned(),
            })?;
        self.put(item, millis(due)).await
    }

    async fn put(&self, item: &[u8], due_ms: i64) -> Result<(), QueueError> {
        let data = self.folder.format().encode(&[Bytes::copy_from_slice(item)]);
        self.folder
            .offer(&[(curator_delay_prefix(due_ms), data)])
            .await
    }

    /// The item that has been due for longest, left where it is; `None` if none is due.
    ///
    /// # Errors
    /// As [`crate::DistributedQueue::peek`].
    pub async fn peek(&self) -> Result<Option<Bytes>, QueueError> {
        Ok(self.folder.peek().await?.map(|item| item.data))
    }

    /// Takes the item that has been due for longest; `None` if none is due. Cancel-safe as
    /// [`crate::DistributedQueue::poll`].
    ///
    /// # Errors
    /// As [`crate::DistributedQueue::poll`].
    pub async fn poll(&self) -> Result<Option<Bytes>, QueueError> {
        Ok(self.folder.poll().await?.map(|item| item.data))
    }

    /// Takes the first item that is due; waits while there is none. Cancel-safe as `poll`.
    ///
    /// # Errors
    /// As [`crate::DistributedQueue::take`].
    pub async fn take(&self) -> Result<Bytes, QueueError> {
        Ok(self.folder.take().await?.data)
    }

    /// Like [`DelayQueue::take`], for at most `limit`. An item that is being taken when the time is
    /// up goes to the next caller, or to [`DelayQueue::recover`].
    ///
    /// # Errors
    /// [`QueueError::TimedOut`] when the limit has passed; else as `take`.
    pub async fn take_timeout(&self, limit: Duration) -> Result<Bytes, QueueError> {
        Ok(self.folder.take_timeout(limit).await?.data)
    }

    /// The item that a dropped future has taken; `None` if there is none. A program that cancels a
    /// `take` and is about to end calls this, so that the item is not lost with the program.
    ///
    /// Waits for the outcome of each take under way, at most until the session ends. Repeat the
    /// call until it returns `None`.
    ///
    /// # Errors
    /// [`QueueError::TakeUnknown`], with the item, where the session ended before the outcome was
    /// known.
    pub async fn recover(&self) -> Result<Option<Bytes>, QueueError> {
        Ok(self.folder.recover().await?.map(|item| item.data))
    }

    /// The names of all items in the tree, due or not, in the order of their times.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn names(&self) -> Result<Vec<String>, QueueError> {
        self.folder.names().await
    }

    /// [`crate::DistributedQueue::depth`] of items, due or not.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn depth(&self) -> Result<usize, QueueError> {
        self.folder.depth().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_clock::tests::{own_ms, started};

    #[tokio::test(flavor = "multi_thread")]
    async fn h76_a_machine_whose_clock_is_five_minutes_off_hands_out_nothing_early_or_late() {
        let (_server, client) = started().await;
        let session = client.session().await.unwrap();
        for off_ms in [-300_000, 300_000] {
            let queue = DelayQueue::new(&client, &format!("/delay{off_ms}")).unwrap();
            // To a machine that is five minutes off, the server's clock shows this.
            let server_ms = own_ms() + off_ms;
            queue.folder.clock().set(&session, server_ms);
            queue.put(b"later", server_ms + 150).await.unwrap();
            queue
                .offer(b"latest", Duration::from_millis(200))
                .await
                .unwrap();
            queue.put(b"past", server_ms - 1).await.unwrap();
            assert_eq!(queue.names().await.unwrap().len(), 3);
            assert_eq!(queue.poll().await.unwrap().unwrap(), "past", "{off_ms}");
            if own_ms() - server_ms + off_ms < 100 {
                assert_eq!(queue.poll().await.unwrap(), None, "{off_ms}");
            }
            assert_eq!(queue.take().await.unwrap(), "later");
            assert!(own_ms() + off_ms >= server_ms + 150);
            assert_eq!(queue.take().await.unwrap(), "latest");
            assert!(own_ms() + off_ms >= server_ms + 200);
        }
    }
}
