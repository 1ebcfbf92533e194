//! One connection: bytes out, bytes in, and the timers that keep it honest.
//!
//! Owns the socket for as long as it lives. It must never hold the session's lock while it touches
//! the socket, and hands all that is queued to the socket in one write.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use baton_proto::{MultiOp, Request, frame, xid};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::clock::{BootInstant, BoxFuture};
use crate::lease::Evidence;
use crate::session::core::{Closing, Core, Phase, Policy, SessionState, Submission};
use crate::session::entry::{AnswerReceiver, ResendRequest};
use crate::session::outcome::Effects;
use crate::session::replies::ConnectionEnd;
use crate::state::EndReason;
use crate::tls::TlsFailure;
use crate::transport::BoxStream;

const READ_CHUNK_BYTES: usize = 16 * 1024;

/// Size of a buffer that a burst may leave allocated.
const KEPT_BUFFER_BYTES: usize = 256 * 1024;

/// An idle session pings at least this often.
const MAX_PING_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Connection {
    core: Arc<Core>,
    stream: BoxStream,
    incoming: BytesMut,
    /// Taken from the session, on its way to the socket.
    writing: Vec<u8>,
    /// Number of bytes of `writing` that the stream has.
    position: usize,
    /// Whether the stream may still hold bytes back: one with TLS writes whole records.
    unflushed: bool,
    /// Whether the stream has TLS.
    encrypted: bool,
    /// Begin of `writing` in this connection's stream of bytes.
    base: u64,
    timer: Option<(BootInstant, BoxFuture<()>)>,
    effects: Effects,
}

impl Connection {
    /// `incoming` is what was read behind the handshake; `encrypted` says whether the stream has
    /// TLS.
    pub(crate) fn new(
        core: Arc<Core>,
        stream: BoxStream,
        incoming: BytesMut,
        encrypted: bool,
    ) -> Self {
        Self {
            core,
            stream,
            incoming,
            writing: Vec::new(),
            position: 0,
            unflushed: false,
            encrypted,
            base: 0,
            timer: None,
            effects: Effects::default(),
        }
    }

    /// Runs until the connection is lost or the session over, and leaves the session detached or
    /// ended.
    pub(crate) async fn run(mut self) -> ConnectionEnd {
        let broken = std::future::poll_fn(|cx| self.poll_run(cx)).await;
        self.effects.deliver(&self.core.changed);
        if matches!(broken, ConnectionEnd::Lost(_)) {
            let written = self.base + self.position as u64;
            self.core
                .detach(written, self.base, std::mem::take(&mut self.writing));
        }
        broken
    }

    fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        loop {
            let due = match self.take_outbound(cx) {
                Ok(due) => due,
                Err(broken) => return Poll::Ready(broken),
            };
            if let Err(broken) = self.write_some(cx) {
                return Poll::Ready(broken);
            }
            let flushed = self.position == self.writing.len();
            if flushed && !self.writing.is_empty() {
                continue;
            }
            match self.read_some(cx) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(broken) => return Poll::Ready(broken),
            }
            ready!(self.poll_timer(cx, due));
            if let Err(broken) = self.on_timer() {
                return Poll::Ready(broken);
            }
        }
    }

    /// Takes what is queued, once everything taken before is written; leaves the waker for the next
    /// submission; returns when the next timer is due.
    fn take_outbound(&mut self, cx: &Context<'_>) -> Result<BootInstant, ConnectionEnd> {
        let mut inner = self.core.inner.lock();
        if inner.phase != Phase::Attached {
            return Err(ConnectionEnd::Ended);
        }
        if inner.closing == Closing::Draining && inner.cleanups == 0 {
            ask_close(&mut inner, &self.core);
        }
        if self.position == self.writing.len() {
            self.base += self.writing.len() as u64;
            self.writing.clear();
            self.writing.shrink_to(KEPT_BUFFER_BYTES);
            self.position = 0;
            if !inner.out.is_empty() {
                std::mem::swap(&mut self.writing, &mut inner.out);
            }
        }
        if inner
            .waker
            .as_ref()
            .is_none_or(|waker| !waker.will_wake(cx.waker()))
        {
            inner.waker = Some(cx.waker().clone());
        }
        Ok(Schedule::of(&inner).next())
    }

    fn write_some(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionEnd> {
        while let Some(rest) = self
            .writing
            .get(self.position..)
            .filter(|rest| !rest.is_empty())
        {
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => {
                    return Err(ConnectionEnd::Lost(
                        "the server takes no more bytes".to_owned(),
                    ));
                }
                Poll::Ready(Ok(n)) => {
                    self.position += n;
                    self.unflushed = true;
                }
                Poll::Ready(Err(e)) => {
                    if self.encrypted {
                        // Records with some of these bytes may have left before the failure, and
                        // what the server has read it may have applied (`hazards.md` G3).
                        self.position = self.writing.len();
                    }
                    return Err(lost("write", &e));
                }
                Poll::Pending => return Ok(()),
            }
        }
        if self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(e)) => return Err(lost("write", &e)),
                Poll::Pending => {}
            }
        }
        Ok(())
    }

    /// Reads and handles what has arrived; returns whether that was anything.
    fn read_some(&mut self, cx: &mut Context<'_>) -> Result<bool, ConnectionEnd> {
        let mut any = !self.incoming.is_empty() && self.handle_incoming()?;
        loop {
            self.incoming.reserve(READ_CHUNK_BYTES);
            let read = pin!(self.stream.read_buf(&mut self.incoming)).poll(cx);
            match read {
                Poll::Ready(Ok(0)) => {
                    return Err(ConnectionEnd::Lost(
                        "the server closed the connection".to_owned(),
                    ));
                }
                Poll::Ready(Ok(_)) => any |= self.handle_incoming()?,
                Poll::Ready(Err(e)) => return Err(lost("read", &e)),
                Poll::Pending => return Ok(any),
            }
        }
    }

    /// Handles all whole frames; returns whether there was one.
    fn handle_incoming(&mut self) -> Result<bool, ConnectionEnd> {
        let core = Arc::clone(&self.core);
        let mut result = Ok(false);
        {
            let mut inner = core.inner.lock();
            let now = core.now();
            if now >= core.expiry() {
                // Whatever has arrived came too late: the session counts as dead, for everybody.
                core.end_locked(&mut inner, EndReason::ExpiredLocally, &mut self.effects);
                result = Err(ConnectionEnd::Ended);
            }
            while result.is_ok() {
                match frame::split_frame(&mut self.incoming, core.config.max_reply_bytes) {
                    Ok(Some(frame)) => {
                        result = core
                            .receive(&mut inner, frame, now, &mut self.effects)
                            .map(|()| true);
                    }
                    Ok(None) => break,
                    Err(e) => {
                        if let frame::FrameError::TooLong { length, max } = e {
                            inner.refuse_answer(length, max, &mut self.effects);
                        }
                        result = Err(ConnectionEnd::Lost(e.to_string()));
                    }
                }
            }
        }
        // What was received before the loss is delivered before it; the loss itself is published by
        // anyone who handles it.
        self.effects.deliver(&core.changed);
        result
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, due: BootInstant) -> Poll<()> {
        let rearm = self.timer.as_ref().is_none_or(|(at, _)| *at > due);
        if rearm {
            self.timer = Some((due, self.core.config.clock.sleep_until(due)));
        }
        if let Some((_, timer)) = &mut self.timer {
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
        }
        Poll::Ready(())
    }

    fn on_timer(&mut self) -> Result<(), ConnectionEnd> {
        let core = Arc::clone(&self.core);
        let mut inner = core.inner.lock();
        if inner.phase != Phase::Attached {
            return Err(ConnectionEnd::Ended);
        }
        let now = core.now();
        let schedule = Schedule::of(&inner);
        if now >= schedule.expiry {
            core.end_locked(&mut inner, EndReason::ExpiredLocally, &mut self.effects);
            return Err(ConnectionEnd::Ended);
        }
        if now >= schedule.unresponsive {
            return Err(ConnectionEnd::Lost(format!(
                "no answer for {:?}",
                inner.timeout * 2 / 3
            )));
        }
        if now >= schedule.heartbeat {
            inner.last_heartbeat = now;
            let check = vec![MultiOp::Check {
                path: "/",
                version: -1,
            }];
            inner.send_internal(
                &core.config,
                &Request::Multi(check),
                AnswerReceiver::Nobody,
                now,
            );
        } else if now >= schedule.ping {
            inner.pings.push_back(now);
            inner.send_control(xid::PING, &Request::Ping, now);
        }
        Ok(())
    }
}

/// The loss of a connection by this error.
fn lost(action: &str, error: &std::io::Error) -> ConnectionEnd {
    ConnectionEnd::Lost(match TlsFailure::of(error) {
        Some(failure) => failure.to_string(),
        // So ends a stream whose peer has closed it without TLS's own end.
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the server closed the connection".to_owned()
        }
        None => format!("{action}: {error}"),
    })
}

/// When what is due.
struct Schedule {
    expiry: BootInstant,
    unresponsive: BootInstant,
    heartbeat: BootInstant,
    ping: BootInstant,
}

const NEVER: BootInstant = BootInstant::from_nanos(u64::MAX);

impl Schedule {
    fn of(inner: &SessionState) -> Self {
        let timeout = inner.timeout;
        let held = inner.lease_holds > 0;
        // Until the probe is answered nobody knows whether the server wants writes.
        let by_writes = inner.probe_answered && inner.lease.evidence() == Evidence::Write;
        // Something unanswered for a third of the timeout, and nothing answered for two thirds: the
        // link is dead one way at least, whatever bytes come in (`H27`).
        let unresponsive = inner.oldest_unacknowledged().map_or(NEVER, |oldest| {
            (inner.last_acked + timeout * 2 / 3).max(oldest + timeout / 3)
        });
        let interval = if held {
            inner.lease.ping_interval()
        } else {
            timeout / 3
        };
        let newest_request = if inner.lease.evidence() == Evidence::Confirmed {
            // Reads do not count, and what is on its way need not come to count.
            let newest_ping = inner.pings.back().copied();
            inner
                .lease
                .counted()
                .max(newest_ping.unwrap_or(BootInstant::ZERO))
        } else {
            inner.last_sent
        };
        Self {
            expiry: inner.last_acked + timeout,
            unresponsive,
            heartbeat: if !(held && by_writes) {
                NEVER
            } else if inner.lease.wants_write() {
                BootInstant::ZERO
            } else {
                inner.last_heartbeat.max(inner.last_proof) + inner.lease.write_interval()
            },
            ping: newest_request + interval.min(MAX_PING_INTERVAL),
        }
    }

    fn next(&self) -> BootInstant {
        self.expiry
            .min(self.unresponsive)
            .min(self.heartbeat)
            .min(self.ping)
    }
}

/// Queues the request that ends the session, behind everything else.
pub(crate) fn ask_close(inner: &mut SessionState, core: &Core) {
    let submission = Submission {
        request: &Request::CloseSession,
        path: Arc::from("/"),
        resend: Some(ResendRequest::Close),
        done: AnswerReceiver::Close,
        watch: None,
        policy: Policy::default(),
        trace: None,
    };
    let now = core.now();
    if inner.submit(&core.config, submission, now).is_ok() {
        inner.closing = Closing::Asked;
    }
}
