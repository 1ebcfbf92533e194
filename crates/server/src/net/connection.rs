//! The task of one connection: reads what has arrived, answers reads at once, hands writes to the core in one batch,
//! writes what is ready with one system call. Keeps replies in request order and a watch event before the first reply
//! that shows its state. Never waits for another connection; what it holds in memory has a bound (see
//! [`Options`](crate::Options)).

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use baton_proto::{Decoder, ErrorCode, OpCode, Request, RequestHeader, frame};
use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;

use super::class::Class;
use super::frames::{reply, whole_frame};
use super::stream::{Input, Output, Stream};
use super::{auth, handshake, words};
use crate::core::clock::now;
use crate::core::conn::{CloseReason, Conn, Outlet};
use crate::core::inbox::{Kind, Work};
use crate::core::notices::{Notice, Shown};
use crate::core::outbound::Pressure;
use crate::core::reads::{self, Flow, WatchAccess};
use crate::core::requests::Tally;
use crate::core::shared::Shared;
use crate::core::stats::micros;

/// What one read asks the socket for.
const READ_BYTES: usize = 16 << 10;
/// Memory that an idle connection keeps.
const IDLE_BYTES: usize = 4 << 10;
/// Reads answered under one hold of the tree's lock.
const READS_PER_LOCK: usize = 32;
/// Reads that may wait behind a write: they are answered together, before the client can fetch the first.
const READS_BEHIND: usize = 32;
/// How long a closed connection's last bytes may take to be fetched.
const LINGER: Duration = Duration::from_millis(250);

/// The longest request that is answered with an error when it is over the limit, in limits: its bytes are read and thrown
/// away, so that the connection goes on. What claims to be longer closes its connection, as clients expect of ZooKeeper:
/// kazoo's own tests send two MiB where one is allowed, and want a lost connection.
const DISCARDED_LIMITS: usize = 2;
/// A request's length, xid and operation.
const HEAD_BYTES: usize = frame::LENGTH_BYTES + 8;

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client closed it, or it broke.
    Gone,
    /// The server closes it; what waits has been written.
    Closed(CloseReason),
    /// The client broke the protocol: what it did.
    Refused(Notice, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first four bytes say whether this is a session or a four-letter word.
    Start,
    /// The log has to take the session up.
    Attaching,
    /// Requests.
    Open,
}

/// What stopped [`Connection::process`].
#[derive(Debug, PartialEq, Eq)]
enum Need {
    /// More bytes.
    Input,
    /// Room, which comes with answers from the core or with the client reading.
    Room,
}

/// One connection. See the module's page.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    conn: Arc<Conn>,
    socket: Input,
    input: BytesMut,
    outlet: Arc<Output>,
    out: Vec<u8>,
    written: usize,
    /// Bytes that may wait for the client to read them before a further request is taken on.
    share: usize,
    phase: Phase,
    /// Requests that the core has not answered.
    in_flight: usize,
    /// Reads among them, since there were none last.
    reads_behind: usize,
    work: Work,
    /// Bytes of a request over the limit that are still to come.
    discard: usize,
    read_at: Instant,
    /// A reply after which the connection is to be closed has been put into `out`.
    close_after: Option<CloseReason>,
    /// A request has been handed to the core after which the connection ends: none behind it counts.
    last_taken: bool,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, conn: Arc<Conn>, stream: Stream) -> Self {
        let (socket, outlet) = stream.into_halves();
        Self {
            shared,
            conn,
            socket,
            input: BytesMut::new(),
            outlet: Arc::new(outlet),
            out: Vec::new(),
            written: 0,
            share: 0,
            phase: Phase::Start,
            in_flight: 0,
            reads_behind: 0,
            work: Work::default(),
            discard: 0,
            read_at: now(),
            close_after: None,
            last_taken: false,
        }
    }

    /// Serves the connection to its end. Cancelling drops the socket; what was handed to the core is still done.
    pub(crate) async fn serve(mut self) -> End {
        let opening = tokio::time::timeout(
            self.shared.options.handshake_timeout,
            poll_fn(|cx| self.poll(cx, true)),
        );
        let end = match opening.await {
            Ok(None) => poll_fn(|cx| self.poll(cx, false)).await,
            Ok(end) => end,
            Err(_) => {
                let stats = &self.shared.stats;
                stats.handshakes_timed_out.fetch_add(1, Relaxed);
                Some(End::Refused(
                    Notice::NoSession,
                    "it did not name its session in time".to_owned(),
                ))
            }
        };
        match end {
            Some(End::Closed(CloseReason::TooSlow)) => {
                let stats = &self.shared.stats;
                stats.slow_readers_closed.fetch_add(1, Relaxed);
            }
            Some(End::Closed(CloseReason::AllTooSlow)) => {
                let stats = &self.shared.stats;
                stats.slow_readers_closed.fetch_add(1, Relaxed);
                stats.all_too_slow_closed.fetch_add(1, Relaxed);
            }
            Some(End::Closed(_)) if self.shared.outbound.pressure() == Pressure::None => {
                self.linger().await;
            }
            _ => {}
        }
        end.unwrap_or(End::Gone)
    }

    /// Lets the client fetch the last bytes: closing with unread input would make the kernel throw them away.
    async fn linger(&mut self) {
        let mut sink = [0_u8; 1024];
        let farewell = async {
            poll_fn(|cx| self.poll_flush(cx)).await?;
            self.outlet.shutdown()?;
            while self.socket.read(&mut sink).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(LINGER, farewell).await;
    }

    /// Ready with `None` once the session is attached, if `opening`.
    fn poll(&mut self, cx: &mut Context<'_>, opening: bool) -> Poll<Option<End>> {
        loop {
            let pressure = self.relieve();
            let full = self.is_full();
            let taken = self.conn.take(&mut self.out, full);
            self.answered(taken.answered);
            if self.phase == Phase::Attaching && self.conn.attached().is_some() {
                self.phase = Phase::Open;
            }
            let mut need = Need::Room;
            let mut closing = taken.closing.or(self.close_after);
            if closing.is_none() && pressure != Pressure::Over {
                match self.process() {
                    Ok(wanted) => need = wanted,
                    Err(end) => return Poll::Ready(Some(end)),
                }
                closing = self.close_after;
            }
            match self.poll_flush(cx) {
                Poll::Ready(Ok(())) => {
                    if let Some(reason) = closing {
                        return Poll::Ready(Some(End::Closed(reason)));
                    }
                    if opening && self.phase == Phase::Open {
                        return Poll::Ready(None);
                    }
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Some(End::Gone)),
                Poll::Pending => {
                    if let Some(reason) = closing {
                        return Poll::Ready(Some(End::Closed(reason)));
                    }
                }
            }
            let unwritten = self.out.len() - self.written;
            self.conn
                .set_unwritten(unwritten, || self.shared.time.now_ms());
            if pressure == Pressure::Over && closing.is_none() {
                // After those that were just told to end, and have not yet.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let mut progress = false;
            if closing.is_none() {
                if need == Need::Input {
                    match self.poll_input(cx) {
                        Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => {
                            return Poll::Ready(Some(End::Gone));
                        }
                        Poll::Ready(Ok(_)) => {
                            if let Err(end) = self.touch() {
                                return Poll::Ready(Some(end));
                            }
                            progress = true;
                        }
                        Poll::Pending => {}
                    }
                } else if self.has_room() && self.phase != Phase::Attaching {
                    progress = true;
                }
            }
            if progress {
                continue;
            }
            let idle = need == Need::Input && self.out.is_empty() && closing.is_none();
            let outlet = idle.then(|| Arc::clone(&self.outlet) as Arc<dyn Outlet>);
            if self.conn.wait(cx.waker(), self.is_full(), outlet) {
                self.release_memory();
                return Poll::Pending;
            }
        }
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let wanted = match frame::peek_length(&self.input, usize::MAX) {
            Ok(Some(length)) => (length + frame::LENGTH_BYTES).saturating_sub(self.input.len()),
            _ => 0,
        };
        // What a peer merely claims to send is not reserved for at once.
        self.input
            .reserve(wanted.clamp(READ_BYTES / 4, 4 * READ_BYTES));
        let read = pin!(self.socket.read_buf(&mut self.input)).poll(cx);
        if let Poll::Ready(Ok(bytes)) = &read {
            self.conn.stats.bytes_in.fetch_add(*bytes as u64, Relaxed);
        }
        read
    }

    /// Writes what waits. Ready when nothing does.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.outlet.poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => {
                    self.written += n;
                    self.conn.stats.bytes_out.fetch_add(n as u64, Relaxed);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    // What is kept for a slow reader is what it has not read, not much more.
                    if self.written > self.shared.options.max_outbound_bytes
                        || self.written > (self.out.len() / 2).max(4 * READ_BYTES)
                    {
                        self.out.drain(..self.written);
                        self.written = 0;
                    }
                    if self.out.capacity() / 2 > self.out.len().max(4 * READ_BYTES) {
                        self.out.shrink_to_fit();
                    }
                    return Poll::Pending;
                }
            }
        }
        self.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    fn release_memory(&mut self) {
        if self.in_flight > 0 {
            return;
        }
        if self.out.is_empty() && self.out.capacity() > 16 * IDLE_BYTES {
            self.out = Vec::new();
            self.conn.shrink(IDLE_BYTES);
        }
        self.work.release();
        if self.input.is_empty() && self.input.capacity() > 4 * READ_BYTES {
            self.input = BytesMut::new();
        }
    }

    /// Counts the packet for the session's clock.
    fn touch(&mut self) -> Result<(), End> {
        self.read_at = now();
        if let Some(attached) = self.conn.attached()
            && !attached.touch.touch(self.shared.time.at_ms(self.read_at))
        {
            return Err(End::Closed(CloseReason::SessionExpired));
        }
        Ok(())
    }

    /// Whether as much waits for the client to read it as may.
    fn is_full(&self) -> bool {
        self.out.len() - self.written > self.share
    }

    /// Sees how much waits for all clients, and makes room where it is too much. How it is then.
    fn relieve(&mut self) -> Pressure {
        let mut pressure = self.shared.outbound.pressure();
        if pressure == Pressure::Over && !self.shared.outbound.is_being_relieved() {
            let mut wake = Vec::new();
            self.shared.relieve(&mut wake);
            for conn in wake {
                conn.wake(false);
            }
            pressure = self.shared.outbound.pressure();
        }
        self.share = self.shared.outbound.share(pressure);
        pressure
    }

    /// The core has answered so many requests.
    fn answered(&mut self, requests: u32) {
        self.in_flight = self.in_flight.saturating_sub(requests as usize);
        if self.in_flight == 0 {
            self.reads_behind = 0;
        }
    }

    /// Whether a further request may be taken on.
    fn has_room(&self) -> bool {
        let options = &self.shared.options;
        !self.last_taken
            && !self.is_full()
            && self.in_flight + self.work.len() < options.max_requests_in_flight
            && self.reads_behind < READS_BEHIND
            && (self.in_flight == 0 || self.shared.inbox.queued_bytes() < options.max_queued_bytes)
    }

    /// Takes on every whole request that has arrived, as far as there is room.
    fn process(&mut self) -> Result<Need, End> {
        match self.phase {
            Phase::Attaching => return Ok(Need::Room),
            Phase::Start => return self.start(),
            Phase::Open => {}
        }
        let discarded = self.discard.min(self.input.len());
        self.input.advance(discarded);
        self.discard -= discarded;
        if self.input.is_empty() {
            return Ok(Need::Input);
        }
        let input = std::mem::take(&mut self.input);
        let mut rest: &[u8] = &input;
        let outcome = self.requests(&mut rest);
        let used = input.len() - rest.len();
        self.input = input;
        self.input.advance(used);
        self.submit();
        outcome
    }

    fn submit(&mut self) {
        if self.work.is_empty() {
            return;
        }
        self.in_flight += self.work.len();
        if !self.shared.inbox.submit(&mut self.work) {
            self.close_after = Some(CloseReason::ServerStops);
        }
    }

    /// Takes requests from the front of `rest`.
    fn requests(&mut self, rest: &mut &[u8]) -> Result<Need, End> {
        let shared = Arc::clone(&self.shared);
        let conn = Arc::clone(&self.conn);
        let identity = conn.identity();
        let mut identity = identity;
        let mut tree = None;
        let mut under_lock = 0;
        let mut answered = 0;
        let mut received = 0;
        let counts = &shared.stats.requests;
        let mut tally = Tally::default();
        let outcome = loop {
            if self.close_after.is_some() || !self.has_room() {
                break Ok(Need::Room);
            }
            let (head, after) = match whole_frame(rest, shared.limits.max_frame_bytes) {
                Ok(Some(split)) => split,
                Ok(None) => break Ok(Need::Input),
                Err(frame::FrameError::TooLong { length, .. })
                    if length <= DISCARDED_LIMITS * shared.limits.max_frame_bytes =>
                {
                    let Some(header) = self.discard_large(rest, length) else {
                        break Ok(Need::Input);
                    };
                    received += 1;
                    answered += self.in_turn(
                        header.xid,
                        shared.zxid(),
                        ErrorCode::BadArguments,
                        false,
                        &identity,
                    );
                    tree = None;
                    continue;
                }
                Err(error) => {
                    break Err(End::Refused(self.no_frame(&error), error.to_string()));
                }
            };
            *rest = after;
            received += 1;
            let mut decoder = Decoder::new(head, &shared.limits);
            let header = match RequestHeader::decode(&mut decoder) {
                Ok(header) => header,
                Err(error) => break Err(End::Refused(Notice::BadFrame, error.to_string())),
            };
            let body = decoder.rest();
            tally.request(header.op, counts);
            conn.stats.last_op.store(header.op as u32 as u64, Relaxed);
            conn.stats
                .last_cxid
                .store(header.xid as u32 as u64, Relaxed);
            match Class::of(header.op) {
                Class::Ping => {
                    // protocol.md §3, watches; and zxids never fall from one reply to the next.
                    let (taken, zxid) = conn.take_with_zxid(&mut self.out, || shared.zxid());
                    self.answered(taken.answered);
                    if taken.closing.is_some() {
                        break Ok(Need::Room);
                    }
                    reply(&mut self.out, header.xid, zxid, ErrorCode::Ok);
                    answered += 1;
                }
                Class::Read(op) if self.in_flight == 0 && self.work.is_empty() => {
                    let guard = match &tree {
                        Some(guard) => guard,
                        None => {
                            let guard = tree.insert(shared.tree.read());
                            // Events up to the state that this read is about to show; some may be missing from a
                            // connection that is to end.
                            if conn.take(&mut self.out, false).closing.is_some() {
                                break Ok(Need::Room);
                            }
                            guard
                        }
                    };
                    let watches = WatchAccess::Lock(&shared.watches);
                    let request = reads::Asked {
                        conn: &conn,
                        identity: &identity,
                        op,
                        xid: header.xid,
                        body,
                    };
                    let before = self.out.len();
                    let flow = reads::answer(guard, &shared, watches, &request, &mut self.out);
                    tally.answer(self.out.len() - before);
                    match flow {
                        Flow::Continue => {}
                        Flow::Close => self.close_after = Some(CloseReason::BadRequest),
                    }
                    answered += 1;
                    under_lock += 1;
                    if under_lock % READS_PER_LOCK == 0 {
                        tree = None;
                    }
                    continue;
                }
                Class::Read(op) => self.queue(header.xid, Kind::Read(op), body, &identity),
                Class::Write(op) => self.queue(header.xid, Kind::Write(op), body, &identity),
                Class::CloseSession => {
                    self.queue(header.xid, Kind::CloseSession, body, &identity);
                    self.last_taken = true;
                }
                Class::Auth => {
                    let packet = Request::decode(OpCode::Auth, body, &shared.limits);
                    let (scheme, outcome) = match &packet {
                        Ok(Request::Auth(packet)) => {
                            let outcome = auth::add(&identity, packet, &shared.options);
                            let refused =
                                |why: auth::Refusal| (ErrorCode::AuthFailed, why.to_string());
                            (packet.scheme, outcome.map_err(refused))
                        }
                        Ok(_) => ("(none)", Err((ErrorCode::MarshallingError, String::new()))),
                        Err(why) => (
                            "(none)",
                            Err((ErrorCode::MarshallingError, why.to_string())),
                        ),
                    };
                    let code = match outcome {
                        Ok(more) => {
                            // What was queued before keeps the identity it came with.
                            self.submit();
                            identity = Arc::new(more);
                            conn.set_identity(Arc::clone(&identity));
                            ErrorCode::Ok
                        }
                        Err((code, why)) => {
                            shared.stats.auth_failed.fetch_add(1, Relaxed);
                            let scheme = Shown(scheme);
                            shared.notice(
                                Notice::BadCredentials,
                                Some(&conn.peer),
                                format_args!(
                                    "connection closed: credentials of scheme '{scheme}' are refused: {why}"
                                ),
                            );
                            code
                        }
                    };
                    answered += self.in_turn(header.xid, 0, code, code != ErrorCode::Ok, &identity);
                }
                Class::Refused(code) => {
                    let zxid = if code == ErrorCode::Unimplemented {
                        -1
                    } else {
                        shared.zxid()
                    };
                    answered += self.in_turn(header.xid, zxid, code, true, &identity);
                    shared.notice(
                        Notice::BadFrame,
                        Some(&conn.peer),
                        format_args!("connection closed: it asked for op {}: {code}", header.op),
                    );
                }
            }
            tree = None;
        };
        drop(tree);
        counts.add(&tally);
        if received > 0 {
            shared.stats.received.fetch_add(received, Relaxed);
            conn.stats.received.fetch_add(received, Relaxed);
        }
        if answered > 0 {
            let now = now();
            let micros = micros(now.saturating_duration_since(self.read_at));
            shared.stats.sent.fetch_add(answered, Relaxed);
            shared.stats.reads.record_all(answered, micros);
            let now_ms = shared.time.at_ms(now);
            conn.stats.answered(answered, micros, shared.zxid(), now_ms);
        }
        outcome
    }

    /// What kind of line in the log a broken frame gets; one that is too long is counted.
    fn no_frame(&self, error: &frame::FrameError) -> Notice {
        if matches!(error, frame::FrameError::TooLong { .. }) {
            let stats = &self.shared.stats;
            stats.large_requests.fetch_add(1, Relaxed);
            return Notice::LargeRequest;
        }
        Notice::BadFrame
    }

    fn queue(&mut self, xid: i32, kind: Kind, body: &[u8], identity: &Arc<baton_tree::Identity>) {
        if self.work.is_empty() {
            self.work.begin(&self.conn, identity, self.read_at);
        }
        self.reads_behind += usize::from(matches!(kind, Kind::Read(_)));
        self.work.push(xid, kind, body);
    }

    /// Begins to throw a request away that is over the limit; what it asks for, once that has arrived.
    fn discard_large(&mut self, rest: &mut &[u8], length: usize) -> Option<RequestHeader> {
        let (head, after) = rest.split_at_checked(HEAD_BYTES)?;
        let head = head.get(frame::LENGTH_BYTES..).unwrap_or_default();
        let header = RequestHeader::decode(&mut Decoder::new(head, &self.shared.limits)).ok()?;
        let body = length.saturating_sub(head.len());
        let here = body.min(after.len());
        *rest = after.get(here..).unwrap_or_default();
        self.discard = body - here;
        let stats = &self.shared.stats;
        stats.large_requests.fetch_add(1, Relaxed);
        let max = self.shared.limits.max_frame_bytes;
        self.shared.notice(
            Notice::LargeRequest,
            Some(&self.conn.peer),
            format_args!(
                "refused a request of {length} bytes (op {}), the limit is {max}; raise max_frame_bytes or send less",
                header.op
            ),
        );
        Some(header)
    }

    /// A reply that needs nothing from the core but its place behind the requests that went there. How many replies that
    /// was at once.
    fn in_turn(
        &mut self,
        xid: i32,
        zxid: i64,
        code: ErrorCode,
        close: bool,
        identity: &Arc<baton_tree::Identity>,
    ) -> u64 {
        if self.in_flight == 0 && self.work.is_empty() {
            reply(&mut self.out, xid, zxid, code);
            if close {
                self.close_after = Some(CloseReason::BadRequest);
            }
            1
        } else {
            let mut frame = Vec::with_capacity(20);
            reply(&mut frame, xid, zxid, code);
            self.queue(xid, Kind::Ready { close_after: close }, &frame, identity);
            self.last_taken = close;
            0
        }
    }

    /// The connection's first bytes.
    fn start(&mut self) -> Result<Need, End> {
        let Some(first) = self.input.first_chunk::<4>() else {
            return Ok(Need::Input);
        };
        if let Some(word) = words::recognise(*first) {
            let Some(argument) = word.argument(&self.input) else {
                return Ok(Need::Input);
            };
            self.out
                .extend_from_slice(words::answer(&self.shared, word, argument).as_bytes());
            self.close_after = Some(CloseReason::SessionClosed);
            return Ok(Need::Room);
        }
        let input = std::mem::take(&mut self.input);
        let outcome = match whole_frame(&input, self.shared.limits.max_frame_bytes) {
            Ok(Some((frame, after))) => {
                let used = input.len() - after.len();
                handshake::request(
                    &self.shared,
                    &self.conn,
                    frame,
                    &mut self.work,
                    self.read_at,
                )
                .map(|()| Some(used))
                .map_err(|what| (Notice::BadFrame, what))
            }
            Ok(None) => Ok(None),
            Err(error) => Err((self.no_frame(&error), error.to_string())),
        };
        self.input = input;
        match outcome {
            Ok(Some(used)) => {
                self.input.advance(used);
                self.phase = Phase::Attaching;
                self.shared.stats.received.fetch_add(1, Relaxed);
                self.conn.stats.received.fetch_add(1, Relaxed);
                self.submit();
                Ok(Need::Room)
            }
            Ok(None) => Ok(Need::Input),
            Err((notice, what)) => Err(End::Refused(notice, what)),
        }
    }
}
