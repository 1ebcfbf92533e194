//! The bound on requests that have arrived and are not taken on yet, over all connections: requests
//! that are not whole, and whole ones that wait for room. Past the bound, the connections end that
//! have held the most for the longest time; their sessions live on. A connection whose requests
//! arrive whole and are taken on at once is not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::connections::conn::{CloseReason, Conn};
use crate::connections::relief::{Holder, target_bytes, to_end};
use crate::options::Options;

/// Fewer bytes than this of a connection are not counted: as much as any idle one may have.
const COUNTED_BYTES: usize = 4 << 10;

/// Counts the bytes of unfinished and waiting requests.
#[derive(Debug)]
pub(crate) struct Inbound {
    held_bytes: AtomicUsize,
    /// Connections that are being ended so that less is held.
    ending: AtomicUsize,
    max_bytes: usize,
}

impl Inbound {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            held_bytes: AtomicUsize::new(0),
            ending: AtomicUsize::new(0),
            max_bytes: options.max_unfinished_bytes,
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Relaxed)
    }

    /// A connection that held `before` holds `after`.
    fn change(&self, before: usize, after: usize) {
        if after > before {
            self.held_bytes.fetch_add(after - before, Relaxed);
        } else {
            self.held_bytes.fetch_sub(before - after, Relaxed);
        }
    }

    /// Counts `bytes` of a connection as arrived and not taken on. `taken_on`: a request has been
    /// taken on since the last call, so what the connection holds has been held only from now on.
    /// `true`: all connections together hold too much, and the caller has to
    /// [`relieve`](Self::relieve).
    pub(crate) fn set(
        &self,
        conn: &Conn,
        bytes: usize,
        taken_on: bool,
        now_ms: impl FnOnce() -> u64,
    ) -> bool {
        let after = if bytes < COUNTED_BYTES { 0 } else { bytes };
        let unfinished = &conn.stats.unfinished;
        let before = unfinished.load(Relaxed);
        if before == 0 && after == 0 {
            return false;
        }
        if before == 0 || taken_on {
            conn.stats.unfinished_since_ms.store(now_ms(), Relaxed);
        }
        unfinished.store(after, Relaxed);
        self.change(before, after);
        let is_over = self.held_bytes() > self.max_bytes;
        after > before && is_over && self.ending.load(Relaxed) == 0
    }

    /// Releases what an ended connection held; `ended` says why it ended.
    pub(crate) fn release(&self, conn: &Conn, ended: CloseReason) {
        let before = conn.stats.unfinished.swap(0, Relaxed);
        self.change(before, 0);
        if ended == CloseReason::Unfinished {
            self.ending.fetch_sub(1, Relaxed);
        }
    }

    /// Ends connections until the others together are below the bound.
    pub(crate) fn relieve(&self, connections: &[Arc<Conn>], now_ms: u64) {
        let mut held_bytes = 0;
        let mut holders = Vec::new();
        for (place, conn) in connections.iter().enumerate() {
            let bytes = conn.stats.unfinished.load(Relaxed);
            if bytes > 0 && !conn.is_closing() {
                let since_ms = conn.stats.unfinished_since_ms.load(Relaxed);
                held_bytes += bytes;
                holders.push(Holder {
                    place,
                    bytes,
                    waits_ms: now_ms.saturating_sub(since_ms),
                });
            }
        }
        if held_bytes <= self.max_bytes {
            return;
        }
        let mut wake = Vec::new();
        for place in to_end(holders, held_bytes, target_bytes(self.max_bytes)) {
            let Some(conn) = connections.get(place) else {
                continue;
            };
            if conn.close(CloseReason::Unfinished, &mut wake) {
                self.ending.fetch_add(1, Relaxed);
            }
        }
        for conn in wake {
            conn.wake(false);
        }
    }
}
