//! The wait for items.
//!
//! Owns the rule that a new item wakes one consumer, not all (H52). Consumers that find no item
//! wait in a lock's wait queue below the queue's `waiters`; only its holder, the *watcher*, watches
//! the items.

use std::time::Duration;

use baton_client::{Error, EventKind, Session, Watch};
use tokio::task::JoinSet;

use super::context::QueueContext;
use super::error::{StepError, WorkError};
use super::layout::CLAIM_PREFIX;
use super::queue::WorkQueue;
use super::scan::Scan;
use crate::acquire::LockError;
use crate::guard::Guard;
use crate::lock::Mutex;

/// Number of claims of others that the watcher watches. With more of them, the end of one of the
/// first makes it scan the queue again.
const WATCHED_CLAIMS: usize = 256;

/// While this exists, the task that has the turn waits for items.
struct IdleWait<'a>(&'a QueueContext);

impl<'a> IdleWait<'a> {
    fn new(context: &'a QueueContext) -> Self {
        context.idling.send_replace(true);
        Self(context)
    }
}

impl Drop for IdleWait<'_> {
    fn drop(&mut self) {
        self.0.idling.send_replace(false);
    }
}

/// Cause of the end of the watcher's wait.
enum WakeReason {
    /// The queue has changed, or an item is due.
    QueueChanged,
    /// Another task of this process has claimed items.
    Claimed,
    /// This process is not the watcher any more, or the session has ended.
    WatcherLost,
}

impl WorkQueue {
    /// Becomes the watcher, then watches the queue until an item can be claimed. The guard is that
    /// of the watcher: when it is dropped, the next consumer becomes the watcher.
    pub(super) async fn wait_for_items(
        &self,
        session: &Session,
        watcher: Option<Guard>,
    ) -> Result<Guard, StepError> {
        let context = &self.context;
        let _idling = IdleWait::new(context);
        let guard = match watcher.filter(|guard| guard.check().is_ok()) {
            Some(guard) => guard,
            None => Mutex::new(&context.client, &context.layout.waiters)
                .map(|mutex| mutex.name(self.options.name.as_deref().unwrap_or("work")))
                .map_err(|error| context.wait_queue_error(error))?
                .acquire()
                .await
                .map_err(|error| context.wait_queue_error(error))?,
        };
        loop {
            let terms = context.agreed(session, None).await?.version;
            let mut watches = Vec::new();
            let scan = context.scan(session, 1, Some(&mut watches)).await?;
            if !scan.free.is_empty() {
                let now = session.clock().now();
                context.known().read_ahead.fill(scan.free, terms, now);
                return Ok(guard);
            }
            match context
                .wait_for_change(session, scan, watches, &guard)
                .await?
            {
                WakeReason::QueueChanged => {}
                WakeReason::Claimed | WakeReason::WatcherLost => return Ok(guard),
            }
        }
    }
}

impl QueueContext {
    fn wait_queue_error(&self, error: LockError) -> StepError {
        let path = self.path();
        match error {
            LockError::Connect { source, .. } => WorkError::Connect { path, source }.into(),
            LockError::Lease { source, .. } => WorkError::Lease { path, source }.into(),
            LockError::Client { source, .. } => WorkError::Client { path, source }.into(),
            source => WorkError::Line { path, source }.into(),
        }
    }

    /// Waits until a scan may find a claimable item.
    async fn wait_for_change(
        &self,
        session: &Session,
        scan: Scan,
        watches: Vec<Watch>,
        watcher: &Guard,
    ) -> Result<WakeReason, StepError> {
        let asked: Vec<_> = scan
            .taken
            .into_iter()
            .take(WATCHED_CLAIMS)
            .map(|(item, claim)| {
                let watch = session.get_data_watch(&claim);
                (item, watch)
            })
            .collect();
        // Dropping the set aborts these tasks, which drops their watches.
        let mut changes = JoinSet::new();
        let runtime = session.runtime();
        for watch in watches {
            changes.spawn_on(changed_or_lost(watch), &runtime);
        }
        for (item, watch) in asked {
            match watch.await {
                Ok((_, watch)) => {
                    let session = session.clone();
                    let back = async move { item_came_back(&session, &item, watch).await };
                    changes.spawn_on(back, &runtime);
                }
                Err(error) if error.is_no_node() => {
                    match watch_foreign_children(session, &item).await? {
                        Some(watch) => {
                            changes.spawn_on(changed_or_lost(watch), &runtime);
                        }
                        None => return Ok(WakeReason::QueueChanged),
                    }
                }
                // The claim's ACL does not allow this session to read it. Its end changes the
                // children of its item.
                Err(error) if error.is_no_auth() => match session.children_watch(&item).await {
                    Ok((children, watch)) if !children.names.is_empty() => {
                        changes.spawn_on(changed_or_lost(watch), &runtime);
                    }
                    Ok(_) => return Ok(WakeReason::QueueChanged),
                    Err(error) if error.is_no_node() => return Ok(WakeReason::QueueChanged),
                    Err(error) => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            }
        }
        let due = match (scan.next_ms, scan.now_ms) {
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
            // Not reached: the folder of shards is always watched.
        };
        tokio::select! {
            biased;
            () = changed => Ok(WakeReason::QueueChanged),
            () = falls_due => Ok(WakeReason::QueueChanged),
            () = self.claimed_without_turn.notified() => Ok(WakeReason::Claimed),
            _ = watcher.lost() => Ok(WakeReason::WatcherLost),
        }
    }
}

/// Waits for the end of a watch; the queue is then to be scanned again.
async fn changed_or_lost(watch: Watch) -> bool {
    let _changed_or_lost = watch.await;
    true
}

/// Watches the children of an item whose claim is gone, where they are not of the queue: the item
/// cannot be claimed before they are deleted. `None` where the queue should be scanned again.
async fn watch_foreign_children(session: &Session, item: &str) -> Result<Option<Watch>, Error> {
    let (children, watch) = match session.children_watch(item).await {
        Ok(read) => read,
        Err(error) if error.is_no_node() => return Ok(None),
        Err(error) => return Err(error),
    };
    let foreign = |name: &String| !name.starts_with(CLAIM_PREFIX);
    if children.names.is_empty() || !children.names.iter().all(foreign) {
        return Ok(None);
    }
    tracing::warn!(item, "has a child that is not a claim: skipped");
    Ok(Some(watch))
}

/// Waits until a claim has ended; `true` where its item still exists. The end of an item that was
/// acknowledged wakes nobody.
async fn item_came_back(session: &Session, item: &str, watch: Watch) -> bool {
    match watch.await {
        Ok(event) if event.kind == EventKind::NodeDeleted => {
            !matches!(session.exists(item).await, Ok(None))
        }
        _ => true,
    }
}

impl QueueContext {
    /// Waits until the folder of items exists. A put makes it again. A consumer that waits does
    /// not, because somebody may be deleting the queue.
    pub(super) async fn wait_for_folder(&self, session: &Session) -> Result<(), StepError> {
        let _idling = IdleWait::new(self);
        let (stat, made) = session.exists_watch(&self.layout.items).await?;
        if stat.is_none() {
            tracing::warn!(
                queue = &*self.layout.root,
                "the queue's items were deleted: waiting for somebody to put one"
            );
            tokio::select! {
                biased;
                // The folder exists, or the connection was lost.
                _ = made => {}
                // Another task of this process has claimed items.
                () = self.claimed_without_turn.notified() => {}
            }
        }
        Ok(())
    }
}
