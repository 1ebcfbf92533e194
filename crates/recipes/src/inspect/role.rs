//! Role of one node of the tree in a recipe, by its path alone.
//!
//! Owns only which recipe is asked first: names belong to the recipes. Runs for each node that a
//! server creates or deletes, so a name that is not a recipe's must be passed over at once.

use baton_proto::path::{name as name_of, parent};

use super::children::{NodeMode, SIMPLE, Scheme};
use super::recognise::KAZOO_CLAIMS;
use crate::naming::{self, Child, LockMode, NamingScheme};
use crate::queue::QueueLayout;
use crate::semaphore::LEASES;
use crate::work_queue::outside::{QueueNode, part_of_queue};

/// Role of a node in a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeRole<'a> {
    /// A node of the wait queue of a lock or an election, which holds or waits.
    Waiter {
        /// The lock's path.
        lock: &'a str,
        /// The number in its name, which gives the order; 0 where the name has none.
        number: i64,
        /// Its part in the lock.
        mode: NodeMode,
        /// Library whose names it has.
        scheme: Scheme,
    },
    /// A permit of a semaphore of Baton or Curator.
    Permit {
        /// The semaphore's path.
        semaphore: &'a str,
        /// The number in its name.
        number: i64,
    },
    /// An item of a queue in the layout of another library.
    QueueItem {
        /// The path of the folder of items.
        queue: &'a str,
    },
    /// A claim on an item of kazoo's `LockingQueue`.
    QueueClaim {
        /// The queue's path: its items are in the folder `entries` below it.
        queue: &'a str,
    },
    /// An item of a work queue.
    WorkItem {
        /// The queue's path.
        queue: &'a str,
    },
    /// A claim on an item of a work queue.
    WorkClaim {
        /// The queue's path.
        queue: &'a str,
    },
    /// A dead letter of a work queue.
    DeadLetter {
        /// The queue's path.
        queue: &'a str,
    },
}

/// Returns the role of the node at `path` in a recipe, by its names alone; `None` for any other
/// node. `is_owned`: a session owns it.
///
/// Names that recipes do not keep to themselves tell nothing: the waiters of a simple lock, the
/// permits of kazoo's semaphore, members of groups.
#[must_use]
pub fn role(path: &str, is_owned: bool) -> Option<NodeRole<'_>> {
    let name = name_of(path);
    let (first, last) = (name.bytes().next()?, name.bytes().last()?);
    if !is_owned {
        if !matches!(first, b'd' | b'e' | b'i' | b'q' | b'0'..=b'9') {
            return None;
        }
        return match part_of_queue(path, false) {
            Some((QueueNode::Item, queue)) => Some(NodeRole::WorkItem { queue }),
            Some((QueueNode::DeadLetter, queue)) => Some(NodeRole::DeadLetter { queue }),
            _ => QueueLayout::of_item(name).map(|_| NodeRole::QueueItem {
                queue: parent(path),
            }),
        };
    }
    if name == SIMPLE {
        return Some(NodeRole::Waiter {
            lock: parent(path),
            number: 0,
            mode: NodeMode::Exclusive,
            scheme: Scheme::Simple,
        });
    }
    if let Some((QueueNode::Claim, queue)) = part_of_queue(path, true) {
        return Some(NodeRole::WorkClaim { queue });
    }
    if !last.is_ascii_digit() {
        return None;
    }
    let lock = parent(path);
    if name_of(lock) == KAZOO_CLAIMS && QueueLayout::of_item(name).is_some() {
        return Some(NodeRole::QueueClaim {
            queue: parent(lock),
        });
    }
    if let (Some(naming), Child::Waiter { number, mode }) = NamingScheme::classify_any(name) {
        let (scheme, mode) = match naming {
            NamingScheme::Exclusive(dialect) => (Scheme::Mutex(dialect), NodeMode::Exclusive),
            NamingScheme::ReadWrite(dialect) => (
                Scheme::ReadWrite(dialect),
                match mode {
                    LockMode::Shared => NodeMode::Read,
                    LockMode::Exclusive => NodeMode::Write,
                },
            ),
        };
        return Some(NodeRole::Waiter {
            lock,
            number,
            mode,
            scheme,
        });
    }
    let number = naming::lease_number(name)?;
    (name_of(lock) == LEASES).then(|| NodeRole::Permit {
        semaphore: parent(lock),
        number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::{Dialect, RwDialect};

    fn waiter(number: i64, mode: NodeMode, scheme: Scheme) -> Option<NodeRole<'static>> {
        Some(NodeRole::Waiter {
            lock: "/a/x",
            number,
            mode,
            scheme,
        })
    }

    #[test]
    fn a_node_is_known_by_its_path_and_whether_a_session_owns_it() {
        let exclusive =
            |number, dialect| waiter(number, NodeMode::Exclusive, Scheme::Mutex(dialect));
        let shared = Scheme::ReadWrite(RwDialect::Curator);
        let (queue, semaphore) = ("/a/x", "/a/x");
        for (path, is_owned, expected) in [
            (
                "/a/x/_c_1-lock-0000000007",
                true,
                exclusive(7, Dialect::Curator),
            ),
            (
                "/a/x/_c_1-latch-0000000007",
                true,
                exclusive(7, Dialect::CuratorLatch),
            ),
            (
                "/a/x/ab__lock__0000000003",
                true,
                exclusive(3, Dialect::Kazoo),
            ),
            (
                "/a/x/x-12-0000000003",
                true,
                exclusive(3, Dialect::WriteLock),
            ),
            (
                "/a/x/n_0000000003",
                true,
                exclusive(3, Dialect::ElectionSupport),
            ),
            (
                "/a/x/u-__READ__0000000004",
                true,
                waiter(4, NodeMode::Read, shared),
            ),
            (
                "/a/x/u-__WRIT__0000000004",
                true,
                waiter(4, NodeMode::Write, shared),
            ),
            (
                "/a/x/lock",
                true,
                waiter(0, NodeMode::Exclusive, Scheme::Simple),
            ),
            (
                "/a/x/leases/u-lease-0000000002",
                true,
                Some(NodeRole::Permit {
                    semaphore,
                    number: 2,
                }),
            ),
            (
                "/a/x/qn-0000000001",
                false,
                Some(NodeRole::QueueItem { queue }),
            ),
            (
                "/a/x/entry-100-0000000001",
                false,
                Some(NodeRole::QueueItem { queue }),
            ),
            (
                "/a/x/queue-|1|0000000001",
                false,
                Some(NodeRole::QueueItem { queue }),
            ),
            (
                "/a/x/taken/entry-100-0000000001",
                true,
                Some(NodeRole::QueueClaim { queue }),
            ),
            (
                "/a/x/items/p000-0000000001/i-0000000001",
                false,
                Some(NodeRole::WorkItem { queue }),
            ),
            (
                "/a/x/items/p000-0000000001/i-0000000001/claim-1",
                true,
                Some(NodeRole::WorkClaim { queue }),
            ),
            (
                "/a/x/dead/d-0000000001",
                false,
                Some(NodeRole::DeadLetter { queue }),
            ),
            // Folders and release markers that are named like nodes of a lock; permits elsewhere.
            ("/a/x/_c_1-lock-0000000007", false, None),
            ("/a/x/_c_1-lock-0000000007.released", false, None),
            ("/a/x/lock", false, None),
            ("/a/x/u-lease-0000000002", true, None),
            ("/a/x/entry-100-0000000001", true, None),
            ("/a/x/taken/web-0000000001", true, None),
            ("/a/x/member-0000000001", true, None),
            ("/a/x/web-1", true, None),
            ("/a/x/config", false, None),
            ("/", false, None),
        ] {
            assert_eq!(role(path, is_owned), expected, "{path}");
        }
    }
}
