//! Claiming of items.
//!
//! Owns `take` and its kin, and who claims: the tasks of one process wait for the *turn*, and the
//! task that has it claims for all of them. An item that was claimed for a cancelled call goes to
//! the next caller. A claim that is over before a caller has it is given back, and uses no attempt
//! (H71).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use baton_client::Session;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::claim::Claim;
use super::context::QueueContext;
use super::error::{StepError, WorkError};
use super::held_item::HeldItem;
use super::queue::{MAX_CLAIMS, WorkQueue};
use super::settle::settle_own;
use super::settlement::Settlement;
use crate::background;
use crate::backoff::Backoff;
use crate::receipt::task_gone;
use crate::time_limit::at_most;

/// The right to claim for all callers that wait in this process.
type ClaimTurn = OwnedMutexGuard<()>;

/// Counts a caller that waits while this exists, so that the task with the turn claims for all.
struct WaitingCaller<'a> {
    context: &'a QueueContext,
    items: usize,
}

impl<'a> WaitingCaller<'a> {
    fn new(context: &'a QueueContext, items: usize) -> Self {
        context.waiting.fetch_add(items, Ordering::Relaxed);
        Self { context, items }
    }
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.context
            .waiting
            .fetch_sub(self.items, Ordering::Relaxed);
    }
}

impl WorkQueue {
    /// Claims the first item; waits while there is none.
    ///
    /// Cancel-safe: an item that was claimed for a dropped future goes to the next caller of this
    /// handle or a clone. Survives lost connections and lost sessions.
    ///
    /// # Errors
    /// [`WorkError`]: nothing was claimed.
    pub async fn take(&self) -> Result<Claim, WorkError> {
        loop {
            if let Some(claim) = self.take_many(1).await?.pop() {
                return Ok(claim);
            }
        }
    }

    /// Claims the first item; `None` where no item can be claimed now. Cancel-safe as
    /// [`WorkQueue::take`].
    ///
    /// # Errors
    /// [`WorkError`]: nothing was claimed.
    pub async fn poll(&self) -> Result<Option<Claim>, WorkError> {
        Ok(self.take_up_to(1, false).await?.pop())
    }

    /// Like [`WorkQueue::take`], for at most `limit`.
    ///
    /// # Errors
    /// [`WorkError::TimedOut`] when the time is up; else as `take`.
    pub async fn take_timeout(&self, limit: Duration) -> Result<Claim, WorkError> {
        let timed_out = |waited_for| WorkError::timed_out(self.path(), limit, waited_for);
        at_most(limit, &self.context.client, self.take(), timed_out).await
    }

    /// Claims the first items in one change, at least one and at most `most` (or 64); waits while
    /// there is none. Cancel-safe as [`WorkQueue::take`].
    ///
    /// # Errors
    /// [`WorkError`]: nothing was claimed.
    pub async fn take_many(&self, most: usize) -> Result<Vec<Claim>, WorkError> {
        if most == 0 {
            let why = "the wait would be for nothing; ask for at least one";
            return Err(self.context.bad_option("take_many", most, why));
        }
        self.take_up_to(most, true).await
    }

    /// Releases the items that were prefetched and not taken; those attempts do not count. Call it
    /// when a consumer ends.
    ///
    /// # Errors
    /// The first error. The other items are released nevertheless.
    pub async fn give_back(&self) -> Result<(), WorkError> {
        let _turn = self.context.turn_or_idle().await;
        let mut outcome = Ok(());
        loop {
            let Some(held) = self.context.known().claimed.pop_front() else {
                return outcome;
            };
            let given = self.hand_out(held).release().await;
            outcome = outcome.and(given);
        }
    }

    /// Takes at most `most` items; none where `wait` is not set and there is none.
    async fn take_up_to(&self, most: usize, wait: bool) -> Result<Vec<Claim>, WorkError> {
        let context = &self.context;
        let _waiting = WaitingCaller::new(context, most.min(MAX_CLAIMS));
        let mut turn = if wait {
            Some(Arc::clone(&context.turn).lock_owned().await)
        } else {
            context.turn_or_idle().await
        };
        let mut watcher = None;
        let mut late = Backoff::default();
        loop {
            let (ready, over) = self.ready(most);
            let given_back = match over.is_empty() {
                true => None,
                false => Some(self.give_back_unseen(over)?),
            };
            if !ready.is_empty() {
                return Ok(ready);
            }
            if let Some(given_back) = given_back {
                // Where each claim takes longer than it lasts, the next one must not come at once.
                let _ = given_back.await;
                background::sleep(&context.client, late.pause()).await;
            }
            let session = context.session().await?;
            let claimed = match context.agreed(&session, self.capacity).await {
                Ok(_) => {
                    let want = match turn {
                        Some(_) => context.waiting.load(Ordering::Relaxed).max(self.prefetch),
                        // The task with the turn waits, and takes none of what is claimed ahead.
                        None => most,
                    };
                    let want = want.clamp(1, MAX_CLAIMS);
                    let (back, claimed) = self.claim_ahead(&session, turn, want).await;
                    turn = back;
                    claimed
                }
                Err(error) => Err(error),
            };
            match claimed {
                Ok(0) if !wait => return Ok(Vec::new()),
                Ok(0) => match self.wait_for_items(&session, watcher.take()).await {
                    Ok(guard) => watcher = Some(guard),
                    Err(StepError::ItemsMissing) => {
                        if let Err(error) = context.wait_for_folder(&session).await {
                            context.await_retry(&session, error).await?;
                        }
                    }
                    Err(error) => context.await_retry(&session, error).await?,
                },
                Ok(_) => {}
                Err(StepError::ItemsMissing) if wait => {
                    watcher = None;
                    if let Err(error) = context.wait_for_folder(&session).await {
                        context.await_retry(&session, error).await?;
                    }
                }
                Err(error) => {
                    context.known().read_ahead.clear();
                    context.await_retry(&session, error).await?;
                }
            }
        }
    }

    /// Up to `most` of the items that were claimed ahead, if their claims are still valid, and
    /// those before them whose claims are over.
    fn ready(&self, most: usize) -> (Vec<Claim>, Vec<HeldItem>) {
        let (mut ready, mut over) = (Vec::new(), Vec::new());
        while ready.len() < most {
            let Some(held) = self.context.known().claimed.pop_front() else {
                break;
            };
            match held.check() {
                Ok(()) => ready.push(self.hand_out(held)),
                Err(_) => over.push(held),
            }
        }
        (ready, over)
    }

    /// Gives back items whose claims were over before a caller had them, in a task of its own.
    /// Another consumer may have claimed them since, or the session may have ended: those stay as
    /// they are.
    fn give_back_unseen(&self, over: Vec<HeldItem>) -> Result<JoinHandle<()>, WorkError> {
        let context = Arc::clone(&self.context);
        let giving_back = async move {
            for held in over {
                let (item, reason) = (held.entry.clone(), held.check().err());
                let given_back = settle_own(Arc::clone(&context), held, Settlement::Release).await;
                tracing::warn!(
                    item,
                    reason = reason.as_ref().map(tracing::field::display),
                    given_back = given_back.is_ok(),
                    "claim over before a consumer had the item: if this goes on, the visibility \
                     timeout is too short for these servers, or too many items are claimed ahead"
                );
            }
        };
        Ok(self.context.runtime()?.spawn(giving_back))
    }

    fn hand_out(&self, held: HeldItem) -> Claim {
        Claim::new(&self.context, held, self.backoff, self.options.max_attempts)
    }

    /// Claims up to `want` items ahead, in a task of its own, which goes on if the caller is
    /// cancelled.
    async fn claim_ahead(
        &self,
        session: &Session,
        turn: Option<ClaimTurn>,
        want: usize,
    ) -> (Option<ClaimTurn>, Result<usize, StepError>) {
        let (context, of_task, options) = (
            Arc::clone(&self.context),
            session.clone(),
            self.options.clone(),
        );
        let claiming = async move {
            let claimed = context.claim(&of_task, want, &options).await.map(|held| {
                let count = held.len();
                context.known().claimed.extend(held);
                if turn.is_none() && count > 0 {
                    // If the caller was cancelled, the task that waits takes them.
                    context.claimed_without_turn.notify_one();
                }
                count
            });
            (turn, claimed)
        };
        let runtime = session.runtime();
        match runtime.spawn(claiming.in_current_span()).await {
            Ok(done) => done,
            // The client's runtime has ended.
            Err(_) => {
                let turn = Arc::clone(&self.context.turn).lock_owned().await;
                (Some(turn), Err(StepError::Client(task_gone(self.path()))))
            }
        }
    }
}

impl QueueContext {
    /// Waits for the turn; `None` where the task that has it waits for items, which may take for
    /// ever. The caller then claims without the turn.
    async fn turn_or_idle(&self) -> Option<ClaimTurn> {
        let mut idling = self.idling.subscribe();
        tokio::select! {
            biased;
            turn = Arc::clone(&self.turn).lock_owned() => Some(turn),
            _ = idling.wait_for(|idling| *idling) => None,
        }
    }
}
