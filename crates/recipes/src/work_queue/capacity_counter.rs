//! The capacity counter: the node that bounds the number of items.
//!
//! Owns that node's bytes and how a put raises it. On the tree the node is called `gate`. It holds
//! an upper bound: consumers only remove items, and leave it as it is.

use baton_client::Op;
use serde::{Deserialize, Serialize};

/// The capacity counter as it was read or written last.
#[derive(Clone, Copy, Debug)]
pub(super) struct CapacityCounter {
    pub version: i32,
    pub items: u64,
}

/// The capacity counter of a bounded queue as this process wrote it last, locked against its other
/// tasks.
pub(super) type LockedCounter = tokio::sync::OwnedMutexGuard<Option<CapacityCounter>>;

#[derive(Serialize, Deserialize)]
struct CounterBody {
    items: u64,
}

impl CapacityCounter {
    /// The bytes of the counter of an empty queue.
    pub(super) fn empty() -> Vec<u8> {
        Self::bytes(0)
    }

    /// The bytes of a counter above any capacity: the next put has to count the items.
    pub(super) fn unknown() -> Vec<u8> {
        Self::bytes(u64::MAX)
    }

    /// The number of items that the node's data holds, if it can be read.
    pub(super) fn items_in(data: &[u8]) -> Option<u64> {
        let body: CounterBody = serde_json::from_slice(data).ok()?;
        Some(body.items)
    }

    fn bytes(items: u64) -> Vec<u8> {
        // Numbers always have a JSON form.
        serde_json::to_vec(&CounterBody { items }).unwrap_or_default()
    }

    /// The counter after `more` items, and the parts of the multi that raise it. `node` is its full
    /// path.
    pub(super) fn raise(self, node: &str, more: u64) -> (Self, Vec<Op>) {
        let items = self.items.saturating_add(more);
        let set = |version| Op::set_data(node, Self::bytes(items), version);
        let mut parts = vec![set(Some(self.version))];
        let mut version = self.version.wrapping_add(1);
        if version == -1 {
            // Version -1 cannot be a condition. Two writes in one change step over it (H24).
            parts.push(set(None));
            version = 0;
        }
        (Self { version, items }, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h24_the_capacity_counters_version_steps_over_minus_one() {
        let puts = |version| {
            let (after, parts) = CapacityCounter { version, items: 3 }.raise("/gate", 2);
            let version = |op: &Op| match op {
                Op::SetData { version, .. } => *version,
                other => panic!("{other:?}"),
            };
            let asked: Vec<_> = parts.iter().map(version).collect();
            (after.version, after.items, asked)
        };
        assert_eq!(puts(7), (8, 5, vec![Some(7)]));
        assert_eq!(puts(i32::MAX), (i32::MIN, 5, vec![Some(i32::MAX)]));
        assert_eq!(puts(-3), (-2, 5, vec![Some(-3)]));
        assert_eq!(puts(-2), (0, 5, vec![Some(-2), None]));
    }
}
