//! Watches as users hold them.
//!
//! Owns the handles' side: waiting for an event, and telling the session when the last interest in
//! a path is gone (`H53`). It must never make an event up: what was missed while disconnected is
//! told as a [`PersistentEvent::Resync`].

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use baton_proto::EventKind;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::SessionLost;
use crate::session::core::Core;
use crate::session::watches::Class;

/// A change that a watch has reported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// To which node (chroot taken off).
    pub path: String,
    /// The zxid of the change where the server tells it (Apache ZooKeeper from 3.9 on, and not for
    /// changes that a reconnect uncovered).
    pub zxid: Option<i64>,
}

/// A one-shot watch: a future that resolves with the first change, or with the loss of the session.
///
/// It survives reconnects. Dropping it takes the interest back; when it was the last one in its
/// node, the server's watch is removed too.
#[must_use = "a watch that is dropped is removed"]
pub struct Watch {
    pub(crate) events: oneshot::Receiver<Result<WatchEvent, SessionLost>>,
    pub(crate) interest: Interest,
}

impl Watch {
    /// The event, if it has arrived already. After it was taken, the watch must not be polled.
    pub fn try_event(&mut self) -> Option<Result<WatchEvent, SessionLost>> {
        self.events.try_recv().ok()
    }
}

impl Future for Watch {
    type Output = Result<WatchEvent, SessionLost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
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
pub(crate) struct Interest {
    pub(crate) core: Arc<Core>,
    /// As the server knows it.
    pub(crate) path: Arc<str>,
    pub(crate) class: Class,
    pub(crate) id: u64,
}

impl Interest {
    fn lost(&self) -> SessionLost {
        SessionLost(self.core.end_reason())
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.core.unwatch(&self.path, self.class, self.id);
    }
}

/// What a persistent watch reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PersistentEvent {
    /// A change.
    Change(WatchEvent),
    /// Changes may have been missed: the session was disconnected (servers do not replay what
    /// happened meanwhile, ZOOKEEPER-4698), or events were read too slowly. Read anew what the
    /// watch is for.
    Resync,
}

/// The queue between the session and a persistent watch.
#[derive(Default)]
pub(crate) struct EventQueue {
    inner: Mutex<QueueInner>,
}

#[derive(Default)]
struct QueueInner {
    events: VecDeque<PersistentEvent>,
    lost: Option<SessionLost>,
    waker: Option<Waker>,
}

impl EventQueue {
    /// Adds an event; past `capacity`, all that is unread becomes one [`PersistentEvent::Resync`].
    pub(crate) fn push(&self, event: PersistentEvent, capacity: usize) {
        let mut inner = self.inner.lock();
        if inner.events.len() >= capacity || event == PersistentEvent::Resync {
            inner.events.clear();
            inner.events.push_back(PersistentEvent::Resync);
        } else {
            inner.events.push_back(event);
        }
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn end(&self, lost: SessionLost) {
        let mut inner = self.inner.lock();
        inner.lost = Some(lost);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
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
    pub(crate) interest: Interest,
}

impl PersistentWatch {
    /// The next event, in order. Cancellation loses nothing.
    ///
    /// # Errors
    /// [`SessionLost`] once the session has ended and everything before that was read.
    pub async fn next(&mut self) -> Result<PersistentEvent, SessionLost> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`PersistentWatch::next`], for hand-written futures.
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PersistentEvent, SessionLost>> {
        let mut inner = self.queue.inner.lock();
        if let Some(event) = inner.events.pop_front() {
            return Poll::Ready(Ok(event));
        }
        if let Some(lost) = inner.lost {
            return Poll::Ready(Err(lost));
        }
        inner.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<PersistentEvent> {
        self.queue.inner.lock().events.pop_front()
    }
}

impl fmt::Debug for PersistentWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentWatch")
            .field("path", &self.interest.path)
            .finish_non_exhaustive()
    }
}
