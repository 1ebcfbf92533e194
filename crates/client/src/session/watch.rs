//! Watches as users hold them.
//!
//! Owns the handles' side: it waits for an event, and informs the session when the last interest in
//! a path is gone (`H53`). It must never invent an event: what was missed while disconnected is
//! reported as a [`PersistentEvent::Resync`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::error::SessionLost;
use crate::session::core::Core;
use crate::session::event_queue::{EventQueue, PersistentEvent, WatchEvent};
use crate::session::watches::Class;

/// A one-shot watch: a future that resolves with the first change, or with the loss of the session.
///
/// It survives reconnects. Dropping it takes the interest back; when it was the last one in its
/// node, the server's watch is removed too.
#[must_use = "a watch that is dropped is removed"]
pub struct Watch {
    events: oneshot::Receiver<Result<WatchEvent, SessionLost>>,
    interest: LocalWatch,
    /// The event, from when somebody has looked for it.
    arrived: Option<Result<WatchEvent, SessionLost>>,
}

impl Watch {
    pub(super) fn new(
        events: oneshot::Receiver<Result<WatchEvent, SessionLost>>,
        interest: LocalWatch,
    ) -> Self {
        Self {
            events,
            interest,
            arrived: None,
        }
    }

    /// Returns the event, if it has arrived; it stays there.
    pub fn try_event(&mut self) -> Option<Result<WatchEvent, SessionLost>> {
        if self.arrived.is_none() {
            self.arrived = self.events.try_recv().ok();
        }
        self.arrived.clone()
    }
}

impl Future for Watch {
    type Output = Result<WatchEvent, SessionLost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(arrived) = self.arrived.take() {
            return Poll::Ready(arrived);
        }
        match Pin::new(&mut self.events).poll(cx) {
            Poll::Ready(Ok(event)) => Poll::Ready(event),
            Poll::Ready(Err(_)) => Poll::Ready(Err(self.interest.lost())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("path", &self.interest.path)
            .finish_non_exhaustive()
    }
}

/// One local interest in a path; dropping it takes it back.
pub(crate) struct LocalWatch {
    pub(crate) core: Arc<Core>,
    /// Path as the server knows it.
    pub(crate) path: Arc<str>,
    pub(crate) class: Class,
    pub(crate) id: u64,
}

impl LocalWatch {
    fn lost(&self) -> SessionLost {
        SessionLost(self.core.end_reason())
    }
}

impl Drop for LocalWatch {
    fn drop(&mut self) {
        self.core.unwatch(&self.path, self.class, self.id);
    }
}

/// A persistent or persistent recursive watch: a stream of changes for as long as the session
/// lives.
///
/// It survives reconnects. Its memory is bounded by
/// [`Config::watch_capacity`](crate::Config::watch_capacity). Dropping it removes the watch.
#[must_use = "a watch that is dropped is removed"]
pub struct PersistentWatch {
    pub(crate) queue: Arc<EventQueue>,
    pub(crate) interest: LocalWatch,
}

impl PersistentWatch {
    /// Returns the next event, in order. Cancel-safe.
    ///
    /// # Errors
    /// [`SessionLost`] once the session has ended and everything before that was read.
    pub async fn next(&mut self) -> Result<PersistentEvent, SessionLost> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`PersistentWatch::next`] for hand-written futures.
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PersistentEvent, SessionLost>> {
        self.queue.poll_next(cx)
    }

    /// Returns the next event, if it has arrived.
    pub fn try_next(&mut self) -> Option<PersistentEvent> {
        self.queue.try_next()
    }
}

impl fmt::Debug for PersistentWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentWatch")
            .field("path", &self.interest.path)
            .finish_non_exhaustive()
    }
}
