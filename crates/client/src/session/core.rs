//! State that the handles and the driver of one session share.
//!
//! Owns the queues, the counters and the lease of a session, behind one short lock. It must never
//! wait while it holds that lock, never complete an operation under it, and never do I/O: handles
//! encode straight into the outbound buffer and wake the driver, which hands the whole buffer to
//! the socket.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use baton_proto::{Request, TraceContext, frame};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::config::{AuthInfo, Config};
use crate::error::{Reason, SessionLost};
use crate::lease::LeaseBook;
use crate::runtime::RuntimeClock;
use crate::session::entry::{AnswerReceiver, Entry, QueuedOperation, ResendRequest};
use crate::session::outcome::{Effects, OperationEnd, UnansweredOperation, UnansweredOutcome};
use crate::session::watches::{Ticket, WatchArming, WatchTable};
use crate::state::{EndReason, State, StateLog};
use crate::traces;

/// Identity by which the server knows a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: i64,
    pub(crate) password: [u8; 16],
}

/// Rule for waiting operations: which may wait, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) fail_fast: bool,
    pub(crate) limit: Option<Duration>,
    /// The session's own cleanup: goes through while the session is being closed.
    pub(crate) cleanup: bool,
}

/// The state of the session's connection, read and changed under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No connection: operations wait in the queue.
    Detached,
    /// Connected: operations are encoded into the outbound buffer.
    Attached,
    /// Over.
    Ended(EndReason),
}

/// A request for closing the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// New operations are refused; what is queued, and the cleanup, still runs.
    Draining,
    /// The close request is queued or sent.
    Asked,
}

pub(crate) struct Credential {
    pub(crate) info: AuthInfo,
    pub(crate) waiter: Option<oneshot::Sender<OperationEnd>>,
}

/// An operation about to be submitted.
pub(crate) struct Submission<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) path: Arc<str>,
    pub(crate) resend: Option<ResendRequest>,
    pub(crate) done: AnswerReceiver,
    pub(crate) watch: Option<Ticket>,
    pub(crate) policy: Policy,
    /// The trace that it belongs to, if it is a write.
    pub(crate) trace: Option<TraceContext>,
}

pub(crate) struct SessionState {
    pub(crate) phase: Phase,
    pub(crate) closing: Closing,
    pub(crate) identity: Identity,
    pub(crate) timeout: Duration,
    pub(crate) epoch: u64,
    pub(crate) last_zxid: i64,
    next_xid: i32,
    next_id: u64,
    /// Encoded, and not yet taken by the driver.
    pub(crate) out: Vec<u8>,
    /// Bytes ever put into `out` on this connection.
    pub(crate) enqueued: u64,
    pub(crate) in_flight: VecDeque<Entry>,
    pub(crate) waiting: VecDeque<QueuedOperation>,
    pending_bytes: usize,
    pub(crate) pings: VecDeque<BootInstant>,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) credentials_in_flight: VecDeque<usize>,
    pub(crate) watches: WatchTable,
    pub(crate) waker: Option<Waker>,
    pub(crate) lease: LeaseBook,
    pub(crate) lease_holds: usize,
    pub(crate) probe_answered: bool,
    /// Whether the server has said on this connection that it records traces.
    pub(crate) takes_traces: bool,
    /// Time at which a request was last put into `out`.
    pub(crate) last_sent: BootInstant,
    /// Time at which a heartbeat write was last put into `out`.
    pub(crate) last_heartbeat: BootInstant,
    /// Send instant of the newest write whose acknowledgement proved the session alive.
    pub(crate) last_proof: BootInstant,
    /// Send instant of the newest acknowledged request.
    pub(crate) last_acked: BootInstant,
    /// Cleanup tasks still running.
    pub(crate) cleanups: usize,
}

/// One session's shared state.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) states: StateLog,
    pub(crate) runtime: tokio::runtime::Handle,
    /// Whether the runtime is the client's own thread.
    pub(crate) own_thread: bool,
    /// Mirrors `SessionState::lease`, for wait-free reading; 0 once the session has ended.
    lease_nanos: AtomicU64,
    /// From this instant on the session counts as dead.
    expiry_nanos: AtomicU64,
    pub(crate) inner: Mutex<SessionState>,
    /// Notified when the probe is answered, a cleanup ends, or the session ends.
    pub(crate) changed: tokio::sync::Notify,
}

impl Core {
    pub(crate) fn new(
        mut config: Config,
        identity: Identity,
        last_zxid: i64,
        (runtime, own_thread): (tokio::runtime::Handle, bool),
    ) -> Self {
        config.clock = Arc::new(RuntimeClock {
            clock: config.clock,
            runtime: runtime.clone(),
        });
        let timeout = config.session_timeout;
        let credentials = config
            .auth
            .iter()
            .map(|info| Credential {
                info: info.clone(),
                waiter: None,
            })
            .collect();
        let inner = SessionState {
            phase: Phase::Detached,
            closing: Closing::No,
            identity,
            timeout,
            epoch: 0,
            last_zxid,
            next_xid: 1,
            next_id: 1,
            out: Vec::new(),
            enqueued: 0,
            in_flight: VecDeque::new(),
            waiting: VecDeque::new(),
            pending_bytes: 0,
            pings: VecDeque::new(),
            credentials,
            credentials_in_flight: VecDeque::new(),
            watches: WatchTable::default(),
            waker: None,
            lease: LeaseBook::new(config.lease.clone(), timeout),
            lease_holds: 0,
            probe_answered: false,
            takes_traces: false,
            last_sent: BootInstant::ZERO,
            last_heartbeat: BootInstant::ZERO,
            last_proof: BootInstant::ZERO,
            last_acked: BootInstant::ZERO,
            cleanups: 0,
        };
        Self {
            config,
            states: StateLog::new(State::Suspended),
            runtime,
            own_thread,
            lease_nanos: AtomicU64::new(0),
            expiry_nanos: AtomicU64::new(u64::MAX),
            inner: Mutex::new(inner),
            changed: tokio::sync::Notify::new(),
        }
    }

    pub(crate) fn now(&self) -> BootInstant {
        self.config.clock.now()
    }

    /// The lease's end; wait-free. [`BootInstant::ZERO`] when there is none.
    pub(crate) fn lease_deadline(&self) -> BootInstant {
        BootInstant::from_nanos(self.lease_nanos.load(Ordering::Acquire))
    }

    pub(crate) fn expiry(&self) -> BootInstant {
        BootInstant::from_nanos(self.expiry_nanos.load(Ordering::Acquire))
    }

    /// Publishes what the lock's holder has learned. Call it with the lock held.
    pub(crate) fn publish_lease(&self, inner: &SessionState) {
        self.lease_nanos
            .store(inner.lease.deadline().as_nanos(), Ordering::Release);
        self.expiry_nanos.store(
            (inner.last_acked + inner.timeout).as_nanos(),
            Ordering::Release,
        );
    }

    /// The state now. A session whose time has run out is ended here, even if its driver has not
    /// been scheduled since: what was once reported dead is never alive again (`H25`).
    pub(crate) fn state(&self) -> State {
        let state = self.states.current();
        if state.is_final() || self.now() < self.expiry() {
            return state;
        }
        self.expire_if_due();
        self.states.current()
    }

    /// Ends the session if nothing was acknowledged for its whole timeout.
    pub(crate) fn expire_if_due(&self) -> bool {
        let mut effects = Effects::default();
        let ended = {
            let mut inner = self.inner.lock();
            let due = self.now() >= self.expiry();
            if due {
                self.end_locked(&mut inner, EndReason::ExpiredLocally, &mut effects);
            }
            due
        };
        effects.deliver(&self.changed);
        ended
    }

    /// Ends the session for `reason`, unless it has ended already.
    pub(crate) fn end(&self, reason: EndReason) {
        let mut effects = Effects::default();
        self.end_locked(&mut self.inner.lock(), reason, &mut effects);
        effects.deliver(&self.changed);
    }

    /// The final state goes out first, then the operations fail (`hazards.md` G2).
    pub(crate) fn end_locked(
        &self,
        inner: &mut SessionState,
        reason: EndReason,
        effects: &mut Effects,
    ) {
        if matches!(inner.phase, Phase::Ended(_)) {
            return;
        }
        inner.phase = Phase::Ended(reason);
        self.lease_nanos.store(0, Ordering::Release);
        self.expiry_nanos.store(0, Ordering::Release);
        self.states.publish(reason.state());
        effects.state = Some((inner.identity.id, reason.state(), Some(reason)));
        let why = Reason::SessionEnded(reason);
        for entry in std::mem::take(&mut inner.in_flight) {
            let fate = match reason {
                // A server takes nothing behind the request that it refused so.
                EndReason::AuthRequired => UnansweredOutcome::NotSent,
                _ => entry.fate_when_lost(),
            };
            entry.fail(fate, why.clone(), effects);
        }
        for waiting in std::mem::take(&mut inner.waiting) {
            waiting
                .entry
                .fail(UnansweredOutcome::NotSent, why.clone(), effects);
        }
        for credential in &mut inner.credentials {
            if let Some(waiter) = credential.waiter.take() {
                effects.finished.push((
                    waiter,
                    Err(UnansweredOperation {
                        fate: UnansweredOutcome::Unanswered,
                        reason: why.clone(),
                    }),
                ));
            }
        }
        inner.out = Vec::new();
        inner.pending_bytes = 0;
        inner.watches.end(SessionLost(reason), &mut effects.fired);
        effects.wake = inner.waker.take().or(effects.wake.take());
        effects.changed = true;
    }

    /// Encodes an operation into the outbound buffer, or queues it while there is no connection.
    ///
    /// Returns the operation's id, by which [`Core::give_up`] finds it.
    pub(crate) fn submit(
        &self,
        mut submission: Submission<'_>,
    ) -> Result<u64, UnansweredOperation> {
        let now = self.now();
        if submission.request.op().is_write() {
            submission.trace = traces::current();
        }
        if now >= self.expiry() {
            self.expire_if_due();
        }
        let mut inner = self.inner.lock();
        let result = inner.submit(&self.config, submission, now);
        let waker = if result.is_ok() && inner.phase == Phase::Attached {
            inner.waker.take()
        } else {
            None
        };
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// An operation's deadline has passed. What is still queued is taken back; what was sent stays
    /// in flight, for the order.
    pub(crate) fn give_up(&self, id: u64) -> Option<UnansweredOutcome> {
        let mut inner = self.inner.lock();
        if let Some(at) = inner.waiting.iter().position(|w| w.entry.id == id) {
            if let Some(waiting) = inner.waiting.remove(at) {
                inner.forget_bytes(waiting.entry.len);
                if let Some(ticket) = waiting.entry.watch {
                    // Nothing to remove: without a connection the server watches nothing for us.
                    let _detached = inner.watches.withdraw(&ticket);
                }
            }
            return Some(UnansweredOutcome::NotSent);
        }
        inner
            .in_flight
            .iter()
            .find(|e| e.id == id)
            .map(Entry::fate_when_lost)
    }

    /// Wakes the driver so that it handles what has changed.
    pub(crate) fn wake_driver(&self) {
        let waker = self.inner.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl SessionState {
    pub(crate) fn submit(
        &mut self,
        config: &Config,
        submission: Submission<'_>,
        now: BootInstant,
    ) -> Result<u64, UnansweredOperation> {
        let not_sent = |reason| {
            Err(UnansweredOperation {
                fate: UnansweredOutcome::NotSent,
                reason,
            })
        };
        let Submission {
            request,
            path,
            resend,
            done,
            mut watch,
            policy,
            trace,
        } = submission;
        if let Phase::Ended(reason) = self.phase {
            return not_sent(Reason::SessionEnded(reason));
        }
        let internal = policy.cleanup || !matches!(done, AnswerReceiver::User(_));
        if self.closing == Closing::Asked || (self.closing == Closing::Draining && !internal) {
            return not_sent(Reason::Closing);
        }
        let pending = self.in_flight.len() + self.waiting.len();
        if !internal
            && (pending >= config.max_pending || self.pending_bytes >= config.max_pending_bytes)
        {
            return not_sent(Reason::QueueFull { pending });
        }
        let attached = self.phase == Phase::Attached;
        if !attached && policy.fail_fast {
            return not_sent(Reason::Disconnected);
        }
        let mut detached_frame = Vec::new();
        let xid = self.next_xid;
        let out = if attached {
            &mut self.out
        } else {
            &mut detached_frame
        };
        // A frame of its own, which goes with this connection: it is not part of the request's.
        let before = out.len();
        if let Some(trace) = trace.filter(|_| attached && self.takes_traces) {
            frame::write_trace_context(out, &trace);
        }
        let start = out.len();
        let body = frame::write_request(out, xid, request);
        if body > config.max_request_bytes {
            out.truncate(before);
            return not_sent(Reason::TooLarge {
                bytes: body,
                limit: config.max_request_bytes,
            });
        }
        let len = out.len() - start;
        let id = self.next_id;
        self.next_id += 1;
        if let Some(ticket) = &mut watch {
            if attached {
                self.set_watch_flag(ticket);
            }
            self.watches.ask(ticket);
        }
        let mut entry = Entry {
            id,
            xid,
            op: request.op(),
            path,
            done,
            resend,
            watch,
            len,
            end: 0,
            sent: now,
            proof: None,
            fail_fast: policy.fail_fast,
            deadline: policy.limit.map(|limit| now + limit),
        };
        self.pending_bytes += len;
        if attached {
            self.next_xid = next_xid(xid);
            self.enqueued += (start - before + len) as u64;
            entry.end = self.enqueued;
            self.mark_sent(&mut entry, now);
            self.in_flight.push_back(entry);
        } else {
            self.waiting.push_back(QueuedOperation {
                entry,
                frame: detached_frame,
            });
        }
        Ok(id)
    }

    fn mark_sent(&mut self, entry: &mut Entry, now: BootInstant) {
        entry.sent = now;
        self.last_sent = now;
        if entry.op.is_write() {
            entry.proof = Some(self.lease.write_sent(now));
        }
    }

    /// Sends what waited, on a fresh connection. What is past its deadline is not sent any more.
    pub(crate) fn flush_waiting(&mut self, now: BootInstant, effects: &mut Effects) {
        for QueuedOperation {
            mut entry,
            mut frame,
        } in std::mem::take(&mut self.waiting)
        {
            if entry.deadline.is_some_and(|deadline| now >= deadline) {
                self.abandon(
                    entry,
                    UnansweredOutcome::NotSent,
                    Reason::DeadlinePassed,
                    effects,
                );
                continue;
            }
            entry.xid = self.next_xid;
            self.next_xid = next_xid(entry.xid);
            if let Some(xid) = frame.get_mut(4..8) {
                xid.copy_from_slice(&entry.xid.to_be_bytes());
            }
            self.out.extend_from_slice(&frame);
            if let Some(ticket) = &mut entry.watch {
                self.set_watch_flag(ticket);
            }
            self.enqueued += frame.len() as u64;
            entry.end = self.enqueued;
            self.mark_sent(&mut entry, now);
            self.in_flight.push_back(entry);
        }
    }

    /// Decides whether the request just encoded, which has a watch, is to set it at the server. The
    /// flag is the last byte of each request that has one.
    fn set_watch_flag(&mut self, ticket: &mut Ticket) {
        if matches!(ticket.arm, WatchArming::Stream { .. }) {
            return;
        }
        ticket.covered = self.watches.covers(ticket);
        if let Some(flag) = self.out.last_mut() {
            *flag = u8::from(!ticket.covered);
        }
    }

    /// Ends an operation without an answer, and with it the watch that it would have armed.
    pub(crate) fn abandon(
        &mut self,
        mut entry: Entry,
        fate: UnansweredOutcome,
        reason: Reason,
        effects: &mut Effects,
    ) {
        self.forget_bytes(entry.len);
        if let Some(ticket) = entry.watch.take() {
            // Nothing to remove: it was not set on a connection that stays, or what is in use there
            // was re-armed just now.
            let _gone = self.watches.withdraw(&ticket);
        }
        entry.fail(fate, reason, effects);
    }

    pub(crate) fn forget_bytes(&mut self, len: usize) {
        self.pending_bytes = self.pending_bytes.saturating_sub(len);
    }

    /// Puts a request with a reserved xid into the outbound buffer; it has no entry, its reply is
    /// matched by that xid.
    pub(crate) fn send_control(&mut self, xid: i32, request: &Request<'_>, now: BootInstant) {
        let start = self.out.len();
        frame::write_request(&mut self.out, xid, request);
        self.enqueued += (self.out.len() - start) as u64;
        self.last_sent = now;
    }

    /// Sends an operation of the session's own, whose answer nobody waits for.
    pub(crate) fn send_internal(
        &mut self,
        config: &Config,
        request: &Request<'_>,
        done: AnswerReceiver,
        now: BootInstant,
    ) {
        let submission = Submission {
            request,
            path: Arc::from(request.path().unwrap_or("/")),
            resend: None,
            done,
            watch: None,
            policy: Policy {
                fail_fast: true,
                ..Policy::default()
            },
            trace: None,
        };
        if let Err(unfinished) = self.submit(config, submission, now) {
            tracing::debug!(reason = %unfinished.reason, op = ?request.op(), "own request not sent");
        }
    }

    /// Returns whether anything sent has not been acknowledged, and if so when the oldest of it was
    /// sent.
    pub(crate) fn oldest_unacknowledged(&self) -> Option<BootInstant> {
        let ping = self.pings.front().copied();
        let op = self.in_flight.front().map(|e| e.sent);
        ping.into_iter().chain(op).min()
    }
}

/// Xids run from 1 to the largest and start again: the negative ones have meanings of their own
/// (`protocol.md` §1.3).
pub(crate) const fn next_xid(xid: i32) -> i32 {
    if xid == i32::MAX { 1 } else { xid + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xids_wrap_to_one_and_never_take_a_reserved_value() {
        assert_eq!(next_xid(1), 2);
        assert_eq!(next_xid(i32::MAX - 1), i32::MAX);
        assert_eq!(next_xid(i32::MAX), 1);
    }
}
