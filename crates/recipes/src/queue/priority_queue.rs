//! The queue whose most urgent item comes first.
//!
//! Owns the choice of a name for each priority. Must never write a priority that does not fit into
//! the name, because the order of names would be wrong.

use std::time::Duration;

use baton_client::{Acl, Client};
use bytes::Bytes;

use super::error::QueueError;
use super::folder::Folder;
use super::layout::{QueueKind, QueueLayout, curator_priority_prefix, kazoo_stem};

/// A queue whose lowest number comes first; of equal numbers, the item that was offered first.
///
/// Delivery is at most once, as with [`crate::DistributedQueue`]. Each take lists the queue, so
/// that a new urgent item comes first: this suits some thousand items, not hundreds of thousands.
/// Cheap to clone.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = baton::queue::PriorityQueue::new(&client, "/jobs")?;
/// queue.offer(b"some time", 5).await?;
/// queue.offer(b"at once", -1).await?;
/// assert_eq!(queue.take().await?, "at once");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PriorityQueue {
    folder: Folder,
}

impl PriorityQueue {
    /// A queue at `path` in the layout of Curator's `DistributedPriorityQueue`: priorities are any
    /// `i32`. Nothing is sent.
    ///
    /// # Errors
    /// [`QueueError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, QueueError> {
        let folder = Folder::new(client, path, QueueKind::CuratorPriority)?;
        Ok(Self { folder })
    }

    /// Uses the names and bytes of another library: [`QueueLayout::Kazoo`] has priorities from 0 to
    /// 999.
    ///
    /// With [`QueueLayout::Recipes`], whose names hold no priority, each operation is refused:
    /// [`QueueError::BadArgument`].
    #[must_use]
    pub fn layout(self, layout: QueueLayout) -> Self {
        let format = match layout {
            QueueLayout::Curator => QueueKind::CuratorPriority,
            QueueLayout::Kazoo => QueueKind::Kazoo,
            QueueLayout::Recipes => {
                let refusal = QueueError::BadArgument {
                    path: self.path().to_owned(),
                    why: format!(
                        "names of the layout {layout} hold no priority; use curator or kazoo"
                    ),
                };
                let folder = self.folder.refusing(refusal);
                return Self { folder };
            }
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

    /// Puts an item behind those of a lower or the same number. When this returns `Ok`, the item is
    /// in the queue, once.
    ///
    /// Dropping the future does not cancel an offer that is under way.
    ///
    /// # Errors
    /// [`QueueError::BadArgument`] for a priority that the layout cannot write;
    /// [`QueueError::OfferUnknown`] where the session ended before the outcome was known; else
    /// nothing was offered.
    pub async fn offer(&self, item: &[u8], priority: i32) -> Result<(), QueueError> {
        let format = self.folder.format();
        let stem = match format.layout() {
            QueueLayout::Kazoo => kazoo_stem(self.path(), priority)?,
            QueueLayout::Curator | QueueLayout::Recipes => curator_priority_prefix(priority),
        };
        let data = format.encode(&[Bytes::copy_from_slice(item)]);
        self.folder.offer(&[(stem, data)]).await
    }

    /// The most urgent item, left where it is; `None` if the queue is empty.
    ///
    /// # Errors
    /// As [`crate::DistributedQueue::peek`].
    pub async fn peek(&self) -> Result<Option<Bytes>, QueueError> {
        Ok(self.folder.peek().await?.map(|item| item.data))
    }

    /// Takes the most urgent item; `None` if the queue is empty. Cancel-safe as
    /// [`crate::DistributedQueue::poll`].
    ///
    /// # Errors
    /// As [`crate::DistributedQueue::poll`].
    pub async fn poll(&self) -> Result<Option<Bytes>, QueueError> {
        Ok(self.folder.poll().await?.map(|item| item.data))
    }

    /// Takes the most urgent item; waits while the queue is empty. Cancel-safe as
    /// `poll`.
    ///
    /// # Errors
    /// As [`crate::DistributedQueue::take`].
    pub async fn take(&self) -> Result<Bytes, QueueError> {
        Ok(self.folder.take().await?.data)
    }

    /// Like [`PriorityQueue::take`], for at most `limit`. An item that is being taken when the time
    /// is up goes to the next caller, or to [`PriorityQueue::recover`].
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

    /// The names of the items in the tree, the most urgent first.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn names(&self) -> Result<Vec<String>, QueueError> {
        self.folder.names().await
    }

    /// [`crate::DistributedQueue::depth`] of this queue.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn depth(&self) -> Result<usize, QueueError> {
        self.folder.depth().await
    }
}
