//! Queues in the layouts of other libraries: one type, with an order of its items.
//!
//! Owns the choice of an item's name: its priority, due time or id. A take deletes the item: a
//! consumer that crashes with it loses it. The documentation must never promise more. Must never
//! write a priority that does not fit into the name, because the order of names would be wrong, nor
//! remove an item of another id. Due times are by the server's clock, so a machine whose own clock
//! is minutes off changes nothing (H76).

use std::marker::PhantomData;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_client::Client;
use bytes::Bytes;

use super::error::QueueError;
use super::folder::Folder;
use super::folder_state::Item;
use super::layout::{
    QueueKind, QueueLayout, curator_delay_prefix, curator_id_prefix, curator_priority_prefix,
    id_of, kazoo_stem, plain_prefix, written_id,
};
use crate::options::acl_option;
use crate::server_clock::millis;

/// The order in which a [`Queue`] hands out its items. Implemented by [`Fifo`], [`ByPriority`],
/// [`ByDueTime`] and [`ById`].
pub trait Order: sealed::Sealed {
    /// An item as the queue hands it out.
    type Item;

    #[doc(hidden)]
    const KIND: QueueKind;

    #[doc(hidden)]
    fn item(name: &str, data: Bytes) -> Self::Item;
}

mod sealed {
    #[expect(unnameable_types, reason = "other crates must not implement it")]
    pub trait Sealed: Clone + std::fmt::Debug {}
}

/// An item of an [`IdQueue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdItem {
    /// Its id as it is in the tree; empty for an item without one.
    pub id: String,
    /// The item's bytes.
    pub data: Bytes,
}

macro_rules! orders {
    ($($(#[$doc:meta])* $order:ident($kind:ident): $item:ty = |$name:pat_param, $data:pat_param| $make:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $order {}

        impl sealed::Sealed for $order {}

        impl Order for $order {
            type Item = $item;

            const KIND: QueueKind = QueueKind::$kind;

            fn item($name: &str, $data: Bytes) -> $item {
                $make
            }
        }
    )*};
}

orders! {
    /// First in, first out.
    Fifo(Recipes): Bytes = |_, data| data;
    /// The lowest number first; of equal numbers, the item that was offered first.
    ByPriority(CuratorPriority): Bytes = |_, data| data;
    /// The earliest due time first, and no item before its time.
    ByDueTime(CuratorDelay): Bytes = |_, data| data;
    /// First in, first out, each item with an id.
    ById(CuratorId): IdItem = |name, data| IdItem {
        id: id_of(name).unwrap_or_default().to_owned(),
        data,
    };
}

/// A queue at a path of the tree, each item taken by one consumer, in the order `O`.
///
/// Delivery is at most once: a take removes the item from the tree, so a consumer that crashes with
/// the item loses it. Cheap to clone; clones share the items that a cancelled [`Queue::take`] has
/// taken.
///
/// The queue's directory is a persistent node. Beside it, `<path>-__receipts__` holds a small
/// ephemeral node for each concurrent operation, by which an unknown outcome is resolved.
#[derive(Clone, Debug)]
pub struct Queue<O: Order> {
    folder: Folder,
    order: PhantomData<fn() -> O>,
}

/// A [`Queue`] that is first in, first out.
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
pub type DistributedQueue = Queue<Fifo>;

/// A [`Queue`] whose lowest number comes first; of equal numbers, the item that was offered first.
///
/// Each take lists the queue, so that a new urgent item comes first: this suits some thousand
/// items, not hundreds of thousands.
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
pub type PriorityQueue = Queue<ByPriority>;

/// A [`Queue`] whose items can be taken once they are due, the earliest due time first.
///
/// The layout is that of Curator's `DistributedDelayQueue`. Time is measured by the server's clock,
/// read when it is first needed and each minute after; this machine's wall clock does not matter.
/// An item becomes available at the earliest one round trip before its time, and at the latest a
/// round trip and a message later. To this adds the drift between the two clocks in a minute, and,
/// after a change of the leader, the difference of the servers' clocks for up to a minute. A
/// Curator process on the same path uses its own clock. Each take lists the queue.
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
pub type DelayQueue = Queue<ByDueTime>;

/// A [`Queue`], first in, first out, whose items carry an id. Ids need not be unique.
///
/// The layout is that of Curator's `DistributedIdQueue`.
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
pub type IdQueue = Queue<ById>;

impl<O: Order> Queue<O> {
    /// A queue at `path`. Nothing is sent.
    ///
    /// Its layout is that of the original recipe, [`QueueLayout::Recipes`], for [`Fifo`]; for every
    /// other order it is that of Curator's queue of this order.
    ///
    /// # Errors
    /// [`QueueError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, QueueError> {
        Ok(Self {
            folder: Folder::new(client, path, O::KIND)?,
            order: PhantomData,
        })
    }

    acl_option!(folder.client);

    /// The queue's path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.folder.path()
    }

    /// The first item that can be taken, left where it is; `None` if there is none.
    ///
    /// # Errors
    /// [`QueueError::Undecodable`] where nothing else is in the queue; else the client's error.
    pub async fn peek(&self) -> Result<Option<O::Item>, QueueError> {
        Ok(self.folder.peek().await?.map(Self::item))
    }

    /// Takes the first item that can be taken; `None` if there is none. Items that cannot be read
    /// are passed over and left in place.
    ///
    /// Cancel-safe: an item that was taken for a dropped future is kept in this process, and the
    /// next caller of this handle or a clone gets it. Where the outcome of that take is unknown,
    /// the next caller gets the error.
    ///
    /// # Errors
    /// [`QueueError::TakeUnknown`], with the item, where the session ended before the outcome was
    /// known; [`QueueError::Undecodable`] where nothing else is in the queue; else nothing was
    /// taken.
    pub async fn poll(&self) -> Result<Option<O::Item>, QueueError> {
        Ok(self.folder.poll().await?.map(Self::item))
    }

    /// Takes the first item that can be taken; waits while there is none. Cancel-safe as
    /// [`Queue::poll`].
    ///
    /// Each offer wakes all consumers that wait: the layouts of other libraries do not allow fewer.
    ///
    /// # Errors
    /// As [`Queue::poll`], but an item that cannot be read is not an error: the call waits.
    pub async fn take(&self) -> Result<O::Item, QueueError> {
        Ok(Self::item(self.folder.take().await?))
    }

    /// Like [`Queue::take`], for at most `limit`. An item that is being taken when the time is up
    /// goes to the next caller, or to [`Queue::recover`].
    ///
    /// # Errors
    /// [`QueueError::TimedOut`] when the limit has passed; else as `take`.
    pub async fn take_timeout(&self, limit: Duration) -> Result<O::Item, QueueError> {
        Ok(Self::item(self.folder.take_timeout(limit).await?))
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
    pub async fn recover(&self) -> Result<Option<O::Item>, QueueError> {
        Ok(self.folder.recover().await?.map(Self::item))
    }

    /// The names of the items in the tree in the queue's order, with those that are not due.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn names(&self) -> Result<Vec<String>, QueueError> {
        self.folder.names().await
    }

    /// Number of children of the queue's node: items, due or not, and nodes of others. Reads one
    /// stat.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn depth(&self) -> Result<usize, QueueError> {
        self.folder.depth().await
    }

    fn item(item: Item) -> O::Item {
        O::item(&item.name, item.data)
    }

    fn with_kind(self, kind: QueueKind) -> Self {
        Self {
            folder: self.folder.with_format(kind),
            ..self
        }
    }

    /// Offers one item in a node whose name begins with `stem`.
    async fn put(&self, stem: String, item: &[u8]) -> Result<(), QueueError> {
        let data = self.folder.format().encode(&[Bytes::copy_from_slice(item)]);
        self.folder.offer(&[(stem, data)]).await
    }

    fn bad_argument(&self, why: impl Into<String>) -> QueueError {
        QueueError::BadArgument {
            path: self.path().to_owned(),
            why: why.into(),
        }
    }
}

impl Queue<Fifo> {
    /// Uses the names and bytes of another library, to share the queue with its processes.
    ///
    /// With [`QueueLayout::Kazoo`] an offer has kazoo's usual priority, 100, and items come out in
    /// the order of kazoo's `Queue`.
    #[must_use]
    pub fn layout(self, layout: QueueLayout) -> Self {
        self.with_kind(match layout {
            QueueLayout::Recipes => QueueKind::Recipes,
            QueueLayout::Curator => QueueKind::Curator,
            QueueLayout::Kazoo => QueueKind::Kazoo,
        })
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

    /// Like [`Queue::peek`], where an empty queue is an error (`element` of the original recipe).
    ///
    /// # Errors
    /// [`QueueError::Empty`]; else as `peek`.
    pub async fn element(&self) -> Result<Bytes, QueueError> {
        self.peek().await?.ok_or_else(|| self.empty())
    }

    /// Like [`Queue::poll`], where an empty queue is an error (`remove` of the original recipe).
    ///
    /// # Errors
    /// [`QueueError::Empty`]; else as `poll`.
    pub async fn remove(&self) -> Result<Bytes, QueueError> {
        self.poll().await?.ok_or_else(|| self.empty())
    }

    fn empty(&self) -> QueueError {
        QueueError::Empty {
            path: self.path().to_owned(),
        }
    }
}

impl Queue<ByPriority> {
    /// Uses the names and bytes of another library: [`QueueLayout::Kazoo`] has priorities from 0 to
    /// 999; the default, [`QueueLayout::Curator`], has any `i32`.
    ///
    /// With [`QueueLayout::Recipes`], whose names hold no priority, each operation is refused:
    /// [`QueueError::BadArgument`].
    #[must_use]
    pub fn layout(self, layout: QueueLayout) -> Self {
        match layout {
            QueueLayout::Curator => self.with_kind(QueueKind::CuratorPriority),
            QueueLayout::Kazoo => self.with_kind(QueueKind::Kazoo),
            QueueLayout::Recipes => {
                let refusal = self.bad_argument(format!(
                    "names of the layout {layout} hold no priority; use curator or kazoo"
                ));
                Self {
                    folder: self.folder.refusing(refusal),
                    ..self
                }
            }
        }
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
        let stem = match self.folder.format().layout() {
            QueueLayout::Kazoo => kazoo_stem(self.path(), priority)?,
            QueueLayout::Curator | QueueLayout::Recipes => curator_priority_prefix(priority),
        };
        self.put(stem, item).await
    }
}

impl Queue<ByDueTime> {
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
        let due_ms = now.saturating_add(millis(delay));
        self.put(curator_delay_prefix(due_ms), item).await
    }

    /// Puts an item into the queue that is due at `time` by the server's clock.
    ///
    /// # Errors
    /// [`QueueError::BadArgument`] for a time before 1970; else as [`DelayQueue::offer`].
    pub async fn offer_at(&self, item: &[u8], time: SystemTime) -> Result<(), QueueError> {
        let due = time.duration_since(UNIX_EPOCH).map_err(|_| {
            self.bad_argument("a time before 1970 cannot be written; use a later one")
        })?;
        self.put(curator_delay_prefix(millis(due)), item).await
    }
}

impl Queue<ById> {
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
        if id.is_empty() {
            return Err(self.bad_argument("an item's id cannot be empty; name it"));
        }
        let stem = curator_id_prefix(id);
        let node = baton_proto::path::join(self.path(), &stem);
        baton_proto::path::validate_sequential(&node).map_err(|error| {
            self.bad_argument(format!(
                "{id:?} cannot be part of a name: {error}; use another id"
            ))
        })?;
        self.put(stem, item).await
    }

    /// Deletes all items of this id, whatever they hold, and returns how many. Items that are
    /// offered meanwhile may stay.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] where the session ended before it was known whether an item was
    /// deleted; [`QueueError`].
    pub async fn remove(&self, id: &str) -> Result<usize, QueueError> {
        let mut removed = 0;
        for name in self.names_of(id).await? {
            removed += usize::from(self.folder.delete(&name).await?);
        }
        Ok(removed)
    }

    /// Returns whether an item of this id is in the queue.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn contains(&self, id: &str) -> Result<bool, QueueError> {
        Ok(!self.names_of(id).await?.is_empty())
    }

    async fn names_of(&self, id: &str) -> Result<Vec<String>, QueueError> {
        let id = written_id(id);
        let mut names = self.folder.names().await?;
        names.retain(|name| id_of(name) == Some(&*id));
        Ok(names)
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
            let put = |item, due_ms| queue.put(curator_delay_prefix(due_ms), item);
            // To a machine that is five minutes off, the server's clock shows this.
            let server_ms = own_ms() + off_ms;
            queue.folder.clock().set(&session, server_ms);
            put(b"later", server_ms + 150).await.unwrap();
            queue
                .offer(b"latest", Duration::from_millis(200))
                .await
                .unwrap();
            put(b"past", server_ms - 1).await.unwrap();
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
