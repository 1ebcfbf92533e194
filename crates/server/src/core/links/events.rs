//! Events of the connections to other servers, on their way to the core. The tasks of the
//! connections put them in; one thread takes them out.

use std::fmt;
use std::sync::OnceLock;
use std::time::Instant;

use baton_peers::net::{PeerEvent, PeerEvents};
use parking_lot::{Condvar, Mutex};

/// Called after an event has arrived in an empty queue.
type Notify = Box<dyn Fn() + Send + Sync>;

/// Events in the order of their arrival. The transport bounds what their frames hold.
#[derive(Default)]
pub(crate) struct EventQueue {
    events: Mutex<Vec<PeerEvent>>,
    arrived: Condvar,
    notify: OnceLock<Notify>,
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").finish_non_exhaustive()
    }
}

impl EventQueue {
    /// Everything that has arrived.
    pub(crate) fn take(&self) -> Vec<PeerEvent> {
        std::mem::take(&mut *self.events.lock())
    }

    /// As [`take`](Self::take), but waits for something until `deadline`.
    pub(crate) fn take_blocking(&self, deadline: Instant) -> Vec<PeerEvent> {
        let mut events = self.events.lock();
        while events.is_empty() {
            if self.arrived.wait_until(&mut events, deadline).timed_out() {
                break;
            }
        }
        std::mem::take(&mut *events)
    }

    /// Puts events that were taken before all others.
    pub(crate) fn put_back(&self, mut taken: Vec<PeerEvent>) {
        let mut events = self.events.lock();
        taken.append(&mut events);
        *events = taken;
    }

    /// Has `notify` called after each event that arrives in an empty queue, by the task of a
    /// connection: it must not block. Only the first call counts.
    pub(crate) fn notify(&self, notify: Notify) {
        let _ = self.notify.set(notify);
    }
}

impl PeerEvents for EventQueue {
    fn event(&self, event: PeerEvent) {
        let was_empty = {
            let mut events = self.events.lock();
            events.push(event);
            events.len() == 1
        };
        if was_empty {
            self.arrived.notify_one();
            if let Some(notify) = self.notify.get() {
                notify();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use super::*;

    fn gone(peer: u64) -> PeerEvent {
        PeerEvent::Gone { peer }
    }

    fn peers(events: &[PeerEvent]) -> Vec<u64> {
        let peers = events.iter().map(|event| match event {
            PeerEvent::Gone { peer } => *peer,
            other => panic!("{other:?}"),
        });
        peers.collect()
    }

    #[test]
    fn events_come_out_in_order_and_what_was_put_back_comes_first() {
        let queue = EventQueue::default();
        queue.event(gone(1));
        queue.event(gone(2));
        let taken = queue.take();
        assert_eq!(peers(&taken), [1, 2]);
        queue.event(gone(3));
        queue.put_back(taken);
        assert_eq!(peers(&queue.take()), [1, 2, 3]);
        assert!(queue.take().is_empty());
    }

    #[test]
    fn whoever_waits_is_woken_by_an_event_or_by_the_deadline() {
        let queue = Arc::new(EventQueue::default());
        assert!(queue.take_blocking(Instant::now()).is_empty());
        let waiting = {
            let queue = Arc::clone(&queue);
            let deadline = Instant::now() + Duration::from_secs(120);
            std::thread::spawn(move || queue.take_blocking(deadline).len())
        };
        queue.event(gone(1));
        assert_eq!(waiting.join().unwrap(), 1);
    }

    #[test]
    fn an_event_in_an_empty_queue_notifies_once() {
        let queue = EventQueue::default();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        queue.notify(Box::new(move || {
            counted.fetch_add(1, Relaxed);
        }));
        queue.event(gone(1));
        queue.event(gone(2));
        assert_eq!(count.load(Relaxed), 1);
        queue.take();
        queue.event(gone(3));
        assert_eq!(count.load(Relaxed), 2);
    }
}
