//! A caller that waits for its turn: for how long, and the events of its position in the wait
//! queue.

use std::time::Duration;

use baton::lock::WaitProgress;
use serde::Serialize;

use crate::body::OpenBody;
use crate::error::ApiError;
use crate::events::Events;

/// An event of a caller that waits.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum WaitEvent {
    Waiting {
        /// Number of waiters and holders before the caller.
        place: usize,
        /// The node of the holder, where it is known.
        held_by: Option<String>,
    },
}

/// The longest wait whose outcome is the HTTP status: no event of a position comes before it.
const SHORT_WAIT_MS: u64 = 200;

/// Acquires by the function that fits `wait_ms`: without a limit if it is `None`, without waiting
/// if it is 0, else within that time.
pub(crate) async fn within<T, E, A, B, C>(
    wait_ms: Option<u64>,
    endless: impl FnOnce() -> A,
    at_once: impl FnOnce() -> B,
    in_time: impl FnOnce(Duration) -> C,
) -> Result<Option<T>, E>
where
    A: Future<Output = Result<T, E>>,
    B: Future<Output = Result<Option<T>, E>>,
    C: Future<Output = Result<T, E>>,
{
    match wait_ms {
        None => endless().await.map(Some),
        Some(0) => at_once().await,
        Some(limit) => in_time(Duration::from_millis(limit)).await.map(Some),
    }
}

/// Drives an acquisition on `path`, with an event whenever the queue position changes, unless the
/// caller waits for a short time only. `None`: the caller has gone, and the acquisition with it.
pub(crate) async fn waiting<T>(
    acquiring: impl Future<Output = Result<T, ApiError>>,
    wait_ms: Option<u64>,
    progress: &WaitProgress,
    (path, hold): (&str, &mut OpenBody),
    events: &Events,
) -> Option<Result<T, ApiError>> {
    let mut acquiring = std::pin::pin!(acquiring);
    let has_events = wait_ms.is_none_or(|limit| limit > SHORT_WAIT_MS);
    let mut shown = None;
    loop {
        tokio::select! {
            // The acquisition first: it reports a position in more than one step.
            biased;
            granted = &mut acquiring => return Some(granted),
            () = events.gone() => return None,
            ended = hold.ended() => return ended.ok().map(|()| Err(OpenBody::gave_up(path))),
            position = progress.differs_from(shown.as_ref()), if has_events => {
                if let Some(position) = position.as_ref().filter(|it| it.before > 0) {
                    let event = WaitEvent::Waiting {
                        place: position.before,
                        held_by: position.head.clone(),
                    };
                    events.send(&event).ok()?;
                }
                shown = position;
            }
        }
    }
}
