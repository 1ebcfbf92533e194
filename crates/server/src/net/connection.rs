//! The task of one connection: reads what has arrived, answers reads at once, hands writes to the
//! core in one batch, writes what is ready with one system call. Keeps replies in request order and
//! a watch event before the first reply that shows its state. Never waits for another connection;
//! what it holds in memory has a bound (see [`Options`](crate::Options)).

mod costly;
mod identity;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Instant;

use baton_proto::{
    ConnectResponse, Decoder, ErrorCode, OpCode, Request, RequestHeader, TraceContext, frame,
};
use baton_tree::{AuthId, Identity};
use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::time::Sleep;

use crate::auth::acl_admission::with_refusals;
use crate::auth::sasl;
use crate::connections::conn::{CloseReason, Conn, Outlet, Taken};
use crate::connections::inbox::{Kind, Work};
use crate::connections::outbound::Pressure;
use crate::net::class::{self, Class};
use crate::net::end::{End, LINGER};
use crate::net::frames::{NextRequest, missing_bytes, next_request, reply, whole_frame};
use crate::net::handshake::{self, Opening};
use crate::net::share::QueueShare;
use crate::net::stream::{Input, Output, Stream};
use crate::net::turn::{Turn, give_way};
use crate::net::word_reply;
use crate::observers::traces::WriteOnItsWay;
use crate::operator::words;
use crate::read::answer::{self, Flow};
use crate::read::sliced::SlicedRead;
use crate::report::notice::Notice;
use crate::state::ServerState;
use crate::stats::requests::Tally;
use crate::time::micros;
use crate::watch::access::WatchAccess;

/// Bytes that one read asks the socket for.
const READ_BYTES: usize = 16 << 10;
/// Memory that an idle connection keeps.
const IDLE_BYTES: usize = 4 << 10;
/// Reads answered under one hold of the tree's lock.
const READS_PER_LOCK: usize = 32;
/// Reads that may wait behind a write: they are answered together.
const READS_BEHIND: usize = 32;
/// An answer of more bytes than this has the clock read behind it.
const COSTLY_ANSWER_BYTES: usize = 4 << 10;
/// Bytes of a turn that credentials count for: they are hashed, whatever their length is.
const PROOF_BYTES: usize = 4 << 10;
/// The longest first frame: a ConnectRequest has 45 bytes.
const FIRST_FRAME_BYTES: usize = 4 << 10;
/// Bytes that a connection without a request in flight may hand in though the queue is full.
const FREE_BYTES: usize = 4 << 10;
/// How a TLS handshake begins. As the length of a frame this would be over every limit.
const TLS_RECORD: [u8; 2] = [0x16, 0x03];
/// A request's length, xid and operation.
const HEAD_BYTES: usize = frame::LENGTH_BYTES + 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first four bytes say whether this is a session or a four-letter word.
    Start,
    /// The log has to take the session up.
    Attaching,
    /// Requests.
    Open,
}

/// What [`Connection::process`] waits for.
#[derive(Debug, PartialEq, Eq)]
enum Need {
    /// More bytes.
    Input,
    /// Room, which the core makes with answers and the client by reading.
    Room,
    /// Other connections, which get their turn first.
    Turn,
    /// Room in the queue of the core.
    Queue,
    /// The core's answers to all that was asked before.
    Answers,
}

/// The task of one connection.
pub(crate) struct Connection {
    state: Arc<ServerState>,
    conn: Arc<Conn>,
    socket: Input,
    input: BytesMut,
    outlet: Arc<Output>,
    out: Vec<u8>,
    written: usize,
    /// Bytes that may wait for the client to read them before a further request is taken on.
    share: usize,
    phase: Phase,
    /// Whether the server is one of an ensemble.
    is_member: bool,
    /// Whether the session is one of read-only mode. Then the core gets no request.
    is_read_only: bool,
    /// Requests that the core has not answered.
    in_flight: usize,
    /// Pings that it has not answered, those in `work` included: a server of an ensemble hands them
    /// to the core. Nothing waits for them.
    pings: usize,
    /// Bytes of those that it answers in turn.
    queue_share: QueueShare,
    /// Reads among them, since there were none last.
    reads_behind: usize,
    /// The request that is being answered in slices. None behind it is taken on meanwhile.
    sliced: Option<Box<SlicedRead>>,
    work: Work,
    /// Bytes of a request over the limit that are still to come.
    discard: usize,
    /// Delay before the credentials that are next in `input` are judged.
    pause: Option<Pin<Box<Sleep>>>,
    /// Whether they are judged then, or ask again for a turn.
    has_turn: bool,
    /// Whether those credentials may be judged now.
    judge_now: bool,
    /// What a SASL exchange waits for.
    sasl: sasl::Exchange,
    /// The identities that the client has to have proved, because its session is bound to them.
    bound_to: Box<[AuthId]>,
    /// The word that came in place of a session, and its argument.
    word: Option<(words::Word, i64)>,
    read_at: Instant,
    turn: Turn,
    /// A request has been taken on since what waits in `input` was counted last.
    taken_on: bool,
    /// A reply after which the connection is to be closed has been put into `out`.
    close_after: Option<CloseReason>,
    /// A request has been handed to the core after which the connection ends: none behind it
    /// counts.
    last_taken: bool,
    /// The trace of the next request, as far as its client has said one.
    trace: Option<TraceContext>,
}

impl Connection {
    pub(crate) fn new(state: Arc<ServerState>, conn: Arc<Conn>, stream: Stream) -> Self {
        let read_at = state.time.now();
        let is_member = state.ensemble.is_some();
        let (socket, outlet) = stream.into_halves();
        let outlet = Arc::new(outlet);
        conn.reads_from(&(Arc::clone(&outlet) as Arc<dyn Outlet>));
        Self {
            state,
            conn,
            socket,
            input: BytesMut::new(),
            outlet,
            out: Vec::new(),
            written: 0,
            share: 0,
            phase: Phase::Start,
            is_member,
            is_read_only: false,
            in_flight: 0,
            pings: 0,
            queue_share: QueueShare::default(),
            reads_behind: 0,
            sliced: None,
            work: Work::default(),
            discard: 0,
            pause: None,
            has_turn: false,
            judge_now: false,
            sasl: sasl::Exchange::default(),
            bound_to: Box::default(),
            word: None,
            read_at,
            turn: Turn::default(),
            taken_on: false,
            close_after: None,
            last_taken: false,
            trace: None,
        }
    }

    /// Serves the connection to its end. Cancelling drops the socket; what was handed to the core
    /// is still done.
    /// A client that has not named its session at `deadline` is closed.
    pub(crate) async fn serve(mut self, deadline: tokio::time::Instant) -> End {
        let opening = tokio::time::timeout_at(deadline, poll_fn(|cx| self.poll(cx, true)));
        let end = match opening.await {
            Ok(None) => match self.word {
                // Boxed so that the future of a connection with a session stays small.
                Some((word, argument)) => return Box::pin(self.answer_word(word, argument)).await,
                None => poll_fn(|cx| self.poll(cx, false)).await,
            },
            Ok(end) => end,
            Err(_) => Some(self.late()),
        };
        match end {
            Some(End::Closed(CloseReason::TooSlow)) => {
                let stats = &self.state.stats;
                stats.slow_readers_closed.fetch_add(1, Relaxed);
            }
            Some(End::Closed(CloseReason::AllTooSlow)) => {
                let stats = &self.state.stats;
                stats.slow_readers_closed.fetch_add(1, Relaxed);
                stats.all_too_slow_closed.fetch_add(1, Relaxed);
            }
            Some(End::Closed(CloseReason::Unfinished)) => {
                let stats = &self.state.stats;
                stats.unfinished_closed.fetch_add(1, Relaxed);
            }
            Some(End::Closed(_)) if self.state.outbound.pressure() == Pressure::None => {
                self.linger().await;
            }
            _ => {}
        }
        end.unwrap_or(End::Gone)
    }

    async fn answer_word(&mut self, word: words::Word, argument: i64) -> End {
        let (state, conn) = (&self.state, &self.conn);
        word_reply::send(state, conn, &mut self.socket, &self.outlet, word, argument).await
    }

    /// Ends a connection whose handshake timed out: the client has not named its session, or the
    /// log has not taken the session up.
    fn late(&self) -> End {
        let stats = &self.state.stats;
        if self.phase != Phase::Attaching {
            stats.handshakes_timed_out.fetch_add(1, Relaxed);
            let what = "it did not name its session in time".to_owned();
            return End::Refused(Notice::NoSession, what);
        }
        stats.handshakes_unanswered.fetch_add(1, Relaxed);
        let waited = self.state.options.handshake_timeout;
        let cause = self.state.why_writes_wait();
        End::Refused(
            Notice::NotOpened,
            format!("its session could not be written down within {waited:?}: {cause}"),
        )
    }

    /// Lets the client fetch the last bytes: closing with unread input would make the kernel throw
    /// them away.
    async fn linger(&mut self) {
        let mut sink = [0_u8; 1024];
        let drain = async {
            poll_fn(|cx| self.poll_flush(cx)).await?;
            self.outlet.shutdown()?;
            while self.socket.read(&mut sink).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(LINGER, drain).await;
    }

    /// Ready with `None` once the session is attached, if `opening`.
    fn poll(&mut self, cx: &mut Context<'_>, opening: bool) -> Poll<Option<End>> {
        self.turn = Turn::default();
        loop {
            let pressure = self.relieve();
            // One byte more than the share makes it full.
            let room = (self.written + self.share).saturating_add(1);
            let before = self.out.len();
            let taken = self.conn.take(&mut self.out, room);
            self.turn.count(self.out.len() - before);
            self.answered(taken);
            if self.phase == Phase::Attaching && self.conn.attached().is_some() {
                self.phase = Phase::Open;
                self.learn_binding();
            }
            let mut need = Need::Room;
            let mut closing = taken.closing.or(self.close_after);
            if closing.is_none() && pressure != Pressure::Over {
                match self.process() {
                    Ok(_) if self.word.is_some() => return Poll::Ready(None),
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
            let unwritten = self.out.len() - self.written + self.outlet.unsent_bytes();
            self.conn
                .set_unwritten(unwritten, || self.state.time.now_ms());
            let taken_on = std::mem::take(&mut self.taken_on);
            let unfinished = self.input.len() + self.outlet.unfinished_bytes();
            self.state.set_unfinished(&self.conn, unfinished, taken_on);
            let over = pressure == Pressure::Over;
            if closing.is_none() && (over || need == Need::Turn) {
                // Over the bound: the connections that are being ended go first.
                return give_way(cx);
            }
            let mut progress = false;
            if closing.is_none() {
                if need == Need::Input {
                    self.conn.set_reading(true);
                    let read = self.poll_input(cx);
                    let counted = match &read {
                        Poll::Ready(Ok(bytes)) if *bytes > 0 => self.count_input(*bytes),
                        _ => Ok(()),
                    };
                    self.conn.set_reading(false);
                    match read {
                        Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => {
                            return Poll::Ready(Some(End::Gone));
                        }
                        Poll::Ready(Ok(_)) => {
                            if let Err(end) = counted {
                                return Poll::Ready(Some(end));
                            }
                            progress = true;
                        }
                        Poll::Pending => {}
                    }
                } else if need == Need::Queue {
                    progress = !self.state.inbox.wait_for_room(cx.waker());
                } else if need == Need::Room && self.has_room() && self.phase != Phase::Attaching {
                    progress = true;
                }
            }
            if let Some(pause) = &mut self.pause
                && pause.as_mut().poll(cx).is_ready()
            {
                self.pause = None;
                self.judge_now = self.has_turn;
                progress = true;
            }
            if progress {
                if self.turn.is_full() {
                    return give_way(cx);
                }
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
        let wanted = missing_bytes(&self.input).unwrap_or(0);
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
                    if self.written > self.state.options.max_outbound_bytes
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
        self.outlet.poll_flush(cx)
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

    /// Counts what has just been read: for the turn, and for the session's clock if it ends a
    /// request. Half a request, sent byte by byte, does not touch the session.
    fn count_input(&mut self, bytes: usize) -> Result<(), End> {
        self.read_at = self.state.time.now();
        self.turn.count(bytes);
        if self.turn.is_over(self.read_at) {
            // Checked before the next read, which then waits for another turn.
            self.turn.use_up();
        }
        if self.request_is_whole()
            && let Some(attached) = self.conn.attached()
            && !attached.touch.touch(self.state.time.at_ms(self.read_at))
        {
            return Err(End::Closed(CloseReason::SessionExpired));
        }
        Ok(())
    }

    /// Whether the first request in `input` has arrived to its end.
    fn request_is_whole(&self) -> bool {
        if self.discard > 0 {
            return self.input.len() >= self.discard;
        }
        missing_bytes(&self.input) == Some(0)
    }

    /// Whether the unread bytes are at their bound.
    fn is_full(&self) -> bool {
        self.out.len() - self.written > self.share
    }

    /// Ends connections where too much waits for all clients; returns the pressure that is left.
    fn relieve(&mut self) -> Pressure {
        let mut pressure = self.state.outbound.pressure();
        if pressure == Pressure::Over && !self.state.outbound.is_being_relieved() {
            let mut wake = Vec::new();
            self.state.relieve(&mut wake);
            for conn in wake {
                conn.wake(false);
            }
            pressure = self.state.outbound.pressure();
        }
        self.share = self.state.outbound.share(pressure);
        pressure
    }

    /// The core has answered requests.
    fn answered(&mut self, taken: Taken) {
        self.in_flight = self.in_flight.saturating_sub(taken.answered as usize);
        self.pings = self.pings.saturating_sub(taken.pongs as usize);
        let in_turn = taken.answered.saturating_sub(taken.pongs);
        self.queue_share.answered(in_turn as usize);
        if self.in_flight <= self.pings {
            self.reads_behind = 0;
        }
    }

    /// Whether the core has everything answered that a reply must not overtake.
    fn may_answer(&self) -> bool {
        self.in_flight == self.pings && self.work.is_empty()
    }

    /// Whether a further request may be taken on.
    fn has_room(&self) -> bool {
        let options = &self.state.options;
        !self.last_taken
            && self.pause.is_none()
            && !self.is_full()
            && self.in_flight + self.work.len() < options.max_requests_in_flight
            && self.reads_behind < READS_BEHIND
            && (self.may_hand_in_freely() || self.state.inbox.has_room(self.queued_bytes()))
    }

    /// Bytes of its requests that wait for the core.
    fn queued_bytes(&self) -> usize {
        self.queue_share.bytes() + self.work.data.len()
    }

    /// Whether it hands in so few bytes that it may although the queue is full: otherwise nothing
    /// would wake it.
    fn may_hand_in_freely(&self) -> bool {
        self.in_flight == 0 && self.work.data.len() < FREE_BYTES
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
        if self.input.is_empty() && self.sliced.is_none() {
            return Ok(Need::Input);
        }
        let input = std::mem::take(&mut self.input);
        let mut rest: &[u8] = &input;
        let outcome = self.requests(&mut rest);
        let used = input.len() - rest.len();
        self.input = input;
        self.input.advance(used);
        self.taken_on |= used > 0;
        if used > 4 * READ_BYTES && self.input.len() < READ_BYTES {
            // The memory of a large request would stay with the beginning of the next.
            self.input = BytesMut::from(&*self.input);
        }
        self.submit();
        outcome
    }

    fn submit(&mut self) {
        if self.work.is_empty() {
            return;
        }
        self.in_flight += self.work.len();
        let in_turn = self.work.requests.iter();
        let in_turn = in_turn.filter(|request| request.kind != Kind::Ping).count();
        self.queue_share.add(in_turn, self.work.bytes());
        if !self.state.inbox.submit(&mut self.work) {
            self.close_after = Some(CloseReason::ServerStops);
        }
    }

    /// Takes requests from the front of `rest`.
    fn requests(&mut self, rest: &mut &[u8]) -> Result<Need, End> {
        let state = Arc::clone(&self.state);
        let conn = Arc::clone(&self.conn);
        let identity = conn.identity();
        let mut identity = identity;
        let mut tree = None;
        let mut under_lock = 0;
        let mut answered = 0;
        let mut received = 0;
        let counts = &state.stats.requests;
        let mut tally = Tally::default();
        let outcome = loop {
            if self.close_after.is_some() || !self.has_room() {
                break Ok(Need::Room);
            }
            if self.sliced.is_some() {
                tree = None;
                match self.next_slice(&identity, &mut tally) {
                    None => continue,
                    Some(Need::Input) => {
                        answered += 1;
                        continue;
                    }
                    Some(need) => break Ok(need),
                }
            }
            let (head, after) = match next_request(rest, state.limits.max_frame_bytes) {
                Ok(NextRequest::Whole(split)) => split,
                Ok(NextRequest::Incomplete) => break Ok(Need::Input),
                Ok(NextRequest::TooLarge(length)) => {
                    let Some(header) = self.discard_large(rest, length) else {
                        break Ok(Need::Input);
                    };
                    // It was that of this request.
                    self.trace = None;
                    received += 1;
                    answered += self.in_turn(
                        header.xid,
                        state.zxid(),
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
            if head.len() > FREE_BYTES && self.must_wait_in_queue(head) {
                break Ok(Need::Queue);
            }
            let unread = std::mem::replace(rest, after);
            received += 1;
            let mut decoder = Decoder::new(head, &state.limits);
            let header = match RequestHeader::decode(&mut decoder) {
                Ok(header) => header,
                Err(error) => break Err(End::Refused(Notice::BadFrame, error.to_string())),
            };
            if class::is_sliced(header.op) && !self.may_answer() {
                // Its place is behind all that was asked before, but not in the core.
                *rest = unread;
                received -= 1;
                break Ok(Need::Answers);
            }
            let body = decoder.rest();
            let mut claim = None;
            if let Some(proof) = class::proof(header.op) {
                claim = self.claim_of(proof, body);
                if let Some(wait) = claim.and_then(|claim| self.wait_before_judging(claim)) {
                    // Read again when their turn comes; so is what is behind them.
                    self.pause = Some(Box::pin(tokio::time::sleep(wait)));
                    *rest = unread;
                    received -= 1;
                    break Ok(Need::Room);
                }
            }
            if self.must_authenticate(header.op, &identity) {
                answered += self.refuse_unauthenticated(&header, &identity);
                tree = None;
                continue;
            }
            if header.op == TraceContext::OP && state.options.tracer.is_some() {
                self.trace = TraceContext::decode(body).filter(TraceContext::is_sampled);
                continue;
            }
            let trace = self.trace.take();
            tally.request(header.op, counts);
            conn.stats.last_op.store(header.op as u32 as u64, Relaxed);
            conn.stats
                .last_cxid
                .store(header.xid as u32 as u64, Relaxed);
            let class = if self.is_read_only {
                Class::in_read_only_mode(header.op)
            } else {
                Class::of_request(header.op, body, &state.limits, self.is_member)
            };
            if let Class::Read(op) = class
                && state.audit.is_some()
                && identity.is_super()
            {
                self.record_read(op, body, &identity);
            }
            match class {
                Class::Ping if self.is_member && !self.is_read_only => {
                    self.pings += 1;
                    self.queue(header.xid, Kind::Ping, &[], &identity);
                }
                Class::Ping => {
                    // protocol.md §3, watches; and zxids never fall from one reply to the next.
                    let now = conn.take_with_zxid(&mut self.out, || state.zxid());
                    let Some((taken, zxid)) = now else {
                        *rest = unread;
                        received -= 1;
                        break Ok(Need::Room);
                    };
                    self.answered(taken);
                    if taken.closing.is_some() {
                        break Ok(Need::Room);
                    }
                    reply(&mut self.out, header.xid, zxid, ErrorCode::Ok);
                    answered += 1;
                }
                Class::Read(op) if self.may_answer() => {
                    let guard = match &tree {
                        Some(guard) => guard,
                        None => {
                            let guard = tree.insert(state.tree.read());
                            // Events up to the state that this read is about to show; some may be
                            // missing from a connection that is to end.
                            let taken = conn.take(&mut self.out, usize::MAX);
                            // Pongs may be among it.
                            self.answered(taken);
                            if taken.closing.is_some() {
                                break Ok(Need::Room);
                            }
                            guard
                        }
                    };
                    let watches = WatchAccess::Lock(&state.watches);
                    let request = answer::Asked {
                        conn: &conn,
                        identity: &identity,
                        op,
                        xid: header.xid,
                        body,
                    };
                    let before = self.out.len();
                    let flow = answer::answer_read(guard, &state, watches, &request, &mut self.out);
                    let bytes = self.out.len() - before;
                    match flow {
                        Flow::Continue => {}
                        Flow::Close => self.close_after = Some(CloseReason::BadRequest),
                        Flow::Listing(listing) => {
                            tally.answer(listing.left());
                            answered += 1;
                            // It waits where the core's answers wait, as one of them.
                            self.in_flight += 1;
                            self.queue_share.add(1, 0);
                            let mut wake = Vec::new();
                            conn.push_answer(&mut wake, |_| Some(listing));
                            for conn in wake {
                                conn.wake(false);
                            }
                            break Ok(Need::Room);
                        }
                        Flow::Sliced(read) => {
                            self.sliced = Some(read);
                            continue;
                        }
                    }
                    tally.answer(bytes);
                    answered += 1;
                    under_lock += 1;
                    self.turn.count(bytes);
                    if bytes > COSTLY_ANSWER_BYTES || under_lock % READS_PER_LOCK == 0 {
                        tree = None;
                        if self.turn.is_over(state.time.now()) {
                            break Ok(Need::Turn);
                        }
                    }
                    continue;
                }
                Class::Read(op) => self.queue(header.xid, Kind::Read(op), body, &identity),
                Class::Write(OpCode::Multi) if self.is_over_bounds(body, &identity) => {
                    let (zxid, code) = (state.zxid(), ErrorCode::BadArguments);
                    answered += self.in_turn(header.xid, zxid, code, false, &identity);
                }
                Class::Write(op) => {
                    let (limits, options) = (&state.limits, &state.options);
                    let changed = with_refusals(op, body, &identity, limits, options);
                    if changed
                        .as_ref()
                        .is_some_and(|request| request.is_over_bounds)
                    {
                        self.report_large_acl(op);
                    }
                    let body = changed.as_ref().map_or(body, |request| &request.body);
                    self.queue(header.xid, Kind::Write(op), body, &identity);
                    if let Some(trace) = trace {
                        self.trace(trace, op, body);
                    }
                }
                Class::NotReadOnly => {
                    let (zxid, code) = (state.zxid(), ErrorCode::NotReadOnly);
                    answered += self.in_turn(header.xid, zxid, code, false, &identity);
                }
                Class::CloseSession if self.is_read_only => {
                    reply(&mut self.out, header.xid, state.zxid(), ErrorCode::Ok);
                    self.close_after = Some(CloseReason::SessionClosed);
                    answered += 1;
                }
                Class::CloseSession => {
                    self.queue(header.xid, Kind::CloseSession, body, &identity);
                    self.last_taken = true;
                }
                Class::Auth => {
                    answered += self.auth_step(header.xid, body, claim, &mut identity);
                }
                Class::Sasl => {
                    // It looks at the tree, too.
                    drop(tree.take());
                    answered += self.sasl_step(header.xid, body, claim, &mut identity);
                }
                Class::Refused(code) => {
                    let zxid = if code == ErrorCode::Unimplemented {
                        -1
                    } else {
                        state.zxid()
                    };
                    answered += self.in_turn(header.xid, zxid, code, true, &identity);
                    state.notice(
                        Notice::BadFrame,
                        Some(&conn.peer),
                        format_args!("connection closed: it asked for op {}: {code}", header.op),
                    );
                }
            }
            tree = None;
            if class::proof(header.op).is_some() {
                self.turn.count(PROOF_BYTES);
                if self.turn.is_full() {
                    break Ok(Need::Turn);
                }
            }
        };
        drop(tree);
        counts.add(&tally);
        if received > 0 {
            state.stats.received.fetch_add(received, Relaxed);
            conn.stats.received.fetch_add(received, Relaxed);
        }
        if answered > 0 {
            let now = state.time.now();
            let micros = micros(now.saturating_duration_since(self.read_at));
            state.stats.sent.fetch_add(answered, Relaxed);
            state.stats.reads.record_all(answered, micros);
            let now_ms = state.time.at_ms(now);
            conn.stats.answered(answered, micros, state.zxid(), now_ms);
        }
        outcome
    }

    /// Whether a large request has to wait until less is queued. One behind others of its
    /// connection is held by [`Connection::has_room`].
    fn must_wait_in_queue(&self, head: &[u8]) -> bool {
        if self.is_read_only || self.in_flight > 0 || !self.state.inbox.is_full() {
            return false;
        }
        let header = RequestHeader::decode(&mut Decoder::new(head, &self.state.limits));
        header.is_ok_and(|header| matches!(Class::of(header.op), Class::Write(_)))
    }

    /// The kind of log line for a broken frame; counts one that is too long.
    fn no_frame(&self, error: &frame::FrameError) -> Notice {
        if matches!(error, frame::FrameError::TooLong { .. }) {
            let stats = &self.state.stats;
            stats.large_requests.fetch_add(1, Relaxed);
            return Notice::LargeRequest;
        }
        Notice::BadFrame
    }

    fn queue(&mut self, xid: i32, kind: Kind, body: &[u8], identity: &Arc<Identity>) {
        if self.work.is_empty() {
            self.work.begin(&self.conn, identity, self.read_at);
        }
        self.reads_behind += usize::from(matches!(kind, Kind::Read(_)));
        self.work.push(xid, kind, body);
    }

    /// Notes that the client traces the write that was queued last.
    fn trace(&mut self, trace: TraceContext, op: OpCode, body: &[u8]) {
        let request = Request::decode(op, body, &self.state.limits).ok();
        let path = request.as_ref().and_then(Request::path);
        let write = WriteOnItsWay::new(trace, op, path, self.read_at);
        self.work.trace(write);
    }

    /// Begins to throw a request away that is over the limit; what it asks for, once that has
    /// arrived.
    fn discard_large(&mut self, rest: &mut &[u8], length: usize) -> Option<RequestHeader> {
        let (head, after) = rest.split_at_checked(HEAD_BYTES)?;
        let head = head.get(frame::LENGTH_BYTES..).unwrap_or_default();
        let header = RequestHeader::decode(&mut Decoder::new(head, &self.state.limits)).ok()?;
        let body = length.saturating_sub(head.len());
        let here = body.min(after.len());
        *rest = after.get(here..).unwrap_or_default();
        self.discard = body - here;
        let stats = &self.state.stats;
        stats.large_requests.fetch_add(1, Relaxed);
        let max = self.state.limits.max_frame_bytes;
        self.state.notice(
            Notice::LargeRequest,
            Some(&self.conn.peer),
            format_args!(
                "refused a request of {length} bytes (op {}), the limit is {max}; raise max_frame_bytes or send less",
                header.op
            ),
        );
        Some(header)
    }

    /// A reply that needs nothing from the core but its place behind the requests that went there.
    /// How many replies that was at once.
    fn in_turn(
        &mut self,
        xid: i32,
        zxid: i64,
        code: ErrorCode,
        close: bool,
        identity: &Arc<Identity>,
    ) -> u64 {
        let mut frame = Vec::with_capacity(20);
        reply(&mut frame, xid, zxid, code);
        self.frame_in_turn(xid, &frame, close, identity)
    }

    /// As [`Connection::in_turn`], of a reply that is a frame already.
    fn frame_in_turn(
        &mut self,
        xid: i32,
        frame: &[u8],
        close: bool,
        identity: &Arc<Identity>,
    ) -> u64 {
        if self.may_answer() {
            self.out.extend_from_slice(frame);
            if close {
                self.close_after = Some(CloseReason::BadRequest);
            }
            1
        } else {
            self.queue(xid, Kind::Ready { close_after: close }, frame, identity);
            self.last_taken = close;
            0
        }
    }

    /// Answers the client whose session is one of read-only mode, or is refused there.
    fn open_read_only(&mut self, answer: &ConnectResponse) {
        frame::write_connect_response(&mut self.out, answer);
        self.phase = Phase::Open;
        self.learn_binding();
        self.is_read_only = true;
        if !self.conn.is_read_only() {
            self.close_after = Some(CloseReason::SessionRefused);
        }
        let state = &self.state;
        state.stats.sent.fetch_add(1, Relaxed);
        let now = state.time.now();
        let micros = micros(now.saturating_duration_since(self.read_at));
        let now_ms = state.time.at_ms(now);
        self.conn.stats.answered(1, micros, state.zxid(), now_ms);
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
            self.word = Some((word, argument));
            return Ok(Need::Room);
        }
        if first.starts_with(&TLS_RECORD) {
            let what = "it wants to speak TLS to a port without TLS; let it connect without TLS, or give this port TLS (secure_listen, port_unification)";
            return Err(End::Refused(Notice::BadFrame, what.to_owned()));
        }
        let input = std::mem::take(&mut self.input);
        let max_bytes = self.state.limits.max_frame_bytes.min(FIRST_FRAME_BYTES);
        let outcome = match whole_frame(&input, max_bytes) {
            Ok(Some((frame, after))) => {
                let used = input.len() - after.len();
                handshake::request(&self.state, &self.conn, frame, &mut self.work, self.read_at)
                    .map(|opening| Some((used, opening)))
                    .map_err(|what| (Notice::BadFrame, what))
            }
            Ok(None) => Ok(None),
            Err(error) => Err((self.no_frame(&error), error.to_string())),
        };
        self.input = input;
        match outcome {
            Ok(Some((used, opening))) => {
                self.input.advance(used);
                self.state.stats.received.fetch_add(1, Relaxed);
                self.conn.stats.received.fetch_add(1, Relaxed);
                match opening {
                    Opening::Asked => {
                        self.phase = Phase::Attaching;
                        self.submit();
                    }
                    Opening::Answered(answer) => self.open_read_only(&answer),
                }
                Ok(Need::Room)
            }
            Ok(None) => Ok(Need::Input),
            Err((notice, what)) => Err(End::Refused(notice, what)),
        }
    }
}
