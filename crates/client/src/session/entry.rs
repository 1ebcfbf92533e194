//! One operation between its submission and its end.
//!
//! Owns what is remembered of an operation that has no answer yet. It must never decide to send a
//! write again.

use std::sync::Arc;

use baton_proto::{AddWatchMode, OpCode, Request};
use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::error::Reason;
use crate::lease::WriteProof;
use crate::session::outcome::{
    Effects, OperationEnd, UnansweredOperation, UnansweredOutcome, fate_when_lost,
};
use crate::session::watches::Ticket;

/// Receiver of the answer.
pub(crate) enum AnswerReceiver {
    /// A user's future.
    User(oneshot::Sender<OperationEnd>),
    /// Nobody.
    Nobody,
    /// The session: is the server Baton's?
    Probe,
    /// The session: does the server still lack the op that removes watches?
    RemoveWatches,
    /// The session: it ends with this answer.
    Close,
}

/// Repeat of an operation without an answer on the next connection. Only what changes nothing is
/// ever repeated, and the close of a session, which cannot happen twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResendRequest {
    Exists { watch: bool },
    GetData { watch: bool },
    GetChildren2 { watch: bool },
    GetAcl,
    Sync,
    AddWatch(AddWatchMode),
    Close,
}

impl ResendRequest {
    /// The request, for the path as the server knows it.
    pub(crate) fn request(self, path: &str) -> Request<'_> {
        match self {
            Self::Exists { watch } => Request::Exists { path, watch },
            Self::GetData { watch } => Request::GetData { path, watch },
            Self::GetChildren2 { watch } => Request::GetChildren2 { path, watch },
            Self::GetAcl => Request::GetAcl { path },
            Self::Sync => Request::Sync { path },
            Self::Close => Request::CloseSession,
            Self::AddWatch(mode) => Request::AddWatch {
                path,
                mode: mode.code(),
            },
        }
    }
}

/// An operation that was submitted.
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) xid: i32,
    pub(crate) op: OpCode,
    /// Path as the server knows it, chroot included.
    pub(crate) path: Arc<str>,
    pub(crate) done: AnswerReceiver,
    /// `None`: it is never repeated.
    pub(crate) resend: Option<ResendRequest>,
    pub(crate) watch: Option<Ticket>,
    /// Bytes of its frame.
    pub(crate) len: usize,
    /// End of its frame in this connection's stream of bytes.
    pub(crate) end: u64,
    pub(crate) sent: BootInstant,
    /// Proof of its acknowledgement, if it is a write: `LeaseBook::write_sent`.
    pub(crate) proof: Option<WriteProof>,
    pub(crate) fail_fast: bool,
    pub(crate) deadline: Option<BootInstant>,
}

impl Entry {
    pub(crate) fn fate_when_lost(&self) -> UnansweredOutcome {
        fate_when_lost(self.op)
    }

    /// Ends it without an answer.
    pub(crate) fn fail(self, fate: UnansweredOutcome, reason: Reason, effects: &mut Effects) {
        match self.done {
            AnswerReceiver::User(to) => effects
                .finished
                .push((to, Err(UnansweredOperation { fate, reason }))),
            AnswerReceiver::Nobody
            | AnswerReceiver::Probe
            | AnswerReceiver::RemoveWatches
            | AnswerReceiver::Close => {}
        }
    }
}

/// An operation that waits for a connection, with its frame; the xid in it is not final.
pub(crate) struct QueuedOperation {
    pub(crate) entry: Entry,
    pub(crate) frame: Vec<u8>,
}
