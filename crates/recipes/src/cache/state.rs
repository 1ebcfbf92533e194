//! The state of a cache, used by its task, its handles and its listeners.
//!
//! Owns the shown state and the order in which listeners are notified. A step is shown and sent
//! under one lock, so that a listener's first snapshot and the steps after it fit together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{broadcast, watch};

use super::draft::{Size, ViewDraft};
use super::error::CacheError;
use super::view::{CacheEvent, Snapshot, Update};

/// State of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheStatus {
    /// The tree is being read for the first time.
    Building,
    /// The view follows the tree.
    Live,
    /// No connection: the view is as it was, and will be compared with the tree when there is one
    /// again.
    Interrupted,
    /// The view is as it was, because of `error`. The next attempt comes after `pause`; pauses
    /// grow.
    Retrying {
        /// The error.
        error: CacheError,
        /// Number of attempts in a row that have failed.
        attempts: u32,
        /// Time at which the next one comes.
        pause: Duration,
    },
    /// Stopped for good.
    Stopped,
}

#[derive(Debug)]
pub(super) struct CacheState {
    pub(super) path: Arc<str>,
    pub(super) limits: Limits,
    state: Mutex<State>,
    pub(super) status: watch::Sender<CacheStatus>,
}

#[derive(Debug)]
struct State {
    snapshot: Snapshot,
    size: Size,
    /// None once the cache has stopped.
    updates: Option<broadcast::Sender<Arc<Update>>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) depth: usize,
    pub(super) nodes: usize,
    pub(super) bytes: usize,
    /// Whether nodes that may not be read are passed over, but for the one at the top.
    pub(super) passes_over: bool,
}

impl CacheState {
    pub(super) fn new(path: Arc<str>, limits: Limits, backlog: usize) -> Self {
        let (updates, _) = broadcast::channel(backlog);
        let (status, _) = watch::channel(CacheStatus::Building);
        let state = Mutex::new(State {
            snapshot: Snapshot::default(),
            size: Size::default(),
            updates: Some(updates),
        });
        Self {
            path,
            limits,
            state,
            status,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.state().snapshot.clone()
    }

    /// Returns whether the tree has been read at least once.
    pub(super) fn is_read(&self) -> bool {
        self.state().snapshot.as_of != 0
    }

    pub(super) fn set_status(&self, status: CacheStatus) {
        self.status.send_if_modified(|now| {
            let changed = *now != status && *now != CacheStatus::Stopped;
            if changed {
                *now = status;
            }
            changed
        });
    }

    /// Returns whether the view with `draft` in it would break the limits.
    pub(super) fn check_size(&self, draft: &ViewDraft) -> Result<(), CacheError> {
        let state = self.state();
        let size = draft.size(&state.snapshot.nodes, state.size);
        if size.nodes > self.limits.nodes || size.bytes > self.limits.bytes {
            return Err(self.too_large());
        }
        Ok(())
    }

    pub(super) fn too_large(&self) -> CacheError {
        CacheError::TooLarge {
            path: self.path.to_string(),
            max_nodes: self.limits.nodes,
            max_bytes: self.limits.bytes,
        }
    }

    /// Shows what was read, and sends the difference.
    pub(super) fn show(&self, mut draft: ViewDraft, as_of: i64, exact: bool) {
        {
            let mut state = self.state();
            let size = draft.size(&state.snapshot.nodes, state.size);
            draft.apply_refused(Arc::make_mut(&mut state.snapshot.unreadable));
            let changes = draft.apply(Arc::make_mut(&mut state.snapshot.nodes));
            let as_of = as_of.max(state.snapshot.as_of);
            state.size = size;
            state.snapshot.as_of = as_of;
            state.snapshot.exact = exact;
            if let Some(updates) = &state.updates
                && !changes.is_empty()
            {
                // There may be no listener.
                let _ = updates.send(Arc::new(Update { as_of, changes }));
            }
        }
        self.set_status(CacheStatus::Live);
    }

    pub(super) fn stop(&self) {
        self.state().updates = None;
        self.set_status(CacheStatus::Stopped);
    }

    pub(super) fn listen(self: &Arc<Self>) -> CacheEvents {
        let updates = self
            .state()
            .updates
            .as_ref()
            .map(broadcast::Sender::subscribe);
        CacheEvents {
            state: Arc::clone(self),
            updates,
            behind: true,
        }
    }
}

/// Stream of a cache's events.
///
/// A listener that is slow, or whose task has panicked, holds up neither the cache nor other
/// listeners.
#[derive(Debug)]
pub struct CacheEvents {
    state: Arc<CacheState>,
    updates: Option<broadcast::Receiver<Arc<Update>>>,
    /// Whether the next event is the whole view.
    behind: bool,
}

impl CacheEvents {
    /// Returns the next event: first the whole view, once it has been read; then each step, in
    /// order. A listener that falls behind by more than the cache's backlog gets the whole view
    /// again instead of the steps that it missed. `None` once the cache has stopped and all was
    /// returned. Cancel-safe.
    pub async fn next(&mut self) -> Option<CacheEvent> {
        if self.behind && !self.readable().await {
            return None;
        }
        loop {
            let updates = self.updates.as_mut()?;
            if self.behind {
                let state = self.state.state();
                if let Some(sender) = &state.updates {
                    *updates = sender.subscribe();
                }
                self.behind = false;
                return Some(CacheEvent::Reset(state.snapshot.clone()));
            }
            match updates.recv().await {
                Ok(update) => return Some(CacheEvent::Update(update)),
                Err(broadcast::error::RecvError::Lagged(_)) => self.behind = true,
                Err(broadcast::error::RecvError::Closed) => {
                    self.updates = None;
                }
            }
        }
    }

    /// Waits until there is a view to show; `false` if there never will be.
    async fn readable(&self) -> bool {
        let mut status = self.state.status.subscribe();
        let settled =
            |status: &CacheStatus| *status == CacheStatus::Stopped || self.state.is_read();
        status.wait_for(settled).await.is_ok() && self.state.is_read()
    }
}
