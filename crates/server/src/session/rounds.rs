//! Rounds of the socket tasks. Before a session expires, the core asks for a round, so that
//! whatever waited on the sockets has been read by then; the task of `net::lag` makes it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// The rounds asked for and made. Shared by the core and the task that makes them.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Whether a task makes rounds.
    begun: AtomicBool,
    asked: AtomicU64,
    made: AtomicU64,
    wanted: Notify,
}

/// A round that the core has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round(u64);

impl Rounds {
    /// Asks for a round. The task that makes it nudges the inbox when it is made. `None`: there are
    /// no sockets whose tasks could be late, as in a simulation.
    pub(crate) fn ask(&self) -> Option<Round> {
        if !self.begun.load(Ordering::Acquire) {
            return None;
        }
        let round = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.wake();
        Some(Round(round))
    }

    /// Whether the round has been made: what waited on sockets when it was asked for has been read
    /// since.
    pub(crate) fn is_made(&self, round: Round) -> bool {
        self.made.load(Ordering::Acquire) >= round.0
    }

    /// From now on a task makes rounds.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// Wakes the task that makes rounds: how often it measures depends on what the server does.
    pub(crate) fn wake(&self) {
        self.wanted.notify_one();
    }

    /// Waits until a round is asked for, or the task is woken.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// The newest round that was asked for.
    pub(crate) fn asked(&self) -> Round {
        Round(self.asked.load(Ordering::Acquire))
    }

    /// Notes that `round` and those before it are made. `false`: they were made already.
    pub(crate) fn set_made(&self, round: Round) -> bool {
        let is_new = !self.is_made(round);
        if is_new {
            self.made.store(round.0, Ordering::Release);
        }
        is_new
    }
}
