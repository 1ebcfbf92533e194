//! Baton's queues.

use std::time::Duration;

use baton::queue::{DelayQueue, LockingQueue, PriorityQueue, QueueError, QueueLayout};
use baton::{Client, DistributedQueue};

use crate::Result;

/// Delay until an item of a delay queue is due.
const DELAY: Duration = Duration::from_millis(50);
const PRIORITY: i32 = 5;

pub(super) enum Items {
    Plain(DistributedQueue),
    Locking(LockingQueue),
    Priority(PriorityQueue),
    Delay(DelayQueue),
}

impl Items {
    /// `None` for what is not a queue.
    pub(super) fn open(
        client: &Client,
        recipe: &str,
        layout: &str,
        path: &str,
    ) -> Result<Option<Self>> {
        let layout = [
            QueueLayout::Recipes,
            QueueLayout::Curator,
            QueueLayout::Kazoo,
        ]
        .into_iter()
        .find(|known| known.as_str() == layout)
        .unwrap_or_default();
        Ok(Some(match (recipe, layout) {
            ("baton-queue", layout) => {
                Self::Plain(DistributedQueue::new(client, path)?.layout(layout))
            }
            ("baton-locking", QueueLayout::Curator) => Self::Locking(
                LockingQueue::new(client, path)?.curator_layout(&format!("{path}-locks")),
            ),
            ("baton-locking", _) => Self::Locking(LockingQueue::new(client, path)?),
            ("baton-priority", _) => Self::Priority(PriorityQueue::new(client, path)?),
            ("baton-delay", _) => Self::Delay(DelayQueue::new(client, path)?),
            _ => return Ok(None),
        }))
    }

    pub(super) async fn put(&self, item: &[u8]) -> std::result::Result<(), QueueError> {
        match self {
            Self::Plain(queue) => queue.offer(item).await,
            Self::Locking(queue) => queue.offer(item).await,
            Self::Priority(queue) => queue.offer(item, PRIORITY).await,
            Self::Delay(queue) => queue.offer(item, DELAY).await,
        }
    }

    /// The next item, done with; `None` if there is none.
    pub(super) async fn poll(&self) -> std::result::Result<Option<String>, QueueError> {
        let item = match self {
            Self::Plain(queue) => queue.poll().await?,
            Self::Locking(queue) => match queue.poll().await? {
                Some(item) => {
                    let data = item.data().to_owned();
                    item.consume().await?;
                    Some(data.into())
                }
                None => None,
            },
            Self::Priority(queue) => queue.poll().await?,
            Self::Delay(queue) => queue.poll().await?,
        };
        Ok(item.map(|item| String::from_utf8_lossy(&item).into_owned()))
    }
}
