//! The open sessions and which ephemerals each owns. Owns ids, passwords and timeouts as agreed;
//! never measures time: who has expired is the leader's decision and comes as a command.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use baton_proto::PASSWORD_BYTES;
use subtle::ConstantTimeEq;

use crate::arena::{Node, NodeId};
use crate::attachment::Attachment;
use crate::digest;
use crate::identity::{AuthId, Identity};
use crate::level::FormatLevel;

/// The scheme of what a connection proves before its session is opened: the subject of its
/// certificate.
pub(crate) const CERTIFICATE: &str = "x509";
/// The scheme of what a connection proves once it has its session.
pub(crate) const SASL: &str = "sasl";

/// An ephemeral of a session. The order is that of the creations, which is the same on every
/// replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ephemeral {
    czxid: i64,
    birth: u32,
    pub(crate) node: NodeId,
}

impl Ephemeral {
    pub(crate) fn new(id: NodeId, node: Node<'_>) -> Self {
        Self {
            czxid: node.czxid(),
            birth: node.details().birth,
            node: id,
        }
    }
}

/// An open session.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) password: [u8; PASSWORD_BYTES],
    pub(crate) timeout_ms: i32,
    pub(crate) attachment: Attachment,
    /// Identities that its client has proved by a certificate or by SASL, and anyone who takes it
    /// over has to prove, too.
    pub(crate) bound_to: Vec<AuthId>,
    /// The identity of its connection, if log entries refer to it.
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) ephemerals: BTreeSet<Ephemeral>,
}

/// An open session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its id.
    pub id: i64,
    /// Password that a client has to present to re-attach.
    pub password: [u8; PASSWORD_BYTES],
    /// The negotiated timeout in milliseconds.
    pub timeout_ms: i32,
    /// Number of its ephemerals.
    pub ephemerals: usize,
    /// Nonce of the attachment that may write for it; 0 if it has none.
    pub nonce: u64,
    /// Number of the last applied command of that attachment.
    pub last_sequence: u64,
    /// Whether a command of that attachment was lost, so that its later ones are refused.
    pub is_broken: bool,
}

/// Position of a walk over all ephemerals; see
/// [`Tree::next_ephemerals`](crate::Tree::next_ephemerals).
#[derive(Debug, Default, Clone, Copy)]
pub struct EphemeralCursor {
    /// The session that was last looked at, and the last of its ephemerals.
    pub(crate) last: Option<(i64, Option<Ephemeral>)>,
}

/// The server that gave a session this id: its first byte.
const fn server_of(id: i64) -> i64 {
    id >> 56
}

/// The open sessions, by id.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: BTreeMap<i64, Session>,
    /// Ephemerals of ended sessions, which further commands delete. None of the sets is empty.
    ended: BTreeMap<i64, BTreeSet<Ephemeral>>,
    /// The highest id of each server that was opened, by its first byte. A part of the state from
    /// [`FormatLevel::UniqueSessionIds`] on; before that, ids of sessions that have ended may be
    /// missing.
    newest: BTreeMap<i64, i64>,
    ephemerals: usize,
}

impl Sessions {
    /// Adds a session; false if the id is in use.
    pub(crate) fn open(
        &mut self,
        id: i64,
        password: [u8; PASSWORD_BYTES],
        timeout_ms: i32,
        attachment: Attachment,
        bound_to: Vec<AuthId>,
    ) -> bool {
        if self.open.contains_key(&id) || self.ended.contains_key(&id) {
            return false;
        }
        let session = Session {
            password,
            timeout_ms,
            attachment,
            bound_to,
            identity: None,
            ephemerals: BTreeSet::new(),
        };
        self.open.insert(id, session);
        self.note_opened(id);
        true
    }

    /// Notes that `id` was opened once.
    pub(crate) fn note_opened(&mut self, id: i64) {
        let newest = self.newest.entry(server_of(id)).or_insert(id);
        *newest = id.max(*newest);
    }

    /// The newest id that was opened of the server that gives ids like `id`.
    pub(crate) fn newest_like(&self, id: i64) -> Option<i64> {
        self.newest.get(&server_of(id)).copied()
    }

    /// The newest ids of all servers, in their order.
    pub(crate) fn newest(&self) -> impl ExactSizeIterator<Item = i64> + DoubleEndedIterator {
        self.newest.values().copied()
    }

    /// Forgets ids of sessions of which nothing is left, which a replica with another past may not
    /// know.
    pub(crate) fn forget_unknown_ids(&mut self) {
        let known = self.open.keys().chain(self.ended.keys()).copied();
        let known: Vec<i64> = known.collect();
        self.newest.clear();
        for id in known {
            self.note_opened(id);
        }
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Session> {
        self.open.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: i64) -> Option<&mut Session> {
        self.open.get_mut(&id)
    }

    /// Takes a session out. Its ephemerals are left to [`Sessions::doomed`].
    pub(crate) fn end(&mut self, id: i64) -> Option<Session> {
        let mut session = self.open.remove(&id)?;
        let ephemerals = std::mem::take(&mut session.ephemerals);
        if !ephemerals.is_empty() {
            self.ended.insert(id, ephemerals);
        }
        Some(session)
    }

    /// The ephemerals that an ended session has left, the oldest first.
    pub(crate) fn doomed(&self, id: i64) -> impl Iterator<Item = NodeId> {
        let ephemerals = self.ended.get(&id).into_iter().flatten();
        ephemerals.map(|ephemeral| ephemeral.node)
    }

    /// An ended session that has ephemerals left: the one with the lowest id.
    pub(crate) fn unfinished_end(&self) -> Option<i64> {
        self.ended.keys().next().copied()
    }

    /// Returns whether the session has ended and has ephemerals left.
    pub(crate) fn is_ending(&self, id: i64) -> bool {
        self.ended.contains_key(&id)
    }

    pub(crate) fn add_ephemeral(&mut self, id: i64, ephemeral: Ephemeral) {
        let is_new = match self.open.get_mut(&id) {
            Some(session) => session.ephemerals.insert(ephemeral),
            None => self.ended.entry(id).or_default().insert(ephemeral),
        };
        self.ephemerals += usize::from(is_new);
    }

    pub(crate) fn remove_ephemeral(&mut self, id: i64, ephemeral: Ephemeral) {
        let was_there = if let Some(session) = self.open.get_mut(&id) {
            session.ephemerals.remove(&ephemeral)
        } else if let Some(left) = self.ended.get_mut(&id) {
            let was_there = left.remove(&ephemeral);
            if left.is_empty() {
                self.ended.remove(&id);
            }
            was_there
        } else {
            false
        };
        self.ephemerals -= usize::from(was_there);
    }

    /// The open sessions in the order of their ids.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (i64, &Session)> {
        self.open.iter().map(|(id, session)| (*id, session))
    }

    /// Those whose id is above `after`, or all, in the order of their ids.
    pub(crate) fn after(&self, after: Option<i64>) -> impl Iterator<Item = (i64, &Session)> {
        let above = after.map_or(Bound::Unbounded, Bound::Excluded);
        let sessions = self.open.range((above, Bound::Unbounded));
        sessions.map(|(id, session)| (*id, session))
    }

    /// Ephemerals of all sessions.
    pub(crate) const fn ephemerals(&self) -> usize {
        self.ephemerals
    }
}

impl Session {
    /// Returns whether a connection with this password may take the session over: it shows the
    /// certificate to which the session is bound, if it is bound to one. What SASL proves comes
    /// after that. The time that takes says nothing about the password.
    pub(crate) fn admits(&self, password: &[u8; PASSWORD_BYTES], identity: &Identity) -> bool {
        let is_known = bool::from(self.password.ct_eq(password));
        let mut certificates = self.bound_to.iter().filter(|id| id.scheme == CERTIFICATE);
        is_known && certificates.all(|id| identity.contains(id))
    }

    pub(crate) fn info(&self, id: i64) -> SessionInfo {
        SessionInfo {
            id,
            password: self.password,
            timeout_ms: self.timeout_ms,
            ephemerals: self.ephemerals.len(),
            nonce: self.attachment.nonce(),
            last_sequence: self.attachment.last_sequence(),
            is_broken: self.attachment.is_broken(),
        }
    }

    /// Addition of session `id` to the digest of a tree of this level.
    pub(crate) fn digest_term(&self, id: i64, level: FormatLevel) -> u64 {
        let attachment = &self.attachment;
        match level {
            FormatLevel::Initial => digest::session_term(id, &self.password, self.timeout_ms),
            FormatLevel::Attachments | FormatLevel::Members => digest::attached_session_term(
                id,
                &self.password,
                self.timeout_ms,
                attachment.nonce(),
                attachment.is_broken(),
            )
            .wrapping_add(attachment.digest_steps()),
            FormatLevel::BoundSessions | FormatLevel::BoundedCommands => self
                .digest_term(id, FormatLevel::Attachments)
                .wrapping_add(digest::binding_term(id, &self.bound_to)),
            FormatLevel::SessionIdentities
            | FormatLevel::BoundedMultis
            | FormatLevel::UniqueSessionIds => {
                let identity = self.identity.as_deref();
                let identity_term = identity.map_or(0, |own| digest::identity_term(id, own));
                let of_earlier = self.digest_term(id, FormatLevel::BoundedCommands);
                of_earlier.wrapping_add(identity_term)
            }
        }
    }
}
