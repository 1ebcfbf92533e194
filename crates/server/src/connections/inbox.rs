//! Requests on their way to the core: one buffer that all sockets append to and the core takes
//! whole. A socket that appends wakes the core at most once; while the core writes to disk, the
//! next batch grows here. Never drops work silently: after [`Inbox::close`] an append is refused.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use baton_proto::OpCode;
use baton_tree::Identity;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::connections::conn::Conn;
use crate::error::ServerError;
use crate::observers::traces::WriteOnItsWay;
use crate::time::ServerTime;

/// The part of the queue that one connection may fill: a quarter. And the part that is kept for
/// connections of which nothing waits: an eighth.
const SHARE: usize = 4;
const RESERVE: usize = 8;

/// Kind of a request to the core. Its body, if it has one, is a range of [`Work::data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A new session; the body is its password.
    OpenSession {
        timeout_ms: i32,
        mirror_read_only: bool,
    },
    /// Re-attaches a session to this connection; the body is the password that the client gave.
    Reattach {
        session: i64,
        timeout_ms: i32,
        mirror_read_only: bool,
    },
    /// A write, decided when it is applied.
    Write(OpCode),
    /// The client ends its session.
    CloseSession,
    /// A ping, on a server of an ensemble: answered once a quorum stands behind that
    /// ([`session::touch_rounds`](crate::session::touch_rounds)), behind nothing else.
    Ping,
    /// A read behind a write of its own session: it runs at this place.
    Read(OpCode),
    /// A finished reply, to be sent after those of the requests before it.
    Ready { close_after: bool },
}

/// One request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queued {
    pub(crate) xid: i32,
    pub(crate) kind: Kind,
    start: usize,
    end: usize,
}

/// Requests of one connection, in its order.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) conn: Arc<Conn>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) received: Instant,
    /// Number of [`Work::requests`] that belong to it.
    pub(crate) len: usize,
}

/// A number of groups with their bytes.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) data: Vec<u8>,
    pub(crate) requests: Vec<Queued>,
    pub(crate) groups: Vec<Group>,
    /// Those of [`Work::requests`] that are writes which their clients trace, by their places.
    traced: Vec<(usize, Arc<WriteOnItsWay>)>,
}

impl Work {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Its size in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
            + self.requests.len() * size_of::<Queued>()
            + self.traced.len() * WriteOnItsWay::BYTES
    }

    /// Starts a group; requests pushed after this belong to it.
    pub(crate) fn begin(&mut self, conn: &Arc<Conn>, identity: &Arc<Identity>, received: Instant) {
        self.groups.push(Group {
            conn: Arc::clone(conn),
            identity: Arc::clone(identity),
            received,
            len: 0,
        });
    }

    pub(crate) fn push(&mut self, xid: i32, kind: Kind, body: &[u8]) {
        let start = self.data.len();
        self.data.extend_from_slice(body);
        self.requests.push(Queued {
            xid,
            kind,
            start,
            end: self.data.len(),
        });
        if let Some(group) = self.groups.last_mut() {
            group.len += 1;
        }
    }

    /// The client traces the write that was pushed last.
    pub(crate) fn trace(&mut self, write: Arc<WriteOnItsWay>) {
        if let Some(last) = self.requests.len().checked_sub(1) {
            self.traced.push((last, write));
        }
    }

    /// Whether clients trace any of the requests.
    pub(crate) fn is_traced(&self) -> bool {
        !self.traced.is_empty()
    }

    /// The write at this place of [`Work::requests`], where its client traces it.
    pub(crate) fn traced(&self, request: usize) -> Option<&Arc<WriteOnItsWay>> {
        let place = self.traced.binary_search_by_key(&request, |(at, _)| *at);
        self.traced.get(place.ok()?).map(|(_, write)| write)
    }

    /// Every request with its group, in order.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Group, &Queued)> {
        let mut first = 0;
        self.groups.iter().flat_map(move |group| {
            let own = self.requests.get(first..first + group.len);
            first += group.len;
            own.unwrap_or_default().iter().map(move |own| (group, own))
        })
    }

    pub(crate) fn body(&self, request: &Queued) -> &[u8] {
        self.data
            .get(request.start..request.end)
            .unwrap_or_default()
    }

    /// Releases the memory of an empty work, where it is large.
    pub(crate) fn release(&mut self) {
        const KEEP_BYTES: usize = 64 << 10;
        if self.is_empty() && self.data.capacity() > KEEP_BYTES {
            *self = Self::default();
        }
    }

    /// Whether any of the requests asks for a session.
    pub(crate) fn has_handshakes(&self) -> bool {
        let asks = |kind| matches!(kind, Kind::OpenSession { .. } | Kind::Reattach { .. });
        self.requests.iter().any(|request| asks(request.kind))
    }

    /// Copies requests of a group into `into`, as a part of its last group where that is the same
    /// one. Returns the bytes of their bodies.
    pub(crate) fn copy_requests(
        &self,
        group: usize,
        requests: Range<usize>,
        into: &mut Work,
    ) -> usize {
        let (Some(group), Some(own)) =
            (self.groups.get(group), self.requests.get(requests.clone()))
        else {
            return 0;
        };
        let goes_on = into.groups.last().is_some_and(|last| {
            Arc::ptr_eq(&last.conn, &group.conn)
                && Arc::ptr_eq(&last.identity, &group.identity)
                && last.received == group.received
        });
        if !goes_on {
            into.begin(&group.conn, &group.identity, group.received);
        }
        let before = into.data.len();
        for (request, place) in own.iter().zip(requests) {
            into.push(request.xid, request.kind, self.body(request));
            if let Some(write) = self.traced(place) {
                into.trace(Arc::clone(write));
            }
        }
        into.data.len() - before
    }

    /// Hands each group to `take`, in order, and empties the work.
    pub(crate) fn split_groups(&mut self, mut take: impl FnMut(Work)) {
        if self.groups.len() == 1 {
            take(std::mem::take(self));
            return;
        }
        let mut first = 0;
        for (place, group) in self.groups.iter().enumerate() {
            let mut own = Work::default();
            self.copy_requests(place, first..first + group.len, &mut own);
            first += group.len;
            take(own);
        }
        self.clear();
    }

    fn clear(&mut self) {
        const KEEP_BYTES: usize = 4 << 20;
        const KEEP_ITEMS: usize = 16_384;
        self.data.clear();
        self.data.shrink_to(KEEP_BYTES);
        self.requests.clear();
        self.requests.shrink_to(KEEP_ITEMS);
        self.groups.clear();
        self.groups.shrink_to(KEEP_ITEMS);
        self.traced.clear();
        self.traced.shrink_to(KEEP_ITEMS);
    }

    /// Appends `other` and empties it.
    pub(crate) fn append(&mut self, other: &mut Work) {
        let offset = self.data.len();
        let before = self.requests.len();
        let traced = other.traced.drain(..);
        self.traced
            .extend(traced.map(|(request, write)| (before + request, write)));
        self.data.append(&mut other.data);
        self.requests
            .extend(other.requests.drain(..).map(|mut request| {
                request.start += offset;
                request.end += offset;
                request
            }));
        self.groups.append(&mut other.groups);
    }
}

/// A session that is to expire though its client is there. The channel reports that the entry has
/// been applied; it closes without a message where the core has stopped.
#[derive(Debug)]
pub(crate) struct Expiration {
    pub(crate) session: i64,
    pub(crate) applied: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    work: Work,
    sleeping: bool,
    /// When the core wakes though nothing comes in, and until when its thread sleeps: it may have
    /// begun to before the deadline moved.
    deadline: Option<Instant>,
    sleeps_until: Option<Instant>,
    closed: bool,
    stop: bool,
    abort: bool,
    /// Failure for which the core stops at once.
    failure: Option<ServerError>,
    /// Whether the core is to wake though there is no work.
    nudged: bool,
    /// Sessions that the owner of the server asked to expire.
    expirations: Vec<Expiration>,
    /// The server that an operator wants to lead.
    hand_over_to: Option<u64>,
    /// Whether an operator wants the tree's time set back to the clocks.
    resets_time: bool,
    /// Tasks that wait until less is queued.
    waiting: Vec<Waker>,
    /// The task that is the core, where it is no thread.
    #[cfg(feature = "simulation")]
    task: Option<Waker>,
}

/// Takes a turn of the core on the calling thread; `false`: another thread has the core.
pub(crate) type TurnHere = Box<dyn Fn() -> bool + Send + Sync>;

/// The queue between sockets and the core.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    ready: Condvar,
    turn_here: OnceLock<TurnHere>,
    /// Queued bytes from which sockets hand in little more.
    max_bytes: usize,
    queued_bytes: AtomicUsize,
    queued_requests: AtomicUsize,
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// Reasons for which [`Inbox::wait`] returned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There is work, or the deadline has passed.
    Go,
    /// The server is to stop; what is in the work is still to be done.
    Stop,
}

impl Inbox {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            ..Self::default()
        }
    }

    /// Whether the queue is at its bound.
    pub(crate) fn is_full(&self) -> bool {
        self.queued_bytes() >= self.max_bytes
    }

    /// Whether only connections of which nothing waits may hand in more.
    pub(crate) fn is_almost_full(&self) -> bool {
        self.queued_bytes() >= self.max_bytes - self.max_bytes / RESERVE
    }

    /// Whether a connection may hand in more of which `own` bytes wait.
    pub(crate) fn has_room(&self, own: usize) -> bool {
        match own {
            0 => !self.is_full(),
            own => own < self.max_bytes / SHARE && !self.is_almost_full(),
        }
    }

    /// Registers the task to be woken when the queue has room. `false`: it has room already.
    pub(crate) fn wait_for_room(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        // Asked under the lock, which `done` takes after it has counted.
        let waits = self.is_full() && !state.closed;
        if waits {
            state.waiting.push(waker.clone());
        }
        waits
    }

    /// Queues the work of a socket and empties it. `false`: the core has stopped.
    pub(crate) fn submit(&self, work: &mut Work) -> bool {
        let sleeping = {
            let mut state = self.state.lock();
            if state.closed {
                work.clear();
                return false;
            }
            self.queued_bytes.fetch_add(work.bytes(), Ordering::SeqCst);
            self.queued_requests
                .fetch_add(work.requests.len(), Ordering::Relaxed);
            state.work.append(work);
            #[cfg(feature = "simulation")]
            if let Some(task) = state.task.take() {
                task.wake();
            }
            std::mem::take(&mut state.sleeping)
        };
        if sleeping {
            self.ready.notify_one();
        }
        true
    }

    /// Requests that wait or are being processed.
    pub(crate) fn queued_requests(&self) -> usize {
        self.queued_requests.load(Ordering::Relaxed)
    }

    /// Whether the core has stopped.
    pub(crate) fn is_closed(&self) -> bool {
        let state = self.state.lock();
        state.closed || state.stop
    }

    /// Bytes that wait or are being processed.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    /// Empties work that has been processed.
    pub(crate) fn done(&self, done: &mut Work) {
        let bytes = done.bytes();
        if bytes > 0 {
            let before = self.queued_bytes.fetch_sub(bytes, Ordering::SeqCst);
            if before >= self.max_bytes && before - bytes < self.max_bytes {
                let waiting = std::mem::take(&mut self.state.lock().waiting);
                for task in waiting {
                    task.wake();
                }
            }
        }
        self.queued_requests
            .fetch_sub(done.requests.len(), Ordering::Relaxed);
        done.clear();
    }

    /// Has [`Inbox::wait`] return at `deadline` though nothing comes in.
    pub(crate) fn rest_until(&self, deadline: Option<Instant>) {
        let is_sooner = {
            let mut state = self.state.lock();
            state.deadline = deadline;
            let until = state.sleeps_until;
            let is_sooner = |due: Instant| until.is_none_or(|until| due < until);
            state.sleeping && deadline.is_some_and(is_sooner)
        };
        if is_sooner {
            self.ready.notify_one();
        }
    }

    /// Waits for work, a nudge or the deadline.
    pub(crate) fn wait(&self) -> Woken {
        let mut state = self.state.lock();
        while state.work.is_empty() && !state.stop && !state.nudged {
            state.sleeping = true;
            state.sleeps_until = state.deadline;
            match state.deadline {
                Some(until) => {
                    let is_over = self.ready.wait_until(&mut state, until).timed_out();
                    if is_over && state.deadline.is_some_and(|due| due <= until) {
                        break;
                    }
                }
                None => self.ready.wait(&mut state),
            }
        }
        state.sleeping = false;
        if state.stop { Woken::Stop } else { Woken::Go }
    }

    /// Takes everything that is queued into `work`, which is empty. Returns whether there was
    /// something, or a nudge.
    pub(crate) fn collect(&self, work: &mut Work) -> bool {
        let mut state = self.state.lock();
        std::mem::swap(&mut state.work, work);
        std::mem::take(&mut state.nudged) || !work.is_empty()
    }

    /// Has [`Inbox::turn_or_nudge`] call this. Only the first call counts.
    pub(crate) fn set_turn_here(&self, turn: TurnHere) {
        let _ = self.turn_here.set(turn);
    }

    /// Has the core take a turn: on this thread where the core rests, else on its own. The caller
    /// holds no lock.
    pub(crate) fn turn_or_nudge(&self) {
        if !self.turn_here.get().is_some_and(|turn| turn()) {
            self.nudge();
        }
    }

    /// Makes [`Inbox::wait`] return, with work or without.
    pub(crate) fn nudge(&self) {
        let sleeping = {
            let mut state = self.state.lock();
            state.nudged = true;
            #[cfg(feature = "simulation")]
            if let Some(task) = state.task.take() {
                task.wake();
            }
            std::mem::take(&mut state.sleeping)
        };
        if sleeping {
            self.ready.notify_one();
        }
    }

    /// Asks the core to expire a session.
    pub(crate) fn expire(&self, expiration: Expiration) {
        {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            state.expirations.push(expiration);
        }
        self.nudge();
    }

    /// The sessions that the core was asked to expire.
    pub(crate) fn take_expirations(&self) -> Vec<Expiration> {
        std::mem::take(&mut self.state.lock().expirations)
    }

    /// Asks the core to hand leadership over to another server.
    pub(crate) fn hand_over(&self, to: u64) {
        self.state.lock().hand_over_to = Some(to);
        self.nudge();
    }

    /// The server to which the core was asked to hand leadership over.
    pub(crate) fn take_hand_over(&self) -> Option<u64> {
        self.state.lock().hand_over_to.take()
    }

    /// Asks the core to set the tree's time back to the clocks.
    pub(crate) fn reset_time(&self) {
        self.state.lock().resets_time = true;
        self.nudge();
    }

    /// Whether the core was asked for that.
    pub(crate) fn take_reset_time(&self) -> bool {
        std::mem::take(&mut self.state.lock().resets_time)
    }

    /// [`Inbox::wait`] and [`Inbox::collect`] for a core that is a task: ready once there is
    /// something, or the core was nudged.
    #[cfg(feature = "simulation")]
    pub(crate) fn poll_take(
        &self,
        done: &mut Work,
        cx: &std::task::Context<'_>,
    ) -> std::task::Poll<()> {
        self.done(done);
        let mut state = self.state.lock();
        if state.work.is_empty() && !state.nudged {
            state.task = Some(cx.waker().clone());
            return std::task::Poll::Pending;
        }
        state.nudged = false;
        std::mem::swap(&mut state.work, done);
        std::task::Poll::Ready(())
    }

    /// Spins until something is queued or `until` has passed. Returns whether something is.
    pub(crate) fn spin_until(&self, until: Instant) -> bool {
        loop {
            let late = Instant::now() >= until;
            {
                let state = self.state.lock();
                let something = !state.work.is_empty() || state.stop;
                if something || late {
                    return something;
                }
            }
            std::thread::yield_now();
        }
    }

    /// Adds arriving requests to `work` until it has `groups` groups or `until` has passed. Returns
    /// the number of groups.
    pub(crate) fn wait_for_groups(
        &self,
        work: &mut Work,
        groups: usize,
        until: Instant,
        time: &ServerTime,
    ) -> usize {
        loop {
            let late = time.now() >= until;
            {
                let mut state = self.state.lock();
                let there = work.groups.len() + state.work.groups.len();
                if there >= groups || late || state.stop {
                    work.append(&mut state.work);
                    return there;
                }
            }
            // For tens of microseconds: sleeping and being woken would take longer.
            std::thread::yield_now();
        }
    }

    /// Waits for `pause`, or until the core is asked to stop. Returns whether it is.
    pub(crate) fn stops_within(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.state.lock();
        while !state.stop && !self.ready.wait_until(&mut state, until).timed_out() {}
        state.stop
    }

    /// Asks the core to finish what is there and to stop.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.ready.notify_one();
    }

    /// Asks the core to stop at once: what is queued is neither done nor answered.
    pub(crate) fn abort(&self) {
        {
            let mut state = self.state.lock();
            state.stop = true;
            state.abort = true;
        }
        self.ready.notify_one();
    }

    /// Has the core stop at once for this reason.
    pub(crate) fn fail(&self, error: ServerError) {
        {
            let mut state = self.state.lock();
            state.stop = true;
            state.failure = Some(error);
        }
        self.ready.notify_one();
    }

    pub(crate) fn take_failure(&self) -> Option<ServerError> {
        self.state.lock().failure.take()
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.state.lock().abort
    }

    /// Refuses further work: the core has stopped.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.work.clear();
        state.expirations.clear();
        for task in state.waiting.drain(..) {
            task.wake();
        }
    }
}

/// Access for tests.
#[cfg(test)]
impl Inbox {
    /// Takes everything that is queued, as the core does between two turns.
    pub(crate) fn take(&self, work: &mut Work) {
        self.done(work);
        self.collect(work);
    }

    /// Whether the core's thread waits in [`Inbox::wait`].
    pub(crate) fn is_core_asleep(&self) -> bool {
        self.state.lock().sleeping
    }

    /// Whether the core is to come back from [`Inbox::wait`] without work.
    pub(crate) fn is_nudged(&self) -> bool {
        self.state.lock().nudged
    }

    /// Runs `act` while no thread can submit, take or nudge.
    pub(crate) fn while_held<T>(&self, act: impl FnOnce() -> T) -> T {
        let _held = self.state.lock();
        act()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::conn::tests::conn;

    #[test]
    fn one_connection_fills_a_part_and_leaves_room_for_those_of_which_nothing_waits() {
        let inbox = Inbox::new(80_000);
        let conn = conn(1);
        let submit = |bytes: usize| {
            let mut work = Work::default();
            work.begin(&conn, &conn.identity(), Instant::now());
            work.push(7, Kind::Write(OpCode::SetData), &vec![7; bytes]);
            assert!(inbox.submit(&mut work));
        };
        assert!(inbox.has_room(19_999) && !inbox.has_room(20_000));
        submit(70_000);
        assert!(inbox.is_almost_full() && !inbox.is_full());
        assert!(inbox.has_room(0) && !inbox.has_room(1));
        submit(10_000);
        assert!(inbox.is_full() && !inbox.has_room(0));
    }

    #[test]
    fn bodies_keep_their_owners_when_batches_are_joined() {
        let inbox = Inbox::default();
        for (id, body) in [(1, b"first".as_slice()), (2, b"second")] {
            let mut work = Work::default();
            let conn = conn(id);
            work.begin(&conn, &conn.identity(), Instant::now());
            work.push(7, Kind::Write(OpCode::SetData), body);
            assert!(inbox.submit(&mut work));
        }
        let mut taken = Work::default();
        assert_eq!(inbox.wait(), Woken::Go);
        inbox.take(&mut taken);
        let bodies: Vec<&[u8]> = taken.requests.iter().map(|r| taken.body(r)).collect();
        assert_eq!(bodies, [b"first".as_slice(), b"second"]);
        assert_eq!(
            taken.groups.iter().map(|g| g.conn.id).collect::<Vec<_>>(),
            [1, 2]
        );
        assert_eq!(inbox.queued_bytes(), 11 + 2 * size_of::<Queued>());
        inbox.rest_until(Some(Instant::now()));
        assert_eq!(inbox.wait(), Woken::Go);
        inbox.take(&mut taken);
        assert!(taken.is_empty());
        assert_eq!(inbox.queued_bytes(), 0);
    }

    #[test]
    fn groups_waited_for_belong_to_the_same_work() {
        let inbox = Inbox::default();
        let submit = |id| {
            let mut work = Work::default();
            let conn = conn(id);
            work.begin(&conn, &conn.identity(), Instant::now());
            work.push(7, Kind::Write(OpCode::SetData), b"body");
            assert!(inbox.submit(&mut work));
        };
        let mut taken = Work::default();
        submit(1);
        inbox.take(&mut taken);
        let time = ServerTime::new();
        let wait = |taken: &mut Work| inbox.wait_for_groups(taken, 2, Instant::now(), &time);
        assert_eq!(wait(&mut taken), 1);
        submit(2);
        assert_eq!(wait(&mut taken), 2);
        assert_eq!(taken.requests.len(), 2);
        assert_eq!(inbox.queued_bytes(), 8 + 2 * size_of::<Queued>());
    }

    #[test]
    fn a_deadline_that_comes_sooner_wakes_the_core_and_one_that_goes_away_does_not() {
        let inbox = Inbox::default();
        let sleep = || {
            assert_eq!(inbox.wait(), Woken::Go);
            inbox.collect(&mut Work::default())
        };
        let until_asleep = || {
            while !inbox.is_core_asleep() {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            let sleeping = scope.spawn(sleep);
            until_asleep();
            inbox.rest_until(Some(Instant::now()));
            assert!(!sleeping.join().unwrap(), "nothing came in");
        });
        let deadline = Instant::now() + Duration::from_millis(50);
        inbox.rest_until(Some(deadline));
        std::thread::scope(|scope| {
            let sleeping = scope.spawn(sleep);
            until_asleep();
            inbox.rest_until(None);
            while Instant::now() < deadline + Duration::from_millis(20) {
                std::thread::yield_now();
            }
            inbox.nudge();
            assert!(sleeping.join().unwrap(), "it slept on");
        });
    }

    #[test]
    fn spinning_ends_with_the_first_request_or_in_time() {
        let inbox = Inbox::default();
        assert!(!inbox.spin_until(Instant::now()));
        std::thread::scope(|scope| {
            let lingering =
                scope.spawn(|| inbox.spin_until(Instant::now() + Duration::from_secs(60)));
            let mut work = Work::default();
            let conn = conn(1);
            work.begin(&conn, &conn.identity(), Instant::now());
            work.push(7, Kind::Write(OpCode::SetData), b"body");
            assert!(inbox.submit(&mut work));
            assert!(lingering.join().unwrap());
        });
    }

    #[test]
    fn nothing_is_taken_after_the_core_has_stopped() {
        let inbox = Inbox::default();
        inbox.close();
        let conn = conn(1);
        let mut work = Work::default();
        work.begin(&conn, &conn.identity(), Instant::now());
        work.push(1, Kind::CloseSession, b"");
        assert!(!inbox.submit(&mut work));
    }

    #[test]
    fn a_large_batch_s_memory_is_given_back_once_it_is_empty_and_nothing_before() {
        let conn = conn(1);
        let mut work = Work::default();
        let fill = |work: &mut Work, bytes| {
            work.begin(&conn, &conn.identity(), Instant::now());
            work.push(1, Kind::Write(OpCode::SetData), &vec![7; bytes]);
        };
        fill(&mut work, 100 << 10);
        work.release();
        assert_eq!(work.len(), 1, "it has not been handed over");
        work.clear();
        work.release();
        assert_eq!(work.data.capacity(), 0);
        fill(&mut work, 1 << 10);
        work.clear();
        work.release();
        assert!(work.data.capacity() > 0, "a little is kept");
    }

    #[test]
    fn a_pause_ends_with_its_time_or_when_the_core_is_to_stop() {
        let inbox = Inbox::default();
        assert!(!inbox.stops_within(Duration::ZERO));
        std::thread::scope(|scope| {
            let pausing = scope.spawn(|| inbox.stops_within(Duration::from_secs(60)));
            // A thread that waits is woken, and waits on.
            while !inbox.ready.notify_one() && !pausing.is_finished() {
                std::thread::yield_now();
            }
            inbox.stop();
            assert!(pausing.join().unwrap());
        });
    }
}
