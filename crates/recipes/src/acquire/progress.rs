//! The queue position of a waiting acquisition, for programs that display it.
//!
//! Owns nothing but what was last reported: it asks no server and decides nothing. An acquire
//! reports what it has found out for its own purposes, so the number of those before it may be old.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::time_limit::WaitReason;
use crate::wait_queue::Step;

/// Progress of a waiting acquire: pass it to [`Mutex::progress`](crate::Mutex::progress) or its
/// like, and read it while the acquire runs. Cheap to clone; clones share one state.
///
/// ```no_run
/// # async fn example(mutex: baton::Mutex) -> Result<(), Box<dyn std::error::Error>> {
/// let progress = baton::lock::WaitProgress::new();
/// let mutex = mutex.progress(&progress);
/// let mut acquiring = std::pin::pin!(mutex.acquire());
/// let mut shown = None;
/// let guard = loop {
///     tokio::select! {
///         guard = &mut acquiring => break guard?,
///         position = progress.differs_from(shown.as_ref()) => {
///             if let Some(position) = &position {
///                 println!("{} before us", position.before);
///             }
///             shown = position;
///         }
///     }
/// };
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WaitProgress(Arc<watch::Sender<Option<QueuePosition>>>);

impl Default for WaitProgress {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

/// A position in a wait queue.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct QueuePosition {
    /// Full path of our waiter node.
    pub node: String,
    /// Number of waiters and holders before us whom we wait for, when the queue was last read. It
    /// is read again when the nearest of them has gone.
    pub before: usize,
    /// Full path of the first of them: the holder of what we wait for.
    pub head: Option<String>,
}

impl std::fmt::Display for QueuePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} before {}", self.before, self.node)?;
        match &self.head {
            Some(head) => write!(f, ", the first of them {head}"),
            None => Ok(()),
        }
    }
}

impl WaitProgress {
    /// Progress of an acquire that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The position of the acquire that uses this; `None` where it has none, as before its node is
    /// there.
    #[must_use]
    pub fn position(&self) -> Option<QueuePosition> {
        self.0.borrow().clone()
    }

    /// Waits until the position differs from `shown`, and returns it. Cancel-safe.
    pub async fn differs_from(&self, shown: Option<&QueuePosition>) -> Option<QueuePosition> {
        let mut positions = self.0.subscribe();
        let changed = positions.wait_for(|position| position.as_ref() != shown);
        // The sender lives as long as this does.
        changed.await.map_or(None, |position| position.clone())
    }

    /// There is no waiter node of ours.
    pub(crate) fn outside(&self) {
        self.0.send_replace(None);
    }

    /// Our waiter node is there.
    pub(crate) fn queued(&self, node: &str) {
        self.0.send_replace(Some(QueuePosition {
            node: node.to_owned(),
            before: 0,
            head: None,
        }));
    }

    /// Notes what has been found out about its position.
    pub(crate) fn step(&self, step: &Step<'_>) {
        self.0.send_if_modified(|slot| {
            let Some(position) = slot else {
                return false;
            };
            match step {
                Step::Positioned(before) => {
                    position.before = *before;
                    position.head = None;
                }
                Step::Following { head } => position.head = Some((*head).to_owned()),
                Step::Reading | Step::Waiting { .. } => return false,
            }
            true
        });
    }

    /// Returns what an acquire of this length lacks whose time is up now.
    pub(crate) fn waited_for(&self, waited_for: WaitReason, limit: Duration) -> WaitReason {
        match self.position() {
            Some(position) => waited_for.held_by(position.head),
            // Not even the creation of the node was answered.
            None if waited_for.is_others() => WaitReason::unanswered(limit, limit),
            None => waited_for,
        }
    }
}
