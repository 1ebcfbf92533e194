//! Work queues.
//!
//! Owns nothing but the sum of what a [`WorkQueue`] says of itself.

use serde::Serialize;

use super::error::InspectError;
use super::inspector::Inspector;
use crate::work_queue::{ClaimInfo, DeadLetter, QueueDepth, WorkQueue};

/// The most dead letters of a snapshot.
const DEAD_LETTERS: usize = 100;

/// A work queue, as it was read. Its parts are not of one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkQueueSnapshot {
    /// The queue's path.
    pub path: String,
    /// Depth of the queue.
    #[serde(flatten)]
    pub depth: QueueDepth,
    /// The items that somebody works on, and who.
    pub claims: Vec<ClaimInfo>,
    /// The oldest dead letters, at most 100.
    pub dead_letters: Vec<DeadLetter>,
    /// Full paths of items and claims that this client may not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

impl Inspector {
    /// The work queue at `path`: depth, oldest item, claims, dead letters. `None` where there is no
    /// queue.
    ///
    /// Reads the Stat of every item, which takes long on a deep queue; [`WorkQueue::depth`] alone
    /// does not. The server's clock is read by a change below the queue that leaves nothing behind.
    ///
    /// # Errors
    /// [`InspectError::Work`].
    pub async fn work_queue(&self, path: &str) -> Result<Option<WorkQueueSnapshot>, InspectError> {
        let queue = WorkQueue::new(&self.client, path)?;
        let Some(depth) = queue.depth().await? else {
            return Ok(None);
        };
        let claims = queue.all_claims().await?;
        Ok(Some(WorkQueueSnapshot {
            path: path.to_owned(),
            depth,
            dead_letters: queue.oldest_dead_letters(DEAD_LETTERS).await?,
            claims: claims.claims,
            unreadable: claims.unreadable,
        }))
    }
}
