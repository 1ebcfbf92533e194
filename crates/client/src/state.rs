//! The states of a session, and the log from which listeners receive every change.
//!
//! Owns the order of state changes. It must never drop or merge one: a listener that is slow reads
//! them late, all of them, and in order (`hazards.md` G2, `H35`). Each listener is a cursor into
//! one shared list, so what is kept is what the slowest has not read.

use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "state", rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum State {
    /// A server has the session; `epoch` counts its connections from 1.
    Connected {
        /// Number of the connection in this session, from 1.
        epoch: u64,
    },
    /// No connection. The session may come back; what it holds counts only as long as its lease
    /// runs.
    Suspended,
    /// The session is over: the server said so, or nothing was acknowledged for its whole timeout.
    /// Final.
    Expired,
    /// This process has closed the session. Final.
    Closed,
    /// A server refused the credentials. Final.
    AuthFailed,
}

impl State {
    /// Returns whether no other state can follow.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Expired | Self::Closed | Self::AuthFailed)
    }

    /// Returns whether a server has the session on a live connection.
    #[must_use]
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Connected { .. })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { epoch } => write!(f, "connected (connection {epoch})"),
            Self::Suspended => f.write_str("suspended"),
            Self::Expired => f.write_str("expired"),
            Self::Closed => f.write_str("closed"),
            Self::AuthFailed => f.write_str("credentials refused"),
        }
    }
}

/// Reason why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum EndReason {
    /// The server said that it has expired, or does not know it.
    ExpiredByServer,
    /// Nothing was acknowledged for the whole session timeout.
    ExpiredLocally,
    /// [`Session::close`](crate::Session::close), or its last handle was dropped.
    Closed,
    /// A server refused the credentials.
    AuthFailed,
    /// A server serves nobody who has not authenticated, and the session has no credentials that
    /// it counts.
    AuthRequired,
    /// The task that drives the session ended (runtime shut down, or a fault in it).
    DriverGone,
}

impl EndReason {
    /// The final state that this reason leads to.
    #[must_use]
    pub const fn state(self) -> State {
        match self {
            Self::ExpiredByServer | Self::ExpiredLocally | Self::DriverGone => State::Expired,
            Self::Closed => State::Closed,
            Self::AuthFailed | Self::AuthRequired => State::AuthFailed,
        }
    }

    /// Returns whether nobody in this process has ended the session, so that what it held is lost.
    pub(crate) const fn is_loss(self) -> bool {
        !matches!(self, Self::Closed | Self::DriverGone)
    }

    /// The reason with what helps.
    pub(crate) fn with_remedy(self) -> String {
        match self {
            // Its text has one: another session would end alike.
            Self::AuthRequired => self.to_string(),
            _ => format!("{self}; open a new session"),
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExpiredByServer => "the server has expired the session",
            Self::ExpiredLocally => "no server answered for the whole session timeout",
            Self::Closed => "the session is closed",
            Self::AuthFailed => "the server refused our credentials",
            Self::AuthRequired => {
                "the server requires authentication; give it credentials that it knows"
            }
            Self::DriverGone => "the session's task is gone (runtime shut down?)",
        })
    }
}

struct Node {
    state: State,
    next: OnceLock<Arc<Node>>,
}

impl Drop for Node {
    /// Unlinks one node after the other: a long list dropped recursively would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(node) = next.and_then(Arc::into_inner) {
            let mut node = node;
            next = node.next.take();
        }
    }
}

/// The writing end: one per session.
pub(crate) struct StateLog {
    tail: Mutex<Arc<Node>>,
    grown: Arc<Notify>,
}

impl StateLog {
    pub(crate) fn new(first: State) -> Self {
        let node = Arc::new(Node {
            state: first,
            next: OnceLock::new(),
        });
        Self {
            tail: Mutex::new(node),
            grown: Arc::new(Notify::new()),
        }
    }

    /// Appends a state and wakes every listener. Nothing follows a final state.
    pub(crate) fn publish(&self, state: State) {
        {
            let mut tail = self.tail.lock();
            if tail.state.is_final() {
                return;
            }
            let node = Arc::new(Node {
                state,
                next: OnceLock::new(),
            });
            if tail.next.set(Arc::clone(&node)).is_err() {
                return;
            }
            *tail = node;
        }
        self.grown.notify_waiters();
    }

    pub(crate) fn current(&self) -> State {
        self.tail.lock().state
    }

    pub(crate) fn listen(&self) -> StateStream {
        StateStream {
            cursor: Arc::clone(&self.tail.lock()),
            grown: Arc::clone(&self.grown),
        }
    }
}

/// One listener's position in the sequence of a session's states.
///
/// It starts at the state that held when it was made, and then yields every later change, in order,
/// however late it is read.
#[derive(Clone)]
pub struct StateStream {
    cursor: Arc<Node>,
    grown: Arc<Notify>,
}

impl StateStream {
    /// The state at this listener's position; not necessarily the newest.
    #[must_use]
    pub fn current(&self) -> State {
        self.cursor.state
    }

    /// Returns the next change, if it has happened.
    pub fn try_next(&mut self) -> Option<State> {
        let next = Arc::clone(self.cursor.next.get()?);
        self.cursor = next;
        Some(self.cursor.state)
    }

    /// Returns the next change; `None` after a final state. Cancel-safe.
    pub async fn next(&mut self) -> Option<State> {
        loop {
            let grown = Arc::clone(&self.grown);
            let notified = grown.notified();
            if let Some(state) = self.try_next() {
                return Some(state);
            }
            if self.cursor.state.is_final() {
                return None;
            }
            notified.await;
        }
    }
}

impl fmt::Debug for StateStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateStream")
            .field("current", &self.current())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn h35_every_transition_reaches_every_listener_in_order_over_a_million_flaps() {
        let log = StateLog::new(State::Connected { epoch: 1 });
        let (mut slow, abandoned) = (log.listen(), log.listen());
        for epoch in 2..500_000 {
            log.publish(State::Suspended);
            log.publish(State::Connected { epoch });
        }
        log.publish(State::Expired);
        log.publish(State::Connected { epoch: 7 });
        for epoch in 2..500_000 {
            assert_eq!(slow.next().await, Some(State::Suspended));
            assert_eq!(slow.next().await, Some(State::Connected { epoch }));
        }
        assert_eq!(slow.next().await, Some(State::Expired));
        assert_eq!(slow.next().await, None, "nothing follows a final state");
        assert_eq!(log.current(), State::Expired);
        drop(abandoned);
    }

    #[tokio::test]
    async fn a_listener_that_waits_is_woken() {
        let log = Arc::new(StateLog::new(State::Suspended));
        let mut listener = log.listen();
        let waiting = tokio::spawn(async move { listener.next().await });
        tokio::task::yield_now().await;
        log.publish(State::Closed);
        assert_eq!(waiting.await.unwrap_or(None), Some(State::Closed));
    }
}
