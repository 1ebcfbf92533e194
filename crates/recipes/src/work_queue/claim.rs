//! An item in a consumer's hands.
//!
//! Owns its end: done, given back, put off, or dead, each one multi that ends claim and item
//! together and is conditioned on this very claim (H67). How it ended is always told (H68). Must
//! never settle an item under a claim that is not ours any more.

use super::context::Inner;
use super::error::WorkError;
use super::held_item::Held;
use super::settle::{Claimed, End, Refused, Settled, conclude};
use crate::guard::{GuardStatus, LostReason, Txn, drive};
use crate::receipt::task_gone;
use crate::retry;
use baton_client::{Error, Op, Session};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// How long an item waits after a failed attempt: a time that doubles with each one, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backoff {
    pub first: Duration,
    pub most: Duration,
}

impl Backoff {
    pub(super) fn after(self, attempts: u32) -> Duration {
        let doubled = 1_u32
            .checked_shl(attempts.saturating_sub(1))
            .unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.most)
    }
}

/// An item that is ours to work on, until it is settled or the claim ends.
///
/// It belongs to one session, and cannot be cloned. Dropped without a word, the item goes back to
/// the queue at once; the attempt counts. So it does when the lease has ended while the session
/// lives, as soon as there is a connection, dropped or not ([`Claim::keep_node`] puts that off).
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
    inner: Arc<Inner>,
    held: Held,
    backoff: Backoff,
    max_attempts: u32,
}

impl Claim {
    pub(super) fn new(inner: &Arc<Inner>, held: Held, backoff: Backoff, max_attempts: u32) -> Self {
        Self {
            inner: Arc::clone(inner),
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

    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.held.envelope.attempts
    }

    /// The item's priority, from 0, the most urgent, to 999.
    #[must_use]
    pub fn priority(&self) -> u16 {
        self.held.envelope.priority
    }

    /// When the item was put: milliseconds since 1970 by the servers' clock.
    #[must_use]
    pub fn since_ms(&self) -> i64 {
        self.held.since_ms
    }

    /// Whether the item is ours, at this instant, by our own clock. Never waits, and needs no event
    /// to have arrived.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check(&self) -> Result<(), LostReason> {
        self.held.check()
    }

    /// For how long the item is known to be ours if no server answers from now on: the lease of the
    /// session, or what is left of the visibility timeout if that is less.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Resolves when the item is no longer ours, with the reason. It does not borrow the claim, can
    /// be made any number of times, and may be dropped freely.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.held.lost()
    }

    /// Resolves when the claim has ended: with what another process has made of the item by the
    /// claim's token ([`WorkQueue::settle`](super::WorkQueue::settle)), or else with the reason why
    /// it is no longer ours. Cancel-safe.
    ///
    /// Only a queue handle with
    /// [`WorkQueue::settled_elsewhere`](super::WorkQueue::settled_elsewhere) makes claims that
    /// learn it; any other claim ends with [`LostReason::NodeGone`] then.
    ///
    /// # Errors
    /// How the claim was lost. With the lease or the session, it is not known whether the item was
    /// settled just before.
    pub async fn settled(&self) -> Result<Settled, LostReason> {
        match (self.held.lost().await, &self.held.verdict) {
            // The same change that deleted the node has written the verdict.
            (LostReason::NodeGone, Some(verdict)) => {
                verdict.read().await.ok_or(LostReason::NodeGone)
            }
            (reason, _) => Err(reason),
        }
    }

    /// The fencing token: grows with every later claim of this item. Pass it along with side
    /// effects of one's own. Items that were claimed in one change share it.
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

    /// Begins a set of changes to the tree that is applied whole, and only while the item is ours.
    pub fn txn(&self) -> Txn<'_> {
        self.held.guard.txn()
    }

    /// Whether the item is ours, for those who do not have the claim. It does not borrow the claim.
    #[must_use]
    pub fn status(&self) -> GuardStatus {
        self.held.status()
    }

    /// Leaves the claim's node in place when the claim is lost with its lease, until this is
    /// dropped: see [`Guard::keep_node`](crate::Guard::keep_node).
    ///
    /// # Errors
    /// Why the item is not ours any more, if it is not by then.
    pub fn keep_node(&self) -> Result<(), LostReason> {
        self.held.guard.keep_node()?;
        self.check()
    }

    /// Drives `work`, and drops it the moment the claim ends. What `work` has spawned elsewhere
    /// goes on.
    ///
    /// # Errors
    /// Why the claim ended, if it did before the work was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostReason> {
        drive(|| self.check(), self.lost(), work).await
    }

    /// The item is done: removes it.
    ///
    /// The server decides: where the visibility timeout is over by our clock, and nobody has taken
    /// the item over, this succeeds. Where the lease had ended, the claim was given up as soon as
    /// that was noticed, and another gets the item. Dropping the future does not take it back.
    ///
    /// # Errors
    /// [`WorkError::ClaimLost`] where the item is another's by now, [`WorkError::Changed`] where it
    /// is not what was claimed, [`WorkError::SettleUnknown`] where the session ended before the
    /// outcome was known.
    pub async fn ack(self) -> Result<(), WorkError> {
        self.settle(End::Done).await
    }

    /// The attempt failed: puts the item off by the queue's back-off, or makes it a dead letter if
    /// this was its last attempt. `reason` is noted in it.
    ///
    /// # Errors
    /// As [`Claim::ack`].
    pub async fn nack(self, reason: &str) -> Result<(), WorkError> {
        let delay = self.backoff.after(self.attempt());
        self.nack_after(delay, reason).await
    }

    /// Like [`Claim::nack`], with a delay of one's own, of at most a hundred years.
    ///
    /// # Errors
    /// As [`Claim::ack`].
    pub async fn nack_after(self, delay: Duration, reason: &str) -> Result<(), WorkError> {
        let end = End::failed(self.attempt(), self.max_attempts, delay, reason);
        self.settle(end).await
    }

    /// Gives the item back as it was: the attempt does not count, and it keeps its place.
    ///
    /// # Errors
    /// As [`Claim::ack`].
    pub async fn release(self) -> Result<(), WorkError> {
        self.settle(End::Back).await
    }

    /// No attempt will ever succeed: makes the item a dead letter, bytes and all.
    ///
    /// # Errors
    /// As [`Claim::ack`].
    pub async fn bury(self, reason: &str) -> Result<(), WorkError> {
        let reason = reason.to_owned();
        self.settle(End::Dead { reason }).await
    }

    /// Starts the visibility timeout anew. Without such a timeout there is nothing to do. Dropping
    /// the future does not take it back.
    ///
    /// # Errors
    /// [`WorkError::ClaimLost`]; [`WorkError::Client`] where it could not be done and the old
    /// deadline stands.
    pub async fn extend(&self) -> Result<(), WorkError> {
        let lost = |reason| WorkError::ClaimLost {
            item: self.held.entry.clone(),
            reason,
        };
        self.check().map_err(lost)?;
        let Some(mark) = &self.held.envelope.claim else {
            return Ok(());
        };
        if mark.visibility_ms.is_none() {
            return Ok(());
        }
        let session = self.session().clone();
        let (version, until) = (Arc::clone(&self.held.version), Arc::clone(&self.held.until));
        let data = self.held.envelope.seal(&self.held.payload);
        let (entry, node) = (self.held.entry.clone(), self.node().to_owned());
        // Whether the claim stood.
        let task = tokio::spawn(async move {
            // Whoever settles the item waits for the version that it has then.
            let mut version = version.lock().await;
            loop {
                let sent = session.clock().now();
                let parts = [
                    Op::check(&*node, None),
                    Op::set_data(&*entry, data.clone(), Some(*version)),
                ];
                match session.multi(&parts).await {
                    Ok(_) => {
                        *version = version.wrapping_add(1);
                        until.renew(sent);
                        return Ok(true);
                    }
                    Err(error) if error.is_maybe_applied() => {
                        match seen(&session, &node, &entry, error).await? {
                            Some(now) if now == version.wrapping_add(1) => {
                                *version = now;
                                until.renew(sent);
                                return Ok(true);
                            }
                            Some(_) => {}
                            None => return Ok(false),
                        }
                    }
                    Err(error) => retry::until_retryable(&session, error).await?,
                }
            }
        });
        let outcome = task.await.unwrap_or_else(|_| Err(task_gone(self.node())));
        match outcome {
            Ok(true) => self.check().map_err(lost),
            // The item cannot be gone before the claim below it is.
            Ok(false) => Err(lost(self.held.guard.node_gone())),
            Err(error) if error.is_no_node() => Err(lost(self.held.guard.node_gone())),
            Err(error) if error.is_bad_version() => {
                Err(lost(self.check().err().unwrap_or(LostReason::NodeGone)))
            }
            Err(error) if error.is_session_ended() => Err(lost(LostReason::SessionLost)),
            Err(source) => Err(WorkError::Client {
                path: self.inner.path(),
                source,
            }),
        }
    }

    async fn settle(self, end: End) -> Result<(), WorkError> {
        let item = self.held.entry.clone();
        let task = tokio::spawn(settle(self.inner, self.held, end));
        task.await.unwrap_or_else(|_| {
            Err(WorkError::SettleUnknown {
                source: task_gone(&item),
                item,
            })
        })
    }
}

/// The item's version where the claim still stands, on a server that has caught up.
async fn seen(
    session: &Session,
    node: &str,
    entry: &str,
    cause: Error,
) -> Result<Option<i32>, Error> {
    loop {
        if !retry::until_connected(session).await {
            return Err(cause);
        }
        let caught_up = session.sync(entry);
        let (claim, item) = (session.exists(node), session.exists(entry));
        let read = match caught_up.await {
            Ok(()) => claim.await,
            Err(error) => Err(error),
        };
        match (read, item.await) {
            (Ok(Some(_)), Ok(Some(item))) => return Ok(Some(item.version)),
            (Ok(_), Ok(_)) => return Ok(None),
            (Err(error), _) | (_, Err(error)) => retry::until_retryable(session, error).await?,
        }
    }
}

/// Has the server end the claim, and the item with it. To be driven to its end.
async fn settle(inner: Arc<Inner>, held: Held, end: End) -> Result<(), WorkError> {
    let item = held.entry.clone();
    let lost = |reason| WorkError::ClaimLost {
        item: item.clone(),
        reason,
    };
    let session = held.guard.session().clone();
    let timed_out = held.check().err();
    let version = Arc::clone(&held.version).lock_owned().await;
    // Here the item counts as let go of from now on. Whether it was still ours is the server's to
    // say, except where it has.
    if let Err(reason @ (LostReason::NodeGone | LostReason::SessionLost)) = held.guard.retire() {
        return Err(lost(reason));
    }
    let claimed = Claimed {
        node: held.guard.node(),
        entry: &held.entry,
        version: *version,
        envelope: &held.envelope,
        payload: &held.payload,
        since_ms: held.since_ms,
        // Nobody but ourselves would read it.
        verdict: None,
    };
    let settled = conclude(&inner, &session, &claimed, &end).await;
    drop(version);
    match settled {
        Ok(()) => {
            held.guard.dissolve();
            Ok(())
        }
        Err(Refused::ClaimGone) => {
            held.guard.dissolve();
            Err(lost(timed_out.unwrap_or(LostReason::NodeGone)))
        }
        Err(Refused::ItemChanged | Refused::ItemInUse) => Err(WorkError::Changed { item }),
        Err(Refused::Unknown(source)) => Err(WorkError::SettleUnknown { item, source }),
        Err(Refused::Failed(_)) if session.state().is_final() => Err(lost(LostReason::SessionLost)),
        Err(Refused::Failed(source)) => Err(WorkError::Client {
            path: inner.path(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_up_to_its_limit() {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            most: Duration::from_secs(10),
        };
        let seconds: Vec<u64> = [1, 2, 3, 4, 5, 40, u32::MAX]
            .map(|attempts| backoff.after(attempts).as_secs())
            .to_vec();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10, 10]);
    }
}
