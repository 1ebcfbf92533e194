//! Settlement: the end of a claim, together with the change of its item.
//!
//! Owns the one multi that does both, conditioned on that very claim (H67), and the error that says
//! how it failed (H68). The owner of a claim and a process that has only its token send the same
//! multi. Must never change an item under the claim of another consumer, nor because of what was
//! read about an earlier claim.

use std::sync::Arc;

use baton_client::{CreateMode, Error, Op, Session};
use baton_proto::path;
use bytes::Bytes;
use tracing::Instrument;

use super::claims::ReadClaim;
use super::context::{QueueContext, refused_part};
use super::envelope::Envelope;
use super::error::{StepError, WorkError};
use super::held_item::HeldItem;
use super::item::MAX_DELAY;
use super::layout::{ItemName, Shard};
use super::notice;
use super::queue::WorkQueue;
use super::settlement::{SettledState, Settlement};
use crate::guard::LostReason;
use crate::receipt::{Outcome, task_gone};
use crate::retry;
use crate::server_clock::millis;
use crate::spans;

/// A claimed item, as it was read from the tree.
#[derive(Debug)]
struct ClaimedItem<'a> {
    /// Full path of the claim's node.
    pub node: &'a str,
    /// Full path of the item.
    pub entry: &'a str,
    pub version: i32,
    pub envelope: &'a Envelope,
    pub payload: &'a Bytes,
    pub since_ms: i64,
    /// Full path of the notice node of the claim's owner, if it has one.
    pub notice: Option<&'a str>,
}

/// Reason why a claim was not settled.
#[derive(Debug)]
enum SettleError {
    /// The claim's node does not exist any more.
    ClaimGone,
    /// The item has another version, or is gone.
    ItemChanged,
    /// The item has another child than the claim, so it cannot be deleted.
    ItemInUse,
    /// The session ended before the outcome was known.
    Unknown(Error),
    /// The session has ended, or the server has refused the change. Nothing was changed.
    Failed(Error),
}

/// Index of each part of the multi, without the receipt: the claim, the item, what becomes of it.
const CLAIM: usize = 0;
const ITEM: usize = 1;
const MORE: usize = 2;

/// Ends a claim and changes its item in one multi. `settlement` was decided. Must be driven to its
/// end.
async fn commit_settlement(
    context: &QueueContext,
    session: &Session,
    claimed: &ClaimedItem<'_>,
    settlement: &Settlement,
) -> Result<(), SettleError> {
    let mut id_reserved = claimed.envelope.unique;
    let mut notice = claimed.notice;
    let until_retryable = async |error| {
        let retried = retry::until_retryable(session, error).await;
        retried.map_err(SettleError::Failed)
    };
    loop {
        let mut shard = None;
        let mut parts = match settlement_parts(
            context,
            session,
            claimed,
            settlement,
            id_reserved,
            &mut shard,
        )
        .await
        {
            Ok(parts) => parts,
            Err(error) => {
                until_retryable(error).await?;
                continue;
            }
        };
        let notified = parts.len();
        parts.extend(notice.map(|node| notice::notify(node, settlement.settled())));
        let outcome = context
            .receipts
            .change(session, &context.layout.root, parts)
            .await;
        match outcome {
            Outcome::Applied => {
                if !matches!(settlement, Settlement::Ack) {
                    // The item may come before those that were read ahead.
                    context.known().read_ahead.clear();
                }
                return Ok(());
            }
            Outcome::NotApplied => {}
            Outcome::Unknown(source) => return Err(SettleError::Unknown(source)),
            Outcome::Failed(error) => until_retryable(error).await?,
            Outcome::Refused(error) => match refused_part(&error) {
                Some(CLAIM) if error.is_no_node() => return Err(SettleError::ClaimGone),
                Some(ITEM) if error.is_bad_version() || error.is_no_node() => {
                    return Err(SettleError::ItemChanged);
                }
                Some(ITEM) if error.is_not_empty() => return Err(SettleError::ItemInUse),
                // The owner has deleted its notice node.
                Some(part) if part == notified && error.is_no_node() => notice = None,
                // Somebody has deleted the node that reserved the id: there is no id to free.
                Some(MORE)
                    if error.is_no_node()
                        && id_reserved
                        && matches!(settlement, Settlement::Ack) =>
                {
                    id_reserved = false;
                }
                Some(MORE) if error.is_no_node() && shard.is_some() => {
                    let shard = shard.unwrap_or_default();
                    match session.create(&shard, &[], CreateMode::Persistent).await {
                        Ok(_) => {}
                        // Where the folder of items is gone, so is the claim: the next attempt
                        // reports it.
                        Err(error)
                            if error.is_node_exists()
                                || error.is_no_node()
                                || error.is_maybe_applied() => {}
                        Err(error) => until_retryable(error).await?,
                    }
                }
                Some(MORE)
                    if error.is_no_node()
                        && matches!(settlement, Settlement::DeadLetter { .. }) =>
                {
                    match context.repair_missing(session).await {
                        Ok(true) | Err(StepError::ItemsMissing) => {}
                        Ok(false) | Err(StepError::Final(_)) => {
                            return Err(SettleError::Failed(error));
                        }
                        Err(StepError::Client(error)) => until_retryable(error).await?,
                    }
                }
                _ => return Err(SettleError::Failed(error)),
            },
        }
    }
}

/// The parts of the multi, without the notice. Sets `shard` to the shard that they need.
async fn settlement_parts(
    context: &QueueContext,
    session: &Session,
    claimed: &ClaimedItem<'_>,
    settlement: &Settlement,
    id_reserved: bool,
    shard: &mut Option<String>,
) -> Result<Vec<Op>, Error> {
    let (entry, version) = (claimed.entry, Some(claimed.version));
    let mut parts = vec![Op::delete(claimed.node, None)];
    let gone = Op::delete(entry, version);
    match settlement {
        Settlement::Ack => {
            parts.push(gone);
            if id_reserved {
                parts.push(Op::delete(context.layout.id(&claimed.envelope.id), None));
            }
        }
        Settlement::Release => {
            let mut envelope = unclaimed(claimed);
            envelope.attempts = envelope.attempts.saturating_sub(1);
            let data = envelope.seal(claimed.payload);
            parts.push(Op::set_data(entry, data, version));
        }
        Settlement::Nack { delay, reason } => {
            let delay = delay.unwrap_or_default();
            if delay.is_zero() {
                let data = unclaimed(claimed).noting(reason).seal(claimed.payload);
                parts.push(Op::set_data(entry, data, version));
                return Ok(parts);
            }
            let delay = millis(delay.min(MAX_DELAY));
            let due_ms = context.now_ms(session).await?.saturating_add(delay);
            let folder = context.layout.shard(&Shard::of_due(due_ms).name());
            let name = ItemName::later(due_ms, claimed.envelope.priority);
            let path = baton_proto::path::join(&folder, &name);
            let data = unclaimed(claimed).noting(reason).seal(claimed.payload);
            parts.push(gone);
            parts.push(Op::create(path, data, CreateMode::Persistent));
            *shard = Some(folder);
        }
        Settlement::DeadLetter { reason } => {
            parts.push(gone);
            parts.push(context.create_dead_letter(
                claimed.envelope.clone(),
                claimed.since_ms,
                reason,
                claimed.payload,
            ));
        }
    }
    Ok(parts)
}

/// The item's notes without the claim.
fn unclaimed(claimed: &ClaimedItem<'_>) -> Envelope {
    let mut envelope = claimed.envelope.clone();
    envelope.claim = None;
    envelope
}

/// Settles a claim of this process. Must be driven to its end.
async fn settle_held(
    context: Arc<QueueContext>,
    held: HeldItem,
    settlement: Settlement,
) -> Result<(), WorkError> {
    let item = held.entry.clone();
    let lost = |reason| WorkError::ClaimLost {
        item: item.clone(),
        reason,
    };
    let session = held.guard.session().clone();
    let timed_out = held.check().err();
    let version = Arc::clone(&held.version).lock_owned().await;
    // From now on this process treats the claim as ended. The server decides whether it was still
    // valid, unless that is known already.
    if let Err(reason @ (LostReason::NodeGone | LostReason::SessionLost)) = held.guard.retire() {
        return Err(lost(reason));
    }
    let claimed = ClaimedItem {
        node: held.guard.node(),
        entry: &held.entry,
        version: *version,
        envelope: &held.envelope,
        payload: &held.payload,
        since_ms: held.since_ms,
        // Its owner is this process.
        notice: None,
    };
    let settled = commit_settlement(&context, &session, &claimed, &settlement).await;
    drop(version);
    match settled {
        Ok(()) => {
            held.guard.dissolve();
            Ok(())
        }
        Err(SettleError::ClaimGone) => {
            held.guard.dissolve();
            Err(lost(timed_out.unwrap_or(LostReason::NodeGone)))
        }
        Err(SettleError::ItemChanged | SettleError::ItemInUse) => Err(WorkError::Changed { item }),
        Err(SettleError::Unknown(source)) => Err(WorkError::SettleUnknown { item, source }),
        Err(SettleError::Failed(_)) if session.state().is_final() => {
            Err(lost(LostReason::SessionLost))
        }
        Err(SettleError::Failed(source)) => Err(WorkError::client(&context.path(), source)),
    }
}

/// Settles a claim of this process, in a task of its own, which goes on if the caller is cancelled.
/// `settlement` was decided.
pub(super) async fn settle_own(
    context: Arc<QueueContext>,
    held: HeldItem,
    settlement: Settlement,
) -> Result<(), WorkError> {
    let item = held.entry.clone();
    let span = spans::settle(&item, held.guard.token());
    let runtime = held.guard.session().runtime();
    let task = runtime.spawn(settle_held(context, held, settlement).instrument(span));
    task.await.unwrap_or_else(|_| {
        Err(WorkError::SettleUnknown {
            source: task_gone(&item),
            item,
        })
    })
}

impl WorkQueue {
    /// Settles an item that another process has claimed, by the claim's token. `item` and `token`
    /// are those of [`Claim::item`](super::Claim::item) and [`Claim::token`](super::Claim::token)
    /// in that process, or of [`WorkQueue::claims_of`].
    ///
    /// This is one change, conditioned on that very claim: it settles the item or changes nothing,
    /// and no two settlements succeed. An unknown outcome is resolved. The process that owns the
    /// claim is notified at once that the claim has ended; it also receives the settlement if its
    /// queue handle was made with [`WorkQueue::settled_elsewhere`]. Where the visibility timeout is
    /// over and no other consumer has claimed the item, the settlement succeeds. Dropping the
    /// future does not cancel it.
    ///
    /// ```no_run
    /// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use baton::work_queue::{SettledState, Settlement};
    /// use baton::WorkQueue;
    ///
    /// // One process owns the claim ...
    /// let owner = WorkQueue::new(&client, "/jobs")?.settled_elsewhere();
    /// let claim = owner.take().await?;
    /// let (item, token) = (claim.item().to_owned(), claim.token());
    ///
    /// // ... another one settles it.
    /// let elsewhere = WorkQueue::new(&client, "/jobs")?;
    /// elsewhere.settle(&item, token, Settlement::Ack).await?;
    ///
    /// assert_eq!(claim.settled().await, Ok(SettledState::Acked));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WorkError::NotClaimed`] where that claim does not exist, or not any more;
    /// [`WorkError::Changed`] where somebody has made a node below the item, which therefore cannot
    /// be deleted: nothing was changed. [`WorkError::SettleUnknown`] where this process's session
    /// ended before the outcome was known.
    pub async fn settle(
        &self,
        item: &str,
        token: u64,
        settlement: Settlement,
    ) -> Result<SettledState, WorkError> {
        let (queue, entry) = (self.clone(), item.to_owned());
        let span = spans::settle(item, token);
        let settled = async move {
            loop {
                let session = queue.context.session().await?;
                match queue.settle_on(&session, &entry, token, &settlement).await {
                    Ok(settled) => return Ok(settled),
                    Err(error) => queue.context.await_retry(&session, error).await?,
                }
            }
        };
        let runtime = self.context.runtime()?;
        let task = runtime.spawn(settled.instrument(span));
        task.await.unwrap_or_else(|_| {
            Err(WorkError::SettleUnknown {
                item: item.to_owned(),
                source: task_gone(item),
            })
        })
    }

    async fn settle_on(
        &self,
        session: &Session,
        item: &str,
        token: u64,
        settlement: &Settlement,
    ) -> Result<SettledState, StepError> {
        let context = &self.context;
        let not_claimed = || WorkError::NotClaimed {
            path: item.to_owned(),
            token,
        };
        if !context.is_item(item) {
            return Err(not_claimed().into());
        }
        loop {
            // The server that answers may not have seen the claim yet.
            let caught_up = session.sync(&context.layout.root);
            let mut unreadable = Vec::new();
            let read = context.read_claims(session, vec![item.to_owned()], &mut unreadable);
            caught_up.await?;
            let read = read.await?.pop();
            let Some(read) = read.filter(|read: &ReadClaim| read.token() == token) else {
                return Err(not_claimed().into());
            };
            let envelope = &read.envelope;
            let limit = envelope.max_attempts.unwrap_or(self.options.max_attempts);
            let settlement = settlement
                .clone()
                .decide(envelope.attempts, limit, self.backoff);
            let notice = context.layout.notice(path::name(&read.node));
            let has_notice = session.exists(&notice).await?.is_some();
            let claimed = ClaimedItem {
                node: &read.node,
                entry: item,
                version: read.item.stat.version,
                envelope,
                payload: &read.payload,
                since_ms: envelope.since_ms.unwrap_or(read.item.stat.ctime),
                notice: has_notice.then_some(notice.as_str()),
            };
            match commit_settlement(context, session, &claimed, &settlement).await {
                Ok(()) => return Ok(settlement.settled()),
                Err(SettleError::ClaimGone) => return Err(not_claimed().into()),
                // Its owner has extended it: the next round reads whether it is the same claim.
                Err(SettleError::ItemChanged) => {}
                Err(SettleError::ItemInUse) => {
                    let item = item.to_owned();
                    return Err(WorkError::Changed { item }.into());
                }
                Err(SettleError::Unknown(source)) => {
                    return Err(WorkError::SettleUnknown {
                        item: item.to_owned(),
                        source,
                    }
                    .into());
                }
                Err(SettleError::Failed(error)) => return Err(error.into()),
            }
        }
    }
}
