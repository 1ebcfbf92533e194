//! An ephemeral node that is there as long as we are, whatever becomes of sessions.
//!
//! Owns the handle and what it tells. It must never say "registered" of a node that is not our live
//! session's (H81).

use super::error::MemberError;
use super::keeper;
use baton_client::{Client, ConnectError, Session};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

/// Where a [`PersistentNode`] stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// The node is not there, or not known to be: no session yet, or a new one is registering.
    Absent,
    /// The node is there and our session's.
    Present(Registered),
    /// It cannot be there just now; tried again until it can, or until it is closed.
    Blocked(MemberError),
    /// Given up: closed, or superseded by another process.
    Ended(MemberError),
}

/// A registration that is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registered {
    /// The session that owns the node.
    pub session_id: i64,
    /// The change that created it. Grows with each registration.
    pub czxid: i64,
}

/// An ephemeral node that is made again whenever it is gone, until this handle is closed or
/// dropped.
///
/// - A lost connection costs nothing: the session keeps the node, and a reconnect does not touch
///   it.
/// - After the loss of the session, the next session takes the node over from the one that is
///   dying, in one multi: whoever watches the path never finds it absent.
/// - A node of the same path that is another's is left alone ([`MemberError::Taken`]) until it
///   goes.
///
/// Dropping the handle deletes the node in the background; [`PersistentNode::close`] waits for it.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let node = baton::PersistentNode::start(&client, "/services/web/10.0.0.7", b"port=80")?;
/// node.registered().await?;
/// node.set_data(b"port=80 draining");
/// node.close().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the handle deletes the node"]
#[derive(Debug)]
pub struct PersistentNode {
    control: Arc<NodeControl>,
}

#[derive(Debug)]
pub(super) struct NodeControl {
    pub(super) path: Arc<str>,
    /// By which another process of ours may know the node for its own.
    pub(super) instance: Option<Uuid>,
    wanted: Mutex<Wanted>,
    pub(super) changed: Notify,
    stopping: AtomicBool,
    state: watch::Sender<NodeState>,
    session: Mutex<Option<Session>>,
}

#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) data: Bytes,
    pub(super) revision: u64,
}

impl NodeControl {
    pub(super) fn wanted(&self) -> Wanted {
        lock(&self.wanted).clone()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(super) fn tell(&self, state: NodeState, session: Option<&Session>) {
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
        // Asked of the session itself: the task that is to tell of its end may not have run since.
        let over = lock(&self.session)
            .as_ref()
            .is_some_and(|session| session.state().is_final());
        match state {
            NodeState::Present(_) if over => NodeState::Absent,
            state => state,
        }
    }

    fn stop(&self) {
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

impl PersistentNode {
    /// Registers at `path` with `data`, in the background. Missing parents are made as containers.
    ///
    /// # Errors
    /// [`MemberError::BadPath`]; [`MemberError::Connect`] outside a tokio runtime.
    pub fn start(client: &Client, path: &str, data: &[u8]) -> Result<Self, MemberError> {
        Self::start_as(client, path, Bytes::copy_from_slice(data), None)
    }

    pub(super) fn start_as(
        client: &Client,
        path: &str,
        data: Bytes,
        instance: Option<Uuid>,
    ) -> Result<Self, MemberError> {
        let bad = |why: String| MemberError::BadPath {
            path: path.to_owned(),
            why,
        };
        baton_proto::path::validate(path).map_err(|error| bad(error.to_string()))?;
        if path == "/" {
            return Err(bad(
                "the root is always there; name a node below it".to_owned()
            ));
        }
        let runtime = Handle::try_current().map_err(|_| MemberError::Connect {
            path: path.to_owned(),
            source: ConnectError::NoRuntime,
        })?;
        let control = Arc::new(NodeControl {
            path: Arc::from(path),
            instance,
            wanted: Mutex::new(Wanted { data, revision: 0 }),
            changed: Notify::new(),
            stopping: AtomicBool::new(false),
            state: watch::channel(NodeState::Absent).0,
            session: Mutex::new(None),
        });
        runtime.spawn(keeper::keep(Arc::clone(&control), client.clone()));
        Ok(Self { control })
    }

    pub(super) fn control(&self) -> &Arc<NodeControl> {
        &self.control
    }

    /// The node's full path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.control.path
    }

    /// Where it stands now.
    #[must_use]
    pub fn state(&self) -> NodeState {
        self.control.state()
    }

    /// Waits until the state is another than `seen`, and returns it. States in between may be
    /// skipped. Cancel-safe.
    pub async fn state_other_than(&self, seen: &NodeState) -> NodeState {
        let mut states = self.control.subscribe();
        match states.wait_for(|state| state != seen).await {
            Ok(state) => state.clone(),
            Err(_) => self.state(),
        }
    }

    /// Waits until the node is there and ours. Cancel-safe; waits through lost sessions, refusals
    /// and a node of somebody else's at the path, so give it a limit where that matters.
    ///
    /// # Errors
    /// [`MemberError::Closed`], [`MemberError::Superseded`].
    pub async fn registered(&self) -> Result<Registered, MemberError> {
        let mut states = self.control.subscribe();
        loop {
            match self.state() {
                NodeState::Present(registered) => return Ok(registered),
                NodeState::Ended(error) => return Err(error),
                NodeState::Absent | NodeState::Blocked(_) => {}
            }
            if states.changed().await.is_err() {
                return Err(keeper::closed(&self.control));
            }
        }
    }

    /// Resolves when the registration is given up for good: closed, superseded, or its client
    /// closed. Does not keep it.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut states = self.control.subscribe();
        async move {
            // An error means that the handle is gone.
            let _ = states
                .wait_for(|state| matches!(state, NodeState::Ended(_)))
                .await;
        }
    }

    /// Gives the node other data, in the background: now if it is there, and whenever it is made
    /// again. Of several in a row, only the last may be written.
    pub fn set_data(&self, data: &[u8]) {
        {
            let mut wanted = lock(&self.control.wanted);
            wanted.data = Bytes::copy_from_slice(data);
            wanted.revision += 1;
        }
        self.control.changed.notify_one();
    }

    /// Deletes the node and waits until it is certainly gone, with its session at the latest.
    /// Dropped half-way, it goes on in the background.
    pub async fn close(self) {
        let mut states = self.control.subscribe();
        self.control.stop();
        // An error means that the task is gone, with the runtime.
        let _ = states
            .wait_for(|state| matches!(state, NodeState::Ended(_)))
            .await;
    }
}

impl Drop for PersistentNode {
    fn drop(&mut self) {
        self.control.stop();
    }
}
