//! `WorkQueue::repair`: makes the missing nodes of a queue's layout on demand.
//!
//! Owns the public call. `missing_nodes` decides which nodes are missing and makes them.

use baton_client::Session;

use super::error::WorkError;
use super::queue::WorkQueue;

impl WorkQueue {
    /// Creates the missing nodes of the queue's layout again, and returns their paths. The list is
    /// empty where the queue is complete, and where there is no queue.
    ///
    /// Offers and consumers do the same automatically, with one exception: while there are items or
    /// dead letters, only this call makes the node of the ids again. The ids of those items and
    /// dead letters are then free: another item with such an id can be put.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn repair(&self) -> Result<Vec<String>, WorkError> {
        let context = &self.context;
        let repair = |session: Session| async move {
            session.sync(&context.layout.root).await?;
            let Some(agreed) = context.read_terms(&session).await? else {
                return Ok(Some(Vec::new()));
            };
            let missing = context.missing(&session).await?;
            if missing.is_empty() {
                return Ok(Some(Vec::new()));
            }
            let made = context.make_again(&session, agreed, &missing).await?;
            let paths = missing.into_iter().map(str::to_owned).collect();
            Ok(made.then_some(paths))
        };
        context.until_done(repair).await
    }
}
