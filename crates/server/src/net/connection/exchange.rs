//! The exchange of requests and replies with one client: what has arrived becomes work for the core
//! or replies, in order. Owns the states of a connection, and knows no socket: its task hands in
//! what it has read, and writes what is in [`Exchange::replies`].

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_proto::{TraceContext, frame};
use baton_tree::{AuthId, Identity};
use bytes::{Buf, BytesMut};

use super::replies::Replies;
use super::unanswered::Unanswered;
use crate::auth::sasl;
use crate::connections::conn::{CloseReason, Conn};
use crate::connections::inbox::{Kind, Work};
use crate::connections::outbound::Pressure;
use crate::net::end::End;
use crate::net::frames::missing_bytes;
use crate::net::turn::Turn;
use crate::operator::words;
use crate::read::sliced::SlicedRead;
use crate::report::notice::Notice;
use crate::state::ServerState;

/// Bytes that one read asks the socket for.
pub(super) const READ_BYTES: usize = 16 << 10;
/// Bytes that a connection without a request in flight may hand in though the queue is full.
pub(super) const FREE_BYTES: usize = 4 << 10;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The first four bytes say whether this is a session or a four-letter word.
    Start,
    /// The word that came in place of a session, and its argument.
    Word(words::Word, i64),
    /// The log has to take the session up.
    Attaching,
    /// Requests.
    Open,
    /// Requests of a session of read-only mode. The core gets none of them.
    ReadOnly,
}

/// A condition that [`Exchange::advance`] waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
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
    /// The end of the connections that use up the bound of all replies.
    Relief,
    /// The end of this connection.
    End(CloseReason),
}

/// The exchange with one client.
pub(crate) struct Exchange {
    pub(super) state: Arc<ServerState>,
    pub(super) conn: Arc<Conn>,
    pub(super) input: BytesMut,
    pub(super) replies: Replies,
    pub(super) phase: Phase,
    /// Whether the server is one of an ensemble.
    pub(super) is_member: bool,
    pub(super) unanswered: Unanswered,
    /// The request that is being answered in slices. None behind it is taken on meanwhile.
    pub(super) sliced: Option<Box<SlicedRead>>,
    /// Requests that are handed to the core next.
    pub(super) work: Work,
    /// Bytes of a request over the limit that are still to come.
    pub(super) discard: usize,
    /// Delay before the credentials that are next in `input` are judged.
    pub(super) pause: Option<Duration>,
    /// Whether they are judged then, or ask again for a turn.
    pub(super) has_turn: bool,
    /// Whether those credentials may be judged now.
    pub(super) judge_now: bool,
    /// The SASL exchange that is under way.
    pub(super) sasl: sasl::Exchange,
    /// The identities that the client has to have proved, because its session is bound to them.
    pub(super) bound_to: Box<[AuthId]>,
    pub(super) read_at: Instant,
    pub(super) turn: Turn,
    /// A request has been taken on since what waits in `input` was counted last.
    taken_on: bool,
    /// A reply after which the connection is to be closed has been written.
    pub(super) close_after: Option<CloseReason>,
    /// A request has been handed to the core after which the connection ends: none behind it
    /// counts.
    pub(super) last_taken: bool,
    /// The trace of the next request, as far as its client has said one.
    pub(super) trace: Option<TraceContext>,
}

impl Exchange {
    pub(super) fn new(state: Arc<ServerState>, conn: Arc<Conn>) -> Self {
        let read_at = state.time.now();
        let is_member = state.ensemble.is_some();
        Self {
            state,
            conn,
            input: BytesMut::new(),
            replies: Replies::default(),
            phase: Phase::Start,
            is_member,
            unanswered: Unanswered::default(),
            sliced: None,
            work: Work::default(),
            discard: 0,
            pause: None,
            has_turn: false,
            judge_now: false,
            sasl: sasl::Exchange::default(),
            bound_to: Box::default(),
            read_at,
            turn: Turn::default(),
            taken_on: false,
            close_after: None,
            last_taken: false,
            trace: None,
        }
    }

    /// Takes the core's answers, and then every whole request that has arrived, as far as there is
    /// room. Returns what is needed for more.
    pub(super) fn advance(&mut self) -> Result<WaitReason, End> {
        let pressure = self.relieve();
        let before = self.replies.len();
        let room = self.replies.room();
        let taken = self.conn.take(self.replies.out(), room);
        self.turn.count(self.replies.len() - before);
        self.unanswered.answered(taken);
        if self.phase == Phase::Attaching && self.conn.attached().is_some() {
            self.phase = Phase::Open;
            self.learn_binding();
        }
        if let Some(reason) = taken.closing.or(self.close_after) {
            return Ok(WaitReason::End(reason));
        }
        if pressure == Pressure::Over {
            return Ok(WaitReason::Relief);
        }
        let need = self.process()?;
        Ok(self.close_after.map_or(need, WaitReason::End))
    }

    /// Takes on every whole request that has arrived, as far as there is room.
    fn process(&mut self) -> Result<WaitReason, End> {
        match self.phase {
            Phase::Attaching | Phase::Word(..) => return Ok(WaitReason::Room),
            Phase::Start => return self.start(),
            Phase::Open | Phase::ReadOnly => {}
        }
        let discarded = self.discard.min(self.input.len());
        self.input.advance(discarded);
        self.discard -= discarded;
        if self.input.is_empty() && self.sliced.is_none() {
            return Ok(WaitReason::Input);
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

    /// Hands the requests that were taken on to the core.
    pub(super) fn submit(&mut self) {
        if self.work.is_empty() {
            return;
        }
        let requests = self.work.requests.iter();
        let pings = requests.filter(|it| it.kind == Kind::Ping).count();
        self.unanswered
            .add(self.work.len(), pings, self.work.bytes());
        if !self.state.inbox.submit(&mut self.work) {
            self.close_after = Some(CloseReason::ServerStops);
        }
    }

    /// Bytes have been read into `input`. They count for the turn, and for the session's clock if
    /// they end a request. Half a request, sent byte by byte, does not touch the session.
    pub(super) fn received(&mut self, bytes: usize) -> Result<(), End> {
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
        self.replies.set_share(self.state.outbound.share(pressure));
        pressure
    }

    /// Counts what waits: replies that were not sent, and bytes that are no whole request yet.
    /// `unsent` and `unread` are what the socket holds of both.
    pub(super) fn count_waiting(&mut self, unsent: usize, unread: usize) {
        let unwritten = self.replies.unwritten() + unsent;
        self.conn
            .set_unwritten(unwritten, || self.state.time.now_ms());
        let taken_on = std::mem::take(&mut self.taken_on);
        let unfinished = self.input.len() + unread;
        self.state.set_unfinished(&self.conn, unfinished, taken_on);
    }

    /// Whether the core has everything answered that a reply must not overtake.
    pub(super) fn may_answer(&self) -> bool {
        self.unanswered.is_pings_only() && self.work.is_empty()
    }

    /// Whether a further request may be taken on.
    pub(super) fn has_room(&self) -> bool {
        let options = &self.state.options;
        self.phase != Phase::Attaching
            && !self.last_taken
            && self.pause.is_none()
            && !self.replies.is_full()
            && self.unanswered.requests() + self.work.len() < options.max_requests_in_flight
            && !self.unanswered.has_most_reads()
            && (self.may_hand_in_freely() || self.state.inbox.has_room(self.queued_bytes()))
    }

    /// Bytes of its requests that wait for the core.
    fn queued_bytes(&self) -> usize {
        self.unanswered.bytes() + self.work.data.len()
    }

    /// Whether it hands in so few bytes that it may although the queue is full: otherwise nothing
    /// would wake it.
    fn may_hand_in_freely(&self) -> bool {
        self.unanswered.requests() == 0 && self.work.data.len() < FREE_BYTES
    }

    /// The delay before the next credentials are judged is over.
    pub(super) fn end_pause(&mut self) {
        self.pause = None;
        self.judge_now = self.has_turn;
    }

    /// Adds a request to those that are handed to the core next.
    pub(super) fn queue(&mut self, xid: i32, kind: Kind, body: &[u8], identity: &Arc<Identity>) {
        if self.work.is_empty() {
            self.work.begin(&self.conn, identity, self.read_at);
        }
        match kind {
            Kind::Ping => self.unanswered.add_ping(),
            Kind::Read(_) => self.unanswered.add_read(),
            _ => {}
        }
        self.work.push(xid, kind, body);
    }

    /// The kind of log line for a broken frame; counts one that is too long.
    pub(super) fn no_frame(&self, error: &frame::FrameError) -> Notice {
        if matches!(error, frame::FrameError::TooLong { .. }) {
            let stats = &self.state.stats;
            stats.large_requests.fetch_add(1, Relaxed);
            return Notice::LargeRequest;
        }
        Notice::BadFrame
    }
}

#[cfg(test)]
mod tests {
    use baton_proto::{
        AuthPacket, ConnectRequest, Create, CreateOp, Decoder, ErrorCode, OpCode, PASSWORD_BYTES,
        ReplyHeader, Request, xid,
    };

    use super::*;
    use crate::connections::conn::Attached;
    use crate::connections::peer::Peer;
    use crate::connections::touch::Touch;
    use crate::options::Options;

    const PASSWORD: [u8; PASSWORD_BYTES] = [7; PASSWORD_BYTES];
    const READ: Request<'static> = Request::Exists {
        path: "/nothing",
        watch: false,
    };

    /// An exchange whose client and core are the test.
    struct Stage {
        state: Arc<ServerState>,
        exchange: Exchange,
    }

    impl Stage {
        fn new(options: Options) -> Self {
            let state = crate::state::tests::state(options);
            let conn = state.open(Peer::Local).unwrap();
            let exchange = Exchange::new(Arc::clone(&state), conn);
            Self { state, exchange }
        }

        /// With its session attached.
        fn open(options: Options) -> Self {
            let mut stage = Self::new(options);
            stage.send(&hello()).unwrap();
            stage.handed_in();
            stage.attach();
            assert_eq!(stage.exchange.advance().unwrap(), WaitReason::Input);
            stage
        }

        fn send(&mut self, bytes: &[u8]) -> Result<WaitReason, End> {
            self.exchange.input.extend_from_slice(bytes);
            self.exchange.received(bytes.len())?;
            self.exchange.advance()
        }

        fn ask(&mut self, xid: i32, request: &Request<'_>) -> WaitReason {
            self.send(&request_bytes(xid, request)).unwrap()
        }

        fn attach(&self) {
            self.exchange.conn.attach(Attached {
                session: 7,
                timeout_ms: 4000,
                touch: Touch::new(0),
                nonce: None,
                last_sequence: 0.into(),
                is_read_only: false,
                stored_identity: Default::default(),
            });
            self.answer(1, |_| {});
        }

        /// Answers as the core does.
        fn answer(&self, requests: u32, write: impl FnOnce(&mut Vec<u8>)) {
            self.exchange.conn.push(requests, &mut Vec::new(), write);
        }

        fn answer_write(&self, xid: i32) {
            self.answer(1, |out| {
                crate::net::frames::reply(out, xid, 1, ErrorCode::Ok)
            });
        }

        /// Requests that have been handed to the core since the last call.
        fn handed_in(&self) -> Vec<Kind> {
            let mut work = Work::default();
            self.state.inbox.take(&mut work);
            work.requests.iter().map(|request| request.kind).collect()
        }

        /// Has the client read everything: the xids of the replies, with their codes.
        fn replies(&mut self) -> Vec<(i32, i32)> {
            let bytes = std::mem::take(self.exchange.replies.out());
            let mut rest = bytes.as_slice();
            let mut replies = Vec::new();
            while let Some((frame, after)) =
                crate::net::frames::whole_frame(rest, usize::MAX).unwrap()
            {
                let header = ReplyHeader::decode(&mut Decoder::new(frame, &self.state.limits));
                let header = header.unwrap();
                replies.push((header.xid, header.err));
                rest = after;
            }
            replies
        }
    }

    #[test]
    fn an_idle_connection_has_no_buffers_and_one_with_half_a_request_keeps_it() {
        let mut stage = Stage::open(Options::default());
        let memory = |exchange: &mut Exchange| {
            (exchange.input.capacity(), exchange.replies.out().capacity())
        };
        stage.exchange.return_buffers();
        assert_eq!(memory(&mut stage.exchange), (0, 0));
        stage.exchange.take_buffers();
        stage.send(&[0, 0]).unwrap();
        stage.exchange.replies.out().push(1);
        stage.exchange.return_buffers();
        stage.exchange.take_buffers();
        assert_eq!(&stage.exchange.input[..], [0, 0]);
        assert_eq!(stage.exchange.replies.len(), 1);
        // What one leaves the next one of the thread has.
        let mut other = Stage::open(Options::default());
        other.exchange.input.reserve(READ_BYTES);
        other.exchange.return_buffers();
        let mut third = Stage::new(Options::default());
        third.exchange.take_buffers();
        assert!(third.exchange.input.capacity() >= READ_BYTES);
        third.exchange.input.reserve(8 * READ_BYTES);
        third.exchange.return_buffers();
        other.exchange.take_buffers();
        assert_eq!(other.exchange.input.capacity(), 0, "a burst's");
    }

    fn hello() -> Vec<u8> {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 4000,
            session_id: 7,
            password: &PASSWORD,
            read_only: None,
        };
        let mut out = Vec::new();
        frame::write_connect_request(&mut out, &request);
        out
    }

    fn request_bytes(xid: i32, request: &Request<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        frame::write_request(&mut out, xid, request);
        out
    }

    fn create(data: &[u8]) -> Request<'_> {
        Request::Create(Create {
            path: "/node",
            data: Some(data),
            acl: Some(Vec::new()),
            op: CreateOp::Create,
            flags: 0,
            ttl_ms: 0,
        })
    }

    #[test]
    fn a_session_goes_from_its_first_bytes_to_its_end() {
        let mut stage = Stage::new(Options::default());
        let hello = hello();
        let (half, rest) = hello.split_at(20);
        assert_eq!(stage.send(half).unwrap(), WaitReason::Input);
        assert_eq!(stage.exchange.phase, Phase::Start);
        // What comes behind the first frame waits until the session is attached.
        let mut rest = rest.to_vec();
        rest.extend(request_bytes(1, &READ));
        assert_eq!(stage.send(&rest).unwrap(), WaitReason::Room);
        assert_eq!(stage.exchange.phase, Phase::Attaching);
        assert!(!stage.exchange.has_room());
        assert!(matches!(
            stage.handed_in()[..],
            [Kind::Reattach { session: 7, .. }]
        ));
        assert_eq!(stage.exchange.advance().unwrap(), WaitReason::Room);
        assert_eq!(stage.replies(), []);
        stage.attach();
        assert_eq!(stage.exchange.advance().unwrap(), WaitReason::Input);
        assert_eq!(stage.exchange.phase, Phase::Open);
        assert_eq!(stage.replies(), [(1, ErrorCode::NoNode.code())]);
        assert_eq!(stage.ask(2, &Request::CloseSession), WaitReason::Room);
        assert_eq!(stage.handed_in(), [Kind::CloseSession]);
        assert_eq!(stage.ask(3, &create(b"")), WaitReason::Room);
        assert_eq!(stage.handed_in(), [], "nothing behind it counts");
        let conn = Arc::clone(&stage.exchange.conn);
        conn.close(CloseReason::SessionClosed, &mut Vec::new());
        let end = WaitReason::End(CloseReason::SessionClosed);
        assert_eq!(stage.exchange.advance().unwrap(), end);
    }

    #[test]
    fn a_read_behind_a_write_goes_to_the_core_and_one_behind_its_answer_does_not() {
        let mut stage = Stage::open(Options::default());
        let mut both = request_bytes(1, &create(b""));
        both.extend(request_bytes(2, &READ));
        assert_eq!(stage.send(&both).unwrap(), WaitReason::Input);
        let kinds = [Kind::Write(OpCode::Create), Kind::Read(OpCode::Exists)];
        assert_eq!(stage.handed_in(), kinds);
        stage.answer_write(1);
        assert_eq!(stage.ask(3, &READ), WaitReason::Input);
        assert_eq!(stage.handed_in(), [Kind::Read(OpCode::Exists)]);
        stage.answer_write(2);
        stage.answer_write(3);
        assert_eq!(stage.ask(4, &READ), WaitReason::Input);
        assert_eq!(stage.handed_in(), []);
        let replies = [(1, 0), (2, 0), (3, 0), (4, ErrorCode::NoNode.code())];
        assert_eq!(stage.replies(), replies);
    }

    #[test]
    fn a_login_counts_for_what_is_asked_for_behind_it() {
        let mut stage = Stage::open(Options::default());
        let auth = Request::Auth(AuthPacket {
            kind: 0,
            scheme: "digest",
            auth: Some(b"user:password"),
        });
        let mut all = request_bytes(1, &create(b""));
        all.extend(request_bytes(xid::AUTH, &auth));
        all.extend(request_bytes(2, &create(b"")));
        assert_eq!(stage.send(&all).unwrap(), WaitReason::Input);
        let mut work = Work::default();
        stage.state.inbox.take(&mut work);
        let writes = work
            .each()
            .filter(|(_, it)| it.kind == Kind::Write(OpCode::Create));
        let writes = writes.map(|(group, it)| (it.xid, group.identity.has("digest")));
        assert!(writes.eq([(1, false), (2, true)]));
        // Events are for the client as it is now.
        assert!(stage.exchange.conn.identity().has("digest"));
    }

    #[test]
    fn a_client_that_reads_nothing_gets_no_further_request_taken_on() {
        let mut stage = Stage::open(Options {
            max_outbound_bytes: 100,
            ..Options::default()
        });
        let mut many = Vec::new();
        for _ in 0..100 {
            many.extend(request_bytes(xid::PING, &Request::Ping));
        }
        assert_eq!(stage.send(&many).unwrap(), WaitReason::Room);
        assert!(!stage.exchange.has_room());
        let first = stage.replies().len();
        assert!((5..=6).contains(&first), "{first} replies of 20 bytes");
        assert!(stage.exchange.has_room());
        assert_eq!(stage.exchange.advance().unwrap(), WaitReason::Room);
        assert_eq!(stage.replies().len(), first);
    }

    #[test]
    fn a_request_over_the_limit_is_refused_in_its_place_and_thrown_away() {
        let mut stage = Stage::open(Options {
            max_frame_bytes: 1000,
            ..Options::default()
        });
        assert_eq!(stage.ask(1, &create(b"")), WaitReason::Input);
        let large = request_bytes(2, &create(&[0; 1500]));
        let (begin, end) = large.split_at(700);
        assert_eq!(stage.send(begin).unwrap(), WaitReason::Input);
        let mut end = end.to_vec();
        end.extend(request_bytes(3, &create(b"")));
        assert_eq!(stage.send(&end).unwrap(), WaitReason::Input);
        let create = Kind::Write(OpCode::Create);
        let ready = Kind::Ready { close_after: false };
        assert_eq!(stage.handed_in(), [create, ready, create]);
    }

    #[test]
    fn what_is_no_session_ends_the_exchange_or_is_a_word() {
        let mut stage = Stage::new(Options::default());
        assert_eq!(stage.send(b"ru").unwrap(), WaitReason::Input);
        stage.send(b"ok").unwrap();
        assert!(matches!(stage.exchange.phase, Phase::Word(..)));
        let refused = |bytes: &[u8]| match Stage::new(Options::default()).send(bytes) {
            Err(End::Refused(_, what)) => what,
            other => panic!("{other:?}"),
        };
        assert!(refused(&[0x16, 3, 1, 0]).contains("TLS"));
        assert!(refused(&i32::MAX.to_be_bytes()).contains("2147483647"));
    }
}
