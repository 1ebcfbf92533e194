//! Waiters and blockers of a wait queue.
//!
//! Owns which node blocks which. Only the nearest blockers of a node are named: they wait for those
//! before them, so that a queue of any length has about as many waits as nodes.

use super::children::NodeMode;
use super::lock::{LockKind, LockSnapshot};
use super::lock_node::LockNode;

/// A node that waits, and the nodes that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedNode<'a> {
    /// The node that waits.
    pub waiter: &'a LockNode,
    /// The nearest nodes before it that block it.
    pub blockers: Vec<&'a LockNode>,
    /// Whether it is enough that one of the blockers goes, as with the permits of a semaphore.
    /// Otherwise all of them must.
    pub any: bool,
}

impl LockSnapshot {
    /// Returns each waiter with its nearest blockers.
    ///
    /// Waiters of a semaphore whose number of permits the tree does not have are left out: whether
    /// a permit is free is not known. Those who wait for a node that all share
    /// ([`SimpleMutex`](crate::lock::SimpleMutex)) leave no trace.
    #[must_use]
    pub fn waits(&self) -> Vec<BlockedNode<'_>> {
        match self.kind {
            LockKind::Semaphore => self.waits_for_permits(),
            LockKind::Lock | LockKind::ReadWrite | LockKind::Simple => self.waits_in_order(),
        }
    }

    fn waits_for_permits(&self) -> Vec<BlockedNode<'_>> {
        let taken = self.holders.len() + self.pending.len();
        let is_full = self
            .permits
            .is_some_and(|permits| taken >= usize::try_from(permits).unwrap_or(usize::MAX));
        let Some((first, others)) = self.waiters.split_first() else {
            return Vec::new();
        };
        let mut waits = Vec::with_capacity(self.waiters.len());
        if is_full && !self.holders.is_empty() {
            waits.push(BlockedNode {
                waiter: first,
                blockers: self.holders.iter().collect(),
                any: true,
            });
        }
        let mut before = first;
        for waiter in others {
            let blockers = vec![before];
            waits.push(BlockedNode {
                waiter,
                blockers,
                any: false,
            });
            before = waiter;
        }
        waits
    }

    fn waits_in_order(&self) -> Vec<BlockedNode<'_>> {
        // Holders and waiters of each scheme are in one order, and all holders come first.
        let mut waits = Vec::with_capacity(self.waiters.len());
        let mut schemes: Vec<_> = self.nodes().map(|node| node.scheme).collect();
        schemes.sort_unstable_by_key(|scheme| scheme.as_str());
        schemes.dedup();
        for scheme in schemes {
            let mut last_writer: Option<&LockNode> = None;
            let mut readers: Vec<&LockNode> = Vec::new();
            let nodes = self.nodes().filter(|node| node.scheme == scheme);
            for node in nodes {
                let blockers = match node.mode {
                    NodeMode::Read => {
                        readers.push(node);
                        last_writer.into_iter().collect()
                    }
                    NodeMode::Exclusive | NodeMode::Write | NodeMode::Permit => {
                        let writer = last_writer.replace(node);
                        match readers.is_empty() {
                            // The readers wait for the writer before them.
                            false => std::mem::take(&mut readers),
                            true => writer.into_iter().collect(),
                        }
                    }
                };
                if !blockers.is_empty() {
                    waits.push(BlockedNode {
                        waiter: node,
                        blockers,
                        any: false,
                    });
                }
            }
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use baton_client::Data;
    use baton_proto::Stat;
    use bytes::Bytes;

    use super::*;

    fn data(czxid: i64) -> Data {
        let stat = Stat {
            czxid,
            mzxid: czxid,
            ephemeral_owner: czxid,
            ..Stat::default()
        };
        Data {
            data: Bytes::new(),
            stat,
        }
    }

    fn shown(snapshot: &LockSnapshot) -> Vec<(i64, Vec<i64>, bool)> {
        let waits = snapshot.waits().into_iter().map(|wait| {
            let blockers = wait.blockers.iter().map(|node| node.info.czxid);
            (wait.waiter.info.czxid, blockers.collect(), wait.any)
        });
        waits.collect()
    }

    #[test]
    fn each_waiter_waits_for_the_nearest_that_block_it() {
        let names: Vec<(String, i64)> = "RRWRRWW"
            .chars()
            .zip(1..)
            .map(|(kind, at)| {
                let token = if kind == 'R' { "READ" } else { "WRIT" };
                (format!("x-__{token}__{at:010}"), at)
            })
            .collect();
        let read: Vec<_> = names
            .iter()
            .map(|(name, at)| (&**name, data(*at)))
            .collect();
        let snapshot = LockSnapshot::of_children("/rw", &read);
        assert_eq!(
            shown(&snapshot),
            [
                (3, vec![1, 2], false),
                (4, vec![3], false),
                (5, vec![3], false),
                (6, vec![4, 5], false),
                (7, vec![6], false),
            ]
        );
    }

    #[test]
    fn one_permit_is_enough_and_the_others_wait_for_the_first_waiter() {
        let lease = |at: i64| format!("lease-{at:010}");
        let waiter = |at: i64| format!("x-lock-{at:010}");
        let (one, two, three, four) = (lease(1), lease(2), waiter(3), waiter(4));
        let leases = [(&*one, data(1)), (&*two, data(2))];
        let waiters = [(&*three, data(3)), (&*four, data(4))];
        let of = |data: &[u8]| LockSnapshot::of_semaphore("/s", data, false, &leases, &waiters);
        let chain = (4, vec![3], false);
        assert_eq!(shown(&of(b"2")), [(3, vec![1, 2], true), chain.clone()]);
        // A permit is free, or may be.
        assert_eq!(shown(&of(b"3")), std::slice::from_ref(&chain));
        assert_eq!(shown(&of(b"")), [chain]);
    }
}
