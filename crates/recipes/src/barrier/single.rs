//! The gate: closed while a node exists.
//!
//! Owns the wait, which looks at the tree after every event and with every new session (H64), and never takes an event for
//! the answer.

use super::BarrierError;
use super::ground::{Ground, Halt, Limit};
use crate::line::{Parents, ensure_parents};
use crate::record::Record;
use baton_client::{CleanupError, Client, CreateMode};
use std::time::Duration;

/// A gate at a path of the tree: closed while the node exists, open while it does not.
///
/// The same layout as Curator's `DistributedBarrier` and kazoo's `Barrier`, so their processes can close, open and wait at the
/// same gate. It is no lock: what is true after [`Barrier::wait`] is that the gate was open, not that it still is. Cheap to
/// clone.
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
    ground: Ground,
}

impl Barrier {
    /// A gate at `path`. Nothing is sent.
    ///
    /// # Errors
    /// [`BarrierError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, BarrierError> {
        Ok(Self {
            ground: Ground::new(client, path)?,
        })
    }

    /// The gate's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.ground.path
    }

    /// Closes the gate: when this returns `Ok` it was closed, by us or by another. It stays closed until somebody opens it,
    /// also when this process ends.
    ///
    /// Dropping the future does not take it back once it was sent.
    ///
    /// # Errors
    /// [`BarrierError`].
    pub async fn close(&self) -> Result<(), BarrierError> {
        self.ground
            .run(|session| async move {
                let data = Record::new(None).to_bytes();
                loop {
                    let created = session.create(self.path(), &data, CreateMode::Persistent);
                    match created.await {
                        Ok(_) => return Ok(()),
                        Err(error) if error.is_node_exists() => return Ok(()),
                        Err(error) if error.is_no_node() => {
                            let above = baton_proto::path::parent(self.path());
                            let made = ensure_parents(&session, above, Parents::Container).await;
                            if let Err(error) = made {
                                self.ground.after(&session, error).await?;
                            }
                        }
                        Err(error) => self.ground.after(&session, error).await?,
                    }
                }
            })
            .await
    }

    /// Opens the gate and lets all pass who wait. When this returns `Ok` it was open; a gate that another closes meanwhile is
    /// left closed.
    ///
    /// Dropping the future does not take it back.
    ///
    /// # Errors
    /// [`BarrierError`]; for example where the node has children, and so is no gate.
    pub async fn open(&self) -> Result<(), BarrierError> {
        self.ground
            .run(|session| async move {
                let Some(seen) = self.ground.read(&session, self.path()).await? else {
                    return Ok(());
                };
                // Bound to the node that was seen: a lost answer never makes it open a gate that was closed anew.
                match session
                    .delete_eventually(self.path(), seen.stat.czxid)
                    .await
                {
                    Ok(()) => Ok(()),
                    Err(CleanupError::Refused(source)) => Err(BarrierError::Client {
                        path: self.path().to_owned(),
                        source,
                    }
                    .into()),
                    Err(_) => Err(Halt::Again),
                }
            })
            .await
    }

    /// Whether the gate is closed.
    ///
    /// # Errors
    /// [`BarrierError`] where it cannot be found out.
    pub async fn is_closed(&self) -> Result<bool, BarrierError> {
        self.ground
            .run(|session| async move { Ok(self.ground.read(&session, self.path()).await?.is_some()) })
            .await
    }

    /// Waits until the gate is open; returns at once if it is. Goes on through lost connections and sessions, and looks again
    /// after each (H64). Cancel-safe: nothing stays behind.
    ///
    /// # Errors
    /// [`BarrierError`].
    pub async fn wait(&self) -> Result<(), BarrierError> {
        self.ground
            .run(|session| async move {
                loop {
                    // Not older than this call: a server that lags behind could take a gate just closed for an open one.
                    let caught_up = session.sync(self.path());
                    let watched = session.get_data_watch(self.path());
                    let read = match caught_up.await {
                        Ok(()) => watched.await,
                        Err(error) => Err(error),
                    };
                    match read {
                        // Whatever it tells, the next look decides.
                        Ok((_, watch)) => drop(watch.await),
                        Err(error) if error.is_no_node() => return Ok(()),
                        Err(error) => self.ground.after(&session, error).await?,
                    }
                }
            })
            .await
    }

    /// Like [`Barrier::wait`], for at most `limit`, over all events and reconnects.
    ///
    /// # Errors
    /// [`BarrierError::TimedOut`]; else as `wait`.
    pub async fn wait_timeout(&self, limit: Duration) -> Result<(), BarrierError> {
        let Some(limit) = Limit::of(limit) else {
            return self.wait().await;
        };
        match tokio::time::timeout_at(limit.at, self.wait()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.ground.timed_out(limit)),
        }
    }
}
