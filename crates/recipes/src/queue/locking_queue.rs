//! A queue whose items are first locked, and removed when they are done.
//!
//! Owns how an item is locked: list, claim, wait. Must never leave a claim that nobody uses (H69).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use baton_client::{Client, Error, LeaseError, LeaseHold, Session};
use bytes::Bytes;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::error::QueueError;
use super::folder::{Folder, SearchOutcome, check_path};
use super::item_claim::{ClaimOutcome, claim_item};
use super::layout::{KAZOO_PRIORITY, QueueKind, QueueLayout, kazoo_stem, plain_prefix};
use super::locked_item::LockedItem;
use crate::options::acl_option;
use crate::parents::{ParentKind, ensure_parents};
use crate::spans;
use crate::time_limit::at_most;

/// The largest item: its consumer writes it again in one request with the claim.
const MAX_ITEM_BYTES: usize = 1_000_000;

/// A queue whose consumers lock an item before they work on it; the item stays in the tree until it
/// is done.
///
/// Delivery is at least once: if a consumer crashes or loses its session, the next one gets the
/// item. A consumer is notified at once when it loses an item, and cannot remove it any more: see
/// [`LockedItem`]. The layouts are those of kazoo's `LockingQueue` and of Curator's
/// `DistributedQueue` with a lock path; both can share a queue with Baton. Where no other library
/// needs to read the queue, [`WorkQueue`](crate::WorkQueue) does more.
///
/// Each offer and each claim wakes all consumers that wait. Cheap to clone.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = baton::queue::LockingQueue::new(&client, "/jobs")?;
/// queue.offer(b"build 17").await?;
/// let item = queue.take().await?;
/// assert_eq!(item.data(), b"build 17");
/// item.consume().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LockingQueue {
    path: Arc<str>,
    folder: Folder,
    claims: Arc<str>,
}

impl LockingQueue {
    /// A queue at `path` in the layout of kazoo's `LockingQueue`: items below `<path>/entries`,
    /// claims below `<path>/taken`. Nothing is sent.
    ///
    /// # Errors
    /// [`QueueError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, QueueError> {
        check_path(path)?;
        let folder = Folder::new(client, &format!("{path}/entries"), QueueKind::Kazoo)?;
        Ok(Self {
            path: Arc::from(path),
            folder: folder.below(path),
            claims: Arc::from(format!("{path}/taken")),
        })
    }

    /// Uses the names and bytes of Curator's `DistributedQueue` with this lock path: items are the
    /// children of the queue's path, claims are below `lock_path`.
    ///
    /// With a bad lock path, or the queue's own, each operation is refused:
    /// [`QueueError::BadPath`].
    #[must_use]
    pub fn curator_layout(self, lock_path: &str) -> Self {
        let fits = check_path(lock_path).and_then(|()| match self.path() == lock_path {
            true => Err(QueueError::bad_path(
                lock_path,
                "items and claims need a node each; name another lock path".to_owned(),
            )),
            false => Ok(()),
        });
        let folder = self.folder.moved(&self.path, QueueKind::Curator);
        Self {
            folder: match fits {
                Ok(()) => folder,
                Err(refusal) => folder.refusing(refusal),
            },
            claims: Arc::from(lock_path),
            path: self.path,
        }
    }

    acl_option!(folder.client);

    /// The queue's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path below which the items are.
    #[must_use]
    pub fn items_path(&self) -> &str {
        self.folder.path()
    }

    /// The path below which the claims are.
    #[must_use]
    pub fn claims_path(&self) -> &str {
        &self.claims
    }

    /// Puts an item of at most 1,000,000 bytes at the end (with kazoo's usual priority, 100). When
    /// this returns `Ok`, the item is in the queue, once.
    ///
    /// Dropping the future does not cancel an offer that is under way.
    ///
    /// # Errors
    /// [`QueueError::BadArgument`] for a larger item; [`QueueError::OfferUnknown`] where the
    /// session ended before the outcome was known; else nothing was offered.
    pub async fn offer(&self, item: &[u8]) -> Result<(), QueueError> {
        self.put([item], plain_prefix(self.layout())).await
    }

    /// Puts items at the end, in this order, next to each other: all of them or none.
    ///
    /// # Errors
    /// As [`LockingQueue::offer`], for all items alike.
    pub async fn offer_all<I>(&self, items: I) -> Result<(), QueueError>
    where
        I: IntoIterator<Item: AsRef<[u8]>>,
    {
        self.put(items, plain_prefix(self.layout())).await
    }

    /// Puts an item behind those of a lower or the same number, from 0 (first) to 999.
    ///
    /// # Errors
    /// [`QueueError::BadArgument`] for another number, or in Curator's layout, whose names hold
    /// none but 100, the usual; else as [`LockingQueue::offer`].
    pub async fn offer_with_priority(&self, item: &[u8], priority: i32) -> Result<(), QueueError> {
        let stem = match self.layout() {
            QueueLayout::Kazoo => kazoo_stem(self.items_path(), priority)?,
            layout if priority == KAZOO_PRIORITY => plain_prefix(layout),
            layout => {
                return Err(QueueError::BadArgument {
                    path: self.items_path().to_owned(),
                    why: format!("names of the layout {layout} hold no priority here; use kazoo's"),
                });
            }
        };
        self.put([item], stem).await
    }

    async fn put<I>(&self, items: I, stem: String) -> Result<(), QueueError>
    where
        I: IntoIterator<Item: AsRef<[u8]>>,
    {
        let format = self.folder.format();
        let mut nodes = Vec::new();
        for item in items {
            let item = Bytes::copy_from_slice(item.as_ref());
            if item.len() > MAX_ITEM_BYTES {
                return Err(QueueError::BadArgument {
                    path: self.items_path().to_owned(),
                    why: format!(
                        "an item has {} bytes, more than the {MAX_ITEM_BYTES} that can be locked; store less in one node",
                        item.len()
                    ),
                });
            }
            nodes.push((stem.clone(), format.encode(&[item])));
        }
        self.folder.offer(&nodes).await
    }

    /// Locks the first item that nobody has locked; `None` if there is none. Items that cannot be
    /// read are passed over.
    ///
    /// Cancel-safe: an item that was locked for a dropped future is put back.
    ///
    /// # Errors
    /// [`QueueError::Undecodable`] where nothing else is free; [`QueueError::Lease`] where the
    /// session's timeout is too short for a sound lock; else the client's error. No item stays
    /// locked.
    pub async fn poll(&self) -> Result<Option<LockedItem>, QueueError> {
        let found = self.search().await?;
        let item = self.folder.polled(found).await?;
        Ok(item.map(|item| *item))
    }

    /// Locks the first item that nobody has locked; waits while there is none. Cancel-safe as
    /// `poll`.
    ///
    /// # Errors
    /// As [`LockingQueue::poll`], but an item that cannot be read is not an error: the call waits.
    pub async fn take(&self) -> Result<LockedItem, QueueError> {
        loop {
            let passed = match self.search().await? {
                SearchOutcome::Item(item) => return Ok(*item),
                SearchOutcome::Nothing(passed) => passed,
            };
            self.folder.refuse_others().await?;
            let session = self.folder.session().await?;
            let claims = session.children_watch(&self.claims);
            let items = session.children_watch(self.items_path());
            let (claims, items) = match (claims.await, items.await) {
                (Ok(claims), Ok(items)) => (claims, items),
                (Err(error), _) | (_, Err(error)) => {
                    self.prepare_retry(&session, error).await?;
                    continue;
                }
            };
            let claimed: HashSet<String> = claims.0.names.into_iter().collect();
            let format = self.folder.format();
            let free = |name: &String| {
                format.key(name).is_some() && !claimed.contains(name) && !passed.contains_key(name)
            };
            if items.0.names.iter().any(free) {
                continue;
            }
            tokio::select! {
                biased;
                // The folder has changed, or the session was lost.
                _ = claims.1 => {}
                _ = items.1 => {}
            }
        }
    }

    /// Like [`LockingQueue::take`], for at most `limit`.
    ///
    /// # Errors
    /// [`QueueError::TimedOut`] when the limit has passed; else as `take`.
    pub async fn take_timeout(&self, limit: Duration) -> Result<LockedItem, QueueError> {
        let timed_out = |waited_for| QueueError::timed_out(self.path(), limit, waited_for);
        at_most(limit, &self.folder.client, self.take(), timed_out).await
    }

    /// Returns the names of all items in the tree, locked or not, in the queue's order.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn names(&self) -> Result<Vec<String>, QueueError> {
        self.folder.names().await
    }

    /// Number of children of the folder of items: items, locked ones included, and nodes of others.
    /// Reads one stat.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn depth(&self) -> Result<usize, QueueError> {
        self.folder.depth().await
    }

    fn layout(&self) -> QueueLayout {
        self.folder.format().layout()
    }

    /// Makes the folders if they are missing, or waits for the connection.
    async fn prepare_retry(&self, session: &Session, error: Error) -> Result<(), QueueError> {
        if error.is_no_node() {
            self.folder.make(session).await?;
            let made = ensure_parents(session, &self.claims, ParentKind::Persistent).await;
            self.folder.or_retry(session, made).await?;
        } else {
            self.folder.or_retry(session, Err::<(), _>(error)).await?;
        }
        Ok(())
    }

    async fn search(&self) -> Result<SearchOutcome<Box<LockedItem>>, QueueError> {
        let mut unreadable = HashMap::new();
        'again: loop {
            let session = self.folder.session().await?;
            let lease = match session.hold_lease().await {
                Ok(lease) => Arc::new(lease),
                Err(LeaseError::SessionEnded(_)) => continue,
                Err(source) => {
                    return Err(QueueError::lease(self.items_path(), source));
                }
            };
            let claims = session.children(&self.claims);
            let items = self.folder.list(&session).await;
            let claimed: HashSet<String> = match claims.await {
                Ok(claims) => claims.names.into_iter().collect(),
                Err(error) if error.is_no_node() => HashSet::new(),
                Err(error) => {
                    self.folder.or_retry(&session, Err::<(), _>(error)).await?;
                    continue;
                }
            };
            let Some(items) = self.folder.or_retry(&session, items).await? else {
                continue;
            };
            for (name, _) in items {
                if claimed.contains(&name) || unreadable.contains_key(&name) {
                    continue;
                }
                match self.lock(&session, &name, &lease).await? {
                    ClaimOutcome::Claimed(claimed) => {
                        let item = LockedItem::new(&self.folder, &name, claimed);
                        return Ok(SearchOutcome::Item(Box::new(item)));
                    }
                    // The next one, without waiting (H70).
                    ClaimOutcome::Taken => {}
                    ClaimOutcome::Unreadable(why) => {
                        tracing::warn!(
                            queue = self.items_path(),
                            item = name,
                            why,
                            "item cannot be read: passed over, left in place"
                        );
                        unreadable.insert(name, why);
                    }
                    ClaimOutcome::Again => continue 'again,
                }
            }
            return Ok(SearchOutcome::Nothing(unreadable));
        }
    }

    /// Claims an item in a task of its own: a claim for a cancelled caller is freed again.
    async fn lock(
        &self,
        session: &Session,
        name: &str,
        lease: &Arc<LeaseHold>,
    ) -> Result<ClaimOutcome, QueueError> {
        let runtime = session.runtime();
        let (queue, session) = (self.clone(), session.clone());
        let (name, lease) = (name.to_owned(), Arc::clone(lease));
        let (report, reported) = oneshot::channel();
        let span = spans::claim(self.folder.path());
        let claiming = async move {
            let attempt = claim_item(&queue.folder, &session, &queue.claims, &name, lease).await;
            drop(report.send(attempt));
        };
        runtime.spawn(claiming.instrument(span.clone()));
        // The task is dropped only where the client's runtime has ended.
        let outcome = reported.await.unwrap_or(Ok(ClaimOutcome::Again));
        if let Ok(ClaimOutcome::Claimed(item)) = &outcome {
            spans::granted(&span, item.claim.state().token());
            item.claim.state().begin_hold(&span);
        }
        outcome
    }
}
