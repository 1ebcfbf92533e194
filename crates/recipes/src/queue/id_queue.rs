//! The FIFO queue whose items carry an id, by which they can be found and removed.
//!
//! Owns the ids in names. Must never remove an item of another id.

use std::time::Duration;

use baton_client::{Acl, Client};
use bytes::Bytes;

use super::error::QueueError;
use super::folder::Folder;
use super::folder_state::Item;
use super::layout::{QueueKind, curator_id_prefix, id_of, written_id};

/// A queue, first in, first out, whose items carry an id. Ids need not be unique.
///
/// The layout is that of Curator's `DistributedIdQueue`. Delivery is at most once, as with
/// [`crate::DistributedQueue`]. Cheap to clone.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = baton::queue::IdQueue::new(&client, "/mails")?;
/// queue.offer(b"hello", "mail-17").await?;
/// assert!(queue.contains("mail-17").await?);
/// assert_eq!(queue.remove("mail-17").await?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct IdQueue {
    folder: Folder,
}

/// An item of an [`IdQueue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdItem {
    /// Its id as it is in the tree; empty for an item without one.
    pub id: String,
    /// The item's bytes.
    pub data: Bytes,
}

impl From<Item> for IdItem {
    fn from(Item { name, data }: Item) -> Self {
        let id = id_of(&name).unwrap_or_default().to_owned();
        Self { id, data }
    }
}

impl IdQueue {
    /// A queue at `path`. Nothing is sent.
    ///
    /// # Errors
    /// [`QueueError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, QueueError> {
        let folder = Folder::new(client, path, QueueKind::CuratorId)?;
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

    /// Puts an item at the end. When this returns `Ok`, the item is in the queue exactly once.
    ///
    /// A `/` or `|` in the id is written as `_`, as Curator does. [`IdQueue::remove`] does the
    /// same.
    ///
    /// # Errors
    /// [`QueueError::BadArgument`] for an id that is empty or that no name can hold;
    /// [`QueueError::OfferUnknown`] where the session ended before the outcome was known; else
    /// nothing was offered.
    pub async fn offer(&self, item: &[u8], id: &str) -> Result<(), QueueError> {
        self.check(id)?;
        let data = self.folder.format().encode(&[Bytes::copy_from_slice(item)]);
        self.folder.offer(&[(curator_id_prefix(id), data)]).await
    }

    /// Deletes all items of this id, whatever they hold, and returns how many. Items that are
    /// offered meanwhile may stay.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] where the session ended before it was known whether an item was
    /// deleted; [`QueueError`].
    pub async fn remove(&self, id: &str) -> Result<usize, QueueError> {
        let mut removed = 0;
        for name in self.of(id).await? {
            removed += usize::from(self.folder.delete(&name).await?);
        }
        Ok(removed)
    }

    /// Returns whether an item of this id is in the queue.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn contains(&self, id: &str) -> Result<bool, QueueError> {
        Ok(!self.of(id).await?.is_empty())
    }

    /// The item at the head, left where it is; `None` if the queue is empty.
    ///
    /// # Errors
    /// As [`crate::DistributedQueue::peek`].
    pub async fn peek(&self) -> Result<Option<IdItem>, QueueError> {
        Ok(self.folder.peek().await?.map(IdItem::from))
    }

    /// Takes the item at the head; `None` if the queue is empty. Cancel-safe as
    /// [`crate::DistributedQueue::poll`].
    ///
    /// # Errors
    /// As [`crate::DistributedQueue::poll`].
    pub async fn poll(&self) -> Result<Option<IdItem>, QueueError> {
        Ok(self.folder.poll().await?.map(IdItem::from))
    }

    /// Takes the item at the head; waits while the queue is empty. Cancel-safe as
    /// `poll`.
    ///
    /// # Errors
    /// As [`crate::DistributedQueue::take`].
    pub async fn take(&self) -> Result<IdItem, QueueError> {
        Ok(self.folder.take().await?.into())
    }

    /// Like [`IdQueue::take`], for at most `limit`. An item that is being taken when the limit has
    /// passed goes to the next caller, or to [`IdQueue::recover`].
    ///
    /// # Errors
    /// [`QueueError::TimedOut`] when the limit has passed; else as `take`.
    pub async fn take_timeout(&self, limit: Duration) -> Result<IdItem, QueueError> {
        Ok(self.folder.take_timeout(limit).await?.into())
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
    pub async fn recover(&self) -> Result<Option<IdItem>, QueueError> {
        Ok(self.folder.recover().await?.map(IdItem::from))
    }

    /// The names of the items in the tree, head first.
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

    async fn of(&self, id: &str) -> Result<Vec<String>, QueueError> {
        let id = written_id(id);
        let mut names = self.folder.names().await?;
        names.retain(|name| id_of(name) == Some(&*id));
        Ok(names)
    }

    fn check(&self, id: &str) -> Result<(), QueueError> {
        let bad = |why: String| {
            Err(QueueError::BadArgument {
                path: self.path().to_owned(),
                why,
            })
        };
        if id.is_empty() {
            return bad("an item's id cannot be empty; name it".to_owned());
        }
        let node = baton_proto::path::join(self.path(), &curator_id_prefix(id));
        match baton_proto::path::validate_sequential(&node) {
            Ok(()) => Ok(()),
            Err(error) => bad(format!(
                "{id:?} cannot be part of a name: {error}; use another id"
            )),
        }
    }
}
