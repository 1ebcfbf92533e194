//! One connection as the core sees it: a single outbound FIFO of encoded bytes, who speaks through it, and the switch
//! that closes it. Replies and events of the core go through [`Conn::push`] only, in the order in which they happened.
//! Never reads or writes a socket: the socket task takes the bytes and wakes by itself.

use std::fmt;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::task::Waker;

use baton_tree::Identity;
use parking_lot::Mutex;

use super::clock::Touch;
use super::stats::ConnStats;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    /// A process on this machine, over a unix socket.
    Local,
}

impl Peer {
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self {
            Peer::Tcp(addr) => Some(addr.ip().to_canonical()),
            Peer::Local => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(addr) => write!(f, "{addr}"),
            Peer::Local => f.write_str("unix"),
        }
    }
}

/// Why the core wants a connection closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client closed its session.
    SessionClosed,
    /// The session expired.
    SessionExpired,
    /// The session was refused, or re-attached elsewhere.
    SessionRefused,
    /// The session speaks through another connection now.
    SessionMoved,
    /// The client does not read what the server writes.
    TooSlow,
    /// A request after which the protocol closes the connection.
    BadRequest,
    /// The server stops.
    ServerStops,
}

impl CloseReason {
    pub(crate) fn text(self) -> &'static str {
        match self {
            CloseReason::SessionClosed => "the client closed its session",
            CloseReason::SessionExpired => "its session expired",
            CloseReason::SessionRefused => "its session was refused",
            CloseReason::SessionMoved => "its session moved to another connection",
            CloseReason::TooSlow => {
                "it does not read what is sent to it; let the client read faster or set fewer watches"
            }
            CloseReason::BadRequest => "it sent a request after which a connection is closed",
            CloseReason::ServerStops => "the server stops",
        }
    }
}

/// The session a connection speaks for.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) session: i64,
    pub(crate) timeout_ms: u32,
    pub(crate) touch: Arc<Touch>,
}

#[derive(Debug, Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// Requests answered by the core since the socket task last looked.
    answered: u32,
    closing: Option<CloseReason>,
    /// Whether the core has this connection on its list of those to wake.
    listed: bool,
    waker: Option<Waker>,
}

/// What [`Conn::take`] found.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) answered: u32,
    pub(crate) closing: Option<CloseReason>,
}

/// A connection. See the module's page.
pub(crate) struct Conn {
    pub(crate) id: u32,
    pub(crate) peer: Peer,
    pub(crate) stats: ConnStats,
    /// Milliseconds of server time at which it was accepted.
    pub(crate) since_ms: u64,
    attached: OnceLock<Attached>,
    identity: Mutex<Arc<Identity>>,
    outbox: Mutex<Outbox>,
    max_bytes: usize,
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
    /// `max_bytes` is what may wait before the client counts as too slow.
    pub(crate) fn new(
        id: u32,
        peer: Peer,
        identity: Identity,
        since_ms: u64,
        max_bytes: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            peer,
            stats: ConnStats::default(),
            since_ms,
            attached: OnceLock::new(),
            identity: Mutex::new(Arc::new(identity)),
            outbox: Mutex::new(Outbox::default()),
            max_bytes,
        })
    }

    pub(crate) fn attached(&self) -> Option<&Attached> {
        self.attached.get()
    }

    pub(crate) fn session(&self) -> i64 {
        self.attached.get().map_or(0, |attached| attached.session)
    }

    /// Called once, by the core, when the log has the session.
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

    /// Appends whole frames. `answered` requests are answered by them. Frames for a connection that is being closed are
    /// dropped. The caller wakes every connection that it put on `wake` once it holds no lock.
    pub(crate) fn push(
        self: &Arc<Self>,
        answered: u32,
        wake: &mut Vec<Arc<Conn>>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut outbox = self.outbox.lock();
        if outbox.closing.is_some() {
            return;
        }
        write(&mut outbox.bytes);
        outbox.answered = outbox.answered.wrapping_add(answered);
        if outbox.bytes.len() > self.max_bytes {
            outbox.bytes = Vec::new();
            outbox.closing = Some(CloseReason::TooSlow);
        }
        if !outbox.listed {
            outbox.listed = true;
            wake.push(Arc::clone(self));
        }
    }

    /// No frame is taken after this; those before it are still written. The caller wakes as after [`Conn::push`].
    pub(crate) fn close(self: &Arc<Self>, reason: CloseReason, wake: &mut Vec<Arc<Conn>>) {
        let mut outbox = self.outbox.lock();
        if outbox.closing.is_none() {
            outbox.closing = Some(reason);
            if !outbox.listed {
                outbox.listed = true;
                wake.push(Arc::clone(self));
            }
        }
    }

    /// Wakes the socket task after [`Conn::push`].
    pub(crate) fn wake(&self) {
        let waker = {
            let mut outbox = self.outbox.lock();
            outbox.listed = false;
            outbox.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Moves what waits to the end of `out`, unless `full` says that `out` has enough: then it waits here, where its
    /// bound is.
    pub(crate) fn take(&self, out: &mut Vec<u8>, full: bool) -> Taken {
        let mut outbox = self.outbox.lock();
        if full && outbox.closing.is_none() {
            return Taken::default();
        }
        if out.is_empty() {
            std::mem::swap(out, &mut outbox.bytes);
        } else {
            out.append(&mut outbox.bytes);
        }
        Taken {
            answered: std::mem::take(&mut outbox.answered),
            closing: outbox.closing,
        }
    }

    /// Asks to be woken when there is something to take. `false`: there is something already. With `full`, only being
    /// closed counts.
    pub(crate) fn wait(&self, waker: &Waker, full: bool) -> bool {
        let mut outbox = self.outbox.lock();
        let something = !outbox.bytes.is_empty() || outbox.answered > 0;
        if outbox.closing.is_some() || (something && !full) {
            return false;
        }
        match &mut outbox.waker {
            Some(present) => present.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    /// Gives memory back that a burst needed.
    pub(crate) fn shrink(&self, keep_bytes: usize) {
        let mut outbox = self.outbox.lock();
        if outbox.bytes.is_empty() && outbox.bytes.capacity() > keep_bytes {
            outbox.bytes = Vec::new();
        }
    }

    /// Bytes that wait, for `cons`.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.outbox.lock().bytes.len()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn conn(id: u32) -> Arc<Conn> {
        Conn::new(id, Peer::Local, Identity::default(), 0, 64)
    }

    #[test]
    fn frames_leave_in_the_order_in_which_they_came() {
        let conn = conn(1);
        let mut wake = Vec::new();
        conn.push(1, &mut wake, |out| out.extend_from_slice(b"one"));
        conn.push(1, &mut wake, |out| out.extend_from_slice(b"two"));
        assert_eq!(wake.len(), 1, "a connection is woken once");
        let mut out = b"zero".to_vec();
        let taken = conn.take(&mut out, false);
        assert_eq!(out, b"zeroonetwo");
        assert_eq!(taken.answered, 2);
        assert!(taken.closing.is_none());
    }

    #[test]
    fn a_client_that_does_not_read_is_closed_not_buffered_for() {
        let conn = conn(1);
        let mut wake = Vec::new();
        for _ in 0..10 {
            conn.push(0, &mut wake, |out| out.extend_from_slice(&[0; 30]));
        }
        let mut out = Vec::new();
        assert_eq!(
            conn.take(&mut out, false).closing,
            Some(CloseReason::TooSlow)
        );
        assert!(out.is_empty());
    }
}
