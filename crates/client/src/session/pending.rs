//! The future of a submitted operation.
//!
//! Owns the way from a reply's bytes to a typed outcome. It must never send anything: the operation
//! was submitted before this existed, and goes on when it is dropped.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use baton_proto::{DecodeError, ErrorCode, OpCode, Response, path};
use tokio::sync::oneshot;

use crate::clock::BoxFuture;
use crate::error::{Error, Reason};
use crate::session::core::Core;
use crate::session::outcome::{
    OperationEnd, Reply, UnansweredOperation, UnansweredOutcome, driver_gone,
};
use crate::session::watch::{PersistentWatch, Watch};

/// A value together with the zxid that the server answered with: for a write, its position in the
/// order of all changes; for a read, the newest change that the answer reflects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithZxid<T> {
    /// Value that the operation yields.
    pub value: T,
    /// The answer's zxid.
    pub zxid: i64,
}

/// Context that a decoder may take along into its value.
#[derive(Default)]
pub(crate) struct DecodeContext {
    pub(crate) watch: Option<Watch>,
    pub(crate) stream: Option<PersistentWatch>,
    /// Op and path of each part of a multi.
    pub(crate) parts: Vec<(OpCode, String)>,
}

/// Reason why a reply is not a value.
pub(crate) enum ReplyFault {
    Refused(ErrorCode),
    Part(usize, ErrorCode),
    Garbled(String),
}

impl From<DecodeError> for ReplyFault {
    fn from(e: DecodeError) -> Self {
        Self::Garbled(e.to_string())
    }
}

pub(crate) type Decode<T> = fn(Reply, &mut DecodeContext, &str) -> Result<T, ReplyFault>;

/// An operation that has been submitted. Await it for the outcome.
///
/// The operation is on its way already, in the order in which the session's operations were called;
/// dropping this does not cancel it, and awaiting it later costs nothing. Operations submitted in a
/// row go to the server in one write.
#[must_use = "the operation is on its way, but only awaiting this yields its outcome"]
pub struct Pending<T> {
    state: QueuedOperation,
    core: Arc<Core>,
    op: OpCode,
    /// Path as the user wrote it.
    path: String,
    timer: Option<BoxFuture<()>>,
    decode: Decode<T>,
    luggage: DecodeContext,
}

enum QueuedOperation {
    Failed(Option<UnansweredOperation>),
    Sent {
        id: u64,
        answer: oneshot::Receiver<OperationEnd>,
    },
}

impl<T> Pending<T> {
    #[expect(
        clippy::too_many_arguments,
        reason = "one caller, which has all of them at hand"
    )]
    pub(crate) fn new(
        core: Arc<Core>,
        op: OpCode,
        path: String,
        submitted: Result<u64, UnansweredOperation>,
        answer: oneshot::Receiver<OperationEnd>,
        timer: Option<BoxFuture<()>>,
        decode: Decode<T>,
        luggage: DecodeContext,
    ) -> Self {
        let state = match submitted {
            Ok(id) => QueuedOperation::Sent { id, answer },
            Err(unfinished) => QueuedOperation::Failed(Some(unfinished)),
        };
        Self {
            state,
            core,
            op,
            path,
            timer,
            decode,
            luggage,
        }
    }

    /// Returns a future of the same outcome, with the zxid of the answer.
    pub fn applied(self) -> PendingApplied<T> {
        PendingApplied(self)
    }

    fn unfinished(&mut self, unfinished: UnansweredOperation) -> Error {
        let UnansweredOperation { fate, reason } = unfinished;
        let (op, path) = (self.op, std::mem::take(&mut self.path));
        match fate {
            UnansweredOutcome::NotSent => Error::NotSent { op, path, reason },
            UnansweredOutcome::MaybeApplied => Error::MaybeApplied { op, path, reason },
            UnansweredOutcome::Unanswered => Error::Unanswered { op, path, reason },
        }
    }

    fn finished(&mut self, reply: Reply) -> Result<WithZxid<T>, Error> {
        let zxid = reply.zxid;
        (self.decode)(reply, &mut self.luggage, &self.core.config.chroot)
            .map(|value| WithZxid { value, zxid })
            .map_err(|fault| {
                let (op, path) = (self.op, std::mem::take(&mut self.path));
                match fault {
                    // Some server says that it does not know either.
                    ReplyFault::Refused(
                        ErrorCode::ConnectionLoss
                        | ErrorCode::OperationTimeout
                        | ErrorCode::RequestTimeout,
                    ) if op.is_write() => Error::MaybeApplied {
                        op,
                        path,
                        reason: Reason::ConnectionLost,
                    },
                    ReplyFault::Refused(code) => Error::Rejected {
                        op,
                        path,
                        code,
                        zxid,
                    },
                    ReplyFault::Part(index, code) => match self.luggage.parts.get(index).cloned() {
                        Some((op, path)) => Error::MultiRejected {
                            index,
                            op,
                            path,
                            code,
                            zxid,
                        },
                        None => Error::Rejected {
                            op,
                            path,
                            code,
                            zxid,
                        },
                    },
                    ReplyFault::Garbled(what) => {
                        let reason = Reason::BadReply(what);
                        if op.is_write() {
                            Error::MaybeApplied { op, path, reason }
                        } else {
                            Error::Unanswered { op, path, reason }
                        }
                    }
                }
            })
    }

    fn poll_applied(&mut self, cx: &mut Context<'_>) -> Poll<Result<WithZxid<T>, Error>> {
        let id = match &mut self.state {
            QueuedOperation::Failed(unfinished) => {
                let unfinished = unfinished.take().unwrap_or_else(driver_gone);
                return Poll::Ready(Err(self.unfinished(unfinished)));
            }
            QueuedOperation::Sent { id, answer } => {
                if let Poll::Ready(answer) = Pin::new(answer).poll(cx) {
                    return Poll::Ready(match answer {
                        Ok(Ok(reply)) => self.finished(reply),
                        Ok(Err(unfinished)) => Err(self.unfinished(unfinished)),
                        Err(_) => Err(self.unfinished(driver_gone())),
                    });
                }
                *id
            }
        };
        if let Some(timer) = &mut self.timer
            && timer.as_mut().poll(cx).is_ready()
        {
            self.timer = None;
            // None: the answer is being delivered at this very moment.
            if let Some(fate) = self.core.give_up(id) {
                let reason = Reason::DeadlinePassed;
                return Poll::Ready(Err(self.unfinished(UnansweredOperation { fate, reason })));
            }
        }
        Poll::Pending
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut()
            .poll_applied(cx)
            .map_ok(|applied| applied.value)
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("op", &self.op)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// [`Pending`] whose value comes with the zxid of the answer.
#[must_use = "the operation is on its way, but only awaiting this yields its outcome"]
#[derive(Debug)]
pub struct PendingApplied<T>(Pending<T>);

impl<T> Future for PendingApplied<T> {
    type Output = Result<WithZxid<T>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll_applied(cx)
    }
}

/// Decodes a successful reply's body, or returns the server's refusal.
pub(crate) fn body(reply: Reply, op: OpCode) -> Result<Response, ReplyFault> {
    match reply.err {
        ErrorCode::Ok => Ok(Response::decode(
            op,
            &reply.body,
            &baton_proto::Limits::with_max_frame_bytes(usize::MAX / 4),
        )?),
        code => Err(ReplyFault::Refused(code)),
    }
}

pub(crate) fn unexpected<T>(op: OpCode) -> Result<T, ReplyFault> {
    Err(ReplyFault::Garbled(format!(
        "the answer is not one to {op}"
    )))
}

/// A path as the user knows it.
pub(crate) fn local_path(chroot: &str, server_path: String) -> String {
    match path::strip_chroot(chroot, &server_path) {
        Some(local) if local.len() != server_path.len() => local.to_owned(),
        _ => server_path,
    }
}
