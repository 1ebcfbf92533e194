//! What waits for clients to read it, over all connections: counted in one place, and bounded. A
//! connection is counted with what its socket has not taken and with what waits behind that; one
//! whose answers leave at once costs nothing here. Past half of the bound a connection takes no
//! further request before its answers have left; past the bound those connections end that have
//! held most for longest, and nobody adds to it until their bytes are gone. Never drops a frame of
//! a connection that stays open.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::connections::conn::Conn;
use crate::options::Options;
use crate::state::Shared;

/// What one connection may leave unread in a press and still be asked for more.
const PRESSED_BYTES: usize = 16 << 10;

/// How near to its bound the whole is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressure {
    None,
    Pressed,
    Over,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Outbound {
    held_bytes: AtomicUsize,
    /// Connections that were told to end so that others can go on, and have not yet.
    ending: AtomicUsize,
    /// Of all connections.
    max_bytes: usize,
    /// Of one connection before its requests wait.
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

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Relaxed)
    }

    /// Whether the core has to end connections. Those that it ends give their bytes back later, so
    /// `seen` keeps it from looking again for each event of an entry; it begins with 0.
    pub(crate) fn needs_relief(&self, seen: &mut usize) -> bool {
        let held_bytes = self.held_bytes();
        let needs = held_bytes > self.max_bytes && held_bytes >= *seen;
        if needs {
            *seen = held_bytes + self.max_bytes / 64;
        }
        needs
    }

    /// Whether it was seen to already that what waits will be less.
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

    /// What may wait for one connection before it takes no further request.
    pub(crate) fn share(&self, pressure: Pressure) -> usize {
        match pressure {
            Pressure::None => self.max_bytes_each,
            Pressure::Pressed | Pressure::Over => self.max_bytes_each.min(PRESSED_BYTES),
        }
    }

    /// What may wait for one connection before it ends: requests alone cannot cause so much.
    pub(crate) fn too_slow_bytes(&self) -> usize {
        self.max_bytes_each
            .saturating_mul(Options::EVENTS_BEYOND_REPLIES)
    }
}

/// What a connection holds, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) place: usize,
    pub(crate) bytes: usize,
    pub(crate) waits_ms: u64,
}

impl Holder {
    /// A client that fetches much holds much for a moment; one that does not read holds it for
    /// long.
    fn weight(&self) -> u64 {
        let bytes = u64::try_from(self.bytes).unwrap_or(u64::MAX);
        bytes.saturating_mul(self.waits_ms.saturating_add(1))
    }
}

/// Which of `holders` have to end so that no more than `target_bytes` is left of `held_bytes`.
pub(crate) fn to_end(
    mut holders: Vec<Holder>,
    held_bytes: usize,
    target_bytes: usize,
) -> Vec<usize> {
    holders.sort_by_key(|holder| Reverse(holder.weight()));
    let mut left = held_bytes;
    holders
        .into_iter()
        .take_while(|holder| {
            let goes_on = left > target_bytes;
            left = left.saturating_sub(holder.bytes);
            goes_on
        })
        .map(|holder| holder.place)
        .collect()
}

impl Shared {
    /// Ends connections until all others together are below the bound. The caller wakes those on
    /// `wake` once it holds no outbox. Takes the lock of the connections.
    pub(crate) fn relieve(&self, wake: &mut Vec<Arc<Conn>>) {
        let now_ms = self.time.now_ms();
        let connections = self.all_connections();
        let mut held_bytes = 0;
        let mut holders = Vec::new();
        for (place, conn) in connections.iter().enumerate() {
            let Some((bytes, may_end)) = conn.holds() else {
                continue;
            };
            held_bytes += bytes;
            if may_end && bytes > 0 {
                holders.push(Holder {
                    place,
                    bytes,
                    waits_ms: conn.waits_ms(now_ms),
                });
            }
        }
        if held_bytes <= self.outbound.max_bytes {
            return;
        }
        let target_bytes = self.outbound.max_bytes / 8 * 7;
        for place in to_end(holders, held_bytes, target_bytes) {
            if let Some(conn) = connections.get(place) {
                conn.end(wake);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(place: usize, bytes: usize, waits_ms: u64) -> Holder {
        Holder {
            place,
            bytes,
            waits_ms,
        }
    }

    #[test]
    fn who_holds_much_for_long_ends_before_who_holds_more_for_a_moment() {
        let holders = vec![
            holder(0, 500, 3),
            holder(1, 100, 1000),
            holder(2, 200, 1000),
            holder(3, 1, 5000),
        ];
        assert_eq!(to_end(holders.clone(), 801, 801), [0_usize; 0]);
        assert_eq!(to_end(holders.clone(), 801, 700), [2]);
        assert_eq!(to_end(holders.clone(), 801, 550), [2, 1]);
        assert_eq!(to_end(holders, 801, 100), [2, 1, 3, 0]);
    }

    #[test]
    fn what_is_held_tells_the_pressure_and_what_each_may_have() {
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
