//! Repeating what a lost connection has interrupted.
//!
//! Owns the distinction between a failure that passes and one that does not. Whether the session
//! still lives is the client's decision alone; this module only waits for it.

use std::time::Duration;

use baton_client::{Error, Reason, Session, State};

use crate::background;

/// Pause before an operation that the client would not even queue is tried again.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(20);

/// After `error`: returns once the operation may be tried again, or hands the error back where
/// trying again is pointless.
///
/// A "maybe applied" is handed back too: only a read of the tree shows whether it may be tried
/// again.
pub(crate) async fn until_retryable(session: &Session, error: Error) -> Result<(), Error> {
    match error {
        Error::NotSent {
            reason: Reason::QueueFull { .. },
            ..
        } => {
            background::sleep(session, QUEUE_FULL_PAUSE).await;
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

/// Returns once another attempt makes sense: on this session, or on the next one where this one is
/// over.
///
/// # Errors
/// An error that another attempt would meet again.
pub(crate) async fn until_next_attempt(session: &Session, error: Error) -> Result<(), Error> {
    match until_retryable(session, error).await {
        Err(error) if !session.state().is_final() => Err(error),
        _ => Ok(()),
    }
}

/// After `error`, for a caller that reads the tree before it changes it again: returns once it may
/// do so, also where the change was perhaps applied, because the read shows that.
pub(crate) async fn until_readable(session: &Session, error: Error) -> Result<(), Error> {
    if error.is_maybe_applied() && until_connected(session).await {
        Ok(())
    } else {
        until_retryable(session, error).await
    }
}

/// Repeats `read` until a server answers it.
///
/// # Errors
/// What does not pass: a refusal, or the end of the session.
pub(crate) async fn read<T, F>(session: &Session, read: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match read().await {
            Ok(value) => return Ok(value),
            Err(error) => until_retryable(session, error).await?,
        }
    }
}

/// Resolves the outcome of a change whose answer was lost with the error `lost`: repeats `read`,
/// which must come from a server that has caught up, until one answers it.
///
/// # Errors
/// `lost` where the session ends before; a refusal of the read.
pub(crate) async fn resolve<T, F>(
    session: &Session,
    lost: Error,
    read: impl Fn() -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        if !until_connected(session).await {
            return Err(lost);
        }
        match read().await {
            Ok(value) => return Ok(value),
            Err(error) => until_retryable(session, error).await?,
        }
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
