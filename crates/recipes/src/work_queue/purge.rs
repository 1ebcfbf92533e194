//! Removal of all items, or of all dead letters.
//!
//! Owns the removal of items that nobody has claimed. One multi deletes an item, under the version
//! that was read, and the node of its id, so that no id stays reserved without its item. Must never
//! remove an item that is claimed, nor one that has changed since it was read.

use baton_client::{Error, Op, OpResult, Session};
use baton_proto::path;

use super::context::QueueContext;
use super::envelope::Envelope;
use super::error::{StepError, WorkError};
use super::layout::Shard;
use super::queue::WorkQueue;
use crate::retry;

/// Number of items that are read and removed at once: each may be as large as a request.
const AT_ONCE: usize = 32;

/// Numbers of items that [`WorkQueue::purge`] has removed and left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct PurgeReport {
    /// Number of removed items; may be too small where the connection was lost meanwhile.
    pub removed: u64,
    /// Number of items left, because they are claimed or have changed meanwhile, or because this
    /// session may not read or remove them.
    pub left: u64,
}

impl std::fmt::Display for PurgeReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} removed, {} left", self.removed, self.left)
    }
}

/// Outcome of the removal of one node.
enum Removal {
    Removed,
    /// Another process has removed it.
    Before,
    /// It is claimed, or has changed.
    Left,
}

impl WorkQueue {
    /// Removes all items that nobody has claimed, with those that are delayed or cannot be read,
    /// and frees their ids. Dead letters stay: see [`WorkQueue::purge_dead`].
    ///
    /// Items that are put meanwhile may stay. Dropping the future stops the removal.
    ///
    /// # Errors
    /// [`WorkError`]; some may have been removed.
    pub async fn purge(&self) -> Result<PurgeReport, WorkError> {
        let mut purged = PurgeReport::default();
        let mut done = Vec::new();
        loop {
            let session = self.context.session().await?;
            match self.context.purge(&session, &mut purged, &mut done).await {
                Ok(()) => return Ok(purged),
                Err(error) => self.context.await_retry(&session, error).await?,
            }
        }
    }

    /// Deletes all dead letters, and frees their ids.
    ///
    /// # Errors
    /// As [`WorkQueue::purge`].
    pub async fn purge_dead(&self) -> Result<PurgeReport, WorkError> {
        let context = &self.context;
        let mut purged = PurgeReport::default();
        loop {
            let session = context.session().await?;
            let purge = async {
                context.check_node(&session, &context.layout.dead).await?;
                context
                    .purge_below(&session, &context.layout.dead, &mut purged)
                    .await
            };
            match purge.await {
                Ok(()) => return Ok(purged),
                Err(error) => context.await_retry(&session, error).await?,
            }
        }
    }
}

impl QueueContext {
    /// Removes the items of each shard that is not `done`.
    async fn purge(
        &self,
        session: &Session,
        purged: &mut PurgeReport,
        done: &mut Vec<String>,
    ) -> Result<(), StepError> {
        session.sync(&self.layout.root).await?;
        if self.read_terms(session).await?.is_none() {
            return Ok(());
        }
        self.check_node(session, &self.layout.items).await?;
        let mut shards = self.shards(session).await?;
        // An item that is delayed moves from a ready shard to a delayed one.
        shards.sort_by_key(|(shard, _)| (matches!(shard, Shard::Later { .. }), *shard));
        for (_, shard) in shards {
            if done.contains(&shard) {
                continue;
            }
            let folder = self.layout.shard(&shard);
            self.purge_below(session, &folder, purged).await?;
            done.push(shard);
        }
        Ok(())
    }

    async fn purge_below(
        &self,
        session: &Session,
        folder: &str,
        purged: &mut PurgeReport,
    ) -> Result<(), StepError> {
        let left = purged.left;
        let names = self.names(session, folder).await?;
        for some in names.chunks(AT_ONCE) {
            let gone = self.purge_some(session, folder, some).await;
            // The next attempt counts the items again that were left.
            let gone = gone.inspect_err(|_| purged.left = left)?;
            for one in gone {
                match one {
                    Removal::Removed => purged.removed += 1,
                    Removal::Before => {}
                    Removal::Left => purged.left += 1,
                }
            }
        }
        Ok(())
    }

    async fn purge_some(
        &self,
        session: &Session,
        folder: &str,
        names: &[String],
    ) -> Result<Vec<Removal>, StepError> {
        let asked: Vec<_> = names
            .iter()
            .map(|name| {
                let node = path::join(folder, name);
                let read = session.get_data(&node);
                (node, read)
            })
            .collect();
        let mut all = Vec::with_capacity(asked.len());
        let mut sent = Vec::with_capacity(asked.len());
        for (node, read) in asked {
            let read = match read.await {
                Ok(read) => read,
                Err(error) if error.is_no_node() => {
                    all.push(Removal::Before);
                    continue;
                }
                // Its id is unknown.
                Err(error) if error.is_no_auth() => {
                    all.push(Removal::Left);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if read.stat.num_children > 0 {
                all.push(Removal::Left);
                continue;
            }
            let id = Envelope::open(&read.data)
                .filter(|(envelope, _)| envelope.unique)
                .map(|(envelope, _)| self.layout.id(&envelope.id));
            let item = Op::delete(&*node, Some(read.stat.version));
            let parts: Vec<Op> = std::iter::once(item)
                .chain(id.map(|id| Op::delete(id, None)))
                .collect();
            let removing = session.multi(&parts);
            sent.push((node, parts, removing));
        }
        for (node, parts, removing) in sent {
            let outcome = removing.await;
            all.push(self.removed(session, &node, &parts, outcome).await?);
        }
        Ok(all)
    }

    /// Resolves the removal of `node`, which `parts` delete with the node of its id. `outcome` is
    /// that of the first attempt.
    async fn removed(
        &self,
        session: &Session,
        node: &str,
        mut parts: &[Op],
        mut outcome: Result<Vec<OpResult>, Error>,
    ) -> Result<Removal, StepError> {
        loop {
            let error = match outcome {
                Ok(_) => return Ok(Removal::Removed),
                Err(error) => error,
            };
            if error.is_no_node() {
                // The node of its id does not exist: there is no id to free.
                let Some((_, item)) = parts
                    .split_last()
                    .filter(|_| error.multi_index() == Some(1))
                else {
                    return Ok(Removal::Before);
                };
                parts = item;
            } else if error.is_not_empty() || error.is_bad_version() || error.is_no_auth() {
                return Ok(Removal::Left);
            } else if !error.is_maybe_applied() || !retry::until_connected(session).await {
                return Err(error.into());
            } else {
                session.sync(node).await?;
                if session.exists(node).await?.is_none() {
                    return Ok(Removal::Removed);
                }
            }
            outcome = session.multi(parts).await;
        }
    }
}
