//! Metrics of each lock, election and queue, counted from the changes that a server applies.
//!
//! Owns what is counted of which change. What a node is to a recipe, the recipes decide. Everything
//! is bounded: the paths that have series of their own, the paths and nodes that are followed at
//! all. Times are those of the log's entries, so that every server of an ensemble counts the same.
//!
//! | module | owns |
//! |---|---|
//! | `recount` | a test: what was counted is what a count of the whole tree comes to |
//! | `page` | names, help texts, labels: how the metrics are written |
//! | `locks` | locks, elections, semaphores: holders and waiters, how long and why they end |
//! | `past` | the holds of the last hour that have ended |
//! | `queues` | queues and work queues: items, claims, dead letters |
//! | `paths` | which paths have series of their own |
//! | `histogram` | a distribution of times |

mod histogram;
mod locks;
mod page;
mod past;
mod paths;
mod queues;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton::inspect::{NodeMode, NodeRole, role};
use baton_client::{Acl, Perms};
use baton_server::{ChangeObserver, ObservedChange, ObservedTree};

use locks::{Departure, Locks, Waiter};
use page::Page;
pub use past::{HoldQuery, PastHold};
pub use paths::Selection;
use queues::{Part, Queues};

/// The folder of the items of kazoo's `LockingQueue`, below the queue's path.
const KAZOO_ITEMS: &str = "entries";

/// Metrics of the locks, elections and queues of one server, for
/// [`Options::observer`](baton_server::Options::observer).
///
/// ```no_run
/// # async fn example() -> Result<(), baton_server::StartError> {
/// use std::sync::Arc;
///
/// use baton_console::metrics::{RecipeMetrics, Selection};
///
/// let metrics = RecipeMetrics::new(Selection::default());
/// let server = baton_server::Server::builder()
///     .listen("127.0.0.1:2181")
///     .http("127.0.0.1:8080")
///     .with(|options| options.observer = Some(Arc::new(metrics)))
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RecipeMetrics {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    locks: Locks,
    queues: Queues,
    /// The time of the newest change: clocks of successive leaders may differ.
    now_ms: i64,
}

impl RecipeMetrics {
    /// Metrics with series for the paths that `selection` allows.
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        Self {
            state: Mutex::new(State {
                locks: Locks::new(selection.clone()),
                queues: Queues::new(selection),
                now_ms: i64::MIN,
            }),
        }
    }

    /// Name, kind and help of all metrics. A histogram's name is without its suffixes.
    #[must_use]
    pub fn described() -> Vec<(&'static str, &'static str, &'static str)> {
        page::described()
    }

    /// Returns the selected holds of the last hour of locks that are visible, at most `most`, the
    /// latest first. `is_visible` is given the lock's path, and whether everybody may read the
    /// holder's node.
    #[must_use]
    pub fn holds(
        &self,
        query: HoldQuery<'_>,
        now_ms: i64,
        most: usize,
        is_visible: impl Fn(&str, bool) -> bool,
    ) -> Vec<PastHold> {
        self.state().locks.holds(query, now_ms, most, is_visible)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A count that a panic has left half made is a count all the same.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The time of a change of this time.
    fn at(&mut self, time_ms: i64) -> i64 {
        self.now_ms = self.now_ms.max(time_ms);
        self.now_ms
    }
}

impl ChangeObserver for RecipeMetrics {
    fn restored(&self, tree: &ObservedTree<'_>) {
        let mut state = self.state();
        let State { locks, queues, .. } = &mut *state;
        locks.forget_nodes();
        queues.forget_nodes();
        tree.each_znode(|znode| {
            let session = znode.session();
            let Some(role) = role(znode.path, session != 0) else {
                return;
            };
            match Node::of(role, znode.path) {
                Node::OfLock(lock, waiter) => {
                    let is_open = |acl: &[Acl<'_>]| {
                        let open = Perms::READ;
                        let mut entries = acl.iter();
                        acl.is_empty()
                            || entries.any(|one| one.id == "anyone" && one.perms.intersects(open))
                    };
                    let data = is_open(znode.acl).then(|| znode.data.unwrap_or_default());
                    let czxid = znode.czxid;
                    let waiter = Waiter {
                        session,
                        czxid,
                        data,
                        ..waiter
                    };
                    locks.restore(lock, waiter, znode.ctime);
                }
                Node::OfQueue(queue, part, is_work) => {
                    queues.restore(&queue, part, is_work, znode.ctime);
                }
            }
        });
        locks.restored();
    }

    fn changed(&self, change: &ObservedChange<'_>) {
        let Some(role) = role(change.path, change.session != 0) else {
            return;
        };
        let mut state = self.state();
        let now_ms = state.at(change.time_ms);
        match Node::of(role, change.path) {
            Node::OfLock(lock, waiter) => {
                let session = change.session;
                let (czxid, data) = (change.zxid, change.open_data);
                let waiter = Waiter {
                    session,
                    czxid,
                    data,
                    ..waiter
                };
                if change.is_created {
                    state.locks.joined(lock, waiter, now_ms);
                } else {
                    let departure = Departure::of(change);
                    state.locks.left(lock, waiter, departure, now_ms);
                }
            }
            Node::OfQueue(queue, part, is_work) => {
                state.queues.changed(&queue, part, is_work, change, now_ms);
            }
        }
    }

    fn sample(&self, tree: &ObservedTree<'_>, now_ms: i64) -> Box<dyn fmt::Display> {
        let mut state = self.state();
        let now_ms = state.at(now_ms);
        let State { locks, queues, .. } = &mut *state;
        locks.set_consumers_apart(tree, now_ms);
        let lock_rows = locks.rows(now_ms);
        let queue_rows = queues.rows(tree, now_ms, |path| locks.consumers_of(path));
        Box::new(Page::new(
            lock_rows,
            queue_rows,
            locks.unfollowed() + queues.unfollowed(),
        ))
    }
}

/// A node, by the part of the metrics that it counts in.
enum Node<'a> {
    /// The lock's path.
    OfLock(&'a str, Waiter<'a>),
    /// The queue's path, and whether it is a work queue.
    OfQueue(Cow<'a, str>, Part, bool),
}

impl<'a> Node<'a> {
    fn of(role: NodeRole<'a>, path: &'a str) -> Self {
        let waiter = |number, is_shared, kind| Waiter {
            path,
            number,
            is_shared,
            kind,
            session: 0,
            czxid: 0,
            data: None,
        };
        match role {
            NodeRole::Waiter {
                lock,
                number,
                mode,
                scheme,
            } => {
                let is_shared = mode == NodeMode::Read;
                Self::OfLock(lock, waiter(number, is_shared, scheme.into()))
            }
            NodeRole::Permit { semaphore, number } => {
                let kind = locks::Kind::Semaphore;
                Self::OfLock(semaphore, waiter(number, true, kind))
            }
            NodeRole::WorkItem { queue } => Self::OfQueue(queue.into(), Part::Item, true),
            NodeRole::WorkClaim { queue } => Self::OfQueue(queue.into(), Part::Claim, true),
            NodeRole::DeadLetter { queue } => Self::OfQueue(queue.into(), Part::DeadLetter, true),
            NodeRole::QueueItem { queue } => Self::OfQueue(queue.into(), Part::Item, false),
            NodeRole::QueueClaim { queue } => {
                // Where its items count.
                let items = format!("{}/{KAZOO_ITEMS}", queue.trim_end_matches('/'));
                Self::OfQueue(items.into(), Part::Claim, false)
            }
            // A role that this version does not count would be a defect of this crate: both are
            // released together.
            _ => Self::OfQueue(path.into(), Part::Unknown, false),
        }
    }
}

#[cfg(test)]
mod recount;
#[cfg(test)]
mod tests;
