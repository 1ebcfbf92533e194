//! Putting items in.
//!
//! Owns the multi that makes items: all or none, once, under the queue's terms. A lost answer is
//! resolved by a receipt (H66, H73); must never put an item twice, nor take the queue over its
//! capacity.

use super::WorkQueue;
use super::capacity::Count;
use super::context::{Agreed, Fault, Inner, culprit};
use super::envelope::Envelope;
use super::error::WorkError;
use super::item::WorkItem;
use super::layout::{LANE_ITEMS, Lane, Name, READY_PREFIX};
use crate::receipt::Outcome;
use crate::server_clock::millis;
use baton_client::{CreateMode, Op, Session};
use bytes::Bytes;

/// How many items are put into a lane before it is asked again how full it is.
const ASK_AFTER: usize = 128;

/// What a part of the multi is for.
enum Role {
    Terms,
    Gate,
    Id(usize),
    Ready(u16),
    Later(String),
}

/// An item about to be put.
struct Parcel {
    priority: u16,
    delay_ms: i64,
    unique: bool,
    id: String,
    data: Bytes,
}

/// The gate of a bounded queue, while it is ours among the tasks of this process.
type Gate = tokio::sync::OwnedMutexGuard<Option<Count>>;

impl WorkQueue {
    /// Puts an item in and returns its id. When this returns `Ok`, the item is in the queue, once.
    ///
    /// Dropping the future does not take back an offer that is under way.
    ///
    /// # Errors
    /// [`WorkError::Full`], [`WorkError::Duplicate`], [`WorkError::BadItem`]: nothing was queued.
    /// [`WorkError::OfferUnknown`] where the session ended before the outcome was known.
    pub async fn offer(&self, item: impl Into<WorkItem>) -> Result<String, WorkError> {
        let ids = self.offer_all([item.into()]).await?;
        Ok(ids.into_iter().next().unwrap_or_default())
    }

    /// Puts several items in, all or none, and returns their ids. Together they must fit into one
    /// request to a server.
    ///
    /// # Errors
    /// As [`WorkQueue::offer`].
    pub async fn offer_all(
        &self,
        items: impl IntoIterator<Item = WorkItem>,
    ) -> Result<Vec<String>, WorkError> {
        let parcels = self.parcels(items)?;
        if parcels.is_empty() {
            return Ok(Vec::new());
        }
        let inner = &self.inner;
        let mut gate: Option<Gate> = None;
        loop {
            let session = inner.session().await?;
            let put = async {
                let agreed = inner.agreed(&session, self.capacity).await?;
                if agreed.terms.capacity.is_some() && gate.is_none() {
                    gate = Some(std::sync::Arc::clone(&inner.gate).lock_owned().await);
                }
                inner.put(&session, agreed, &parcels, gate.as_mut()).await
            };
            match put.await {
                Ok(true) => return Ok(parcels.into_iter().map(|parcel| parcel.id).collect()),
                Ok(false) => {}
                Err(fault) => inner.after(&session, fault).await?,
            }
        }
    }

    fn parcels(&self, items: impl IntoIterator<Item = WorkItem>) -> Result<Vec<Parcel>, WorkError> {
        let mut parcels: Vec<Parcel> = Vec::new();
        for item in items {
            if let Some(why) = item.fault() {
                return Err(WorkError::BadItem {
                    path: self.inner.path(),
                    why,
                });
            }
            let unique = item.id.is_some();
            let id = item
                .id
                .unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string());
            if parcels.iter().any(|other| unique && other.id == id) {
                return Err(WorkError::Duplicate {
                    path: self.inner.path(),
                    id,
                });
            }
            let mut envelope = Envelope::new(id.clone(), item.priority);
            envelope.unique = unique;
            envelope.max_attempts = item.max_attempts;
            parcels.push(Parcel {
                priority: item.priority,
                delay_ms: millis(item.delay),
                unique,
                id,
                data: envelope.seal(&item.payload),
            });
        }
        Ok(parcels)
    }
}

impl Inner {
    /// Puts all parcels; `false` where it is to be tried again at once.
    async fn put(
        self: &std::sync::Arc<Self>,
        session: &Session,
        agreed: Agreed,
        parcels: &[Parcel],
        gate: Option<&mut Gate>,
    ) -> Result<bool, Fault> {
        let mut roles = vec![Role::Terms];
        let mut parts = vec![Op::check(&*self.layout.root, Some(agreed.version))];
        let mut after = None;
        if let (Some(capacity), Some(gate)) = (agreed.terms.capacity, gate) {
            let more = u64::try_from(parcels.len()).unwrap_or(u64::MAX);
            // Unknown again, until the outcome says otherwise.
            let known = gate.take();
            let count = self.room(session, known, more, capacity).await?;
            let (count, of_gate) = count.let_in(&self.layout.gate, more);
            after = Some((gate, count));
            roles.extend(of_gate.iter().map(|_| Role::Gate));
            parts.extend(of_gate);
        }
        for (nth, parcel) in parcels.iter().enumerate() {
            if parcel.unique {
                roles.push(Role::Id(nth));
                let path = self.layout.id(&parcel.id);
                parts.push(Op::create(path, Bytes::new(), CreateMode::Persistent));
            }
            let data = parcel.data.clone();
            if parcel.delay_ms == 0 {
                let lane = self.lane_for(session, parcel.priority).await?;
                let path = baton_proto::path::join(&lane, READY_PREFIX);
                roles.push(Role::Ready(parcel.priority));
                parts.push(Op::create(path, data, CreateMode::PersistentSequential));
            } else {
                let due_ms = self.now_ms(session).await?.saturating_add(parcel.delay_ms);
                let lane = self.layout.lane(&Lane::of_due(due_ms).name());
                let name = Name::later(due_ms, parcel.priority);
                let path = baton_proto::path::join(&lane, &name);
                roles.push(Role::Later(lane));
                parts.push(Op::create(path, data, CreateMode::Persistent));
            }
        }
        match self.apply(session, parts).await {
            Outcome::Applied => {
                if let Some((gate, count)) = after {
                    **gate = Some(count);
                }
                Ok(true)
            }
            Outcome::NotApplied => Ok(false),
            Outcome::Failed(error) => Err(error.into()),
            Outcome::Unknown(source) => Err(WorkError::OfferUnknown {
                path: self.path(),
                source,
            }
            .into()),
            Outcome::Refused(error) => {
                match culprit(&error).and_then(|index| roles.get(index)) {
                    Some(Role::Terms) if error.is_bad_version() || error.is_no_node() => {
                        self.local().agreed = None;
                    }
                    // Another producer was quicker.
                    Some(Role::Gate) if error.is_bad_version() => {}
                    Some(Role::Id(nth)) if error.is_node_exists() => {
                        let id = parcels.get(*nth).map(|parcel| parcel.id.clone());
                        return Err(WorkError::Duplicate {
                            path: self.path(),
                            id: id.unwrap_or_default(),
                        }
                        .into());
                    }
                    // A lane that was full and is empty has been removed.
                    Some(Role::Ready(priority)) if error.is_no_node() => {
                        self.local().lanes.remove(priority);
                    }
                    Some(Role::Later(lane)) if error.is_no_node() => {
                        // Not what is above it: that is a repair, which others must see.
                        match session.create(lane, &[], CreateMode::Persistent).await {
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

    /// The lane for a ready item: the newest of its priority, or a new one where that has had its
    /// share.
    pub(super) async fn lane_for(&self, session: &Session, priority: u16) -> Result<String, Fault> {
        loop {
            if let Some((lane, room)) = self.local().lanes.get_mut(&priority)
                && *room > 0
            {
                *room -= 1;
                return Ok(lane.clone());
            }
            let mut newest = None;
            for (lane, name) in self.lanes(session).await? {
                if let Lane::Ready {
                    priority: p,
                    number,
                } = lane
                    && p == priority
                {
                    newest = newest.max(Some((number, name)));
                }
            }
            let mut found = None;
            if let Some((_, name)) = newest {
                let path = self.layout.lane(&name);
                if let Some(stat) = session.exists(&path).await? {
                    // Every create and every delete counts; what is there was not deleted.
                    let made = (i64::from(stat.cversion) + i64::from(stat.num_children)) / 2;
                    let made = usize::try_from(made).unwrap_or(LANE_ITEMS);
                    found = Some((path, LANE_ITEMS.saturating_sub(made).min(ASK_AFTER)));
                }
            }
            let lane = match found {
                Some((path, room)) if room > 0 => (path, room),
                _ => {
                    let prefix = Lane::Ready {
                        priority,
                        number: 0,
                    }
                    .name();
                    let path = self.layout.lane(&prefix);
                    match session
                        .create(&path, &[], CreateMode::PersistentSequential)
                        .await
                    {
                        Ok(created) => (created.path, ASK_AFTER),
                        // A lane too many does no harm: it is used, or removed once a newer one is
                        // there.
                        Err(error) if error.is_maybe_applied() => {
                            if crate::retry::until_connected(session).await {
                                continue;
                            }
                            return Err(error.into());
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            };
            self.local().lanes.insert(priority, lane);
        }
    }
}
