//! One connection as the core sees it: a single outbound FIFO of encoded bytes, the session that
//! owns it, and the switch that closes it. Replies and events of the core go through [`Conn::push`]
//! only, in the order in which they happened. The socket is its task's: what is pushed here the
//! task takes. Only while the task waits for input with nothing left to write does the core write a
//! small answer itself, through [`Outlet`], which spares two changes of thread.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

use baton_proto::{ReplyHeader, frame, xid};
use baton_tls::rustls::pki_types::CertificateDer;
use baton_tree::{BatchBuilder, FormatLevel, Identity, Stamp};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::connections::listing_reply::ListingReply;
use crate::connections::outbound::Outbound;
use crate::connections::peer::Peer;
use crate::connections::touch::Touch;
use crate::stats::counters::ConnStats;

/// Reasons for which the core closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client closed its session.
    SessionClosed,
    /// The session expired.
    SessionExpired,
    /// The session was refused, or re-attached elsewhere.
    SessionRefused,
    /// Another connection owns the session now.
    SessionMoved,
    /// A request of it was lost, so that those after it are refused.
    RequestLost,
    /// No leader of the ensemble is known.
    NoLeader,
    /// The server was removed from its ensemble.
    NotAMember,
    /// Read-only mode has ended, because a leader is known again.
    ReadOnlyModeEnded,
    /// A snapshot of another server has replaced this server's state.
    StateReplaced,
    /// The client does not read what the server writes.
    TooSlow,
    /// The client reads too slowly, and all clients together have more waiting than they may.
    AllTooSlow,
    /// One change caused more events than are handed out at once.
    TooManyEvents,
    /// It holds unfinished or waiting requests, and all together hold more of them than they may.
    Unfinished,
    /// It asked for a session, and the limit on sessions is reached.
    TooManySessions,
    TooManySessionsOfAddress,
    CertificateRefused,
    /// A request after which the protocol closes the connection.
    BadRequest,
    /// An operator sheds connections.
    Shed,
    /// The server stops.
    ServerStops,
    /// Its socket has ended.
    SocketGone,
}

impl CloseReason {
    pub(crate) fn text(self) -> &'static str {
        match self {
            CloseReason::SessionClosed => "the client closed its session",
            CloseReason::SessionExpired => "its session expired",
            CloseReason::SessionRefused => "its session was refused",
            CloseReason::SessionMoved => "its session moved to another connection",
            CloseReason::RequestLost => {
                "one of its requests was lost, and later ones may not overtake it; let the client connect again"
            }
            CloseReason::NoLeader => {
                "this server knows no leader of its ensemble; let the client connect to another server"
            }
            CloseReason::NotAMember => {
                "this server was removed from its ensemble; let the client connect to another server"
            }
            CloseReason::ReadOnlyModeEnded => {
                "its session was read-only, and this server knows a leader again; let the client connect again"
            }
            CloseReason::StateReplaced => {
                "this server lagged and has received a newer state; let the client connect again"
            }
            CloseReason::TooSlow => {
                "it does not read what is sent to it; let the client read faster or set fewer watches"
            }
            CloseReason::AllTooSlow => {
                "it reads too slowly, and the unread bytes of all clients exceed their limit; let clients read faster or raise max_outbound_bytes_in_all"
            }
            CloseReason::TooManyEvents => {
                "one change caused more events than are handed out at once; let the client connect again and set its watches again, or watch fewer znodes one by one"
            }
            CloseReason::Unfinished => {
                "it holds unfinished or waiting requests, and those of all clients exceed their limit; send whole requests or raise max_unfinished_bytes"
            }
            CloseReason::TooManySessions => {
                "the limit on open sessions is reached; close some or raise max_sessions"
            }
            CloseReason::TooManySessionsOfAddress => {
                "its address has reached the limit of sessions; close some or raise max_sessions_per_address"
            }
            CloseReason::CertificateRefused => {
                "its certificate is not accepted any more: it has expired, was revoked, or its authority was removed; give the client a new one"
            }
            CloseReason::BadRequest => "it sent a request after which a connection is closed",
            CloseReason::Shed => "an operator shed it",
            CloseReason::ServerStops => "the server stops",
            CloseReason::SocketGone => "its socket has ended",
        }
    }
}

/// The session that a connection belongs to.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) session: i64,
    pub(crate) timeout_ms: u32,
    pub(crate) touch: Arc<Touch>,
    /// Nonce of the attachment. `None`: the tree's format level knows no attachments.
    pub(crate) nonce: Option<NonZeroU64>,
    /// Number of its last command. Counted by the core alone.
    pub(crate) last_sequence: AtomicU64,
    /// Whether this server alone has given it, in read-only mode: the core knows nothing of it.
    pub(crate) is_read_only: bool,
    /// The identity that the log has stored with the session, or will have by the last command.
    /// Used by the core alone.
    pub(crate) stored_identity: Mutex<Option<Arc<Identity>>>,
}

impl Attached {
    /// The stamp of the connection's next command, which the core is about to put into an entry.
    pub(crate) fn next_stamp(&self) -> Option<Stamp> {
        let nonce = self.nonce?;
        let sequence = self.last_sequence.load(Relaxed) + 1;
        self.last_sequence.store(sequence, Relaxed);
        Some(Stamp { nonce, sequence })
    }

    /// Begins a group of the connection's commands. Each log entry lists a short identity; a long
    /// one is listed once for the attachment. A lost entry loses no identity: the stamps of the
    /// commands after it have a gap then.
    pub(crate) fn begin_group(
        &self,
        builder: &mut BatchBuilder,
        identity: &Arc<Identity>,
        first: Option<Stamp>,
    ) {
        let can_store = builder.level() >= FormatLevel::SessionIdentities;
        match first.filter(|_| can_store && identity.bytes() > LISTED_IDENTITY_BYTES) {
            Some(first) => {
                let mut stored = self.stored_identity.lock();
                let is_stored = stored
                    .as_ref()
                    .is_some_and(|own| Arc::ptr_eq(own, identity));
                let listed = (!is_stored).then_some(&**identity);
                builder.begin_stored(self.session, listed, first);
                *stored = Some(Arc::clone(identity));
            }
            None => builder.begin(self.session, identity, first),
        }
    }
}

/// The socket of a connection, as the core uses it. Never blocks.
pub(crate) trait Outlet: Send + Sync {
    /// Writes what the socket takes at once; how many bytes that was.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Bytes from the client that the system holds for this socket.
    fn unread_bytes(&self) -> u64;

    /// Bytes from the client that the system has handed over and the connection's task has not
    /// read.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Whether bytes that were written wait here, because the system has not taken them.
    fn has_unsent_bytes(&self) -> bool {
        false
    }

    /// The most that the core writes by itself: more is the socket task's, which can wait for the
    /// client to read it.
    fn direct_bytes(&self) -> usize {
        DIRECT_BYTES
    }
}

/// The most that the core writes by itself to a plain socket.
pub(crate) const DIRECT_BYTES: usize = 16 << 10;

/// The longest identity that each log entry lists: an address and a user or two.
const LISTED_IDENTITY_BYTES: usize = 128;

/// Fewer bytes than this in an outbox are not counted in [`Outbound`]: the task takes them at once
/// and counts what the socket leaves.
const COUNTED_BYTES: usize = DIRECT_BYTES;

/// Memory that an empty outbox keeps.
const IDLE_BYTES: usize = 4 << 10;

/// The most of a listing that is encoded at once.
const LISTING_BYTES: usize = 64 << 10;

/// Output that is not a part of [`Outbox::bytes`].
enum Piece {
    Bytes(Bytes),
    /// A reply that is encoded as its client reads it.
    Listing(Box<ListingReply>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Listing(reply) => reply.left(),
        }
    }
}

#[derive(Default)]
struct Outbox {
    /// Output that precedes `bytes`: long runs of events, which connections share, long listings,
    /// and what came before them.
    before: VecDeque<Piece>,
    before_bytes: usize,
    /// Listings among that.
    listings: usize,
    bytes: Vec<u8>,
    /// Number of them that are counted.
    counted: usize,
    /// Number of replies among them; the others are events.
    replies: usize,
    /// Requests answered by the core since the socket task last looked.
    answered: u32,
    /// Pings among them.
    pongs: u32,
    closing: Option<CloseReason>,
    /// Whether the core has this connection on its list of those to wake.
    listed: bool,
    waker: Option<Waker>,
    /// The socket, while its task waits for nothing but input and has nothing left to write.
    idle: Option<Arc<dyn Outlet>>,
}

/// Outcome of [`Conn::take`].
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct TakenOutput {
    pub(crate) answered: u32,
    /// Pings among those that are answered.
    pub(crate) pongs: u32,
    pub(crate) closing: Option<CloseReason>,
}

impl Outbox {
    fn len(&self) -> usize {
        self.before_bytes + self.bytes.len()
    }

    /// Puts a piece behind all that waits.
    fn push_piece(&mut self, piece: Piece) {
        if !self.bytes.is_empty() {
            let before = std::mem::take(&mut self.bytes);
            self.before_bytes += before.len();
            self.before.push_back(Piece::Bytes(before.into()));
        }
        self.before_bytes += piece.len();
        self.listings += usize::from(matches!(piece, Piece::Listing(_)));
        self.before.push_back(piece);
    }

    fn clear(&mut self) {
        self.before = VecDeque::new();
        self.before_bytes = 0;
        self.listings = 0;
        self.bytes = Vec::new();
    }

    /// Ends the connection if more events wait than a client that reads leaves waiting.
    fn end_if_too_slow(&mut self, outbound: &Outbound) {
        // Replies have a bound already: that of the requests in flight.
        if self.len().saturating_sub(self.replies) > outbound.too_slow_bytes() {
            self.clear();
            self.closing = Some(CloseReason::TooSlow);
        }
    }

    fn count(&mut self, outbound: &Outbound) {
        let bytes = match self.len() {
            few if few < COUNTED_BYTES => 0,
            many => many,
        };
        if bytes != self.counted {
            outbound.change(self.counted, bytes);
            self.counted = bytes;
        }
    }

    /// Moves what waits to the end of `out`, all of it if `out` stays below `room` bytes until the
    /// last piece. What is left is taken later.
    fn take(&mut self, out: &mut Vec<u8>, room: usize) -> TakenOutput {
        while let Some(first) = self.before.front_mut() {
            if out.len() >= room {
                return TakenOutput::default();
            }
            let before = out.len();
            let is_whole = match first {
                Piece::Bytes(bytes) => {
                    out.extend_from_slice(bytes);
                    true
                }
                Piece::Listing(reply) => {
                    reply.write(LISTING_BYTES, out);
                    self.listings -= usize::from(reply.left() == 0);
                    reply.left() == 0
                }
            };
            self.before_bytes -= out.len() - before;
            if is_whole {
                self.before.pop_front();
            }
        }
        self.replies = 0;
        if out.is_empty() && out.capacity() < self.bytes.len() {
            std::mem::swap(out, &mut self.bytes);
        } else {
            out.append(&mut self.bytes);
        }
        TakenOutput {
            answered: std::mem::take(&mut self.answered),
            pongs: std::mem::take(&mut self.pongs),
            closing: self.closing,
        }
    }

    /// Writes all that waits, if the task is idle. `false`: the task has to do something.
    fn write_direct(&mut self) -> bool {
        let Some(outlet) = &self.idle else {
            return false;
        };
        if self.closing.is_some() || self.len() > outlet.direct_bytes() || self.before_bytes > 0 {
            return false;
        }
        match outlet.try_write(&self.bytes) {
            Ok(written) if written == self.bytes.len() => {
                self.bytes.clear();
                self.replies = 0;
                self.bytes.shrink_to(DIRECT_BYTES);
                // The task waits until the system takes the rest.
                !outlet.has_unsent_bytes()
            }
            Ok(written) => {
                self.bytes.drain(..written);
                self.replies = self.replies.min(self.bytes.len());
                false
            }
            // The task finds out what is wrong, or waits until the socket takes more.
            Err(_) => false,
        }
    }
}

/// A connection, as the core sees it.
pub(crate) struct Conn {
    pub(crate) id: u32,
    pub(crate) peer: Peer,
    pub(crate) stats: ConnStats,
    /// Milliseconds of server time at which it was accepted.
    pub(crate) since_ms: u64,
    attached: OnceLock<Attached>,
    identity: Mutex<Arc<Identity>>,
    certificates: OnceLock<Box<[CertificateDer<'static>]>>,
    outbox: Mutex<Outbox>,
    outbound: Arc<Outbound>,
    /// The socket, while its task lives.
    socket: OnceLock<Weak<dyn Outlet>>,
    /// Whether its task may have read something that the session's clock has not counted yet.
    reading: AtomicBool,
    /// The newest zxid that its client has seen, where this server's is older.
    ahead_zxid: AtomicI64,
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn")
            .field("id", &self.id)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl Conn {
    /// `outbound` is where what waits is counted, and says when a client is too slow.
    pub(crate) fn new(
        id: u32,
        peer: Peer,
        identity: Identity,
        since_ms: u64,
        outbound: &Arc<Outbound>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            peer,
            stats: ConnStats::new(),
            since_ms,
            attached: OnceLock::new(),
            identity: Mutex::new(Arc::new(identity)),
            certificates: OnceLock::new(),
            outbox: Mutex::new(Outbox::default()),
            outbound: Arc::clone(outbound),
            socket: OnceLock::new(),
            reading: AtomicBool::new(false),
            ahead_zxid: AtomicI64::new(0),
        })
    }

    /// Notes the socket that the connection reads from. Called once, by its task.
    pub(crate) fn reads_from(&self, socket: &Arc<dyn Outlet>) {
        let first = self.socket.set(Arc::downgrade(socket)).is_ok();
        debug_assert!(first, "a connection has one socket");
    }

    /// Notes what the client has shown in the TLS handshake. Called once, by its task.
    pub(crate) fn set_certificates(&self, shown: &[CertificateDer<'static>]) {
        let first = self.certificates.set(shown.into()).is_ok();
        debug_assert!(first, "a connection has one handshake");
    }

    /// The certificates that the client has shown, its own first.
    pub(crate) fn certificates(&self) -> &[CertificateDer<'static>] {
        self.certificates.get().map_or(&[], |shown| shown)
    }

    /// Notes that its client has seen `zxid`, which this server has not. Called by its task, before
    /// it asks the core for the session.
    pub(crate) fn set_ahead(&self, zxid: i64) {
        self.ahead_zxid.store(zxid, Relaxed);
    }

    /// The zxid that its client has seen, if it is beyond `zxid`: the client would see time go
    /// back.
    pub(crate) fn is_ahead_of(&self, zxid: i64) -> Option<i64> {
        let seen = self.ahead_zxid.load(Relaxed);
        (seen > zxid).then_some(seen)
    }

    /// Its task is about to read from the socket, or (`false`) has counted what it read.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.reading.store(reading, SeqCst);
    }

    /// Whether the client has sent bytes that its task has not read, or has read and not counted.
    /// The socket is asked first: what the task reads in between, it has said before that it reads,
    /// and what it leaves unread then is held behind the socket.
    pub(crate) fn has_unread_bytes(&self) -> bool {
        let socket = self.socket.get().and_then(Weak::upgrade);
        let unread = socket
            .as_ref()
            .is_some_and(|socket| socket.unread_bytes() > 0);
        unread || self.reading.load(SeqCst) || socket.is_some_and(|socket| socket.held_bytes() > 0)
    }

    pub(crate) fn attached(&self) -> Option<&Attached> {
        self.attached.get()
    }

    pub(crate) fn session(&self) -> i64 {
        self.attached.get().map_or(0, |attached| attached.session)
    }

    /// Whether its session is one of read-only mode.
    pub(crate) fn is_read_only(&self) -> bool {
        self.attached()
            .is_some_and(|attached| attached.is_read_only)
    }

    /// Called once: by the core when the log has the session, by the connection's task for a
    /// session of read-only mode.
    pub(crate) fn attach(&self, attached: Attached) {
        let first = self.attached.set(attached).is_ok();
        debug_assert!(first, "a connection asks for one session only");
    }

    pub(crate) fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.identity.lock())
    }

    pub(crate) fn set_identity(&self, identity: Arc<Identity>) {
        *self.identity.lock() = identity;
    }

    /// Appends whole frames. `answered` requests are answered by them. Frames for a connection that
    /// is being closed are dropped. The caller wakes every connection that it put on `wake` once it
    /// holds no lock.
    pub(crate) fn push(
        self: &Arc<Self>,
        answered: u32,
        wake: &mut Vec<Arc<Conn>>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.push_counted(answered, 0, wake, write);
    }

    /// Answers `pings` pings that the task has handed to the core, as ZooKeeper does. They may
    /// overtake the answers to other requests. The caller wakes as after [`Conn::push`], and passes
    /// the zxid of the newest applied write.
    pub(crate) fn push_pongs(self: &Arc<Self>, pings: u32, zxid: i64, wake: &mut Vec<Arc<Conn>>) {
        let pong = ReplyHeader {
            xid: xid::PING,
            zxid,
            err: 0,
        };
        self.push_counted(pings, pings, wake, |out| {
            for _ in 0..pings {
                frame::write_reply(out, pong, None);
            }
        });
    }

    fn push_counted(
        self: &Arc<Self>,
        answered: u32,
        pongs: u32,
        wake: &mut Vec<Arc<Conn>>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut outbox = self.outbox.lock();
        if outbox.closing.is_some() {
            return;
        }
        let before = outbox.bytes.len();
        write(&mut outbox.bytes);
        outbox.answered = outbox.answered.wrapping_add(answered);
        outbox.pongs = outbox.pongs.wrapping_add(pongs);
        if answered > 0 {
            outbox.replies += outbox.bytes.len() - before;
        }
        outbox.end_if_too_slow(&self.outbound);
        outbox.count(&self.outbound);
        self.list(&mut outbox, wake);
    }

    /// Appends a long run of events, which is not copied before the connection's task takes it.
    /// Otherwise as [`Conn::push`].
    pub(crate) fn push_shared(self: &Arc<Self>, frames: &Bytes, wake: &mut Vec<Arc<Conn>>) {
        let mut outbox = self.outbox.lock();
        if outbox.closing.is_some() {
            return;
        }
        outbox.push_piece(Piece::Bytes(frames.clone()));
        outbox.end_if_too_slow(&self.outbound);
        outbox.count(&self.outbound);
        self.list(&mut outbox, wake);
    }

    /// Appends the answer to a request that `write` writes, or the listing that it returns instead.
    /// Otherwise as [`Conn::push`].
    pub(crate) fn push_answer(
        self: &Arc<Self>,
        wake: &mut Vec<Arc<Conn>>,
        write: impl FnOnce(&mut Vec<u8>) -> Option<Box<ListingReply>>,
    ) {
        let mut outbox = self.outbox.lock();
        if outbox.closing.is_some() {
            return;
        }
        let before = outbox.len();
        if let Some(listing) = write(&mut outbox.bytes) {
            outbox.push_piece(Piece::Listing(listing));
        }
        outbox.replies += outbox.len() - before;
        outbox.answered = outbox.answered.wrapping_add(1);
        outbox.end_if_too_slow(&self.outbound);
        outbox.count(&self.outbound);
        self.list(&mut outbox, wake);
    }

    /// Has the caller wake the connection.
    fn list(self: &Arc<Self>, outbox: &mut Outbox, wake: &mut Vec<Arc<Conn>>) {
        if !outbox.listed {
            outbox.listed = true;
            wake.push(Arc::clone(self));
        }
    }

    /// No frame is taken after this; those before it are still written. The caller wakes as after
    /// [`Conn::push`]. `false`: it was being closed already, for another reason.
    pub(crate) fn close(self: &Arc<Self>, reason: CloseReason, wake: &mut Vec<Arc<Conn>>) -> bool {
        self.stop(reason, true, wake)
    }

    /// [`Conn::close`] that throws away what waits here with everything after it: what the client
    /// gets has no gap.
    pub(crate) fn end(self: &Arc<Self>, wake: &mut Vec<Arc<Conn>>) {
        self.stop(CloseReason::AllTooSlow, false, wake);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.outbox.lock().closing.is_some()
    }

    fn stop(self: &Arc<Self>, reason: CloseReason, keep: bool, wake: &mut Vec<Arc<Conn>>) -> bool {
        let mut outbox = self.outbox.lock();
        if outbox.closing.is_some() {
            return false;
        }
        outbox.closing = Some(reason);
        if !keep {
            self.outbound.ends();
            outbox.clear();
            outbox.count(&self.outbound);
        }
        self.list(&mut outbox, wake);
        true
    }

    /// Bytes of it that are counted, and whether it may be made to end. `None`: it ends, and they
    /// go with it.
    pub(crate) fn holds(&self) -> Option<(usize, bool)> {
        let outbox = self.outbox.lock();
        if let Some(CloseReason::TooSlow | CloseReason::AllTooSlow) = outbox.closing {
            return None;
        }
        let unwritten = self.stats.unwritten.load(Relaxed);
        let bytes = outbox.counted + usize::try_from(unwritten).unwrap_or(usize::MAX);
        Some((bytes, outbox.closing.is_none()))
    }

    /// Records how many bytes the socket has not taken, at `now_ms`. Called by its task.
    pub(crate) fn set_unwritten(&self, bytes: usize, now_ms: impl FnOnce() -> u64) {
        let after = bytes as u64;
        let before = self.stats.unwritten.load(Relaxed);
        if after == before {
            return;
        }
        let sent = self.stats.bytes_out.load(Relaxed);
        if before == 0 || sent >= self.stats.waits_until_sent.load(Relaxed) {
            self.stats.waits_since_ms.store(now_ms(), Relaxed);
            self.stats.waits_until_sent.store(sent + after, Relaxed);
        }
        self.stats.unwritten.store(after, Relaxed);
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        self.outbound.change(before, bytes);
    }

    /// For how long the first byte that the socket does not take has been waiting, or somewhat
    /// less. What its task has not seen yet does not count: that is not the client's fault.
    pub(crate) fn waits_ms(&self, now_ms: u64) -> u64 {
        if self.stats.unwritten.load(Relaxed) == 0 {
            return 0;
        }
        now_ms.saturating_sub(self.stats.waits_since_ms.load(Relaxed))
    }

    /// Sees to it that what was pushed goes out: the socket task is woken, or, with `direct`, the
    /// bytes are written here and now, if the task has nothing else to do and the socket takes
    /// them.
    pub(crate) fn wake(&self, direct: bool) {
        let waker = {
            let mut outbox = self.outbox.lock();
            outbox.listed = false;
            if direct {
                let before = outbox.bytes.len();
                let done = outbox.write_direct();
                let written = before - outbox.bytes.len();
                outbox.count(&self.outbound);
                self.stats.bytes_out.fetch_add(written as u64, Relaxed);
                if done {
                    return;
                }
            }
            outbox.idle = None;
            outbox.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Moves what waits to the end of `out`, as far as `out` stays below `room` bytes: the rest
    /// waits here, where its bound is. What waits for a connection that ends is moved whole.
    pub(crate) fn take(&self, out: &mut Vec<u8>, room: usize) -> TakenOutput {
        let mut outbox = self.outbox.lock();
        outbox.idle = None;
        let room = match outbox.closing {
            Some(_) => usize::MAX,
            None if out.len() >= room => return TakenOutput::default(),
            None => room,
        };
        let taken = outbox.take(out, room);
        outbox.count(&self.outbound);
        taken
    }

    /// Moves all that waits, and asks for the zxid before more can come: every event up to it is
    /// among what is taken, and no reply beyond it. `None`: a long listing waits, which is taken
    /// piece by piece before.
    pub(crate) fn take_with_zxid(
        &self,
        out: &mut Vec<u8>,
        zxid: impl FnOnce() -> i64,
    ) -> Option<(TakenOutput, i64)> {
        let mut outbox = self.outbox.lock();
        if outbox.listings > 0 && outbox.closing.is_none() {
            return None;
        }
        outbox.idle = None;
        let taken = outbox.take(out, usize::MAX);
        outbox.count(&self.outbound);
        Some((taken, zxid()))
    }

    /// Asks to be woken when there is something to take. `false`: there is something already. With
    /// `full`, only being closed counts. With `idle`, answers may be written there without waking
    /// the task.
    pub(crate) fn wait(&self, waker: &Waker, full: bool, idle: Option<Arc<dyn Outlet>>) -> bool {
        let mut outbox = self.outbox.lock();
        let something = outbox.len() > 0 || outbox.answered > 0;
        if outbox.closing.is_some() || (something && !full) {
            return false;
        }
        match &mut outbox.waker {
            Some(present) => present.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        if outbox.bytes.is_empty() && outbox.bytes.capacity() > IDLE_BYTES {
            outbox.bytes = Vec::new();
        }
        outbox.idle = idle;
        true
    }

    /// Lets go of the socket: its task has ended. What the connection has asked for and is still on
    /// its way to the core finds it closed, so that it sets no watch that would never be removed.
    /// Returns why it ended.
    pub(crate) fn detach(&self) -> CloseReason {
        let mut outbox = self.outbox.lock();
        outbox.idle = None;
        let ended = *outbox.closing.get_or_insert(CloseReason::SocketGone);
        outbox.clear();
        outbox.count(&self.outbound);
        drop(outbox);
        self.set_unwritten(0, || 0);
        if ended == CloseReason::AllTooSlow {
            self.outbound.has_ended();
        }
        ended
    }

    /// Bytes that wait for the client to read them.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let here = self.outbox.lock().len() as u64;
        here + self.stats.unwritten.load(Relaxed)
    }
}
