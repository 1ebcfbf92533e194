//! What has arrived and is not taken on yet, over all connections: requests that are not whole, and
//! whole ones that wait for room. Counted in one place, and bounded: past the bound those
//! connections end that have held most for longest. A connection whose requests arrive whole and
//! are taken on at once costs nothing here. Their sessions live on.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::connections::conn::{CloseReason, Conn};
use crate::connections::outbound::{Holder, to_end};
use crate::options::Options;
use crate::state::Shared;

/// Less than this of a connection is not counted: as much as any idle one may have.
const COUNTED_BYTES: usize = 4 << 10;

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Inbound {
    held_bytes: AtomicUsize,
    /// Connections that were told to end so that less is held, and have not yet.
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
}

impl Shared {
    /// Notes that `bytes` of a connection have arrived and are not taken on. `anew`: a request has
    /// been taken on since the last time, so that what is held has been held from now on only.
    pub(crate) fn set_unfinished(&self, conn: &Conn, bytes: usize, anew: bool) {
        let after = if bytes < COUNTED_BYTES { 0 } else { bytes };
        let unfinished = &conn.stats.unfinished;
        let before = unfinished.load(Relaxed);
        if before == 0 && after == 0 {
            return;
        }
        if before == 0 || anew {
            let since_ms = self.time.now_ms();
            conn.stats.unfinished_since_ms.store(since_ms, Relaxed);
        }
        unfinished.store(after, Relaxed);
        self.inbound.change(before, after);
        let is_over = self.inbound.held_bytes() > self.inbound.max_bytes;
        if after > before && is_over && self.inbound.ending.load(Relaxed) == 0 {
            self.end_unfinished();
        }
    }

    /// A connection is gone, with what it held; `ended` says why.
    pub(crate) fn release_unfinished(&self, conn: &Conn, ended: CloseReason) {
        let before = conn.stats.unfinished.swap(0, Relaxed);
        self.inbound.change(before, 0);
        if ended == CloseReason::Unfinished {
            self.inbound.ending.fetch_sub(1, Relaxed);
        }
    }

    /// Ends connections until the others together are below the bound.
    fn end_unfinished(&self) {
        let now_ms = self.time.now_ms();
        let connections = self.all_connections();
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
        if held_bytes <= self.inbound.max_bytes {
            return;
        }
        let mut wake = Vec::new();
        for place in to_end(holders, held_bytes, self.inbound.max_bytes / 8 * 7) {
            let Some(conn) = connections.get(place) else {
                continue;
            };
            if conn.close(CloseReason::Unfinished, &mut wake) {
                self.inbound.ending.fetch_add(1, Relaxed);
            }
        }
        for conn in wake {
            conn.wake(false);
        }
    }
}
