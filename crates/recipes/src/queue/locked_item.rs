//! An item that its consumer has locked.
//!
//! Owns how the lock ends: the item is consumed, put back in its place, or put back at the end.
//! Each is one change under the claim. Must never delete an item whose claim another consumer has
//! (H67).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use baton_client::{CreateMode, Op, Session};
use bytes::Bytes;
use tracing::Instrument;

use super::error::QueueError;
use super::folder::Folder;
use super::item_claim::{self, ClaimedItem};
use crate::guard::{GuardState, GuardStatus, LostReason, Txn, drive};
use crate::receipt::Outcome;
use crate::spans;

/// An item of a [`LockingQueue`](crate::queue::LockingQueue) that this consumer has locked: no
/// other consumer gets it as long as [`LockedItem::check`] returns `Ok`.
///
/// Dropping it puts the item back in its place, in the background. The end of the lease does the
/// same as soon as there is a connection, if the session still exists.
///
/// ```no_run
/// # use baton::queue::LockingQueue;
/// # async fn example(queue: LockingQueue) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn handle(_: &[u8]) -> Result<(), String> { Ok(()) }
/// let item = queue.take().await?;
/// // The work is dropped at once when the lock is lost.
/// match item.run(handle(item.data())).await? {
///     Ok(()) => item.consume().await?,
///     Err(_) => item.requeue().await?,
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the item puts it back"]
#[derive(Debug)]
pub struct LockedItem {
    folder: Folder,
    name: String,
    claimed: ClaimedItem,
}

impl LockedItem {
    pub(super) fn new(folder: &Folder, name: &str, claimed: ClaimedItem) -> Self {
        Self {
            folder: folder.clone(),
            name: name.to_owned(),
            claimed,
        }
    }

    /// The item's bytes; where a Curator process put several items into one node, the first.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.claimed.items.first().map_or(&[], |item| item)
    }

    /// All items of the node: one, unless a Curator process put several into it, or none.
    #[must_use]
    pub fn items(&self) -> &[Bytes] {
        &self.claimed.items
    }

    /// Full path of the item's node.
    #[must_use]
    pub fn item(&self) -> String {
        baton_proto::path::join(self.folder.path(), &self.name)
    }

    /// Full path of the claim's node.
    #[must_use]
    pub fn node(&self) -> &str {
        self.state().path()
    }

    /// The session that the claim belongs to.
    #[must_use]
    pub fn session(&self) -> &Session {
        self.state().session()
    }

    /// Checks that the lock is valid at this instant, by this process's clock. Never waits, and
    /// does not depend on the delivery of an event.
    ///
    /// # Errors
    /// How the lock was lost. Once lost, it stays lost.
    pub fn check(&self) -> Result<(), LostReason> {
        self.state().check()
    }

    /// For how long the lock is known to be valid if no server answers from now on. Zero once it is
    /// lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.state().remaining()
    }

    /// Resolves with the reason when the lock is lost. The future does not borrow the item, and may
    /// be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let state = Arc::clone(self.state());
        async move { state.ended().await }
    }

    /// The fencing token: each later lock of this item has a larger one. Send it with every side
    /// effect on other systems.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.state().token()
    }

    /// The status of the lock, for code that does not have the item. It does not borrow the item.
    #[must_use]
    pub fn status(&self) -> GuardStatus {
        GuardStatus::new(self.state())
    }

    /// Begins a set of changes to the tree that is applied whole, and only while the lock is valid.
    pub fn txn(&self) -> Txn<'_> {
        Txn::under(self.state(), self.conditions().into())
    }

    /// Leaves the claim's node in place when the item is lost with its lease, until this is
    /// dropped: see [`Guard::keep_node`](crate::Guard::keep_node).
    ///
    /// # Errors
    /// How the lock was lost, if it is lost.
    pub fn keep_node(&self) -> Result<(), LostReason> {
        self.state().keep_nodes();
        self.check()
    }

    /// Drives `work`, and drops it at once when the lock is lost: see
    /// [`Guard::run`](crate::Guard::run).
    ///
    /// # Errors
    /// How the lock was lost, if it was lost before the work was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostReason> {
        let span = spans::run(self.node(), self.token());
        drive(|| self.check(), self.lost(), work)
            .instrument(span)
            .await
    }

    /// Conditions of a change under this claim: no other claim has both versions.
    fn conditions(&self) -> [Op; 2] {
        [
            Op::check(self.item(), Some(self.claimed.version)),
            Op::check(self.node(), Some(item_claim::VERSION)),
        ]
    }

    fn state(&self) -> &Arc<GuardState> {
        self.claimed.claim.state()
    }

    /// Removes the item from the queue: it is done.
    ///
    /// Where the future is dropped, the item is either removed or put back.
    ///
    /// # Errors
    /// [`QueueError::ClaimLost`] where the lock was lost: nothing was removed.
    /// [`QueueError::Unknown`] where the session ended before the outcome was known. Else nothing
    /// was removed, and the item is put back.
    pub async fn consume(self) -> Result<(), QueueError> {
        let part = Op::delete(self.item(), Some(self.claimed.version));
        self.end(vec![part]).await
    }

    /// Puts the item back at its position.
    ///
    /// # Errors
    /// [`QueueError::ClaimLost`] where the lock was lost; [`QueueError::Unknown`] where the session
    /// ended before the outcome was known. The claim ends with the session, so the item is free
    /// either way.
    pub async fn release(self) -> Result<(), QueueError> {
        let part = Op::check(self.item(), Some(self.claimed.version));
        self.end(vec![part]).await
    }

    /// Puts the item back behind those of the same priority, under a new number. Its priority
    /// stays, and its name does not grow.
    ///
    /// # Errors
    /// As [`LockedItem::consume`].
    pub async fn requeue(self) -> Result<(), QueueError> {
        let stem = self.folder.format().stem(&self.name).unwrap_or_default();
        let requeued = baton_proto::path::join(self.folder.path(), stem);
        let data = self.claimed.data.clone();
        let parts = vec![
            Op::delete(self.item(), Some(self.claimed.version)),
            Op::create(requeued, data, CreateMode::PersistentSequential),
        ];
        self.end(parts).await
    }

    /// Applies `parts` together with the end of the claim, if the claim is still valid.
    async fn end(self, mut parts: Vec<Op>) -> Result<(), QueueError> {
        let node = self.item();
        let state = Arc::clone(self.state());
        let lost = |reason| {
            Err(QueueError::ClaimLost {
                node: node.clone(),
                reason,
            })
        };
        if let Err(reason) = state.check() {
            return lost(reason);
        }
        parts.push(Op::delete(state.path(), Some(item_claim::VERSION)));
        // From now on this process treats the claim as ended, so that the deletion of its node is
        // not reported as a loss. The server decides whether the claim was still valid.
        state.end(LostReason::Released);
        loop {
            if state.session().state().is_final() {
                return lost(LostReason::SessionLost);
            }
            match self.folder.apply(state.session(), parts.clone()).await {
                Outcome::Applied => {
                    self.claimed.claim.settled();
                    return Ok(());
                }
                Outcome::NotApplied => {}
                Outcome::Refused(error) if error.is_no_node() || error.is_bad_version() => {
                    return lost(LostReason::NodeGone);
                }
                Outcome::Refused(error) => return Err(self.folder.client_error(error)),
                Outcome::Failed(error) => {
                    self.folder
                        .or_retry(state.session(), Err::<(), _>(error))
                        .await?;
                }
                Outcome::Unknown(source) => return Err(QueueError::Unknown { node, source }),
            }
        }
    }
}
