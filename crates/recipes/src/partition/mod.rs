//! Partitions: items spread over the members of a group, each under a lock of its own.
//!
//! [`Partitioner`] has an example. Each [`PartitionEvent::Assigned`] brings a
//! [`Guard`], so that no two members work on one item at a time.

// Owns the handle and its events. Hashing decides who is to have an item, a lock decides who has
// it: must never report an item as assigned without a guard on it.

mod driver;
mod hash;

use std::collections::BTreeMap;
use std::sync::Arc;

use baton_client::{Acl, Client};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::acquire::LockError;
use crate::common_error::{CommonError, RecipeError};
use crate::guard::{Guard, LostReason};
use crate::lock::Mutex;
use crate::membership::{MemberError, Membership};
use crate::naming::Dialect;
use driver::Driver;

/// Events that wait to be taken, at most.
const EVENTS: usize = 16;

/// A fixed list of items, distributed over the members: each has about the same number of items,
/// and when a member joins or leaves, only its items move.
///
/// All members must be made with the same path and the same items. The list itself is not in the
/// tree.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use baton::partition::PartitionEvent;
/// use std::collections::HashMap;
///
/// let shards = (0..64).map(|number| format!("shard-{number}"));
/// let partitioner = baton::Partitioner::new(&client, "/indexer", shards)?;
/// let mut partition = partitioner.join("10.0.0.7")?;
/// let mut mine = HashMap::new();
/// loop {
///     match partition.next().await? {
///         PartitionEvent::Assigned { item, guard } => {
///             // Work on it, with guard.token(), guard.run(…), guard.txn().
///             mine.insert(item, guard);
///         }
///         PartitionEvent::Revoked { item } => {
///             // Finish what is under way; the next member waits for this.
///             if let Some(guard) = mine.remove(&item) {
///                 guard.release().await?;
///             }
///         }
///         PartitionEvent::Lost { item, reason } => {
///             println!("{item} is gone: {reason}");
///             mine.remove(&item);
///         }
///         PartitionEvent::Failed { item, error } => println!("{item}: {error}"),
/// #       _ => break,
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Partitioner {
    path: Arc<str>,
    members: Membership,
    items: Arc<BTreeMap<Arc<str>, Mutex>>,
}

/// Event of an item.
#[derive(Debug)]
#[non_exhaustive]
pub enum PartitionEvent {
    /// The item is this member's, for as long as the guard is held. Releasing it unasked gives the
    /// item back, to be assigned again.
    Assigned {
        /// The item.
        item: Arc<str>,
        /// The proof of having it.
        guard: Guard,
    },
    /// The item is to go to another member. It stays this one's until its guard is released or
    /// dropped; the guard's [`Guard::on_revoke`] reports the same.
    Revoked {
        /// The item.
        item: Arc<str>,
    },
    /// The guard has ended without having been released.
    Lost {
        /// The item.
        item: Arc<str>,
        /// The reason.
        reason: LostReason,
    },
    /// The item's lock could not be acquired. That is tried again after a pause.
    Failed {
        /// The item.
        item: Arc<str>,
        /// The reason.
        error: LockError,
    },
}

/// Reason why a partition failed or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// An item cannot be part of a node's name.
    #[error("{item:?}: not a legal name for an item: {why}")]
    BadItem {
        /// The item as given.
        item: String,
        /// The error.
        why: String,
    },
    /// The group cannot be joined or seen.
    #[error(transparent)]
    Members(#[from] MemberError),
    /// The partition has ended: its client is closed, or its runtime gone.
    #[error("{path}: not in the partition any more; join again")]
    Ended {
        /// The partitioner's path.
        path: String,
    },
}

impl RecipeError for PartitionError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Members(error) => error.common(),
            Self::BadItem { .. } | Self::Ended { .. } => None,
        }
    }
}

impl Partitioner {
    /// A partitioner of `items` at `path`. An item that is given twice counts once. Nothing is
    /// sent.
    ///
    /// # Errors
    /// [`MemberError::BadPath`] as [`PartitionError::Members`]; [`PartitionError::BadItem`].
    pub fn new<I: AsRef<str>>(
        client: &Client,
        path: &str,
        items: impl IntoIterator<Item = I>,
    ) -> Result<Self, PartitionError> {
        // The path itself first, so that what is wrong with it is not said of one of its children.
        Membership::new(client, path)?;
        let mut locks = BTreeMap::new();
        for item in items {
            let item: Arc<str> = Arc::from(item.as_ref());
            let lock = lock_of(client, path, &item)?;
            locks.insert(item, lock);
        }
        Ok(Self {
            path: Arc::from(path),
            members: Membership::new(client, &format!("{path}/members"))?,
            items: Arc::new(locks),
        })
    }

    /// Uses the names of another library for the items' locks.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        let locks = self.items.iter();
        let locks = locks.map(|(item, lock)| (Arc::clone(item), lock.clone().dialect(dialect)));
        self.items = Arc::new(locks.collect());
        self
    }

    /// The ACL of every node that this handle creates, missing parents included. Default: open to
    /// everybody. Give all who use the partitioner the same, and the permissions that they need:
    /// all but `ADMIN`. Nodes that exist already keep theirs.
    #[must_use]
    pub fn acl(mut self, acl: &[Acl<'_>]) -> Self {
        let locks = self.items.iter();
        let locks = locks.map(|(item, lock)| (Arc::clone(item), lock.clone().acl(acl)));
        self.items = Arc::new(locks.collect());
        self.members = self.members.acl(acl);
        self
    }

    /// The partitioner's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Joins as the member `id`, which must be unique, in the background. Items are assigned by
    /// events.
    ///
    /// # Errors
    /// [`MemberError::BadId`] and the like, as [`PartitionError::Members`].
    pub fn join(&self, id: &str) -> Result<Partition, PartitionError> {
        let view = self.members.updates()?;
        let registration = self.members.join(id, b"")?;
        let (to, events) = mpsc::channel(EVENTS);
        let (leave, leaving) = oneshot::channel();
        let runtime = registration.node().runtime().clone();
        let items = Arc::clone(&self.items);
        let driver = Driver::new(registration, view, items, to, runtime.clone());
        Ok(Partition {
            path: Arc::clone(&self.path),
            events,
            _leave: leave,
            driver: runtime.spawn(driver.run(leaving)),
        })
    }
}

fn lock_of(client: &Client, path: &str, item: &str) -> Result<Mutex, PartitionError> {
    let bad = |why: String| PartitionError::BadItem {
        item: item.to_owned(),
        why,
    };
    if item.is_empty() || item.contains('/') {
        return Err(bad("it is empty, or contains a slash".to_owned()));
    }
    Mutex::new(client, &format!("{path}/locks/{item}")).map_err(|error| match error {
        LockError::BadPath { why, .. } => bad(why),
        error => bad(error.to_string()),
    })
}

/// Membership in a partition: items are assigned by events. Dropping it leaves the group, in the
/// background; guards that were handed out stay as they are.
#[must_use = "dropping it leaves the group"]
#[derive(Debug)]
pub struct Partition {
    path: Arc<str>,
    events: mpsc::Receiver<Result<PartitionEvent, PartitionError>>,
    /// Dropped to leave.
    _leave: oneshot::Sender<()>,
    driver: JoinHandle<()>,
}

impl Partition {
    /// Returns the next event. The partition makes no progress while an event is unread.
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`PartitionError::Ended`], [`PartitionError::Members`]; it is over then.
    pub async fn next(&mut self) -> Result<PartitionEvent, PartitionError> {
        match self.events.recv().await {
            Some(event) => event,
            None => Err(PartitionError::Ended {
                path: self.path.to_string(),
            }),
        }
    }

    /// Leaves the group, and waits until that is certain. The items pass on to others as their
    /// guards are released.
    pub async fn leave(self) {
        let Self {
            events,
            _leave,
            driver,
            ..
        } = self;
        drop((events, _leave));
        // A driver that panicked has dropped its registration, which leaves as well.
        let _ = driver.await;
    }
}
