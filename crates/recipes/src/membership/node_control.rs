//! State that the handle of a persistent node and its keeper share.
//!
//! Owns the state that is shown, and what the handle wants of the keeper. It must never say
//! "registered" of a node that is not our live session's (H81).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_client::Session;
use bytes::Bytes;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::error::MemberError;

/// The state of a [`PersistentNode`](crate::membership::PersistentNode).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// The node is not there, or not known to be: no session yet, or a new one is registering.
    Absent,
    /// The node is there and our session's.
    Present(ActiveRegistration),
    /// It cannot be there just now; tried again until it can, or until it is closed.
    Blocked(MemberError),
    /// Given up: closed, or superseded by another process.
    Ended(MemberError),
}

/// A registration that is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ActiveRegistration {
    /// The session that owns the node.
    #[serde(serialize_with = "crate::rendering::session_id")]
    pub session_id: i64,
    /// The change that created it. Grows with each registration.
    pub czxid: i64,
}

#[derive(Debug)]
pub(super) struct NodeControl {
    pub(super) path: Arc<str>,
    /// Id by which another process of ours may know the node for its own.
    pub(super) instance: Option<Uuid>,
    wanted: Mutex<WantedData>,
    pub(super) changed: Notify,
    stopping: AtomicBool,
    state: watch::Sender<NodeState>,
    session: Mutex<Option<Session>>,
}

#[derive(Clone, Debug)]
pub(super) struct WantedData {
    pub(super) data: Bytes,
    pub(super) revision: u64,
}

impl NodeControl {
    pub(super) fn new(path: &str, data: Bytes, instance: Option<Uuid>) -> Self {
        Self {
            path: Arc::from(path),
            instance,
            wanted: Mutex::new(WantedData { data, revision: 0 }),
            changed: Notify::new(),
            stopping: AtomicBool::new(false),
            state: watch::channel(NodeState::Absent).0,
            session: Mutex::new(None),
        }
    }

    /// Has the keeper write other data.
    pub(super) fn want(&self, data: Bytes) {
        {
            let mut wanted = lock(&self.wanted);
            wanted.data = data;
            wanted.revision += 1;
        }
        self.changed.notify_one();
    }

    pub(super) fn wanted(&self) -> WantedData {
        lock(&self.wanted).clone()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(super) fn set_state(&self, state: NodeState, session: Option<&Session>) {
        *lock(&self.session) = session.cloned();
        self.state.send_if_modified(|now| {
            let changed = *now != state && !matches!(now, NodeState::Ended(_));
            if changed {
                *now = state;
            }
            changed
        });
    }

    pub(super) fn state(&self) -> NodeState {
        let state = self.state.borrow().clone();
        // Asked of the session itself: the task that reports its end may not have run since.
        let over = lock(&self.session)
            .as_ref()
            .is_some_and(|session| session.state().is_final());
        match state {
            NodeState::Present(_) if over => NodeState::Absent,
            state => state,
        }
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<NodeState> {
        self.state.subscribe()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
