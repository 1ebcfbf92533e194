//! Waiting for a session's connection to come back.
//!
//! Owns the distinction between a failure that passes and one that does not. Whether the session
//! still lives is the client's decision alone; this module only waits for it.

use baton_client::{Error, Reason, Session, State};
use std::time::Duration;

/// Pause before an operation that the client would not even queue is tried again.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(20);

/// After `error`: returns once the operation may be tried again, or hands the error back where
/// trying again is pointless.
///
/// A "maybe applied" is handed back too: only a look at the tree can tell whether it may be tried
/// again.
pub(crate) async fn until_retryable(session: &Session, error: Error) -> Result<(), Error> {
    match error {
        Error::NotSent {
            reason: Reason::QueueFull { .. },
            ..
        } => {
            tokio::time::sleep(QUEUE_FULL_PAUSE).await;
            Ok(())
        }
        error if error.is_connection_lost() && !error.is_maybe_applied() => {
            if until_connected(session).await {
                Ok(())
            } else {
                Err(error)
            }
        }
        other => Err(other),
    }
}

/// Waits until a server has the session; `false` once none ever will.
pub(crate) async fn until_connected(session: &Session) -> bool {
    let mut states = session.states();
    let mut state = states.current();
    while !state.is_connected() && !state.is_final() {
        match states.next().await {
            Some(next) => state = next,
            None => break,
        }
    }
    matches!(state, State::Connected { .. })
}
