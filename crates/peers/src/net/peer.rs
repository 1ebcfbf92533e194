//! One other server: its connections and their generations, the queues to it, the bytes of it that
//! the owner holds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::codec::{CloseReason, Frame, Hello, Lane, Refusal};
use crate::net::counters::{PeerCounters, add};
use crate::net::events::{Direction, EndCause, FramePermit, Link, PeerEvent, PeerEvents};
use crate::net::options::Limits;
use crate::net::outbound::{Outbound, SendError};
use crate::net::presence::Presence;
use crate::net::writer_handle::WriterHandle;

/// Received bytes are counted in units of this many.
const INBOUND_UNIT_BYTES: usize = 1 << 10;
/// Earlier processes of a peer that are remembered while a later one is connected.
const FORMER_RUNS: usize = 64;

pub(crate) struct Peer {
    pub(crate) id: u64,
    pub(crate) counters: Arc<PeerCounters>,
    events: Arc<dyn PeerEvents>,
    slots: Mutex<Slots>,
    urgent: Outbound,
    log: Outbound,
    snapshot: Outbound,
    urgent_bytes: AtomicUsize,
    bulk_bytes: AtomicUsize,
    limits: Limits,
    inbound_urgent: Inbound,
    inbound_bulk: Inbound,
    /// Wakes the diallers: the peer has just connected, so it can be reached.
    redial: [Notify; 3],
}

/// Received bytes that the owner may hold.
struct Inbound {
    semaphore: Arc<Semaphore>,
    units: u32,
}

impl Inbound {
    fn new(bytes: usize) -> Inbound {
        let units = u32::try_from(bytes.div_ceil(INBOUND_UNIT_BYTES))
            .unwrap_or(u32::MAX)
            .clamp(1, u32::MAX / 8);
        Inbound {
            semaphore: Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(1))),
            units,
        }
    }

    /// Calls `before_waiting` where the owner has to release something first.
    async fn hold(&self, bytes: usize, before_waiting: impl FnOnce()) -> FramePermit {
        let units = u32::try_from(bytes.div_ceil(INBOUND_UNIT_BYTES)).unwrap_or(u32::MAX);
        let units = units.min(self.units);
        let free = Arc::clone(&self.semaphore).try_acquire_many_owned(units);
        let permit = match free {
            Ok(permit) => Some(permit),
            Err(_) => {
                before_waiting();
                let semaphore = Arc::clone(&self.semaphore);
                semaphore.acquire_many_owned(units).await.ok()
            }
        };
        FramePermit { _permit: permit }
    }
}

#[derive(Default)]
struct Slots {
    next_generation: u64,
    current: Vec<Slot>,
    presence: Presence,
    /// The process that the peer runs as; 0 before it has connected.
    run: u64,
    /// Processes that it ran as before, the oldest first.
    former_runs: VecDeque<u64>,
    /// Incarnation, term and end of the log by the newest hello of the present process.
    newest_state: (u128, u64, u64),
}

impl Slots {
    /// Returns whether a process may connect. Of two processes with one id the later one stays, and
    /// the other one does not come back while that one is connected. Once it is gone the earlier
    /// one is admitted if its log is not older than that of the later one was: a copy of its data
    /// folder may have run elsewhere for a moment.
    fn admits(&self, hello: &Hello) -> bool {
        let is_gone = self.current.is_empty();
        let (incarnation, term, last_index) = self.newest_state;
        let is_older =
            incarnation == hello.incarnation && (hello.term, hello.last_index) < (term, last_index);
        hello.run == self.run || !self.former_runs.contains(&hello.run) || (is_gone && !is_older)
    }
}

/// A connection that is established.
struct Slot {
    link: Link,
    hello: Hello,
    end: Option<oneshot::Sender<CloseReason>>,
}

/// An established connection.
pub(crate) struct EstablishedConnection {
    pub(crate) link: Link,
    /// Says that the connection is to end, and why.
    pub(crate) end: oneshot::Receiver<CloseReason>,
    pub(crate) writer: Arc<WriterHandle>,
}

impl Peer {
    pub(crate) fn new(id: u64, limits: &Limits, events: Arc<dyn PeerEvents>) -> Peer {
        Peer {
            id,
            counters: Arc::default(),
            events,
            slots: Mutex::default(),
            urgent: Outbound::default(),
            log: Outbound::default(),
            snapshot: Outbound::default(),
            urgent_bytes: AtomicUsize::new(0),
            bulk_bytes: AtomicUsize::new(0),
            limits: limits.clone(),
            inbound_urgent: Inbound::new(limits.inbound_urgent_bytes),
            inbound_bulk: Inbound::new(limits.inbound_bytes),
            redial: Default::default(),
        }
    }

    pub(crate) fn outbound(&self, lane: Lane) -> &Outbound {
        match lane {
            Lane::Urgent => &self.urgent,
            Lane::Log => &self.log,
            Lane::Snapshot => &self.snapshot,
        }
    }

    /// Wakes when the dialler of this lane should try again at once.
    pub(crate) fn redial(&self, lane: Lane) -> &Notify {
        let [urgent, log, snapshot] = &self.redial;
        match lane {
            Lane::Urgent => urgent,
            Lane::Log => log,
            Lane::Snapshot => snapshot,
        }
    }

    /// Returns whether the process that says this may connect.
    ///
    /// # Errors
    /// [`Refusal::RunsTwice`].
    pub(crate) fn check_run(&self, hello: &Hello) -> Result<(), Refusal> {
        if self.slots.lock().admits(hello) {
            Ok(())
        } else {
            Err(Refusal::RunsTwice { id: self.id })
        }
    }

    /// A connection is established. One that was there of the same lane and direction ends, and so
    /// do all those of an earlier process. `None`: it is of an earlier process itself.
    pub(crate) fn connected(
        &self,
        direction: Direction,
        hello: Hello,
        clock_offset_ms: i64,
    ) -> Option<EstablishedConnection> {
        let (end, end_signal) = oneshot::channel();
        let writer = Arc::new(WriterHandle::default());
        let mut slots = self.slots.lock();
        if !slots.admits(&hello) {
            return None;
        }
        if slots.run != hello.run {
            let former = std::mem::replace(&mut slots.run, hello.run);
            slots.former_runs.retain(|run| *run != hello.run);
            slots.former_runs.push_back(former);
            if slots.former_runs.len() > FORMER_RUNS {
                slots.former_runs.pop_front();
            }
        }
        slots.newest_state = (hello.incarnation, hello.term, hello.last_index);
        slots.next_generation += 1;
        let link = Link {
            peer: self.id,
            lane: hello.lane,
            direction,
            generation: slots.next_generation,
        };
        let is_older = |slot: &mut Slot| {
            let same = slot.link.lane == link.lane && slot.link.direction == direction;
            same || slot.hello.run != hello.run
        };
        let older: Vec<Slot> = slots.current.extract_if(.., is_older).collect();
        for older in older {
            if let Some(end) = older.end {
                let _ = end.send(CloseReason::Superseded);
            }
            self.leave(&mut slots, older.link, EndCause::Superseded);
        }
        slots.current.push(Slot {
            link,
            hello: hello.clone(),
            end: Some(end),
        });
        slots.presence.connected();
        if direction == Direction::Outbound {
            self.outbound(link.lane)
                .open(link.generation, Arc::clone(&writer));
        } else {
            self.redial(link.lane).notify_one();
        }
        add(&self.counters.connections, 1);
        self.counters
            .clock_offset_ms
            .store(clock_offset_ms, Relaxed);
        self.events.event(PeerEvent::Connected {
            link,
            hello,
            clock_offset_ms,
        });
        Some(EstablishedConnection {
            link,
            end: end_signal,
            writer,
        })
    }

    /// Gives a frame to the owner; `false`: the connection is no longer the one, and the frame is
    /// dropped (R11).
    pub(crate) fn deliver(&self, link: Link, frame: Frame, held: FramePermit) -> bool {
        let slots = self.slots.lock();
        if !slots.current.iter().any(|slot| slot.link == link) {
            add(&self.counters.stale, 1);
            return false;
        }
        add(&self.counters.frames_in, 1);
        self.events.event(PeerEvent::Frame { link, frame, held });
        true
    }

    /// A connection has ended.
    pub(crate) fn ended(&self, link: Link, cause: EndCause) {
        let mut slots = self.slots.lock();
        let before = slots.current.len();
        slots.current.retain(|slot| slot.link != link);
        if slots.current.len() < before {
            self.leave(&mut slots, link, cause);
        }
    }

    fn leave(&self, slots: &mut Slots, link: Link, cause: EndCause) {
        let mut dropped = 0;
        if link.direction == Direction::Outbound {
            let (frames, bytes) = self.outbound(link.lane).close(link.generation);
            self.release(link.lane, bytes);
            add(&self.counters.dropped, frames);
            dropped = frames;
        }
        let is_gone = slots.presence.ended(&cause);
        self.events.event(PeerEvent::Disconnected {
            link,
            cause,
            dropped,
        });
        if is_gone {
            self.events.event(PeerEvent::Gone { peer: self.id });
        }
    }

    /// An attempt to connect was refused by the peer's system.
    pub(crate) fn dial_refused(&self) {
        let mut slots = self.slots.lock();
        if slots.presence.refused() {
            self.events.event(PeerEvent::Gone { peer: self.id });
        }
    }

    /// Ends each connection that `is_meant` selects.
    pub(crate) fn end_where(&self, bye: CloseReason, is_meant: impl Fn(Link, &Hello) -> bool) {
        let mut slots = self.slots.lock();
        for slot in &mut slots.current {
            if is_meant(slot.link, &slot.hello)
                && let Some(end) = slot.end.take()
            {
                let _ = end.send(bye);
            }
        }
    }

    /// Queues a frame.
    pub(crate) fn send(&self, frame: Frame) -> Result<(), SendError> {
        if frame.check_limits().is_err() {
            add(&self.counters.dropped, 1);
            return Err(SendError::TooLarge);
        }
        let lane = frame.lane();
        let (queued, limit) = match lane {
            Lane::Urgent => (&self.urgent_bytes, self.limits.urgent_bytes),
            Lane::Log | Lane::Snapshot => (&self.bulk_bytes, self.limits.outbound_bytes),
        };
        let outcome = self.outbound(lane).push(frame, |bytes| {
            let waiting = queued.load(Relaxed);
            if waiting > 0 && waiting + bytes > limit {
                return false;
            }
            queued.fetch_add(bytes, Relaxed);
            add(&self.counters.queued_bytes, bytes);
            true
        });
        if outcome.is_err() {
            add(&self.counters.dropped, 1);
        }
        outcome
    }

    /// Bytes that waited were written or dropped.
    pub(crate) fn release(&self, lane: Lane, bytes: usize) {
        let queued = match lane {
            Lane::Urgent => &self.urgent_bytes,
            Lane::Log | Lane::Snapshot => &self.bulk_bytes,
        };
        queued.fetch_sub(bytes, Relaxed);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.counters.queued_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Waits until the owner may hold this many bytes more. Small frames do not wait for large
    /// ones.
    pub(crate) async fn hold(&self, lane: Lane, bytes: usize) -> FramePermit {
        let inbound = match lane {
            Lane::Urgent => &self.inbound_urgent,
            Lane::Log | Lane::Snapshot => &self.inbound_bulk,
        };
        inbound.hold(bytes, || self.events.frames_arrived()).await
    }
}
