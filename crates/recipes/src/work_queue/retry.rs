//! Whether a step that failed may be tried again.
//!
//! Owns the one answer for all operations of a work queue: it repairs a damaged layout, and waits
//! for the connection.

use super::context::QueueContext;
use super::error::{StepError, WorkError};
use crate::retry;
use baton_client::Session;

impl QueueContext {
    /// Returns once a failed step may be tried again, on this session or the next.
    ///
    /// # Errors
    /// Why it cannot be tried again.
    pub(super) async fn await_retry(
        &self,
        session: &Session,
        error: StepError,
    ) -> Result<(), WorkError> {
        let error = match error {
            StepError::Final(error) => return Err(error),
            StepError::ItemsMissing => match self.repair_missing(session).await {
                // The layout is complete again.
                Ok(_) => return Ok(()),
                Err(StepError::Client(error)) => error,
                Err(StepError::Final(error)) => return Err(error),
                Err(StepError::ItemsMissing) => return Ok(()),
            },
            StepError::Client(error) if error.is_no_node() => {
                match self.repair_missing(session).await {
                    Ok(true) => return Ok(()),
                    Ok(false) => error,
                    Err(StepError::Client(error)) => error,
                    Err(StepError::Final(error)) => return Err(error),
                    Err(StepError::ItemsMissing) => return Ok(()),
                }
            }
            StepError::Client(error) => error,
        };
        if session.state().is_final() || error.is_session_ended() {
            return Ok(());
        }
        match retry::until_retryable(session, error).await {
            Ok(()) => Ok(()),
            Err(_) if session.state().is_final() => Ok(()),
            Err(source) => Err(WorkError::Client {
                path: self.path(),
                source,
            }),
        }
    }
}
