//! Whether a step that failed may be tried again, and the loop that does so.
//!
//! Owns the one answer for all operations of a work queue: it repairs a damaged layout, and waits
//! for the connection.

use baton_client::{Error, Session};

use super::context::QueueContext;
use super::error::{StepError, WorkError};
use crate::retry;

impl QueueContext {
    /// Attempts with one session after the other until an attempt comes to its end. One that
    /// returns `None` is followed by another at once.
    ///
    /// # Errors
    /// Why it cannot be tried again.
    pub(super) async fn until_done<T, F>(
        &self,
        attempt: impl Fn(Session) -> F,
    ) -> Result<T, WorkError>
    where
        F: Future<Output = Result<Option<T>, StepError>>,
    {
        loop {
            let session = self.session().await?;
            match attempt(session.clone()).await {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => {}
                Err(error) => self.await_retry(&session, error).await?,
            }
        }
    }

    /// Returns once a failed step may be tried again, on this session or the next.
    ///
    /// # Errors
    /// Why it cannot be tried again.
    pub(super) async fn await_retry(
        &self,
        session: &Session,
        error: StepError,
    ) -> Result<(), WorkError> {
        let missing = match error {
            StepError::Final(error) => return Err(error),
            StepError::ItemsMissing => None,
            StepError::Client(error) if error.is_no_node() => Some(error),
            StepError::Client(error) => return self.await_connection(session, error).await,
        };
        match (self.repair_missing(session).await, missing) {
            // Nothing of the layout is missing: the client's error stands.
            (Ok(false), Some(error)) | (Err(StepError::Client(error)), _) => {
                self.await_connection(session, error).await
            }
            (Ok(_) | Err(StepError::ItemsMissing), _) => Ok(()),
            (Err(StepError::Final(error)), _) => Err(error),
        }
    }

    /// Returns once what failed with `error` may be repeated, on this session or the next.
    async fn await_connection(&self, session: &Session, error: Error) -> Result<(), WorkError> {
        if session.state().is_final() || error.is_session_ended() {
            return Ok(());
        }
        let retried = retry::until_next_attempt(session, error).await;
        retried.map_err(|source| WorkError::client(&self.path(), source))
    }
}
