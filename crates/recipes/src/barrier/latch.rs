//! The latch: opens after a number of count-downs, each counted once.
//!
//! Owns the exactly-once count: a count-down is one multi of the count, under its version, and a
//! marker named for who counts. The marker shows afterwards whether it was applied, and makes a
//! second one impossible.

use std::time::Duration;

use baton_client::{Acl, Client, CreateMode, Op, Session};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::BarrierError;
use super::context::{AttemptFailure, BarrierContext};
use super::single::Barrier;
use crate::parents::{ParentKind, ensure_parents};

/// The greatest count: each count-down leaves a marker until the latch is removed.
const MOST: u32 = 100_000;

/// The start of the name of a marker, before the id that has counted.
pub(crate) const DONE_PREFIX: &str = "done-";

/// A latch that opens, once and for good, after a number of count-downs. Cheap to clone.
///
/// Each count-down carries an id and counts once, however often it is repeated: a worker that
/// counts down as `"shard-7"`, crashes before it receives the answer, and does so again after its
/// restart, has counted once. Waiting costs one watch, and one event when the latch opens.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let loaded = baton::CountdownLatch::new(&client, "/import/loaded", 8)?;
/// loaded.count_down("shard-7").await?;
/// // … elsewhere:
/// loaded.wait().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CountdownLatch {
    context: BarrierContext,
    gate: Barrier,
    count: u32,
}

/// Content of the latch's own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Count {
    pub latch_count: u32,
    pub left: u32,
}

impl Count {
    pub(crate) fn from_bytes(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    fn to_bytes(self) -> Vec<u8> {
        // Numbers always have a JSON form.
        serde_json::to_vec(&self).unwrap_or_default()
    }
}

impl CountdownLatch {
    /// A latch at `path` that opens after `count` count-downs. Nothing is sent; the first
    /// participant creates the node, and a participant with another count is refused.
    ///
    /// # Errors
    /// [`BarrierError::BadPath`], [`BarrierError::BadCount`].
    pub fn new(client: &Client, path: &str, count: u32) -> Result<Self, BarrierError> {
        let context = BarrierContext::new(client, path)?;
        context.fits(count, MOST)?;
        let gate = Barrier::new(client, &context.child("gate"))?;
        Ok(Self {
            context,
            gate,
            count,
        })
    }

    /// The ACL of every node that this handle creates, missing parents included. Default: open to
    /// everybody. Give all who use the latch the same, and the permissions that they need: all but
    /// `ADMIN`. Nodes that exist already keep theirs.
    #[must_use]
    pub fn acl(mut self, acl: &[Acl<'_>]) -> Self {
        self.context.client = self.context.client.with_acl(acl);
        self.gate = self.gate.acl(acl);
        self
    }

    /// The latch's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.context.path
    }

    /// Counts down by one, as `id`; does nothing if `id` has counted before. Returns how many are
    /// still to come.
    ///
    /// An id is a name of a node: no `/`. Dropping the future does not take it back once it was
    /// sent; to be sure, call it again.
    ///
    /// # Errors
    /// [`BarrierError::CountMismatch`], [`BarrierError::Foreign`], …; calling it again with the
    /// same id is safe after each.
    pub async fn count_down(&self, id: &str) -> Result<u32, BarrierError> {
        let marker = self.context.child(&format!("{DONE_PREFIX}{id}"));
        let legal = baton_proto::path::validate(&marker);
        if id.is_empty() || id.contains('/') || legal.is_err() {
            return Err(BarrierError::bad_path(
                &marker,
                "an id is one name of a node, not empty and without a slash".to_owned(),
            ));
        }
        let marker = &*marker;
        self.context
            .run(|session| async move { self.count_once(&session, marker).await })
            .await
    }

    /// Counts down by one, under a new random id.
    ///
    /// # Errors
    /// As [`CountdownLatch::count_down`], but after an error it is not known whether it counted.
    pub async fn count_down_anonymously(&self) -> Result<u32, BarrierError> {
        self.count_down(&Uuid::new_v4().simple().to_string()).await
    }

    /// Waits until the latch is open. Goes on through lost connections and sessions. Cancel-safe.
    ///
    /// # Errors
    /// [`BarrierError`].
    pub async fn wait(&self) -> Result<(), BarrierError> {
        self.context
            .run(|session| async move { self.state(&session).await.map(drop) })
            .await?;
        self.gate.wait().await
    }

    /// Like [`CountdownLatch::wait`], for at most `limit`.
    ///
    /// # Errors
    /// [`BarrierError::TimedOut`]; else as `wait`.
    pub async fn wait_timeout(&self, limit: Duration) -> Result<(), BarrierError> {
        self.context.at_most(limit, self.wait()).await
    }

    /// Number of count-downs still to come; 0 once it is open.
    ///
    /// # Errors
    /// [`BarrierError`].
    pub async fn left(&self) -> Result<u32, BarrierError> {
        self.context
            .run(|session| async move { Ok(self.state(&session).await?.0.left) })
            .await
    }

    /// Removes the latch with its markers. Only when nobody will wait or count any more: anyone who
    /// does so afterwards begins a new one.
    ///
    /// # Errors
    /// [`BarrierError`]; calling it again is safe.
    pub async fn remove(&self) -> Result<(), BarrierError> {
        self.context
            .run(|session| async move {
                loop {
                    let names = self.context.children(&session, self.path()).await?;
                    let nodes: Vec<_> = names.iter().map(|name| self.context.child(name)).collect();
                    let answers: Vec<_> = nodes
                        .iter()
                        .map(|node| session.delete(node, None))
                        .collect();
                    let emptied = session.delete(self.path(), None);
                    let mut refused = None;
                    for answer in answers {
                        let error = answer.await.err();
                        refused = refused.or(error.filter(|error| !error.is_no_node()));
                    }
                    let outcome = emptied.await;
                    match refused.or(outcome.err()) {
                        None => return Ok(()),
                        Some(error) if error.is_no_node() => return Ok(()),
                        // Somebody counted meanwhile.
                        Some(error) if error.is_not_empty() => {}
                        Some(error) => self.context.after(&session, error).await?,
                    }
                }
            })
            .await
    }

    async fn count_once(&self, session: &Session, marker: &str) -> Result<u32, AttemptFailure> {
        loop {
            let (count, version) = self.state(session).await?;
            if self.context.read(session, marker).await?.is_some() {
                return Ok(count.left);
            }
            if count.left == 0 {
                return Ok(0);
            }
            let next = Count {
                left: count.left - 1,
                ..count
            };
            let mut parts = vec![
                Op::create(marker, Vec::new(), CreateMode::Persistent),
                Op::set_data(self.path(), next.to_bytes(), Some(version)),
            ];
            if next.left == 0 {
                parts.push(Op::delete(self.gate.path(), None));
            }
            match session.multi(&parts).await {
                Ok(_) => return Ok(next.left),
                // Another counted, or we did and the answer was lost: the next read shows.
                Err(error) if error.is_node_exists() || error.is_bad_version() => {}
                Err(error) if error.is_no_node() && error.multi_index() == Some(2) => {
                    return Err(BarrierError::Foreign {
                        node: self.gate.path().to_owned(),
                        what: "the latch's gate is missing".to_owned(),
                    }
                    .into());
                }
                Err(error) if error.is_no_node() => {}
                Err(error) => self.context.after(session, error).await?,
            }
        }
    }

    /// The count and its version; makes the latch if there is none.
    async fn state(&self, session: &Session) -> Result<(Count, i32), AttemptFailure> {
        loop {
            if let Some(read) = self.context.read(session, self.path()).await? {
                let Ok(count) = serde_json::from_slice::<Count>(&read.data) else {
                    return Err(self.context.foreign("it is not a countdown latch").into());
                };
                if count.latch_count != self.count {
                    return Err(BarrierError::CountMismatch {
                        path: self.path().to_owned(),
                        ours: self.count,
                        theirs: count.latch_count,
                    }
                    .into());
                }
                return Ok((count, read.stat.version));
            }
            let count = Count {
                latch_count: self.count,
                left: self.count,
            };
            let parts = [
                Op::create(self.path(), count.to_bytes(), CreateMode::Persistent),
                Op::create(self.gate.path(), Vec::new(), CreateMode::Persistent),
            ];
            match session.multi(&parts).await {
                Ok(_) => {}
                Err(error) if error.is_node_exists() => {}
                Err(error) if error.is_no_node() => {
                    let above = baton_proto::path::parent(self.path());
                    let made = ensure_parents(session, above, ParentKind::Container).await;
                    if let Err(error) = made {
                        self.context.after(session, error).await?;
                    }
                }
                Err(error) => self.context.after(session, error).await?,
            }
        }
    }
}
