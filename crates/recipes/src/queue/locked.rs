//! An item that its consumer has locked.
//!
//! Owns its three ends: consumed, put back, put back at the end. Each is one change under the claim
//! that it was locked by. Must never delete an item whose claim has passed on (H67).

use super::QueueError;
use super::claim::{self, Claimed};
use super::folder::Folder;
use crate::guard::{GuardState, GuardStatus, LostReason, Txn, drive};
use crate::receipt::Outcome;
use baton_client::{CreateMode, Op, Session};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// An item of a [`LockingQueue`](crate::LockingQueue) that nobody else gets while this lives and
/// [`LockedItem::check`] says so.
///
/// Dropping it puts the item back in its place, in the background. So does the end of the lease
/// while the session lives, as soon as there is a connection.
///
/// ```no_run
/// # async fn example(queue: baton::LockingQueue) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn handle(_: &[u8]) -> Result<(), String> { Ok(()) }
/// let item = queue.take().await?;
/// // The work is dropped the moment the item is no longer ours.
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
    claimed: Claimed,
}

impl LockedItem {
    pub(super) fn new(folder: &Folder, name: &str, claimed: Claimed) -> Self {
        Self {
            folder: folder.clone(),
            name: name.to_owned(),
            claimed,
        }
    }

    /// What was offered; where a Curator process put several items into one node, the first.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.claimed.items.first().map_or(&[], |item| item)
    }

    /// All that the node holds: one item, unless a Curator process put several into it, or none.
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

    /// Whether the item is ours, at this instant, by our own clock. Never waits, and needs no event
    /// to have arrived.
    ///
    /// # Errors
    /// Why it is not; from then on for ever.
    pub fn check(&self) -> Result<(), LostReason> {
        self.state().check()
    }

    /// For how long the item is known to be ours if no server answers from now on. Zero once it is
    /// not.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.state().remaining()
    }

    /// Resolves when the item is no longer ours, with the reason. It does not borrow the item, and
    /// may be dropped freely.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let state = Arc::clone(self.state());
        async move { state.ended().await }
    }

    /// The fencing token: grows each time that this item is locked again. Pass it along with every
    /// side effect.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.state().token()
    }

    /// Whether the item is ours, for those who do not have it. It does not borrow the item.
    #[must_use]
    pub fn status(&self) -> GuardStatus {
        GuardStatus::new(self.state())
    }

    /// Begins a set of changes to the tree that is applied whole, and only while the item is ours.
    pub fn txn(&self) -> Txn<'_> {
        Txn::under(self.state(), self.ours().into())
    }

    /// Leaves the claim's node in place when the item is lost with its lease, until this is
    /// dropped: see [`Guard::keep_node`](crate::Guard::keep_node).
    ///
    /// # Errors
    /// Why the item is not ours any more, if it is not by then.
    pub fn keep_node(&self) -> Result<(), LostReason> {
        self.state().keep_nodes();
        self.check()
    }

    /// Drives `work`, and drops it the moment the item is no longer ours: see
    /// [`Guard::run`](crate::Guard::run).
    ///
    /// # Errors
    /// Why the item is not ours, if it ceased to be before the work was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostReason> {
        drive(|| self.check(), self.lost(), work).await
    }

    /// That the item is as it was claimed, and that the claim of its name is ours: no other has
    /// both versions.
    fn ours(&self) -> [Op; 2] {
        [
            Op::check(self.item(), Some(self.claimed.version)),
            Op::check(self.node(), Some(claim::VERSION)),
        ]
    }

    fn state(&self) -> &Arc<GuardState> {
        self.claimed.claim.state()
    }

    /// Removes the item from the queue: it is done.
    ///
    /// Dropping the future leaves open whether the item is removed or put back.
    ///
    /// # Errors
    /// [`QueueError::ClaimLost`] where the item was not ours any more: nothing was removed.
    /// [`QueueError::Unknown`] where the session ended before the outcome was known. Else nothing
    /// was removed, and the item is put back.
    pub async fn consume(self) -> Result<(), QueueError> {
        let part = Op::delete(self.item(), Some(self.claimed.version));
        self.end(vec![part]).await
    }

    /// Puts the item back in its place, for whoever is first.
    ///
    /// # Errors
    /// [`QueueError::ClaimLost`] where the item was not ours any more; [`QueueError::Unknown`]
    /// where the session ended before the outcome was known: with the session goes the claim, so
    /// the item is free either way.
    pub async fn release(self) -> Result<(), QueueError> {
        let part = Op::check(self.item(), Some(self.claimed.version));
        self.end(vec![part]).await
    }

    /// Puts the item back behind those of the same priority, under a new number. Its priority
    /// stays, and its name does not grow (H71).
    ///
    /// # Errors
    /// As [`LockedItem::consume`].
    pub async fn requeue(self) -> Result<(), QueueError> {
        let stem = self.folder.format().stem(&self.name).unwrap_or_default();
        let anew = baton_proto::path::join(self.folder.path(), stem);
        let data = self.claimed.data.clone();
        let parts = vec![
            Op::delete(self.item(), Some(self.claimed.version)),
            Op::create(anew, data, CreateMode::PersistentSequential),
        ];
        self.end(parts).await
    }

    /// Applies `parts` together with the end of the claim, if the claim is ours.
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
        parts.push(Op::delete(state.path(), Some(claim::VERSION)));
        // Here the item counts as let go of from now on, so that the end of its claim is not taken
        // for another's doing. Whether it was still ours is the server's to say.
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
                        .after(state.session(), Err::<(), _>(error))
                        .await?;
                }
                Outcome::Unknown(source) => return Err(QueueError::Unknown { node, source }),
            }
        }
    }
}
