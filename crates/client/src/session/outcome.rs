//! Outcome of an operation, and its delivery to the user.
//!
//! Owns what is decided under the session's lock and happens after its release: answers to users,
//! watch events, wake-ups.

use std::task::Waker;

use baton_proto::{ErrorCode, OpCode};
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use crate::error::Reason;
use crate::session::watches::WatchNotification;
use crate::state::{EndReason, State};

/// A reply as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) err: ErrorCode,
    pub(crate) zxid: i64,
    pub(crate) body: Bytes,
}

/// Known effect of an operation without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnansweredOutcome {
    /// No server will apply it.
    NotSent,
    /// A write that was sent.
    MaybeApplied,
    /// A read that was sent.
    Unanswered,
}

/// An operation's end without an answer.
#[derive(Clone, Debug)]
pub(crate) struct UnansweredOperation {
    pub(crate) fate: UnansweredOutcome,
    pub(crate) reason: Reason,
}

pub(crate) type OperationEnd = Result<Reply, UnansweredOperation>;

/// Returns whether a lost answer leaves the operation's effect unknown.
pub(crate) fn fate_when_lost(op: OpCode) -> UnansweredOutcome {
    if op.is_write() {
        UnansweredOutcome::MaybeApplied
    } else {
        UnansweredOutcome::Unanswered
    }
}

/// Turns a missing answer into what a user's future yields.
pub(crate) fn driver_gone() -> UnansweredOperation {
    UnansweredOperation {
        fate: UnansweredOutcome::MaybeApplied,
        reason: Reason::SessionEnded(EndReason::DriverGone),
    }
}

/// Work to be done after the lock is released.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) finished: Vec<(oneshot::Sender<OperationEnd>, OperationEnd)>,
    pub(crate) fired: Vec<WatchNotification>,
    pub(crate) wake: Option<Waker>,
    pub(crate) changed: bool,
    /// The session's id and its new state, for the log.
    pub(crate) state: Option<(i64, State, Option<EndReason>)>,
}

impl Effects {
    /// Delivers everything, in order, and leaves the lists empty for reuse. `changed` is notified
    /// if the session's state has changed.
    pub(crate) fn deliver(&mut self, changed: &Notify) {
        if let Some((id, state, reason)) = self.state.take() {
            let session = format_args!("0x{id:x}");
            match reason {
                Some(reason) if reason.is_loss() => {
                    tracing::warn!(session, %state, %reason, "session state changed");
                }
                Some(reason) => {
                    tracing::info!(session, %state, %reason, "session state changed");
                }
                None => tracing::info!(session, %state, "session state changed"),
            }
        }
        for fired in self.fired.drain(..) {
            fired.deliver();
        }
        for (to, what) in self.finished.drain(..) {
            // A receiver that is gone has lost interest, not the operation's effect.
            let _gone = to.send(what);
        }
        if let Some(waker) = self.wake.take() {
            waker.wake();
        }
        if std::mem::take(&mut self.changed) {
            changed.notify_waiters();
        }
    }
}
