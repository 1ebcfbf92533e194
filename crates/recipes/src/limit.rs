//! One deadline over a whole wait: over all wake-ups, reconnects and sessions (H50).
//!
//! Owns what becomes of the time that is up. The work must be cancel-safe: it is dropped then.

use std::future::Future;
use std::time::Duration;

/// Drives `work` for at most `limit`; then drops it, and fails as `timed_out` says.
pub(crate) async fn at_most<T, E>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
    timed_out: impl FnOnce() -> E,
) -> Result<T, E> {
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(timed_out()),
    }
}
