//! A gate: closed while its node exists.
//!
//! Owns the wait, which reads the tree after every event and with every new session (H64), and
//! never takes an event for the answer. Must never close or open a gate twice for one call.

use std::sync::Arc;
use std::time::Duration;

use baton_client::{CleanupError, Client, CreateMode, Data, Op, Session};
use bytes::Bytes;

use super::BarrierError;
use super::context::{AttemptFailure, BarrierContext};
use crate::kind::Kind;
use crate::options::acl_option;
use crate::parents::{ParentKind, ensure_parents};
use crate::receipt::{Outcome, Receipts};
use crate::record::Record;

/// A gate at a path of the tree: closed while the node exists, open while it does not.
///
/// The same layout as Curator's `DistributedBarrier` and kazoo's `Barrier`, so their processes can
/// close, open and wait at the same gate. It is not a lock: what is true after [`Barrier::wait`] is
/// that the gate was open, not that it still is. Cheap to clone.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let gate = baton::Barrier::new(&client, "/maintenance")?;
/// gate.close().await?;
/// // … elsewhere, any number of processes:
/// gate.wait().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Barrier {
    context: BarrierContext,
    receipts: Arc<Receipts>,
}

impl Barrier {
    /// A gate at `path`. Nothing is sent.
    ///
    /// # Errors
    /// [`BarrierError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, BarrierError> {
        Ok(Self {
            context: BarrierContext::new(client, path)?,
            receipts: Arc::default(),
        })
    }

    acl_option!(context.client);

    /// The gate's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.context.path
    }

    /// Closes the gate: when this returns `Ok` it was closed, by us or by another. It stays closed
    /// until somebody opens it, also when this process ends. A lost answer never makes it close a
    /// gate that was opened meanwhile.
    ///
    /// Dropping the future does not take it back.
    ///
    /// # Errors
    /// [`BarrierError`]; where the session ended before the outcome was known, and the gate is
    /// open, the source says "maybe applied".
    pub async fn close(&self) -> Result<(), BarrierError> {
        let data = &Bytes::from(Record::new(None).to_bytes());
        self.context
            .run(|session| async move {
                loop {
                    let gate = Op::create(self.path(), data.clone(), CreateMode::Persistent);
                    let path = &self.context.path;
                    match self.receipts.apply(&session, path, vec![gate]).await {
                        Outcome::Applied => return Ok(()),
                        Outcome::NotApplied => {}
                        Outcome::Refused(error) if error.is_node_exists() => {
                            match self.context.read(&session, path).await? {
                                Some(node) => return Ok(self.refuse_others(&node)?),
                                // Opened meanwhile.
                                None => continue,
                            }
                        }
                        Outcome::Refused(error) if error.is_no_node() => {
                            let above = baton_proto::path::parent(path);
                            let made = ensure_parents(&session, above, ParentKind::Container).await;
                            if let Err(error) = made {
                                self.context.after(&session, error).await?;
                            }
                        }
                        Outcome::Failed(error) => self.context.after(&session, error).await?,
                        // Another client may have closed it.
                        Outcome::Unknown(_) if self.is_closed().await? => return Ok(()),
                        Outcome::Refused(source) | Outcome::Unknown(source) => {
                            let path = path.to_string();
                            return Err(BarrierError::Client { path, source }.into());
                        }
                    }
                }
            })
            .await
    }

    /// Opens the gate, so that all waiters pass. When this returns `Ok` it was open; a gate that
    /// another process closes meanwhile stays closed.
    ///
    /// Dropping the future does not take it back.
    ///
    /// # Errors
    /// [`BarrierError`]; for example where the node has children, and so is not a gate.
    pub async fn open(&self) -> Result<(), BarrierError> {
        self.context
            .run(|session| async move {
                let Some(seen) = self.context.read(&session, self.path()).await? else {
                    return Ok(());
                };
                self.refuse_others(&seen)?;
                // Bound to the node that was seen: a lost answer never makes it open a gate that
                // was closed again.
                match session
                    .delete_eventually(self.path(), seen.stat.czxid)
                    .await
                {
                    Ok(()) => Ok(()),
                    Err(CleanupError::Refused(source)) => {
                        Err(BarrierError::client(self.path(), source).into())
                    }
                    Err(_) => Err(AttemptFailure::Again),
                }
            })
            .await
    }

    /// Returns whether the gate is closed.
    ///
    /// # Errors
    /// [`BarrierError`] where it cannot be found out.
    pub async fn is_closed(&self) -> Result<bool, BarrierError> {
        self.context
            .run(|session| async move {
                let Some(node) = self.context.read(&session, self.path()).await? else {
                    return Ok(false);
                };
                self.refuse_others(&node)?;
                Ok(true)
            })
            .await
    }

    /// Waits until the gate is open; returns at once if it is. Goes on through lost connections and
    /// sessions, and reads the node again after each. Cancel-safe: nothing stays behind.
    ///
    /// # Errors
    /// [`BarrierError`].
    pub async fn wait(&self) -> Result<(), BarrierError> {
        self.context
            .run(|session| async move {
                loop {
                    // Not older than this call: a server that lags behind could take a gate just
                    // closed for an open one.
                    let watched = |session: &Session| session.get_data_watch(self.path());
                    match session.read_latest(self.path(), watched).await {
                        // Whatever it reports, the next read decides.
                        Ok((node, watch)) => {
                            self.refuse_others(&node)?;
                            drop(watch.await);
                        }
                        Err(error) if error.is_no_node() => return Ok(()),
                        Err(error) => self.context.after(&session, error).await?,
                    }
                }
            })
            .await
    }

    /// Refuses a node that is not a gate: gates have no children, nor the data of another recipe.
    fn refuse_others(&self, node: &Data) -> Result<(), BarrierError> {
        let what = match Kind::of_folder(&node.data, &[]) {
            Some(kind) if kind != Kind::Node => format!("it is {kind}"),
            _ if node.stat.num_children > 0 => "it has children, as no barrier has".to_owned(),
            _ => return Ok(()),
        };
        Err(self.context.foreign(&what))
    }

    /// Like [`Barrier::wait`], for at most `limit`, over all events and reconnects.
    ///
    /// # Errors
    /// [`BarrierError::TimedOut`]; else as `wait`.
    pub async fn wait_timeout(&self, limit: Duration) -> Result<(), BarrierError> {
        self.context.at_most(limit, self.wait()).await
    }
}
