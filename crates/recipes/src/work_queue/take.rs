//! Taking items, and waiting while there are none.
//!
//! Owns the rule that a new item wakes one consumer, not all (H52): consumers with nothing to do
//! stand in line, and only the first of them, the scout, watches the queue. Tasks of one process
//! wait for one another, and one claims for all. Whatever a cancelled call has claimed goes to the
//! next caller.

use super::WorkQueue;
use super::claim::Claim;
use super::claim_attempt::MAX_CLAIMS;
use super::context::{Fault, Inner};
use super::error::WorkError;
use super::held_item::Held;
use super::layout::CLAIM_PREFIX;
use super::scan::Survey;
use crate::acquire::LockError;
use crate::guard::Guard;
use crate::lock::Mutex;
use crate::receipt::task_gone;
use crate::time_limit::at_most;
use baton_client::{Error, EventKind, Session, Watch};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

/// Claims of others that a scout watches. With more of them, the end of one of the first makes it
/// look again.
const WATCHED_CLAIMS: usize = 256;

/// Counts a caller that waits, so that whoever claims can claim for all.
struct Waiting<'a> {
    inner: &'a Inner,
    items: usize,
}

impl<'a> Waiting<'a> {
    fn new(inner: &'a Inner, items: usize) -> Self {
        inner.waiting.fetch_add(items, Ordering::Relaxed);
        Self { inner, items }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.inner.waiting.fetch_sub(self.items, Ordering::Relaxed);
    }
}

/// Tells, while it lives, that who has the turn waits for news.
pub(super) struct Idling<'a>(&'a Inner);

impl<'a> Idling<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        inner.idling.send_replace(true);
        Self(inner)
    }
}

impl Drop for Idling<'_> {
    fn drop(&mut self) {
        self.0.idling.send_replace(false);
    }
}

impl WorkQueue {
    /// Claims the first item, and waits for one while there is none.
    ///
    /// Cancel-safe: an item that was claimed for a future dropped meanwhile goes to the next caller
    /// of this handle or a clone. Survives lost connections and lost sessions.
    ///
    /// # Errors
    /// [`WorkError`]; nothing is claimed then.
    pub async fn take(&self) -> Result<Claim, WorkError> {
        loop {
            if let Some(claim) = self.take_many(1).await?.pop() {
                return Ok(claim);
            }
        }
    }

    /// Claims the first item; `None` if there is none to be claimed now. Cancel-safe as
    /// [`WorkQueue::take`].
    ///
    /// # Errors
    /// [`WorkError`]; nothing is claimed then.
    pub async fn poll(&self) -> Result<Option<Claim>, WorkError> {
        Ok(self.gather(1, false).await?.pop())
    }

    /// Like [`WorkQueue::take`], for at most `limit`.
    ///
    /// # Errors
    /// [`WorkError::TimedOut`] when the time is up; else as `take`.
    pub async fn take_timeout(&self, limit: Duration) -> Result<Claim, WorkError> {
        let timed_out = |waited_for| WorkError::TimedOut {
            path: self.path().to_owned(),
            limit,
            waited_for,
        };
        at_most(limit, &self.inner.client, self.take(), timed_out).await
    }

    /// Claims the first items, at least one and at most `most` (or 64), in one change; waits while
    /// there is none. Cancel-safe as [`WorkQueue::take`].
    ///
    /// # Errors
    /// [`WorkError`]; nothing is claimed then.
    pub async fn take_many(&self, most: usize) -> Result<Vec<Claim>, WorkError> {
        self.gather(most.max(1), true).await
    }

    /// Gives back what was claimed ahead and not taken; those attempts do not count. For the end of
    /// a consumer.
    ///
    /// # Errors
    /// The first that occurred; the other items are given back nevertheless.
    pub async fn give_back(&self) -> Result<(), WorkError> {
        let _turn = self.inner.turn_or_idle().await;
        let mut outcome = Ok(());
        loop {
            let Some(held) = self.inner.local().claimed.pop_front() else {
                return outcome;
            };
            let given = self.hand_out(held).release().await;
            outcome = outcome.and(given);
        }
    }

    async fn gather(&self, most: usize, wait: bool) -> Result<Vec<Claim>, WorkError> {
        let inner = &self.inner;
        let _waiting = Waiting::new(inner, most.min(MAX_CLAIMS));
        let mut turn = if wait {
            Some(Arc::clone(&inner.turn).lock_owned().await)
        } else {
            inner.turn_or_idle().await
        };
        let mut scout = None;
        loop {
            let ready = self.ready(most);
            if !ready.is_empty() {
                return Ok(ready);
            }
            let session = inner.session().await?;
            let claimed = match inner.agreed(&session, self.capacity).await {
                Ok(_) => {
                    let want = match turn {
                        Some(_) => inner.waiting.load(Ordering::Relaxed).max(self.prefetch),
                        // Who has the turn does not look for what is claimed ahead.
                        None => most,
                    };
                    let want = want.clamp(1, MAX_CLAIMS);
                    let (back, claimed) = self.claim(&session, turn, want).await;
                    turn = back;
                    claimed
                }
                Err(fault) => Err(fault),
            };
            match claimed {
                Ok(0) if !wait => return Ok(Vec::new()),
                Ok(0) => match self.idle(&session, scout.take()).await {
                    Ok(guard) => scout = Some(guard),
                    Err(Fault::Missing) => {
                        if let Err(fault) = inner.until_items(&session).await {
                            inner.after(&session, fault).await?;
                        }
                    }
                    Err(fault) => inner.after(&session, fault).await?,
                },
                Ok(_) => {}
                Err(Fault::Missing) if wait => {
                    scout = None;
                    if let Err(fault) = inner.until_items(&session).await {
                        inner.after(&session, fault).await?;
                    }
                }
                Err(fault) => {
                    inner.local().ahead.clear();
                    inner.after(&session, fault).await?;
                }
            }
        }
    }

    /// What was claimed ahead and is still ours.
    fn ready(&self, most: usize) -> Vec<Claim> {
        let mut ready = Vec::new();
        while ready.len() < most {
            let Some(held) = self.inner.local().claimed.pop_front() else {
                break;
            };
            if held.check().is_ok() {
                ready.push(self.hand_out(held));
            }
        }
        ready
    }

    fn hand_out(&self, held: Held) -> Claim {
        Claim::new(&self.inner, held, self.backoff, self.manner.max_attempts)
    }

    /// Claims up to `want` items into this process's hands, in a task that goes on if the caller
    /// goes away.
    async fn claim(
        &self,
        session: &Session,
        turn: Option<Turn>,
        want: usize,
    ) -> (Option<Turn>, Result<usize, Fault>) {
        let (inner, of_task, manner) = (
            Arc::clone(&self.inner),
            session.clone(),
            self.manner.clone(),
        );
        let task = tokio::spawn(async move {
            let claimed = inner.claim(&of_task, want, &manner).await.map(|held| {
                let count = held.len();
                inner.local().claimed.extend(held);
                if turn.is_none() && count > 0 {
                    // Should the caller have gone, they are for the one that waits.
                    inner.handed.notify_one();
                }
                count
            });
            (turn, claimed)
        });
        match task.await {
            Ok(done) => done,
            // The runtime is shutting down.
            Err(_) => {
                let turn = Arc::clone(&self.inner.turn).lock_owned().await;
                (Some(turn), Err(Fault::Client(task_gone(self.path()))))
            }
        }
    }

    /// Stands in line until first, then watches the queue until there is something to claim. The
    /// guard is the scout's place; dropped, it goes to the next in line.
    async fn idle(&self, session: &Session, scout: Option<Guard>) -> Result<Guard, Fault> {
        let inner = &self.inner;
        let _idling = Idling::new(inner);
        let guard = match scout.filter(|guard| guard.check().is_ok()) {
            Some(guard) => guard,
            None => Mutex::new(&inner.client, &inner.layout.waiters)
                .map(|line| line.name(self.manner.name.as_deref().unwrap_or("work")))
                .map_err(|error| inner.of_line(error))?
                .acquire()
                .await
                .map_err(|error| inner.of_line(error))?,
        };
        loop {
            let terms = inner.agreed(session, None).await?.version;
            let mut watches = Vec::new();
            let survey = inner.survey(session, 1, Some(&mut watches)).await?;
            if !survey.free.is_empty() {
                inner.read_ahead(session, survey.free, terms);
                return Ok(guard);
            }
            match inner.news(session, survey, watches, &guard).await? {
                News::Queue => {}
                News::Claimed | News::Scout => return Ok(guard),
            }
        }
    }
}

/// The right to claim for all who wait in this process.
type Turn = OwnedMutexGuard<()>;

/// What ended a scout's wait.
enum News {
    Queue,
    /// Another of this process has claimed something, for whoever calls next.
    Claimed,
    /// The place as scout, or the session.
    Scout,
}

impl Inner {
    /// The turn; or `None` where whoever has it has found nothing and waits, so that one who is not
    /// to wait needs none.
    async fn turn_or_idle(&self) -> Option<Turn> {
        let mut idling = self.idling.subscribe();
        tokio::select! {
            biased;
            turn = Arc::clone(&self.turn).lock_owned() => Some(turn),
            _ = idling.wait_for(|idling| *idling) => None,
        }
    }

    fn of_line(&self, error: LockError) -> Fault {
        let path = self.path();
        match error {
            LockError::Connect { source, .. } => WorkError::Connect { path, source }.into(),
            LockError::Lease { source, .. } => WorkError::Lease { path, source }.into(),
            LockError::Client { source, .. } => WorkError::Client { path, source }.into(),
            source => WorkError::Line { path, source }.into(),
        }
    }

    /// Waits until something has changed that a look may show to be claimable.
    async fn news(
        &self,
        session: &Session,
        survey: Survey,
        watches: Vec<Watch>,
        scout: &Guard,
    ) -> Result<News, Fault> {
        let asked: Vec<_> = survey
            .taken
            .into_iter()
            .take(WATCHED_CLAIMS)
            .map(|(item, claim)| {
                let watch = session.get_data_watch(&claim);
                (item, watch)
            })
            .collect();
        // Aborted, and the watches with them, when this returns or is dropped.
        let mut changes = JoinSet::new();
        for watch in watches {
            changes.spawn(async move {
                let _changed_or_lost = watch.await;
                true
            });
        }
        for (item, watch) in asked {
            match watch.await {
                Ok((_, watch)) => {
                    let session = session.clone();
                    changes.spawn(async move { came_back(&session, &item, watch).await });
                }
                Err(error) if error.is_no_node() => match below(session, &item).await? {
                    Some(watch) => drop(changes.spawn(async move {
                        let _changed_or_lost = watch.await;
                        true
                    })),
                    None => return Ok(News::Queue),
                },
                // Its ACL does not let us read the claim: that it ends shows in its item's
                // children.
                Err(error) if error.is_no_auth() => match session.children_watch(&item).await {
                    Ok((children, watch)) if !children.names.is_empty() => {
                        changes.spawn(async move {
                            let _changed_or_lost = watch.await;
                            true
                        });
                    }
                    Ok(_) => return Ok(News::Queue),
                    Err(error) if error.is_no_node() => return Ok(News::Queue),
                    Err(error) => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            }
        }
        let due = match (survey.next_ms, survey.now_ms) {
            (Some(next_ms), Some(now_ms)) => Some(
                u64::try_from(next_ms - now_ms)
                    .unwrap_or(0)
                    .saturating_add(1),
            ),
            _ => None,
        };
        let clock = session.clock();
        let begun = clock.now();
        let falls_due = async {
            match due {
                Some(after_ms) => {
                    clock
                        .sleep_until(begun + Duration::from_millis(after_ms))
                        .await;
                }
                None => std::future::pending().await,
            }
        };
        let changed = async {
            while let Some(change) = changes.join_next().await {
                if change.unwrap_or(true) {
                    return;
                }
            }
            // Without a lane there is nothing to watch but the folder of lanes, which is always
            // watched: not reached.
        };
        tokio::select! {
            biased;
            () = changed => Ok(News::Queue),
            () = falls_due => Ok(News::Queue),
            () = self.handed.notified() => Ok(News::Claimed),
            _ = scout.lost() => Ok(News::Scout),
        }
    }
}

/// What is below an item whose claim is gone: a watch on it where it is none of ours, so that the
/// item cannot be claimed before it has gone too; `None` where a new look at the queue shows more.
async fn below(session: &Session, item: &str) -> Result<Option<Watch>, Error> {
    let (children, watch) = match session.children_watch(item).await {
        Ok(read) => read,
        Err(error) if error.is_no_node() => return Ok(None),
        Err(error) => return Err(error),
    };
    let foreign = |name: &String| !name.starts_with(CLAIM_PREFIX);
    if children.names.is_empty() || !children.names.iter().all(foreign) {
        return Ok(None);
    }
    tracing::warn!(item, "has a child that is no claim: skipped");
    Ok(Some(watch))
}

/// Waits until a claim has ended; says whether its item is still there. One that was acknowledged
/// wakes nobody.
async fn came_back(session: &Session, item: &str, watch: Watch) -> bool {
    match watch.await {
        Ok(event) if event.kind == EventKind::NodeDeleted => {
            !matches!(session.exists(item).await, Ok(None))
        }
        _ => true,
    }
}
