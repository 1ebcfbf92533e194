//! Locks, elections and semaphores: who holds and who waits, by the order of their nodes, and what
//! is counted when that changes.
//!
//! Owns when a hold begins and ends. Nodes of one folder make one wait queue, whatever library made
//! them. After a start a holder counts as holding since its node was created.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Bound;

use baton::inspect::{FolderKind, Scheme, recognise};
use baton::naming::Dialect;
use baton_server::{ChangedBy, ObservedChange, ObservedTree};

use super::histogram::Histogram;
use super::past::{Hold, HoldQuery, PastHold, PastHolds};
use super::paths::{Entry, Live, Paths, Selection};

/// Nodes of locks that are followed at most.
pub(super) const MOST_NODES: usize = 262_144;
/// Nodes of which the process is kept, while no more than these are followed.
const MOST_NAMED: usize = 16_384;
/// Bytes of data that are kept of a node. More is not a process's record.
const MOST_DATA: usize = 512;

/// The name of the folder in which consumers of a work queue wait for items.
const CONSUMERS: &str = "/waiters";
/// Locks, and holders of one lock, whose present holds are looked at.
const MOST_PRESENT: usize = 4_096;

/// Kind of a lock, by the names of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Lock,
    ReadWrite,
    Election,
    Semaphore,
    Simple,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::Lock,
        Self::ReadWrite,
        Self::Election,
        Self::Semaphore,
        Self::Simple,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::ReadWrite => "read_write",
            Self::Election => "election",
            Self::Semaphore => "semaphore",
            Self::Simple => "simple",
        }
    }
}

impl From<Scheme> for Kind {
    fn from(scheme: Scheme) -> Self {
        match scheme {
            Scheme::Mutex(Dialect::CuratorLatch | Dialect::ElectionSupport) => Self::Election,
            Scheme::ReadWrite(_) => Self::ReadWrite,
            Scheme::Simple => Self::Simple,
            Scheme::Semaphore | Scheme::KazooSemaphore => Self::Semaphore,
            _ => Self::Lock,
        }
    }
}

/// Reason why a node of a lock went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// Its own session deleted it.
    Released,
    /// Its session was closed.
    SessionClosed,
    /// Its session expired.
    SessionExpired,
    /// Somebody else deleted it.
    Broken,
}

impl Departure {
    pub(super) const ALL: [Self; 4] = [
        Self::Released,
        Self::SessionClosed,
        Self::SessionExpired,
        Self::Broken,
    ];

    pub(super) fn of(change: &ObservedChange<'_>) -> Self {
        match change.by {
            ChangedBy::Client(session) if session == change.session => Self::Released,
            ChangedBy::Client(_) | ChangedBy::Server => Self::Broken,
            ChangedBy::ClosedSession => Self::SessionClosed,
            ChangedBy::ExpiredSession => Self::SessionExpired,
        }
    }

    /// The cause for which a hold ended.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::SessionClosed => "session_closed",
            Self::SessionExpired => "session_expired",
            Self::Broken => "broken",
        }
    }

    /// The cause for which a wait ended without a grant.
    pub(super) fn of_wait(self) -> &'static str {
        match self {
            Self::Released => "withdrawn",
            other => other.as_str(),
        }
    }
}

/// A node of a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter<'a> {
    pub(super) path: &'a str,
    pub(super) number: i64,
    pub(super) is_shared: bool,
    pub(super) kind: Kind,
    pub(super) session: i64,
    /// The change that created it.
    pub(super) czxid: i64,
    /// Its data, where everybody may read that.
    pub(super) data: Option<&'a [u8]>,
}

impl Waiter<'_> {
    /// The beginning of its data, which names a process, while few enough are kept.
    fn kept_data(&self, nodes: usize) -> Option<Box<[u8]>> {
        let data = self.data.filter(|data| data.len() <= MOST_DATA)?;
        Some(if nodes < MOST_NAMED {
            data.into()
        } else {
            Box::default()
        })
    }
}

/// Counters of one lock, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LockSeries {
    pub(super) holds: Histogram,
    pub(super) waits: Histogram,
    pub(super) handovers: u64,
    /// Counts by [`Departure`].
    pub(super) hold_ends: [u64; 4],
    pub(super) wait_ends: [u64; 4],
}

/// The order of the nodes of all locks: the lock, then the order of grants. As servers of Baton
/// number nodes, the number decides; negative ones, of an import, come from behind the end of
/// another server's counter. The last field only keeps nodes apart.
type Key = (u64, bool, i64, u64);

#[derive(Debug)]
struct Node {
    created_ms: i64,
    czxid: i64,
    data: Option<Box<[u8]>>,
    /// `None`: it waits.
    granted_ms: Option<i64>,
    session: i64,
    is_shared: bool,
}

impl Node {
    /// The hold that goes on, of a node of this lock that holds.
    fn hold(&self, path: &str, kind: Kind) -> Option<Hold> {
        Some(Hold {
            path: path.into(),
            kind: kind.as_str(),
            session: self.session,
            czxid: self.czxid,
            data: self.data.clone(),
            created_ms: self.created_ms,
            granted_ms: self.granted_ms?,
            end: None,
        })
    }
}

/// One lock.
#[derive(Debug)]
struct WaitQueue {
    id: u64,
    kind: Kind,
    nodes: u64,
    holders: u64,
    has_exclusive_holder: bool,
    /// The last node that was granted.
    last_granted: Key,
    /// Since when the first holder holds.
    held_since_ms: Option<i64>,
    /// Since when the first waiter waits.
    waiting_since_ms: Option<i64>,
    /// Whether these are the consumers of a work queue, who wait for items; `None`: not known yet.
    is_of_consumers: Option<bool>,
}

impl WaitQueue {
    fn new(id: u64, kind: Kind) -> Self {
        Self {
            id,
            kind,
            nodes: 0,
            holders: 0,
            has_exclusive_holder: false,
            last_granted: (id, false, 0, 0),
            held_since_ms: None,
            waiting_since_ms: None,
            is_of_consumers: None,
        }
    }

    fn first(&self) -> Key {
        (self.id, false, i64::MIN, 0)
    }

    fn last(&self) -> Key {
        (self.id, true, i64::MAX, u64::MAX)
    }
}

impl Live for WaitQueue {
    fn is_live(&self) -> bool {
        self.nodes > 0
    }

    fn may_have_series(&self) -> bool {
        self.is_of_consumers != Some(true)
    }
}

/// Cause of the grants that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// A node joined.
    Joined,
    /// The node of a holder of this session went.
    Left(i64),
    /// They were made before.
    Restored,
}

/// One lock, or all others of a kind, as a page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockRow {
    /// `None`: all paths without series of their own.
    pub(super) path: Option<String>,
    pub(super) kind: Kind,
    pub(super) series: LockSeries,
    pub(super) holders: u64,
    pub(super) waiters: u64,
    pub(super) oldest_hold_ms: i64,
    pub(super) oldest_wait_ms: i64,
}

/// All locks.
#[derive(Debug)]
pub(super) struct Locks {
    paths: Paths<WaitQueue, LockSeries>,
    nodes: BTreeMap<Key, Node>,
    /// Counters by [`Kind`].
    others: [LockSeries; Kind::ALL.len()],
    next_id: u64,
    hasher: RandomState,
    unfollowed: u64,
    past: PastHolds,
}

impl Locks {
    pub(super) fn new(selection: Selection) -> Self {
        Self {
            paths: Paths::new(selection),
            nodes: BTreeMap::new(),
            others: Default::default(),
            next_id: 0,
            hasher: RandomState::new(),
            unfollowed: 0,
            past: PastHolds::default(),
        }
    }

    /// Returns the selected holds of the last hour, the latest first.
    pub(super) fn holds(
        &self,
        query: HoldQuery<'_>,
        now_ms: i64,
        most: usize,
        is_visible: impl Fn(&str, bool) -> bool,
    ) -> Vec<PastHold> {
        let of_path = query.path.map(|path| (path, self.paths.get(path)));
        let one = of_path.and_then(|(path, entry)| Some((path, entry?)));
        let all = self.paths.iter().take(MOST_PRESENT);
        let all = all.filter(|_| query.path.is_none());
        let present = one.into_iter().chain(all).flat_map(|(path, entry)| {
            let WaitQueue { kind, .. } = entry.body;
            let nodes = self.nodes.range(entry.body.first()..=entry.body.last());
            let nodes = nodes.map(|(_, node)| node).take(MOST_PRESENT);
            nodes.filter_map(move |node| node.hold(path, kind))
        });
        self.past.select(present, query, now_ms, most, is_visible)
    }

    /// Nodes that were not followed because there are too many.
    pub(super) fn unfollowed(&self) -> u64 {
        self.unfollowed
    }

    /// A node was created.
    pub(super) fn joined(&mut self, lock: &str, waiter: Waiter<'_>, now_ms: i64) {
        if self.nodes.len() >= MOST_NODES {
            self.unfollowed += 1;
            return;
        }
        let id = self.next_id;
        let Some(entry) = self
            .paths
            .change(lock, now_ms, || WaitQueue::new(id, waiter.kind))
        else {
            self.unfollowed += 1;
            return;
        };
        self.next_id += 1;
        let key = key_of(entry.body.id, &waiter, &self.hasher);
        let data = waiter.kept_data(self.nodes.len());
        let node = Node {
            created_ms: now_ms,
            granted_ms: None,
            czxid: waiter.czxid,
            data,
            session: waiter.session,
            is_shared: waiter.is_shared,
        };
        if insert(&mut self.nodes, &mut entry.body, key, node, waiter.kind) {
            let series = series_of(entry, &mut self.others);
            advance(&mut self.nodes, series, now_ms, Cause::Joined);
        }
    }

    /// A node was deleted.
    pub(super) fn left(
        &mut self,
        lock: &str,
        waiter: Waiter<'_>,
        departure: Departure,
        now_ms: i64,
    ) {
        // Only of nodes that are followed: the lock has an entry.
        if self.paths.get(lock).is_none() {
            return;
        }
        let id = self.next_id;
        let made = || WaitQueue::new(id, waiter.kind);
        let Some(entry) = self.paths.change(lock, now_ms, made) else {
            return;
        };
        let key = key_of(entry.body.id, &waiter, &self.hasher);
        let Some(node) = self.nodes.remove(&key) else {
            return;
        };
        entry.body.nodes -= 1;
        let (queue, series) = series_of(entry, &mut self.others);
        let at = departure as usize;
        if let Some(granted_ms) = node.granted_ms {
            queue.holders -= 1;
            queue.has_exclusive_holder &= node.is_shared;
            series.holds.record(granted_ms, now_ms);
            if let Some(count) = series.hold_ends.get_mut(at) {
                *count += 1;
            }
        } else if let Some(count) = series.wait_ends.get_mut(at) {
            *count += 1;
        }
        let cause = Cause::Left(node.session);
        let is_of_consumers = queue.is_of_consumers == Some(true) || lock.ends_with(CONSUMERS);
        if let Some(hold) = node.hold(lock, queue.kind).filter(|_| !is_of_consumers) {
            let end = Some((now_ms, departure.as_str()));
            self.past.add(Hold { end, ..hold }, now_ms);
        }
        advance(&mut self.nodes, (queue, series), now_ms, cause);
        self.paths.settle(lock, now_ms);
    }

    /// Forgets all nodes, because the tree is another one.
    pub(super) fn forget_nodes(&mut self) {
        self.nodes.clear();
        self.paths.reset(|queue| {
            *queue = WaitQueue::new(queue.id, queue.kind);
        });
    }

    /// A node that was there before.
    pub(super) fn restore(&mut self, lock: &str, waiter: Waiter<'_>, created_ms: i64) {
        if self.nodes.len() >= MOST_NODES {
            // Before its path takes a place that nothing would give back.
            self.unfollowed += 1;
            return;
        }
        let id = self.next_id;
        let make = || WaitQueue::new(id, waiter.kind);
        let Some(entry) = self.paths.restore(lock, created_ms, make) else {
            self.unfollowed += 1;
            return;
        };
        self.next_id += 1;
        let key = key_of(entry.body.id, &waiter, &self.hasher);
        let data = waiter.kept_data(self.nodes.len());
        let node = Node {
            created_ms,
            granted_ms: None,
            czxid: waiter.czxid,
            data,
            session: waiter.session,
            is_shared: waiter.is_shared,
        };
        insert(&mut self.nodes, &mut entry.body, key, node, waiter.kind);
    }

    /// All nodes are there: those in front hold.
    pub(super) fn restored(&mut self) {
        for (_, entry) in self.paths.iter_mut() {
            let series = series_of(entry, &mut self.others);
            advance(&mut self.nodes, series, 0, Cause::Restored);
        }
    }

    /// Finds out which of the wait queues are those of consumers of a work queue. They hold their
    /// place for as long as there is nothing to do.
    pub(super) fn set_consumers_apart(&mut self, tree: &ObservedTree<'_>, now_ms: i64) {
        let mut found = Vec::new();
        for (path, entry) in self.paths.iter_mut() {
            if entry.body.is_of_consumers.is_some() {
                continue;
            }
            let Some(queue) = path.strip_suffix(CONSUMERS) else {
                entry.body.is_of_consumers = Some(false);
                continue;
            };
            // Consumers may be there before the queue is.
            let shape = tree.data(queue).and_then(|data| recognise(data, &[]));
            if matches!(shape, Some(FolderKind::WorkQueue { .. })) {
                entry.body.is_of_consumers = Some(true);
                found.push(path.to_owned());
            }
        }
        for path in found {
            self.paths.exclude(&path, now_ms);
        }
    }

    /// Number of consumers that wait for items of the work queue at `queue`.
    pub(super) fn consumers_of(&self, queue: &str) -> u64 {
        let entry = self.paths.get(&format!("{queue}{CONSUMERS}"));
        let entry = entry.filter(|entry| entry.body.is_of_consumers == Some(true));
        entry.map_or(0, |entry| entry.body.nodes)
    }

    /// The locks with series of their own, by path, and then all others by kind.
    pub(super) fn rows(&mut self, now_ms: i64) -> Vec<LockRow> {
        self.paths.forget_unused(now_ms);
        let mut others = Kind::ALL.map(|kind| LockRow {
            path: None,
            kind,
            series: LockSeries::default(),
            holders: 0,
            waiters: 0,
            oldest_hold_ms: 0,
            oldest_wait_ms: 0,
        });
        for (row, series) in others.iter_mut().zip(&self.others) {
            row.series = series.clone();
        }
        let age = |since: Option<i64>| since.map_or(0, |since| now_ms.saturating_sub(since).max(0));
        let mut rows = Vec::new();
        for (path, entry) in self.paths.iter() {
            let queue = &entry.body;
            let (waiters, holders) = (queue.nodes.saturating_sub(queue.holders), queue.holders);
            let oldest_hold_ms = age(queue.held_since_ms);
            let oldest_wait_ms = age(queue.waiting_since_ms);
            if let Some(series) = &entry.series {
                rows.push(LockRow {
                    path: Some(path.to_owned()),
                    kind: queue.kind,
                    series: LockSeries::clone(series),
                    holders,
                    waiters,
                    oldest_hold_ms,
                    oldest_wait_ms,
                });
            } else if queue.is_of_consumers != Some(true)
                && let Some(other) = others.get_mut(queue.kind as usize)
            {
                other.holders += holders;
                other.waiters += waiters;
                other.oldest_hold_ms = other.oldest_hold_ms.max(oldest_hold_ms);
                other.oldest_wait_ms = other.oldest_wait_ms.max(oldest_wait_ms);
            }
        }
        rows.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        rows.extend(others);
        rows
    }

    #[cfg(test)]
    pub(super) fn followed(&self) -> (usize, usize) {
        (self.paths.len(), self.nodes.len())
    }
}

fn key_of(id: u64, waiter: &Waiter<'_>, hasher: &RandomState) -> Key {
    let name = waiter.path.rsplit('/').next().unwrap_or_default();
    let number = waiter.number;
    (id, number < 0, number, hasher.hash_one(name))
}

/// The lock and what counts its changes.
fn series_of<'a>(
    entry: &'a mut Entry<WaitQueue, LockSeries>,
    others: &'a mut [LockSeries; Kind::ALL.len()],
) -> (&'a mut WaitQueue, &'a mut LockSeries) {
    let Entry { body, series, .. } = entry;
    match series {
        Some(series) => (body, series),
        None => {
            let [lock, read_write, election, semaphore, simple] = others;
            let others = match body.kind {
                Kind::Lock => lock,
                Kind::ReadWrite => read_write,
                Kind::Election => election,
                Kind::Semaphore => semaphore,
                Kind::Simple => simple,
            };
            (body, others)
        }
    }
}

/// Adds a node; `false`: it is there already.
fn insert(
    nodes: &mut BTreeMap<Key, Node>,
    queue: &mut WaitQueue,
    key: Key,
    node: Node,
    kind: Kind,
) -> bool {
    if queue.nodes == 0 {
        // Somebody uses the path for something else now.
        queue.kind = kind;
    } else if kind == Kind::ReadWrite {
        // A writer of kazoo's is named like a node of a mutex.
        queue.kind = kind;
    }
    // A writer that becomes a reader keeps its number, before readers that hold already.
    let overtakes = node.is_shared && key < queue.last_granted;
    let granted_ms =
        (overtakes && queue.holders > 0 && !queue.has_exclusive_holder).then_some(node.created_ms);
    if nodes.insert(key, Node { granted_ms, ..node }).is_some() {
        return false;
    }
    queue.nodes += 1;
    queue.holders += u64::from(granted_ms.is_some());
    true
}

/// Grants what the order allows: the first node if nobody holds, shared ones behind shared ones.
fn advance(
    nodes: &mut BTreeMap<Key, Node>,
    (queue, series): (&mut WaitQueue, &mut LockSeries),
    now_ms: i64,
    cause: Cause,
) {
    while !queue.has_exclusive_holder && queue.holders < queue.nodes {
        let first = (
            Bound::Included(queue.first()),
            Bound::Included(queue.last()),
        );
        let behind = (
            Bound::Excluded(queue.last_granted),
            Bound::Included(queue.last()),
        );
        let is_first = queue.holders == 0;
        let next = nodes
            .range_mut(if is_first { first } else { behind })
            .next();
        let Some((key, node)) = next.filter(|(_, node)| is_first || node.is_shared) else {
            break;
        };
        let since_ms = match cause {
            Cause::Restored => node.created_ms,
            Cause::Joined | Cause::Left(_) => now_ms,
        };
        node.granted_ms = Some(since_ms);
        queue.holders += 1;
        queue.has_exclusive_holder = !node.is_shared;
        queue.last_granted = *key;
        match cause {
            Cause::Restored => continue,
            // A writer that has become a reader goes on.
            Cause::Left(session) if session == node.session => {}
            Cause::Left(_) => series.handovers += 1,
            Cause::Joined => {}
        }
        series.waits.record(node.created_ms, since_ms);
    }
    let first = nodes.range(queue.first()..=queue.last()).next();
    queue.held_since_ms = first.and_then(|(_, node)| node.granted_ms);
    queue.waiting_since_ms = None;
    if queue.holders < queue.nodes {
        let from = if queue.holders == 0 {
            Bound::Included(queue.first())
        } else {
            Bound::Excluded(queue.last_granted)
        };
        let next = nodes.range((from, Bound::Included(queue.last()))).next();
        queue.waiting_since_ms = next.map(|(_, node)| node.created_ms);
    }
}
