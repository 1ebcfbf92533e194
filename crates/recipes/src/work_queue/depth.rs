//! Depth of a work queue.
//!
//! Owns no state. The numbers are not of one instant: items move while they are counted.

use std::time::Duration;

use baton_client::{Data, Session};
use serde::Serialize;

use super::context::QueueContext;
use super::envelope::Envelope;
use super::error::{StepError, WorkError};
use super::layout::{ItemName, Shard};
use super::queue::WorkQueue;
use crate::rendering;

/// Depth of a work queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueDepth {
    /// Items, with those that are claimed or delayed; without dead letters.
    pub items: u64,
    /// Items that are not due yet.
    pub delayed: u64,
    /// Dead letters.
    pub dead: u64,
    /// Time that the oldest of the items that are first in their shard has been in the queue, by
    /// the servers' clock.
    #[serde(rename = "oldest_ms", serialize_with = "rendering::milliseconds")]
    pub oldest: Option<Duration>,
    /// The most items that the queue holds; `None` for no limit.
    pub capacity: Option<u64>,
}

impl std::fmt::Display for QueueDepth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} items, {} of them delayed", self.items, self.delayed)?;
        if let Some(capacity) = self.capacity {
            write!(f, ", capacity {capacity}")?;
        }
        if let Some(oldest) = self.oldest {
            write!(f, ", the oldest {oldest:.1?} old")?;
        }
        write!(f, "; {} dead letters", self.dead)
    }
}

impl WorkQueue {
    /// Returns the depth of the queue; `None` where there is no queue.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn depth(&self) -> Result<Option<QueueDepth>, WorkError> {
        let context = &self.context;
        let read = |session: Session| async move { context.depth(&session).await.map(Some) };
        context.until_done(read).await
    }
}

impl QueueContext {
    async fn depth(&self, session: &Session) -> Result<Option<QueueDepth>, StepError> {
        let Some(agreed) = self.read_terms(session).await? else {
            return Ok(None);
        };
        if !self.check_whole(session, agreed).await? {
            return Ok(None);
        }
        let items = self.count(session).await?;
        let dead = session.exists(&self.layout.dead).await?;
        let shards = self.shards(session).await?;
        let mut delayed = 0;
        let now_ms = self.now_ms(session).await?;
        for (shard, name) in &shards {
            if matches!(shard, Shard::Later { .. }) {
                let names = self.names(session, &self.layout.shard(name)).await?;
                delayed += names
                    .iter()
                    .filter_map(|name| ItemName::parse(name))
                    .filter(
                        |name| matches!(name, ItemName::Later { due_ms, .. } if *due_ms > now_ms),
                    )
                    .count();
            }
        }
        let oldest = self.first_since_ms(session, &shards).await?;
        Ok(Some(QueueDepth {
            items,
            delayed: u64::try_from(delayed).unwrap_or(u64::MAX),
            dead: dead.map_or(0, |stat| u64::try_from(stat.num_children).unwrap_or(0)),
            oldest: oldest.map(|since_ms| {
                Duration::from_millis(u64::try_from(now_ms - since_ms).unwrap_or(0))
            }),
            capacity: agreed.terms.capacity,
        }))
    }

    /// Returns when the oldest of the items was put that are first in their shard.
    async fn first_since_ms(
        &self,
        session: &Session,
        shards: &[(Shard, String)],
    ) -> Result<Option<i64>, StepError> {
        let mut oldest: Option<i64> = None;
        for (_, shard) in shards {
            let shard = self.layout.shard(shard);
            let mut names = self.names(session, &shard).await?;
            names.sort_unstable();
            let Some(first) = names.first() else { continue };
            let read = session
                .get_data(&baton_proto::path::join(&shard, first))
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
}
