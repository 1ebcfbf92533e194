//! A connection's turn on the thread that it shares with others: how much it may read and answer
//! before they get theirs.

use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A turn, in bytes read and answered and in time. One request may exceed it.
const BYTES: usize = 256 << 10;
const TIME: Duration = Duration::from_millis(2);

/// Used part of a task's turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    bytes: usize,
    began: Option<Instant>,
}

impl Turn {
    /// Counts bytes that were read or answered.
    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Ends it.
    pub(super) fn use_up(&mut self) {
        self.bytes = BYTES;
    }

    /// Whether it has used up its bytes, so that others go first. Reads no clock.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BYTES
    }

    /// Whether it is over at `now`. The first call begins it.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let began = *self.began.get_or_insert(now);
        self.is_full() || now.saturating_duration_since(began) >= TIME
    }
}

/// Ends a task's turn: it is polled again once all others that are ready have been, and the sockets
/// have been asked.
pub(super) fn give_way<T>(cx: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
    Poll::Pending
}
