//! [`Claim`]: a claimed item in a consumer's hands.
//!
//! Owns what the consumer can ask of it and do with it. `settle` ends it.

use std::sync::Arc;
use std::time::Duration;

use baton_client::Session;
use bytes::Bytes;
use tracing::Instrument;

use super::context::QueueContext;
use super::error::WorkError;
use super::held_item::HeldItem;
use super::settle::settle_own;
use super::settlement::{RetryBackoff, SettledState, Settlement};
use super::visibility;
use crate::guard::{GuardStatus, LostReason, Txn, drive};
use crate::spans;

/// A claimed item: this consumer may work on it until it settles the item or loses the claim.
///
/// A claim belongs to one session and cannot be cloned. Dropping it without a settlement gives the
/// item back to the queue at once; the attempt counts. The end of the lease does the same as soon
/// as there is a connection, if the session still exists ([`Claim::keep_node`] defers that).
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = baton::WorkQueue::new(&client, "/jobs")?;
/// let claim = queue.take().await?;
/// # async fn work(_: &[u8]) -> Result<(), String> { Ok(()) }
/// // The work is dropped the moment the claim is lost.
/// match claim.run(work(claim.payload())).await? {
///     Ok(()) => claim.ack().await?,
///     Err(why) => claim.nack(&why).await?,
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the claim gives the item back"]
#[derive(Debug)]
pub struct Claim {
    context: Arc<QueueContext>,
    held: HeldItem,
    backoff: RetryBackoff,
    max_attempts: u32,
}

impl Claim {
    pub(super) fn new(
        context: &Arc<QueueContext>,
        held: HeldItem,
        backoff: RetryBackoff,
        max_attempts: u32,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            max_attempts: held.envelope.max_attempts.unwrap_or(max_attempts),
            held,
            backoff,
        }
    }

    /// The item's bytes, as they were put.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.held.payload
    }

    /// The item's id: the same over all attempts. Make the work repeatable by it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.held.envelope.id
    }

    /// Number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.held.envelope.attempts
    }

    /// The item's priority, from 0, the most urgent, to 999.
    #[must_use]
    pub fn priority(&self) -> u16 {
        self.held.envelope.priority
    }

    /// Returns when the item was put: milliseconds since 1970 by the servers' clock.
    #[must_use]
    pub fn since_ms(&self) -> i64 {
        self.held.since_ms
    }

    /// Checks that the claim is valid at this instant, by this process's clock. Never waits, and
    /// does not depend on the delivery of an event.
    ///
    /// # Errors
    /// How the claim was lost.
    pub fn check(&self) -> Result<(), LostReason> {
        self.held.check()
    }

    /// For how long the claim is known to be valid if no server answers from now on: the rest of
    /// the session's lease, or of the visibility timeout if that is shorter.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Resolves with the reason when the claim is lost. The future does not borrow the claim, can
    /// be made any number of times, and may be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.held.lost()
    }

    /// Resolves when the claim has ended: with the settlement by another process
    /// ([`WorkQueue::settle`](super::WorkQueue::settle)), or else with the reason why the claim was
    /// lost. Cancel-safe.
    ///
    /// Only claims of a queue handle with
    /// [`WorkQueue::settled_elsewhere`](super::WorkQueue::settled_elsewhere) receive a settlement;
    /// for other claims it is [`LostReason::NodeGone`].
    ///
    /// # Errors
    /// How the claim was lost. Where the lease or the session has ended, it is unknown whether
    /// another process settled the item just before.
    pub async fn settled(&self) -> Result<SettledState, LostReason> {
        match (self.held.lost().await, &self.held.notice) {
            // A settlement deletes the claim and writes the notice in one change.
            (LostReason::NodeGone, Some(notice)) => notice.read().await.ok_or(LostReason::NodeGone),
            (reason, _) => Err(reason),
        }
    }

    /// The fencing token: each later claim of this item has a larger one. Send it with every side
    /// effect on other systems. Items that were claimed in one change share it.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.held.guard.token()
    }

    /// Full path of the item's node.
    #[must_use]
    pub fn item(&self) -> &str {
        &self.held.entry
    }

    /// Full path of the claim's node.
    #[must_use]
    pub fn node(&self) -> &str {
        self.held.guard.node()
    }

    /// The session that the claim belongs to.
    #[must_use]
    pub fn session(&self) -> &Session {
        self.held.guard.session()
    }

    /// Begins a set of changes to the tree that is applied whole, and only while the claim is
    /// valid.
    pub fn txn(&self) -> Txn<'_> {
        self.held.guard.txn()
    }

    /// The status of the claim, for code that does not have the claim. It does not borrow the
    /// claim.
    #[must_use]
    pub fn status(&self) -> GuardStatus {
        self.held.status()
    }

    /// Leaves the claim's node in place when the claim is lost with its lease, until this is
    /// dropped: see [`Guard::keep_node`](crate::Guard::keep_node).
    ///
    /// # Errors
    /// How the claim was lost, if it is lost.
    pub fn keep_node(&self) -> Result<(), LostReason> {
        self.held.guard.keep_node()?;
        self.check()
    }

    /// Drives `work`, and drops it at once when the claim is lost. Tasks that `work` has spawned go
    /// on.
    ///
    /// # Errors
    /// How the claim was lost, if it was lost before the work was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostReason> {
        let span = spans::run(self.node(), self.token());
        drive(|| self.check(), self.lost(), work)
            .instrument(span)
            .await
    }

    /// Acknowledges the item: it is done, and is removed.
    ///
    /// The server decides. Where the visibility timeout is over and no other consumer has claimed
    /// the item, this succeeds. Where the lease has ended, the claim was given up, and another
    /// consumer gets the item. Dropping the future does not cancel the settlement.
    ///
    /// # Errors
    /// [`WorkError::ClaimLost`] where the claim was lost, [`WorkError::Changed`] where somebody has
    /// changed the item, [`WorkError::SettleUnknown`] where the session ended before the outcome
    /// was known.
    pub async fn ack(self) -> Result<(), WorkError> {
        self.settle(Settlement::Ack).await
    }

    /// Gives the item back after a failed attempt: it becomes available again after the queue's
    /// back-off, or a dead letter if this was its last attempt. `reason` is stored in it.
    ///
    /// # Errors
    /// As [`Claim::ack`].
    pub async fn nack(self, reason: &str) -> Result<(), WorkError> {
        let reason = reason.to_owned();
        self.settle(Settlement::Nack {
            delay: None,
            reason,
        })
        .await
    }

    /// Like [`Claim::nack`], after `delay` instead, of at most a hundred years.
    ///
    /// # Errors
    /// As [`Claim::ack`].
    pub async fn nack_after(self, delay: Duration, reason: &str) -> Result<(), WorkError> {
        let reason = reason.to_owned();
        self.settle(Settlement::Nack {
            delay: Some(delay),
            reason,
        })
        .await
    }

    /// Gives the item back as it was: the attempt does not count, and the item keeps its position.
    ///
    /// # Errors
    /// As [`Claim::ack`].
    pub async fn release(self) -> Result<(), WorkError> {
        self.settle(Settlement::Release).await
    }

    /// Moves the item to the dead letters, with its bytes, because no attempt will succeed.
    ///
    /// # Errors
    /// As [`Claim::ack`].
    pub async fn dead_letter(self, reason: &str) -> Result<(), WorkError> {
        let reason = reason.to_owned();
        self.settle(Settlement::DeadLetter { reason }).await
    }

    /// Restarts the visibility timeout; does nothing where the claim has none. Dropping the future
    /// does not cancel it.
    ///
    /// # Errors
    /// [`WorkError::ClaimLost`]; [`WorkError::Client`] where the extension failed and the old
    /// deadline still holds.
    pub async fn extend(&self) -> Result<(), WorkError> {
        let lost = |reason| WorkError::ClaimLost {
            item: self.held.entry.clone(),
            reason,
        };
        self.check().map_err(lost)?;
        match visibility::extend(&self.held).await {
            Ok(true) => self.check().map_err(lost),
            // The item cannot be gone before the claim below it is.
            Ok(false) => Err(lost(self.held.guard.node_gone())),
            Err(error) if error.is_no_node() => Err(lost(self.held.guard.node_gone())),
            Err(error) if error.is_bad_version() => {
                Err(lost(self.check().err().unwrap_or(LostReason::NodeGone)))
            }
            Err(error) if error.is_session_ended() => Err(lost(LostReason::SessionLost)),
            // A lost claim is lost, whatever became of the extension.
            Err(source) => match self.check() {
                Err(reason) => Err(lost(reason)),
                Ok(()) => Err(WorkError::client(&self.context.path(), source)),
            },
        }
    }

    async fn settle(self, settlement: Settlement) -> Result<(), WorkError> {
        let settlement = settlement.decide(self.attempt(), self.max_attempts, self.backoff);
        settle_own(self.context, self.held, settlement).await
    }
}
