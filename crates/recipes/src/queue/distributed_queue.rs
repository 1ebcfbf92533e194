//! The FIFO queue.
//!
//! Owns the operations of the original recipe and their names. A take deletes the item: a consumer
//! that crashes with it loses it. The documentation must never promise more.

use std::time::Duration;

use baton_client::{Acl, Client};
use bytes::Bytes;

use super::error::QueueError;
use super::folder::Folder;
use super::layout::{QueueKind, QueueLayout, plain_prefix};

/// A queue at a path of the tree: first in, first out, each item taken by one consumer.
///
/// Delivery is at most once: a take removes the item from the tree, so a consumer that crashes with
/// the item loses it. Cheap to clone; clones share the items that a cancelled
/// [`DistributedQueue::take`] has taken.
///
/// The queue's directory is a persistent node. Beside it, `<path>-__receipts__` holds a small
/// ephemeral node for each concurrent operation, by which an unknown outcome is resolved.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = baton::DistributedQueue::new(&client, "/jobs")?;
/// queue.offer(b"build 17").await?;
/// let item = queue.take().await?;
/// assert_eq!(item, "build 17");
/// assert_eq!(queue.poll().await?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DistributedQueue {
    folder: Folder,
}

impl DistributedQueue {
    /// A queue at `path` in the layout of the original recipe, [`QueueLayout::Recipes`]. Nothing is
    /// sent.
    ///
    /// # Errors
    /// [`QueueError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, QueueError> {
        let folder = Folder::new(client, path, QueueKind::Recipes)?;
        Ok(Self { folder })
    }

    /// Uses the names and bytes of another library, to share the queue with its processes.
    ///
    /// With [`QueueLayout::Kazoo`] an offer has kazoo's usual priority, 100, and items come out in
    /// the order of kazoo's `Queue`.
    #[must_use]
    pub fn layout(self, layout: QueueLayout) -> Self {
        let format = match layout {
            QueueLayout::Recipes => QueueKind::Recipes,
            QueueLayout::Curator => QueueKind::Curator,
            QueueLayout::Kazoo => QueueKind::Kazoo,
        };
        Self {
            folder: self.folder.with_format(format),
        }
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

    /// Puts an item at the end. When this returns `Ok`, the item is in the queue exactly once.
    ///
    /// Dropping the future does not cancel an offer that is under way.
    ///
    /// # Errors
    /// [`QueueError::OfferUnknown`] where the session ended before the outcome was known; else
    /// nothing was offered.
    pub async fn offer(&self, item: &[u8]) -> Result<(), QueueError> {
        self.offer_all([item]).await
    }

    /// Puts items at the end, in this order, next to each other: all of them or none. They are
    /// sent as one request, whose size is limited.
    ///
    /// # Errors
    /// As [`DistributedQueue::offer`], for all items alike.
    pub async fn offer_all<I>(&self, items: I) -> Result<(), QueueError>
    where
        I: IntoIterator<Item: AsRef<[u8]>>,
    {
        let format = self.folder.format();
        let node = |item: I::Item| {
            let item = Bytes::copy_from_slice(item.as_ref());
            (plain_prefix(format.layout()), format.encode(&[item]))
        };
        let nodes: Vec<_> = items.into_iter().map(node).collect();
        self.folder.offer(&nodes).await
    }

    /// The item at the head, left where it is; `None` if the queue is empty.
    ///
    /// # Errors
    /// [`QueueError::Undecodable`] where nothing else is in the queue; else the client's error.
    pub async fn peek(&self) -> Result<Option<Bytes>, QueueError> {
        Ok(self.folder.peek().await?.map(|item| item.data))
    }

    /// Takes the item at the head; `None` if the queue is empty. Items that cannot be read are
    /// passed over and left in place.
    ///
    /// Cancel-safe: an item that was taken for a dropped future is kept in this process, and the
    /// next caller of this handle or a clone gets it. Where the outcome of that take is unknown,
    /// the next caller gets the error.
    ///
    /// # Errors
    /// [`QueueError::TakeUnknown`], with the item, where the session ended before the outcome was
    /// known; [`QueueError::Undecodable`] where nothing else is in the queue; else nothing was
    /// taken.
    pub async fn poll(&self) -> Result<Option<Bytes>, QueueError> {
        Ok(self.folder.poll().await?.map(|item| item.data))
    }

    /// Takes the item at the head; waits while the queue is empty. Cancel-safe as
    /// [`DistributedQueue::poll`].
    ///
    /// Each offer wakes all consumers that wait: the layouts of other libraries do not allow fewer.
    ///
    /// # Errors
    /// As [`DistributedQueue::poll`], but an item that cannot be read is no error: the call waits.
    pub async fn take(&self) -> Result<Bytes, QueueError> {
        Ok(self.folder.take().await?.data)
    }

    /// Like [`DistributedQueue::take`], for at most `limit`. An item that is being taken when the
    /// time is up goes to the next caller, or to [`DistributedQueue::recover`].
    ///
    /// # Errors
    /// [`QueueError::TimedOut`] when the limit has passed; else as `take`.
    pub async fn take_timeout(&self, limit: Duration) -> Result<Bytes, QueueError> {
        Ok(self.folder.take_timeout(limit).await?.data)
    }

    /// Like [`DistributedQueue::peek`], where an empty queue is an error (`element` of the original
    /// recipe).
    ///
    /// # Errors
    /// [`QueueError::Empty`]; else as `peek`.
    pub async fn element(&self) -> Result<Bytes, QueueError> {
        self.peek().await?.ok_or_else(|| self.empty())
    }

    /// Like [`DistributedQueue::poll`], where an empty queue is an error (`remove` of the original
    /// recipe).
    ///
    /// # Errors
    /// [`QueueError::Empty`]; else as `poll`.
    pub async fn remove(&self) -> Result<Bytes, QueueError> {
        self.poll().await?.ok_or_else(|| self.empty())
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

    /// The names of the items in the tree, head first.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn names(&self) -> Result<Vec<String>, QueueError> {
        self.folder.names().await
    }

    /// Number of children of the queue's node: items, and nodes of others. Reads one stat.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn depth(&self) -> Result<usize, QueueError> {
        self.folder.depth().await
    }

    fn empty(&self) -> QueueError {
        QueueError::Empty {
            path: self.path().to_owned(),
        }
    }
}
