//! The bound on what waits for clients to read it, over all connections. A connection counts with
//! what its socket has not taken and with what waits behind that; one whose answers leave at once
//! is not counted. Past half of the bound, a connection takes no further request before its answers
//! have left. Past the bound, [`relief`](super::relief) ends the connections that have held the
//! most for the longest time, and no connection adds to it until their bytes are gone. Never drops
//! a frame of a connection that stays open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::options::Options;

/// Bytes that one connection may leave unread under pressure and still have requests taken on.
const PRESSED_BYTES: usize = 16 << 10;

/// Distance from the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressure {
    None,
    Pressed,
    Over,
}

/// Counts the bytes that clients have not read.
#[derive(Debug)]
pub(crate) struct Outbound {
    held_bytes: AtomicUsize,
    /// Connections that are being ended so that others can go on.
    ending: AtomicUsize,
    /// Bound over all connections.
    max_bytes: usize,
    /// Bound of one connection before its requests wait.
    max_bytes_each: usize,
}

impl Outbound {
    pub(crate) fn new(options: &Options) -> Arc<Self> {
        Arc::new(Self {
            held_bytes: AtomicUsize::new(0),
            ending: AtomicUsize::new(0),
            max_bytes: options.max_outbound_bytes_in_all,
            max_bytes_each: options.max_outbound_bytes,
        })
    }

    /// A connection that held `before` holds `after`.
    pub(crate) fn change(&self, before: usize, after: usize) {
        if after > before {
            self.held_bytes.fetch_add(after - before, Relaxed);
        } else if before > after {
            self.held_bytes.fetch_sub(before - after, Relaxed);
        }
    }

    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Relaxed)
    }

    /// Whether the core has to end connections. Those that it ends release their bytes later, so
    /// `seen`, which begins with 0, keeps the core from asking again for each event of an entry.
    pub(crate) fn needs_relief(&self, seen: &mut usize) -> bool {
        let held_bytes = self.held_bytes();
        let needs = held_bytes > self.max_bytes && held_bytes >= *seen;
        if needs {
            *seen = held_bytes + self.max_bytes / 64;
        }
        needs
    }

    /// Whether connections are being ended already.
    pub(crate) fn is_being_relieved(&self) -> bool {
        self.ending.load(Relaxed) > 0
    }

    pub(crate) fn ends(&self) {
        self.ending.fetch_add(1, Relaxed);
    }

    pub(crate) fn has_ended(&self) {
        self.ending.fetch_sub(1, Relaxed);
    }

    pub(crate) fn pressure(&self) -> Pressure {
        match self.held_bytes() {
            held if held > self.max_bytes => Pressure::Over,
            held if held > self.max_bytes / 2 => Pressure::Pressed,
            _ => Pressure::None,
        }
    }

    /// Bytes that may wait for one connection before no further request of it is taken on.
    pub(crate) fn share(&self, pressure: Pressure) -> usize {
        match pressure {
            Pressure::None => self.max_bytes_each,
            Pressure::Pressed | Pressure::Over => self.max_bytes_each.min(PRESSED_BYTES),
        }
    }

    /// Bytes that may wait for one connection before it is ended. Replies alone cannot reach this.
    pub(crate) fn too_slow_bytes(&self) -> usize {
        self.max_bytes_each
            .saturating_mul(Options::EVENTS_BEYOND_REPLIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_gives_the_pressure_and_what_each_may_have() {
        let outbound = Outbound::new(&Options {
            max_outbound_bytes: 100_000,
            max_outbound_bytes_in_all: 2_000_000,
            ..Options::default()
        });
        assert_eq!(outbound.pressure(), Pressure::None);
        assert_eq!(outbound.share(Pressure::None), 100_000);
        outbound.change(0, 1_000_001);
        assert_eq!(outbound.pressure(), Pressure::Pressed);
        assert_eq!(outbound.share(Pressure::Pressed), PRESSED_BYTES);
        outbound.change(1_000_001, 2_000_001);
        assert_eq!(outbound.pressure(), Pressure::Over);
        let mut seen = 0;
        assert!(outbound.needs_relief(&mut seen));
        assert!(!outbound.needs_relief(&mut seen), "not for each event");
        outbound.change(0, 2_000_000 / 64);
        assert!(outbound.needs_relief(&mut seen), "but for more bytes");
        outbound.change(2_000_001 + 2_000_000 / 64, 0);
        assert_eq!(outbound.held_bytes(), 0);
    }
}
