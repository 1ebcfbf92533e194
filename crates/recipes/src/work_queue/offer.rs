//! Insertion of items.
//!
//! Owns the multi that makes items: all or none, once, under the queue's terms. A receipt resolves
//! an unknown outcome (H66, H73). Must never put an item twice, nor take the queue over its
//! capacity.

use std::sync::Arc;

use baton_client::{CreateMode, Error, Op, Session};
use bytes::Bytes;

use super::capacity_counter::{CapacityCounter, LockedCounter};
use super::context::{AgreedTerms, QueueContext, refused_part};
use super::envelope::Envelope;
use super::error::{StepError, WorkError};
use super::item::WorkItem;
use super::layout::{ItemName, READY_PREFIX, Shard};
use super::queue::WorkQueue;
use crate::receipt::Outcome;
use crate::server_clock::millis;

/// Purpose of a part of the multi.
enum Role {
    Terms,
    Counter,
    Id(usize),
    Ready(u16),
    Later(String),
}

/// An item ready to be sent.
struct PreparedItem {
    priority: u16,
    delay_ms: i64,
    unique: bool,
    id: String,
    data: Bytes,
}

/// Outcome of a change that puts items.
pub(super) enum PutOutcome {
    Put,
    /// Not applied; nothing says that it will not be the next time.
    Again,
    /// A server refused a part, so none was applied.
    Refused(Error),
}

impl WorkQueue {
    /// Puts an item into the queue and returns its id. When this returns `Ok`, the item is in the
    /// queue exactly once.
    ///
    /// Dropping the future does not cancel an offer that is under way.
    ///
    /// # Errors
    /// [`WorkError::Full`], [`WorkError::Duplicate`], [`WorkError::BadItem`]: nothing was queued.
    /// [`WorkError::OfferUnknown`] where the session ended before the outcome was known.
    pub async fn offer(&self, item: impl Into<WorkItem>) -> Result<String, WorkError> {
        let ids = self.offer_all([item.into()]).await?;
        Ok(ids.into_iter().next().unwrap_or_default())
    }

    /// Puts several items into the queue, all or none, and returns their ids. Together they must
    /// fit into one request to a server.
    ///
    /// # Errors
    /// As [`WorkQueue::offer`].
    pub async fn offer_all(
        &self,
        items: impl IntoIterator<Item = WorkItem>,
    ) -> Result<Vec<String>, WorkError> {
        let items = self.prepare(items)?;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let context = &self.context;
        let mut counter: Option<LockedCounter> = None;
        loop {
            let session = context.session().await?;
            let offer = async {
                let agreed = context.agreed(&session, self.capacity).await?;
                if agreed.terms.capacity.is_some() && counter.is_none() {
                    counter = Some(Arc::clone(&context.counter).lock_owned().await);
                }
                context
                    .try_offer(&session, agreed, &items, counter.as_mut())
                    .await
            };
            match offer.await {
                Ok(true) => return Ok(items.into_iter().map(|item| item.id).collect()),
                Ok(false) => {}
                Err(error) => context.await_retry(&session, error).await?,
            }
        }
    }

    fn prepare(
        &self,
        items: impl IntoIterator<Item = WorkItem>,
    ) -> Result<Vec<PreparedItem>, WorkError> {
        let mut prepared: Vec<PreparedItem> = Vec::new();
        for item in items {
            if let Some(why) = item.problem() {
                return Err(WorkError::BadItem {
                    path: self.context.path(),
                    why,
                });
            }
            let unique = item.id.is_some();
            let id = item
                .id
                .unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string());
            if prepared.iter().any(|other| unique && other.id == id) {
                return Err(WorkError::Duplicate {
                    path: self.context.path(),
                    id,
                });
            }
            let mut envelope = Envelope::new(id.clone(), item.priority);
            envelope.unique = unique;
            envelope.max_attempts = item.max_attempts;
            prepared.push(PreparedItem {
                priority: item.priority,
                delay_ms: millis(item.delay),
                unique,
                id,
                data: envelope.seal(&item.payload),
            });
        }
        Ok(prepared)
    }
}

impl QueueContext {
    /// Applies a change that puts items. `raised` is the counter that the change leaves, where the
    /// queue is bounded.
    ///
    /// # Errors
    /// [`WorkError::OfferUnknown`] where the session ended before the outcome was known.
    pub(super) async fn put(
        &self,
        session: &Session,
        parts: Vec<Op>,
        raised: Option<(&mut LockedCounter, CapacityCounter)>,
    ) -> Result<PutOutcome, StepError> {
        match self.apply(session, parts).await {
            Outcome::Applied => {
                if let Some((locked, counter)) = raised {
                    **locked = Some(counter);
                }
                Ok(PutOutcome::Put)
            }
            Outcome::NotApplied => Ok(PutOutcome::Again),
            Outcome::Refused(error) => Ok(PutOutcome::Refused(error)),
            Outcome::Failed(error) => Err(error.into()),
            Outcome::Unknown(source) => Err(WorkError::OfferUnknown {
                path: self.path(),
                source,
            }
            .into()),
        }
    }

    /// Puts all items in one change; `false` where the caller should try again at once.
    async fn try_offer(
        self: &Arc<Self>,
        session: &Session,
        agreed: AgreedTerms,
        items: &[PreparedItem],
        locked: Option<&mut LockedCounter>,
    ) -> Result<bool, StepError> {
        let mut roles = vec![Role::Terms];
        let mut parts = vec![Op::check(&*self.layout.root, Some(agreed.version))];
        let mut after = None;
        if let (Some(capacity), Some(locked)) = (agreed.terms.capacity, locked) {
            let more = u64::try_from(items.len()).unwrap_or(u64::MAX);
            let (counter, raise) = self.reserve(session, locked, more, capacity).await?;
            after = Some((locked, counter));
            roles.extend(raise.iter().map(|_| Role::Counter));
            parts.extend(raise);
        }
        for (nth, item) in items.iter().enumerate() {
            if item.unique {
                roles.push(Role::Id(nth));
                let path = self.layout.id(&item.id);
                parts.push(Op::create(path, Bytes::new(), CreateMode::Persistent));
            }
            let data = item.data.clone();
            if item.delay_ms == 0 {
                let shard = self.shard_for(session, item.priority).await?;
                let path = baton_proto::path::join(&shard, READY_PREFIX);
                roles.push(Role::Ready(item.priority));
                parts.push(Op::create(path, data, CreateMode::PersistentSequential));
            } else {
                let due_ms = self.now_ms(session).await?.saturating_add(item.delay_ms);
                let shard = self.layout.shard(&Shard::of_due(due_ms).name());
                let name = ItemName::later(due_ms, item.priority);
                let path = baton_proto::path::join(&shard, &name);
                roles.push(Role::Later(shard));
                parts.push(Op::create(path, data, CreateMode::Persistent));
            }
        }
        match self.put(session, parts, after).await? {
            PutOutcome::Put => Ok(true),
            PutOutcome::Again => Ok(false),
            PutOutcome::Refused(error) => {
                match refused_part(&error).and_then(|index| roles.get(index)) {
                    Some(Role::Terms) if error.is_bad_version() || error.is_no_node() => {
                        self.known().agreed = None;
                    }
                    // Another producer has raised the counter.
                    Some(Role::Counter) if error.is_bad_version() => {}
                    Some(Role::Id(nth)) if error.is_node_exists() => {
                        let id = items.get(*nth).map(|item| item.id.clone());
                        return Err(WorkError::Duplicate {
                            path: self.path(),
                            id: id.unwrap_or_default(),
                        }
                        .into());
                    }
                    // The shard was full, became empty, and was removed.
                    Some(Role::Ready(priority)) if error.is_no_node() => {
                        self.known().shards.remove(priority);
                    }
                    Some(Role::Later(shard)) if error.is_no_node() => {
                        // Only the shard. A folder above it is made by a repair, which writes the
                        // queue's own node.
                        match session.create(shard, &[], CreateMode::Persistent).await {
                            Ok(_) => {}
                            Err(error) if error.is_node_exists() || error.is_maybe_applied() => {}
                            Err(error) => return Err(error.into()),
                        }
                    }
                    _ => return Err(error.into()),
                }
                Ok(false)
            }
        }
    }
}
