//! Looking at a queue from outside, and what can be done with dead letters.
//!
//! Owns no state. A look is not of one instant: items move meanwhile.

use super::WorkQueue;
use super::capacity::Count;
use super::context::{Fault, Inner, Terms};
use super::envelope::Envelope;
use super::error::WorkError;
use super::layout::{Lane, Name, READY_PREFIX};
use crate::receipt::Outcome;
use crate::retry;
use baton_client::{CreateMode, Data, Op, Session};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Nodes that are asked for at once.
pub(super) const AT_ONCE: usize = 1000;

/// How much is in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// Items, claimed and delayed ones among them; dead letters not.
    pub items: u64,
    /// Items that are not due yet.
    pub delayed: u64,
    /// Dead letters.
    pub dead: u64,
    /// How long the item that is first in line has been in the queue, by the servers' clock.
    pub oldest: Option<Duration>,
    /// The most items that the queue takes.
    pub capacity: Option<u64>,
}

/// An item that is delivered no more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its name among the dead letters.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its priority.
    pub priority: u16,
    /// How often it was claimed.
    pub attempts: u32,
    /// Why it died.
    pub reason: String,
    /// Its bytes, as they were put.
    pub payload: Bytes,
}

/// A dead letter as it lies in the tree.
struct Dead {
    letter: DeadLetter,
    version: i32,
    envelope: Envelope,
}

impl WorkQueue {
    /// How much is in the queue; `None` where there is no queue.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn depth(&self) -> Result<Option<Depth>, WorkError> {
        loop {
            let session = self.inner.session().await?;
            match self.inner.depth(&session).await {
                Ok(depth) => return Ok(depth),
                Err(fault) => self.inner.after(&session, fault).await?,
            }
        }
    }

    /// The dead letters, the oldest first, at most `most` of them. One that we may not read has no
    /// more than a name, and says so as its reason.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn dead_letters(&self, most: usize) -> Result<Vec<DeadLetter>, WorkError> {
        loop {
            let session = self.inner.session().await?;
            match self.inner.dead_letters(&session, most).await {
                Ok(letters) => return Ok(letters),
                Err(fault) => self.inner.after(&session, fault).await?,
            }
        }
    }

    /// Puts a dead letter back into the queue, with its id and priority, its attempts counted anew.
    /// Moved in one change.
    ///
    /// # Errors
    /// [`WorkError::NoDeadLetter`], [`WorkError::Full`]: nothing was changed.
    /// [`WorkError::OfferUnknown`].
    pub async fn replay(&self, name: &str) -> Result<(), WorkError> {
        loop {
            let session = self.inner.session().await?;
            match self.inner.replay(&session, name).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(fault) => self.inner.after(&session, fault).await?,
            }
        }
    }

    /// Removes a dead letter for good, and frees its id.
    ///
    /// # Errors
    /// [`WorkError::NoDeadLetter`]: nothing was changed.
    pub async fn discard(&self, name: &str) -> Result<(), WorkError> {
        loop {
            let session = self.inner.session().await?;
            match self.inner.discard(&session, name).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(fault) => self.inner.after(&session, fault).await?,
            }
        }
    }

    /// Changes the capacity agreed in the tree; `None`: no limit. What is in the queue stays, even
    /// if it is more.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn set_capacity(&self, capacity: Option<u64>) -> Result<(), WorkError> {
        let inner = &self.inner;
        loop {
            let session = inner.session().await?;
            inner.local().agreed = None;
            let set = async {
                let agreed = inner.agreed(&session, None).await?;
                if agreed.terms.capacity == capacity {
                    return Ok(());
                }
                let data = Terms::new(capacity).to_bytes();
                // A gate that was not kept up while there was no limit says nothing: its count is
                // made high, so that the next put counts for itself.
                let parts = [
                    Op::set_data(&*inner.layout.root, data, Some(agreed.version)),
                    Op::set_data(&*inner.layout.gate, Count::unknown(), None),
                ];
                inner.local().agreed = None;
                session.multi(&parts).await?;
                Ok(())
            };
            match set.await {
                Ok(()) => return Ok(()),
                // What the tree says now decides whether it is to be set again.
                Err(Fault::Client(error))
                    if error.is_bad_version()
                        || (error.is_maybe_applied() && retry::until_connected(&session).await) => {
                }
                Err(fault) => inner.after(&session, fault).await?,
            }
        }
    }
}

impl Inner {
    async fn depth(&self, session: &Session) -> Result<Option<Depth>, Fault> {
        let Some(agreed) = self.read_terms(session).await? else {
            return Ok(None);
        };
        if !self.whole(session, agreed).await? {
            return Ok(None);
        }
        let items = self.count(session).await?;
        let dead = session.exists(&self.layout.dead).await?;
        let lanes = self.lanes(session).await?;
        let mut delayed = 0;
        let now_ms = self.now_ms(session).await?;
        for (lane, name) in &lanes {
            if matches!(lane, Lane::Later { .. }) {
                let names = self.names(session, &self.layout.lane(name)).await?;
                delayed += names
                    .iter()
                    .filter_map(|name| Name::parse(name))
                    .filter(|name| matches!(name, Name::Later { due_ms, .. } if *due_ms > now_ms))
                    .count();
            }
        }
        let oldest = self.first_since_ms(session, &lanes).await?;
        Ok(Some(Depth {
            items,
            delayed: u64::try_from(delayed).unwrap_or(u64::MAX),
            dead: dead.map_or(0, |stat| u64::try_from(stat.num_children).unwrap_or(0)),
            oldest: oldest.map(|since_ms| {
                Duration::from_millis(u64::try_from(now_ms - since_ms).unwrap_or(0))
            }),
            capacity: agreed.terms.capacity,
        }))
    }

    /// When the item was put that is first in its lane and older than the first of every other
    /// lane.
    async fn first_since_ms(
        &self,
        session: &Session,
        lanes: &[(Lane, String)],
    ) -> Result<Option<i64>, Fault> {
        let mut oldest: Option<i64> = None;
        for (_, lane) in lanes {
            let lane = self.layout.lane(lane);
            let mut names = self.names(session, &lane).await?;
            names.sort_unstable();
            let Some(first) = names.first() else { continue };
            let read = session
                .get_data(&baton_proto::path::join(&lane, first))
                .await;
            match read {
                Ok(Data { data, stat }) => {
                    let noted = Envelope::open(&data).and_then(|(envelope, _)| envelope.since_ms);
                    let since_ms = noted.unwrap_or(stat.ctime);
                    oldest = Some(oldest.map_or(since_ms, |other| other.min(since_ms)));
                }
                Err(error) if error.is_no_node() || error.is_no_auth() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(oldest)
    }

    pub(super) async fn names(
        &self,
        session: &Session,
        folder: &str,
    ) -> Result<Vec<String>, Fault> {
        match session.children(folder).await {
            Ok(children) => Ok(children.names),
            Err(error) if error.is_no_node() => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    async fn dead_letters(&self, session: &Session, most: usize) -> Result<Vec<DeadLetter>, Fault> {
        self.has(session, &self.layout.dead).await?;
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

    async fn dead(&self, session: &Session, name: &str) -> Result<(String, Dead), Fault> {
        let path = baton_proto::path::join(&self.layout.dead, name);
        match session.get_data(&path).await {
            Ok(read) => Ok((path, opened(name, read))),
            Err(error) if error.is_no_node() => Err(self.no_dead_letter(name)),
            Err(error) => Err(error.into()),
        }
    }

    fn no_dead_letter(&self, name: &str) -> Fault {
        WorkError::NoDeadLetter {
            path: self.path(),
            name: name.to_owned(),
        }
        .into()
    }

    async fn replay(self: &Arc<Self>, session: &Session, name: &str) -> Result<bool, Fault> {
        let (path, dead) = self.dead(session, name).await?;
        let mut envelope = dead.envelope;
        envelope.attempts = 0;
        envelope.reason = None;
        let lane = self.lane_for(session, envelope.priority).await?;
        let mut parts = vec![
            Op::delete(&*path, Some(dead.version)),
            Op::create(
                baton_proto::path::join(&lane, READY_PREFIX),
                envelope.seal(&dead.letter.payload),
                CreateMode::PersistentSequential,
            ),
        ];
        let agreed = self.agreed(session, None).await?;
        parts.push(Op::check(&*self.layout.root, Some(agreed.version)));
        let mut gate = match agreed.terms.capacity {
            Some(capacity) => {
                let mut gate = Arc::clone(&self.gate).lock_owned().await;
                let known = gate.take();
                let count = self.room(session, known, 1, capacity).await?;
                let (count, of_gate) = count.let_in(&self.layout.gate, 1);
                parts.extend(of_gate);
                Some((gate, count))
            }
            None => None,
        };
        match self.apply(session, parts).await {
            Outcome::Applied => {
                if let Some((gate, count)) = &mut gate {
                    **gate = Some(*count);
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
            // Whichever part it was, a look shows how it is now.
            Outcome::Refused(error) if error.is_no_node() || error.is_bad_version() => {
                let mut local = self.local();
                local.agreed = None;
                local.lanes.remove(&envelope.priority);
                Ok(false)
            }
            Outcome::Refused(error) => Err(error.into()),
        }
    }

    async fn discard(&self, session: &Session, name: &str) -> Result<bool, Fault> {
        let (path, dead) = self.dead(session, name).await?;
        let mut parts = vec![Op::delete(&*path, Some(dead.version))];
        let id = self.layout.id(&dead.envelope.id);
        if dead.envelope.unique && session.exists(&id).await?.is_some() {
            parts.push(Op::delete(id, None));
        }
        match session.multi(&parts).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_maybe_applied() && retry::until_connected(session).await => {
                // Dead letters do not change: gone, it was discarded, by us or by somebody with the
                // same wish.
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

/// A dead letter of which no more is known than its name.
fn hidden(name: &str) -> DeadLetter {
    DeadLetter {
        name: name.to_owned(),
        id: name.to_owned(),
        priority: super::layout::MAX_PRIORITY,
        attempts: 0,
        reason: "its ACL does not let this program read it".to_owned(),
        payload: Bytes::new(),
    }
}

fn opened(name: &str, read: Data) -> Dead {
    let Data { data, stat } = read;
    let (envelope, payload) = Envelope::open(&data).unwrap_or_else(|| {
        let envelope = Envelope::new(name.to_owned(), super::layout::MAX_PRIORITY);
        (envelope.noting("it cannot be read"), data)
    });
    Dead {
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
