//! Emptying a queue by hand.
//!
//! Owns the removal of what nobody works on. Each item goes in one multi with the node of its id,
//! under the version that was read, so that an id is never left behind without its item. Must never
//! remove an item that is claimed, nor one that has changed since it was read.

use super::WorkQueue;
use super::context::{Fault, Inner};
use super::envelope::Envelope;
use super::error::WorkError;
use crate::retry;
use baton_client::{Error, Op, OpResult, Session};
use baton_proto::path;

/// Items that are read and removed at once: each may be as large as a request.
const AT_ONCE: usize = 32;

/// What [`WorkQueue::purge`] has removed, and what it has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// What was removed; not all of it where the connection was lost on the way.
    pub removed: u64,
    /// What was left, because somebody works on it or has changed it meanwhile, or because we may
    /// not read or remove it.
    pub left: u64,
}

/// What became of one node that was to be removed.
enum Gone {
    Removed,
    /// Removed by somebody else.
    Before,
    /// Claimed, or another by now.
    Left,
}

impl WorkQueue {
    /// Removes all items that nobody has claimed, delayed ones and those that cannot be read among
    /// them, and frees their ids. Dead letters stay: see [`WorkQueue::purge_dead`].
    ///
    /// Items that are put meanwhile may stay. Dropping the future leaves removed what has been
    /// removed.
    ///
    /// # Errors
    /// [`WorkError`]; some may have been removed.
    pub async fn purge(&self) -> Result<Purged, WorkError> {
        let mut purged = Purged::default();
        let mut done = Vec::new();
        loop {
            let session = self.inner.session().await?;
            match self.inner.purge(&session, &mut purged, &mut done).await {
                Ok(()) => return Ok(purged),
                Err(fault) => self.inner.after(&session, fault).await?,
            }
        }
    }

    /// Removes all dead letters for good, and frees their ids.
    ///
    /// # Errors
    /// As [`WorkQueue::purge`].
    pub async fn purge_dead(&self) -> Result<Purged, WorkError> {
        let inner = &self.inner;
        let mut purged = Purged::default();
        loop {
            let session = inner.session().await?;
            let purge = async {
                inner.has(&session, &inner.layout.dead).await?;
                inner
                    .purge_below(&session, &inner.layout.dead, &mut purged)
                    .await
            };
            match purge.await {
                Ok(()) => return Ok(purged),
                Err(fault) => inner.after(&session, fault).await?,
            }
        }
    }
}

impl Inner {
    /// Removes what can be removed of each lane that is not `done`.
    async fn purge(
        &self,
        session: &Session,
        purged: &mut Purged,
        done: &mut Vec<String>,
    ) -> Result<(), Fault> {
        session.sync(&self.layout.root).await?;
        if self.read_terms(session).await?.is_none() {
            return Ok(());
        }
        self.has(session, &self.layout.items).await?;
        let mut lanes = self.lanes(session).await?;
        // An item that is put off moves from a ready lane to a delayed one.
        lanes.sort_by_key(|(lane, _)| (matches!(lane, super::layout::Lane::Later { .. }), *lane));
        for (_, lane) in lanes {
            if done.contains(&lane) {
                continue;
            }
            let folder = self.layout.lane(&lane);
            self.purge_below(session, &folder, purged).await?;
            done.push(lane);
        }
        Ok(())
    }

    async fn purge_below(
        &self,
        session: &Session,
        folder: &str,
        purged: &mut Purged,
    ) -> Result<(), Fault> {
        let left = purged.left;
        let names = self.names(session, folder).await?;
        for some in names.chunks(AT_ONCE) {
            let gone = self.purge_some(session, folder, some).await;
            // Before another attempt, which finds once more what was left.
            let gone = gone.inspect_err(|_| purged.left = left)?;
            for one in gone {
                match one {
                    Gone::Removed => purged.removed += 1,
                    Gone::Before => {}
                    Gone::Left => purged.left += 1,
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
    ) -> Result<Vec<Gone>, Fault> {
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
                    all.push(Gone::Before);
                    continue;
                }
                // Its id is not known.
                Err(error) if error.is_no_auth() => {
                    all.push(Gone::Left);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if read.stat.num_children > 0 {
                all.push(Gone::Left);
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

    /// What became of `node`, which `parts` remove together with the node of its id, after the
    /// first attempt's outcome.
    async fn removed(
        &self,
        session: &Session,
        node: &str,
        mut parts: &[Op],
        mut outcome: Result<Vec<OpResult>, Error>,
    ) -> Result<Gone, Fault> {
        loop {
            let error = match outcome {
                Ok(_) => return Ok(Gone::Removed),
                Err(error) => error,
            };
            if error.is_no_node() {
                // Somebody deleted the node of its id: then there is nothing to free.
                let Some((_, item)) = parts
                    .split_last()
                    .filter(|_| error.multi_index() == Some(1))
                else {
                    return Ok(Gone::Before);
                };
                parts = item;
            } else if error.is_not_empty() || error.is_bad_version() || error.is_no_auth() {
                return Ok(Gone::Left);
            } else if !error.is_maybe_applied() || !retry::until_connected(session).await {
                return Err(error.into());
            } else {
                session.sync(node).await?;
                if session.exists(node).await?.is_none() {
                    return Ok(Gone::Removed);
                }
            }
            outcome = session.multi(parts).await;
        }
    }
}
