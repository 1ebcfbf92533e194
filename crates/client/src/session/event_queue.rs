//! Reports of watches, and the queue between the session and a persistent watch.
//!
//! The queue is bounded: what is read too slowly becomes one [`PersistentEvent::Resync`].

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use baton_proto::EventKind;
use parking_lot::Mutex;

use crate::error::SessionLost;

/// A change that a watch has reported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchEvent {
    /// Kind of the event.
    pub kind: EventKind,
    /// To which node (chroot taken off).
    pub path: String,
    /// The zxid of the change where the server reports it (Apache ZooKeeper from 3.9 on, and not
    /// for changes that a reconnect uncovered).
    pub zxid: Option<i64>,
}

/// Event of a persistent watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PersistentEvent {
    /// A change.
    Change(WatchEvent),
    /// Changes may have been missed: the session was disconnected (servers do not replay what
    /// happened meanwhile, ZOOKEEPER-4698), or events were read too slowly. Read again what the
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

    /// The next event, in order; the loss of the session once everything before it was read.
    pub(crate) fn poll_next(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PersistentEvent, SessionLost>> {
        let mut inner = self.inner.lock();
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
    pub(crate) fn try_next(&self) -> Option<PersistentEvent> {
        self.inner.lock().events.pop_front()
    }
}
