//! Requests of a connection: each is decoded, and answered at once or queued for the core, by the
//! class of its operation.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_proto::{Decoder, ErrorCode, OpCode, Request, RequestHeader, TraceContext, frame};
use baton_tree::{Identity, Tree};
use parking_lot::RwLockReadGuard;

use super::exchange::{Exchange, FREE_BYTES, Phase, WaitReason};
use crate::auth::acl_admission::with_refusals;
use crate::auth::attempts::Claim;
use crate::connections::conn::CloseReason;
use crate::connections::inbox::Kind;
use crate::net::class::{self, Class};
use crate::net::end::End;
use crate::net::frames::{NextRequest, next_request, reply};
use crate::observers::traces::WriteOnItsWay;
use crate::read::answer::{self, Flow};
use crate::report::notice::Notice;
use crate::state::ServerState;
use crate::stats::requests::Tally;
use crate::time::micros;
use crate::watch::access::WatchAccess;

/// Reads answered under one hold of the tree's lock.
const READS_PER_LOCK: usize = 32;
/// An answer of more bytes than this has the clock read behind it.
const COSTLY_ANSWER_BYTES: usize = 4 << 10;
/// Bytes of a turn that credentials count for: they are hashed, whatever their length is.
const PROOF_BYTES: usize = 4 << 10;
/// A request's length, xid and operation.
const HEAD_BYTES: usize = frame::LENGTH_BYTES + 8;

/// The step behind a request: the next one, or what is needed before.
type Step = ControlFlow<Result<WaitReason, End>>;

/// Requests that are taken on in one go.
pub(super) struct Run<'a> {
    state: &'a ServerState,
    pub(super) identity: Arc<Identity>,
    /// Held from one read to the next.
    tree: Option<RwLockReadGuard<'a, Tree>>,
    under_lock: usize,
    received: u64,
    answered: u64,
    pub(super) tally: Tally,
}

impl Exchange {
    /// Takes requests from the front of `rest`.
    pub(super) fn requests(&mut self, rest: &mut &[u8]) -> Result<WaitReason, End> {
        let state = Arc::clone(&self.state);
        let mut run = Run {
            state: &state,
            identity: self.conn.identity(),
            tree: None,
            under_lock: 0,
            received: 0,
            answered: 0,
            tally: Tally::default(),
        };
        let outcome = loop {
            if self.close_after.is_some() || !self.has_room() {
                break Ok(WaitReason::Room);
            }
            let step = match self.sliced {
                Some(_) => self.slice(&mut run),
                None => self.next(rest, &mut run),
            };
            if let Break(outcome) = step {
                break outcome;
            }
        };
        run.tree = None;
        self.count(&run);
        outcome
    }

    /// Counts the requests of a run, and the answers to them.
    fn count(&self, run: &Run<'_>) {
        let (state, conn) = (run.state, &self.conn);
        state.stats.requests.add(&run.tally);
        if run.received > 0 {
            state.stats.received.fetch_add(run.received, Relaxed);
            conn.stats.received.fetch_add(run.received, Relaxed);
        }
        if run.answered > 0 {
            let now = state.time.now();
            let micros = micros(now.saturating_duration_since(self.read_at));
            state.stats.sent.fetch_add(run.answered, Relaxed);
            state.stats.reads.record_all(run.answered, micros);
            let now_ms = state.time.at_ms(now);
            conn.stats
                .answered(run.answered, micros, state.zxid(), now_ms);
        }
    }

    /// Does the next slice of the request that is answered in slices.
    fn slice(&mut self, run: &mut Run<'_>) -> Step {
        run.tree = None;
        match self.next_slice(&run.identity, &mut run.tally) {
            None => Continue(()),
            Some(WaitReason::Input) => {
                run.answered += 1;
                Continue(())
            }
            Some(need) => Break(Ok(need)),
        }
    }

    /// Takes the next request on. It stays in `rest` where something else is needed first.
    fn next(&mut self, rest: &mut &[u8], run: &mut Run<'_>) -> Step {
        let state = run.state;
        let (head, after) = match next_request(rest, state.limits.max_frame_bytes) {
            Ok(NextRequest::Whole(split)) => split,
            Ok(NextRequest::Incomplete) => return Break(Ok(WaitReason::Input)),
            Ok(NextRequest::TooLarge(length)) => return self.refuse_large(rest, length, run),
            Err(error) => {
                let notice = self.no_frame(&error);
                return Break(Err(End::Refused(notice, error.to_string())));
            }
        };
        if head.len() > FREE_BYTES && self.must_wait_in_queue(head) {
            return Break(Ok(WaitReason::Queue));
        }
        let mut decoder = Decoder::new(head, &state.limits);
        let header = match RequestHeader::decode(&mut decoder) {
            Ok(header) => header,
            Err(error) => {
                return Break(Err(End::Refused(Notice::BadFrame, error.to_string())));
            }
        };
        if class::is_sliced(header.op) && !self.may_answer() {
            // Its place is behind all that was asked before, but not in the core.
            return Break(Ok(WaitReason::Answers));
        }
        let body = decoder.rest();
        let mut claim = None;
        if let Some(proof) = class::proof(header.op) {
            claim = self.claim_of(proof, body);
            if let Some(wait) = claim.and_then(|claim| self.wait_before_judging(claim)) {
                // Read again when their turn comes; so is what is behind them.
                self.pause = Some(wait);
                return Break(Ok(WaitReason::Room));
            }
        }
        let unread = std::mem::replace(rest, after);
        run.received += 1;
        if self.must_authenticate(header.op, &run.identity) {
            run.tree = None;
            run.answered += self.refuse_unauthenticated(&header, &run.identity);
            return Continue(());
        }
        if header.op == TraceContext::OP && state.options.tracer.is_some() {
            self.trace = TraceContext::decode(body).filter(TraceContext::is_sampled);
            return Continue(());
        }
        run.tally.request(header.op, &state.stats.requests);
        let stats = &self.conn.stats;
        stats.last_op.store(header.op as u32 as u64, Relaxed);
        stats.last_cxid.store(header.xid as u32 as u64, Relaxed);
        let class = match self.phase {
            Phase::ReadOnly => Class::in_read_only_mode(header.op),
            _ => Class::of_request(header.op, body, &state.limits, self.is_member),
        };
        let trace = self.trace.take();
        if class == Class::Ping && (!self.is_member || self.phase == Phase::ReadOnly) {
            let step = self.answer_ping(header.xid, run);
            return step.unwrap_or_else(|| {
                *rest = unread;
                run.received -= 1;
                Break(Ok(WaitReason::Room))
            });
        }
        if let Class::Read(op) = class {
            if state.audit.is_some() && run.identity.is_super() {
                self.record_read(op, body, &run.identity);
            }
            if self.may_answer() {
                return self.answer_read(op, header.xid, body, run);
            }
        }
        run.tree = None;
        if let Class::Auth | Class::Sasl = class {
            self.prove(class, header.xid, body, claim, run)
        } else {
            self.queue_in_turn(class, &header, body, trace, run);
            Continue(())
        }
    }

    /// Answers a ping. `None`: a long listing waits, which is written before.
    fn answer_ping(&mut self, xid: i32, run: &mut Run<'_>) -> Option<Step> {
        // protocol.md §3, watches; and zxids never fall from one reply to the next.
        let now = self
            .conn
            .take_with_zxid(self.replies.out(), || run.state.zxid());
        let (taken, zxid) = now?;
        self.unanswered.answered(taken);
        if taken.closing.is_some() {
            return Some(Break(Ok(WaitReason::Room)));
        }
        reply(self.replies.out(), xid, zxid, ErrorCode::Ok);
        run.answered += 1;
        run.tree = None;
        Some(Continue(()))
    }

    /// Answers a read from the tree.
    fn answer_read(&mut self, op: OpCode, xid: i32, body: &[u8], run: &mut Run<'_>) -> Step {
        let state = run.state;
        let tree = match &mut run.tree {
            Some(tree) => tree,
            none => {
                let tree = none.insert(state.tree.read());
                // Events up to the state that this read is about to show; some may be missing from
                // a connection that is to end.
                let taken = self.conn.take(self.replies.out(), usize::MAX);
                // Pongs may be among it.
                self.unanswered.answered(taken);
                if taken.closing.is_some() {
                    return Break(Ok(WaitReason::Room));
                }
                tree
            }
        };
        let request = answer::ReadRequest {
            conn: &self.conn,
            identity: &run.identity,
            op,
            xid,
            body,
        };
        let before = self.replies.len();
        let watches = WatchAccess::Lock(&state.watches);
        let flow = answer::answer_read(tree, state, watches, &request, self.replies.out());
        let bytes = self.replies.len() - before;
        match flow {
            Flow::Continue => {}
            Flow::Close => self.close_after = Some(CloseReason::BadRequest),
            Flow::Listing(listing) => {
                run.tally.answer(listing.left());
                run.answered += 1;
                // It waits where the core's answers wait, as one of them.
                self.unanswered.add(1, 0, 0);
                let mut wake = Vec::new();
                self.conn.push_answer(&mut wake, |_| Some(listing));
                for conn in wake {
                    conn.wake(false);
                }
                return Break(Ok(WaitReason::Room));
            }
            Flow::Sliced(read) => {
                self.sliced = Some(read);
                return Continue(());
            }
        }
        run.tally.answer(bytes);
        run.answered += 1;
        run.under_lock += 1;
        self.turn.count(bytes);
        if bytes > COSTLY_ANSWER_BYTES || run.under_lock.is_multiple_of(READS_PER_LOCK) {
            run.tree = None;
            if self.turn.is_over(state.time.now()) {
                return Break(Ok(WaitReason::Turn));
            }
        }
        Continue(())
    }

    /// Judges what proves who the client is. It uses the turn up.
    fn prove(
        &mut self,
        class: Class,
        xid: i32,
        body: &[u8],
        claim: Option<Claim>,
        run: &mut Run<'_>,
    ) -> Step {
        run.answered += match class {
            Class::Sasl => self.sasl_step(xid, body, claim, &mut run.identity),
            _ => self.auth_step(xid, body, claim, &mut run.identity),
        };
        self.turn.count(PROOF_BYTES);
        match self.turn.is_full() {
            true => Break(Ok(WaitReason::Turn)),
            false => Continue(()),
        }
    }

    /// Queues a request for the core, or refuses it behind those that are queued.
    fn queue_in_turn(
        &mut self,
        class: Class,
        header: &RequestHeader,
        body: &[u8],
        trace: Option<TraceContext>,
        run: &mut Run<'_>,
    ) {
        let (state, xid, identity) = (run.state, header.xid, &run.identity);
        match class {
            Class::Read(op) => self.queue(xid, Kind::Read(op), body, identity),
            Class::Write(OpCode::Multi) if self.is_over_bounds(body, identity) => {
                let code = ErrorCode::BadArguments;
                run.answered += self.in_turn(xid, state.zxid(), code, false, identity);
            }
            Class::Write(op) => {
                let (limits, options) = (&state.limits, &state.options);
                let changed = with_refusals(op, body, identity, limits, options);
                if changed
                    .as_ref()
                    .is_some_and(|request| request.is_over_bounds)
                {
                    self.report_large_acl(op);
                }
                let body = changed.as_ref().map_or(body, |request| &request.body);
                self.queue(xid, Kind::Write(op), body, identity);
                if let Some(trace) = trace {
                    self.trace(trace, op, body);
                }
            }
            Class::NotReadOnly => {
                let code = ErrorCode::NotReadOnly;
                run.answered += self.in_turn(xid, state.zxid(), code, false, identity);
            }
            Class::CloseSession if self.phase == Phase::ReadOnly => {
                reply(self.replies.out(), xid, state.zxid(), ErrorCode::Ok);
                self.close_after = Some(CloseReason::SessionClosed);
                run.answered += 1;
            }
            Class::CloseSession => {
                self.queue(xid, Kind::CloseSession, body, identity);
                self.last_taken = true;
            }
            Class::Refused(code) => {
                let zxid = match code {
                    ErrorCode::Unimplemented => -1,
                    _ => state.zxid(),
                };
                run.answered += self.in_turn(xid, zxid, code, true, identity);
                state.notice(
                    Notice::BadFrame,
                    Some(&self.conn.peer),
                    format_args!("connection closed: it asked for op {}: {code}", header.op),
                );
            }
            // Those that are answered at once were, and the core counts the others.
            Class::Ping | Class::Auth | Class::Sasl => {
                self.queue(xid, Kind::Ping, &[], identity);
            }
        }
    }

    /// Refuses a request over the limit, once what it asks for has arrived.
    fn refuse_large(&mut self, rest: &mut &[u8], length: usize, run: &mut Run<'_>) -> Step {
        let Some(header) = self.discard_large(rest, length) else {
            return Break(Ok(WaitReason::Input));
        };
        // It was that of this request.
        self.trace = None;
        run.tree = None;
        run.received += 1;
        let (zxid, code) = (run.state.zxid(), ErrorCode::BadArguments);
        run.answered += self.in_turn(header.xid, zxid, code, false, &run.identity);
        Continue(())
    }

    /// Whether a large request has to wait until less is queued. One behind others of its
    /// connection is held by [`Self::has_room`].
    fn must_wait_in_queue(&self, head: &[u8]) -> bool {
        if self.phase == Phase::ReadOnly
            || self.unanswered.requests() > 0
            || !self.state.inbox.is_full()
        {
            return false;
        }
        let header = RequestHeader::decode(&mut Decoder::new(head, &self.state.limits));
        header.is_ok_and(|header| matches!(Class::of(header.op), Class::Write(_)))
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
    pub(super) fn in_turn(
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

    /// Does what [`Self::in_turn`] does, for a reply that is a frame already.
    pub(super) fn frame_in_turn(
        &mut self,
        xid: i32,
        frame: &[u8],
        close: bool,
        identity: &Arc<Identity>,
    ) -> u64 {
        if self.may_answer() {
            self.replies.out().extend_from_slice(frame);
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
}
