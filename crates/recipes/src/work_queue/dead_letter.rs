//! Dead letters: items that are no longer delivered.
//!
//! Owns how an item becomes one, and how dead letters are listed, replayed and discarded. Each of
//! these moves is one change. A list is not of one instant: dead letters may come and go meanwhile.

use std::sync::Arc;

use baton_client::{CreateMode, Data, Op, Session};
use bytes::Bytes;
use serde::Serialize;

use super::context::QueueContext;
use super::envelope::Envelope;
use super::error::{StepError, WorkError};
use super::layout::{DEAD_PREFIX, MAX_PRIORITY, READY_PREFIX};
use super::offer::PutOutcome;
use super::queue::WorkQueue;
use super::read_ahead::ClaimableItem;
use super::shards::AT_ONCE;
use crate::rendering::{self, OneLine};
use crate::retry;

/// The most dead letters that [`WorkQueue::dead_letters`] lists.
const MOST_LISTED: usize = 1_000;

/// An item that is no longer delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its name among the dead letters.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its priority.
    pub priority: u16,
    /// Number of times that it was claimed.
    pub attempts: u32,
    /// Reason why it became a dead letter.
    pub reason: String,
    /// Its bytes, as they were put.
    #[serde(serialize_with = "rendering::lossy")]
    pub payload: Bytes,
}

impl std::fmt::Display for DeadLetter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, reason) = (OneLine(&self.id), OneLine(&self.reason));
        write!(f, "{id}: {} attempts: {reason}", self.attempts)
    }
}

/// A dead letter as it was read from the tree.
struct StoredDeadLetter {
    letter: DeadLetter,
    version: i32,
    envelope: Envelope,
}

impl WorkQueue {
    /// Lists the dead letters, the oldest first, a thousand at most:
    /// [`oldest_dead_letters`](Self::oldest_dead_letters) takes another bound.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>, WorkError> {
        self.oldest_dead_letters(MOST_LISTED).await
    }

    /// Lists at most `most` dead letters, the oldest first. A dead letter that this session may not
    /// read has only a name; its reason says so.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn oldest_dead_letters(&self, most: usize) -> Result<Vec<DeadLetter>, WorkError> {
        let context = &self.context;
        let list =
            |session: Session| async move { context.dead_letters(&session, most).await.map(Some) };
        context.until_done(list).await
    }

    /// Moves a dead letter back into the queue in one change. It keeps its id and priority; its
    /// attempts start at zero.
    ///
    /// # Errors
    /// [`WorkError::NoDeadLetter`], [`WorkError::Full`]: nothing was changed.
    /// [`WorkError::OfferUnknown`]: the session ended before the outcome was known.
    pub async fn replay(&self, name: &str) -> Result<(), WorkError> {
        let context = &self.context;
        let replay = |session: Session| async move {
            let replayed = context.replay(&session, name).await?;
            Ok(replayed.then_some(()))
        };
        context.until_done(replay).await
    }

    /// Deletes a dead letter, and frees its id.
    ///
    /// # Errors
    /// [`WorkError::NoDeadLetter`]: nothing was changed.
    pub async fn discard(&self, name: &str) -> Result<(), WorkError> {
        let context = &self.context;
        let discard = |session: Session| async move {
            let discarded = context.discard(&session, name).await?;
            Ok(discarded.then_some(()))
        };
        context.until_done(discard).await
    }
}

impl QueueContext {
    /// The part of a multi that makes an item a dead letter.
    pub(super) fn create_dead_letter(
        &self,
        envelope: Envelope,
        since_ms: i64,
        reason: &str,
        payload: &[u8],
    ) -> Op {
        let mut envelope = envelope.noting(reason);
        envelope.since_ms = Some(since_ms);
        envelope.claim = None;
        let path = baton_proto::path::join(&self.layout.dead, DEAD_PREFIX);
        Op::create(
            path,
            envelope.seal(payload),
            CreateMode::PersistentSequential,
        )
    }

    /// Moves an item that nobody has claimed to the dead letters. Returns `Ok` once the item is not
    /// in its place any more, also where another process has moved or claimed it.
    pub(super) async fn dead_letter_unclaimed(
        &self,
        session: &Session,
        found: ClaimableItem,
        reason: &str,
    ) -> Result<(), StepError> {
        let envelope = found.envelope.clone().unwrap_or_else(|| {
            Envelope::new(uuid::Uuid::new_v4().simple().to_string(), MAX_PRIORITY)
        });
        let mut parts = Vec::with_capacity(3);
        if let Some(claim) = &found.stale_claim {
            parts.push(Op::delete(claim, None));
        }
        parts.push(Op::delete(&found.entry, Some(found.version)));
        parts.push(self.create_dead_letter(envelope, found.since_ms, reason, &found.payload));
        match session.multi(&parts).await {
            Ok(_) => {
                tracing::warn!(item = found.entry, reason, "moved to the dead letters");
                Ok(())
            }
            // The folder of dead letters does not exist.
            Err(error) if error.is_no_node() && error.multi_index() == Some(parts.len() - 1) => {
                Err(error.into())
            }
            Err(error) if error.is_no_node() || error.is_bad_version() || error.is_not_empty() => {
                Ok(())
            }
            // The outcome is unknown. Another attempt is conditioned on the item's version.
            Err(error) if error.is_maybe_applied() && retry::until_connected(session).await => {
                Ok(())
            }
            Err(error) if error.is_too_large() => {
                self.pass_over(&found);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn dead_letters(
        &self,
        session: &Session,
        most: usize,
    ) -> Result<Vec<DeadLetter>, StepError> {
        self.check_node(session, &self.layout.dead).await?;
        let names = oldest(self.names(session, &self.layout.dead).await?, most);
        let mut letters = Vec::with_capacity(names.len());
        for some in names.chunks(AT_ONCE) {
            let asked: Vec<_> = some
                .iter()
                .map(|name| {
                    let path = baton_proto::path::join(&self.layout.dead, name);
                    (name, session.get_data(&path))
                })
                .collect();
            for (name, read) in asked {
                match read.await {
                    Ok(read) => letters.push(opened(name, read).letter),
                    Err(error) if error.is_no_node() => {}
                    Err(error) if error.is_no_auth() => letters.push(hidden(name)),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(letters)
    }

    async fn dead(
        &self,
        session: &Session,
        name: &str,
    ) -> Result<(String, StoredDeadLetter), StepError> {
        let path = baton_proto::path::join(&self.layout.dead, name);
        match session.get_data(&path).await {
            Ok(read) => Ok((path, opened(name, read))),
            Err(error) if error.is_no_node() => Err(self.no_dead_letter(name)),
            Err(error) => Err(error.into()),
        }
    }

    fn no_dead_letter(&self, name: &str) -> StepError {
        WorkError::NoDeadLetter {
            path: self.path(),
            name: name.to_owned(),
        }
        .into()
    }

    async fn replay(self: &Arc<Self>, session: &Session, name: &str) -> Result<bool, StepError> {
        let (path, dead) = self.dead(session, name).await?;
        let mut envelope = dead.envelope;
        envelope.attempts = 0;
        envelope.reason = None;
        let shard = self.shard_for(session, envelope.priority).await?;
        let mut parts = vec![
            Op::delete(&*path, Some(dead.version)),
            Op::create(
                baton_proto::path::join(&shard, READY_PREFIX),
                envelope.seal(&dead.letter.payload),
                CreateMode::PersistentSequential,
            ),
        ];
        let agreed = self.agreed(session, None).await?;
        parts.push(Op::check(&*self.layout.root, Some(agreed.version)));
        let mut counter = None;
        let mut raised = None;
        if let Some(capacity) = agreed.terms.capacity {
            let locked = counter.insert(Arc::clone(&self.counter).lock_owned().await);
            let (after, raise) = self.reserve(session, locked, 1, capacity).await?;
            parts.extend(raise);
            raised = Some((locked, after));
        }
        match self.put(session, parts, raised).await? {
            PutOutcome::Put => Ok(true),
            PutOutcome::Again => Ok(false),
            // Whichever part the server refused: the next attempt reads the queue again.
            PutOutcome::Refused(error) if error.is_no_node() || error.is_bad_version() => {
                let mut known = self.known();
                known.agreed = None;
                known.shards.remove(&envelope.priority);
                Ok(false)
            }
            PutOutcome::Refused(error) => Err(error.into()),
        }
    }

    async fn discard(&self, session: &Session, name: &str) -> Result<bool, StepError> {
        let (path, dead) = self.dead(session, name).await?;
        let mut parts = vec![Op::delete(&*path, Some(dead.version))];
        let id = self.layout.id(&dead.envelope.id);
        if dead.envelope.unique && session.exists(&id).await?.is_some() {
            parts.push(Op::delete(id, None));
        }
        match session.multi(&parts).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_maybe_applied() && retry::until_connected(session).await => {
                // Dead letters do not change. If it is gone, this call or another has discarded it.
                Ok(session.exists(&path).await?.is_none())
            }
            Err(error) if error.is_no_node() || error.is_bad_version() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The first `most` of these names of numbered nodes, which a server lists in any order.
fn oldest(mut names: Vec<String>, most: usize) -> Vec<String> {
    names.sort_unstable();
    names.truncate(most);
    names
}

/// A dead letter of which only the name is known.
fn hidden(name: &str) -> DeadLetter {
    DeadLetter {
        name: name.to_owned(),
        id: name.to_owned(),
        priority: MAX_PRIORITY,
        attempts: 0,
        reason: "its ACL does not let this program read it".to_owned(),
        payload: Bytes::new(),
    }
}

/// The dead letter in a node that was read.
fn opened(name: &str, read: Data) -> StoredDeadLetter {
    let Data { data, stat } = read;
    let (envelope, payload) = Envelope::open(&data).unwrap_or_else(|| {
        let envelope = Envelope::new(name.to_owned(), MAX_PRIORITY);
        (envelope.noting("it cannot be read"), data)
    });
    StoredDeadLetter {
        letter: DeadLetter {
            name: name.to_owned(),
            id: envelope.id.clone(),
            priority: envelope.priority,
            attempts: envelope.attempts,
            reason: envelope.reason.clone().unwrap_or_default(),
            payload,
        },
        version: stat.version,
        envelope,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_the_first_by_number_however_a_server_lists_them() {
        let listed = ["d-0000000012", "d-0000000003", "d-0000000007"].map(str::to_owned);
        let first = oldest(listed.to_vec(), 2);
        assert_eq!(first, ["d-0000000003", "d-0000000007"]);
        assert_eq!(oldest(listed.to_vec(), 9).len(), 3);
    }
}
