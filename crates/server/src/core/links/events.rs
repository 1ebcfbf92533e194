//! Events of the connections to other servers, on their way to the core. The tasks of the
//! connections put them in; the thread that has the core takes them out.

use std::fmt;
use std::sync::OnceLock;
use std::time::Instant;

use baton_consensus::MessageKind;
use baton_peers::codec::Frame;
use baton_peers::net::{PeerEvent, PeerEvents};
use parking_lot::{Condvar, Mutex};

/// Called after an event has arrived that nobody has been notified of; `true`: by a thread that
/// may take the core's turn.
type Notify = Box<dyn Fn(bool) + Send + Sync>;

/// Events in the order of their arrival. The transport bounds what their frames hold.
#[derive(Default)]
pub(crate) struct EventQueue {
    waiting: Mutex<QueuedEvents>,
    arrived: Condvar,
    notify: OnceLock<Notify>,
}

#[derive(Default)]
struct QueuedEvents {
    events: Vec<PeerEvent>,
    /// Whether one of them is a frame that may not wait.
    is_due: bool,
    /// Whether `notify` was called for any of them.
    is_notified: bool,
}

impl QueuedEvents {
    fn take(&mut self) -> Vec<PeerEvent> {
        std::mem::take(self).events
    }
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").finish_non_exhaustive()
    }
}

impl EventQueue {
    /// Everything that has arrived.
    pub(crate) fn take(&self) -> Vec<PeerEvent> {
        self.waiting.lock().take()
    }

    /// Like [`take`](Self::take), but waits for something until `deadline`.
    pub(crate) fn take_blocking(&self, deadline: Instant) -> Vec<PeerEvent> {
        let mut waiting = self.waiting.lock();
        while waiting.events.is_empty() {
            if self.arrived.wait_until(&mut waiting, deadline).timed_out() {
                break;
            }
        }
        waiting.take()
    }

    /// Puts events that were taken before all others.
    pub(crate) fn put_back(&self, mut taken: Vec<PeerEvent>) {
        let mut waiting = self.waiting.lock();
        taken.append(&mut waiting.events);
        waiting.events = taken;
    }

    /// Has `notify` called after the first event that may not wait, by the task of a connection.
    /// Only the first call counts.
    pub(crate) fn notify(&self, notify: Notify) {
        let _ = self.notify.set(notify);
    }
}

impl PeerEvents for EventQueue {
    fn event(&self, event: PeerEvent) {
        let is_frame = matches!(event, PeerEvent::Frame { .. });
        let may_wait = may_wait(&event);
        let must_notify = {
            let mut waiting = self.waiting.lock();
            waiting.events.push(event);
            waiting.is_due |= is_frame && !may_wait;
            !is_frame && !std::mem::replace(&mut waiting.is_notified, true)
        };
        self.arrived.notify_one();
        if must_notify && let Some(notify) = self.notify.get() {
            notify(false);
        }
    }

    fn frames_arrived(&self) {
        let must_notify = {
            let mut waiting = self.waiting.lock();
            waiting.is_due && !std::mem::replace(&mut waiting.is_notified, true)
        };
        if must_notify && let Some(notify) = self.notify.get() {
            notify(true);
        }
    }
}

/// Whether an event may wait for the next heartbeat of a leader: answers to heartbeats that nothing
/// asked for say only that a server is there, and digests are compared each second. An idle leader
/// sleeps through them.
fn may_wait(event: &PeerEvent) -> bool {
    match event {
        PeerEvent::Frame {
            frame: Frame::Raft(messages),
            ..
        } => messages.iter().all(|message| {
            message.kind == MessageKind::HeartbeatResponse
                && message.context.is_empty()
                && !message.reject
        }),
        PeerEvent::Frame {
            frame: Frame::Digest(_),
            ..
        } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use baton_consensus::PeerMessage;
    use baton_peers::codec::{Lane, StateDigest};
    use baton_peers::net::{Direction, FramePermit, Link};
    use bytes::Bytes;

    use super::*;

    fn gone(peer: u64) -> PeerEvent {
        PeerEvent::Gone { peer }
    }

    fn frame(frame: Frame) -> PeerEvent {
        PeerEvent::Frame {
            link: Link {
                peer: 2,
                lane: Lane::Urgent,
                direction: Direction::Inbound,
                generation: 1,
            },
            frame,
            held: FramePermit::nothing(),
        }
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
    fn only_what_may_wait_for_the_next_heartbeat_wakes_nobody() {
        let queue = EventQueue::default();
        let woken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&woken);
        queue.notify(Box::new(move |_| {
            counted.fetch_add(1, Relaxed);
        }));
        let answer = |context: &'static [u8]| {
            frame(Frame::Raft(vec![PeerMessage {
                kind: MessageKind::HeartbeatResponse,
                from: 2,
                to: 1,
                term: 7,
                log_term: 0,
                index: 0,
                commit: 0,
                commit_term: 0,
                request_snapshot: 0,
                reject: false,
                reject_hint: 0,
                context: Bytes::from_static(context),
                entries: Vec::new(),
                snapshot: None,
            }]))
        };
        queue.event(answer(b""));
        let (index, digest) = (9, 90);
        queue.event(frame(Frame::Digest(StateDigest { index, digest })));
        queue.event(answer(b""));
        queue.frames_arrived();
        assert_eq!(woken.load(Relaxed), 0);
        queue.event(answer(b"read"));
        queue.frames_arrived();
        queue.event(gone(1));
        assert_eq!(woken.load(Relaxed), 1, "the core takes all at once");
        assert_eq!(queue.take().len(), 5);
        queue.frames_arrived();
        assert_eq!(woken.load(Relaxed), 1, "nothing waits");
        queue.event(frame(Frame::Contradiction(StateDigest { index, digest })));
        queue.frames_arrived();
        assert_eq!(woken.load(Relaxed), 2);
    }

    #[test]
    fn the_waiting_thread_is_woken_by_an_event_or_by_the_deadline() {
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
    fn an_event_in_an_empty_queue_notifies_once_and_a_frame_where_the_core_may_have_its_turn() {
        let queue = EventQueue::default();
        let calls: Arc<Mutex<Vec<bool>>> = Arc::default();
        let noted = Arc::clone(&calls);
        queue.notify(Box::new(move |may_take_turn| {
            noted.lock().push(may_take_turn)
        }));
        queue.event(gone(1));
        queue.event(gone(2));
        assert_eq!(*calls.lock(), [false], "the connections are locked");
        queue.take();
        queue.event(frame(Frame::Contradiction(StateDigest {
            index: 9,
            digest: 90,
        })));
        assert_eq!(calls.lock().len(), 1, "more may come with the same read");
        queue.frames_arrived();
        queue.frames_arrived();
        assert_eq!(*calls.lock(), [false, true]);
    }
}
