//! Connections that end when a bound over all connections is exceeded: those that have held the
//! most for the longest time.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::connections::conn::Conn;
use crate::connections::outbound::Outbound;

/// Bytes that a connection holds, and for how long.
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

/// Selects the `holders` to end so that no more than `target_bytes` is left of `held_bytes`.
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

/// Bytes that may be left after connections have been ended: less than the bound, so that not every
/// request ends one.
pub(crate) const fn target_bytes(max_bytes: usize) -> usize {
    max_bytes / 8 * 7
}

/// Ends connections until the unread bytes of all others are below the bound. The caller wakes
/// those on `wake` once it holds no lock.
pub(crate) fn relieve(
    outbound: &Outbound,
    connections: &[Arc<Conn>],
    now_ms: u64,
    wake: &mut Vec<Arc<Conn>>,
) {
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
    if held_bytes <= outbound.max_bytes() {
        return;
    }
    let target_bytes = target_bytes(outbound.max_bytes());
    for place in to_end(holders, held_bytes, target_bytes) {
        if let Some(conn) = connections.get(place) {
            conn.end(wake);
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
}
