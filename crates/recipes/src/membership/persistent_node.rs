//! An ephemeral node that exists as long as its handle, over lost sessions.
//!
//! Owns the handle. The keeper does all that the handle asks for.

use std::sync::Arc;

use baton_client::Client;
use bytes::Bytes;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::error::MemberError;
use super::keeper;
use super::node_control::{ActiveRegistration, NodeControl, NodeState};
use crate::recipe_path;

/// An ephemeral node that is created again whenever it is deleted, until this handle is closed or
/// dropped.
///
/// - A lost connection costs nothing: the session keeps the node, and a reconnect does not touch
///   it.
/// - After the loss of the session, the next session takes the node over from the one that is
///   dying, in one multi: anyone who watches the path never finds it absent.
/// - A node of the same path that is another's is left alone ([`MemberError::Taken`]) until it
///   goes.
///
/// Dropping the handle deletes the node in the background; [`PersistentNode::close`] waits for it.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use baton::membership::PersistentNode;
///
/// let node = PersistentNode::start(&client, "/services/web/10.0.0.7", b"port=80")?;
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
    /// Keeps the client open.
    _client: Client,
    runtime: Handle,
}

impl PersistentNode {
    /// Registers at `path` with `data`, in the background. Missing parents are made as containers.
    /// For nodes that are not open to everybody pass
    /// [`client.with_acl(…)`](Client::with_acl).
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
        recipe_path::check(path, "is always there")
            .map_err(|why| MemberError::bad_path(path, why))?;
        let runtime = client
            .runtime()
            .map_err(|source| MemberError::connect(path, source))?;
        let control = Arc::new(NodeControl::new(path, data, instance));
        runtime.spawn(keeper::keep(Arc::clone(&control), client.detached()));
        Ok(Self {
            control,
            _client: client.clone(),
            runtime,
        })
    }

    /// The runtime that the keeper runs on.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn control(&self) -> &Arc<NodeControl> {
        &self.control
    }

    /// The node's full path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.control.path
    }

    /// Returns the present state.
    #[must_use]
    pub fn state(&self) -> NodeState {
        self.control.state()
    }

    /// Waits until the state differs from `seen`, and returns it. States in between may be skipped.
    /// Cancel-safe.
    pub async fn state_other_than(&self, seen: &NodeState) -> NodeState {
        let mut states = self.control.subscribe();
        match states.wait_for(|state| state != seen).await {
            Ok(state) => state.clone(),
            Err(_) => self.state(),
        }
    }

    /// Waits until the node exists and belongs to this handle. Cancel-safe; waits through lost
    /// sessions, refusals and another process's node at the path, so set a limit where that
    /// matters.
    ///
    /// # Errors
    /// [`MemberError::Closed`], [`MemberError::Superseded`].
    pub async fn registered(&self) -> Result<ActiveRegistration, MemberError> {
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

    /// Resolves when the registration has ended for good: closed, superseded, or its client closed.
    /// The future does not keep the registration alive.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut states = self.control.subscribe();
        async move {
            // An error means that the handle is gone.
            let _ = states
                .wait_for(|state| matches!(state, NodeState::Ended(_)))
                .await;
        }
    }

    /// Changes the node's data, in the background: now if it exists, and whenever it is created
    /// again. Of several changes in a row, only the last may be written.
    pub fn set_data(&self, data: &[u8]) {
        self.control.want(Bytes::copy_from_slice(data));
    }

    /// Deletes the node and waits until it is certainly gone, with its session at the latest.
    /// Dropped half-way, it goes on in the background.
    pub async fn close(self) {
        let mut states = self.control.subscribe();
        self.control.stop();
        // An error means that the task is gone, with the client's runtime.
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
