//! The watch table: every watch of every connection, of all four kinds, in one table (protocol.md
//! §1.7). A path is stored once, a watch costs a few bytes. How many there may be, and how many
//! bytes they may take, is bounded for each connection and for all. Never replicated, never logged:
//! a watch ends with its connection.

use std::hash::BuildHasher;
use std::sync::Arc;

use baton_proto::{EventKind, WatcherKind};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet, HashTable};
use smallvec::SmallVec;

use crate::connections::conn::Conn;
use crate::options::Options;

/// Kinds of watches, as bits: a connection may have several on one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    /// getData and exists; fires once.
    pub(crate) const DATA: Kinds = Kinds(1);
    /// getChildren; fires once.
    pub(crate) const CHILD: Kinds = Kinds(2);
    /// Stays; the znode and its direct children.
    pub(crate) const PERSISTENT: Kinds = Kinds(4);
    /// Stays; the whole subtree, never children-changed.
    pub(crate) const RECURSIVE: Kinds = Kinds(8);
    const ONE_SHOT: Kinds = Kinds(1 | 2);
    const ALL: Kinds = Kinds(15);

    pub(crate) fn of(kind: WatcherKind) -> Kinds {
        match kind {
            WatcherKind::Children => Kinds::CHILD,
            WatcherKind::Data => Kinds::DATA,
            WatcherKind::Any => Kinds::ALL,
            WatcherKind::Persistent => Kinds::PERSISTENT,
            WatcherKind::PersistentRecursive => Kinds::RECURSIVE,
        }
    }

    fn has(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }

    fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Kinds that fire on the znode itself.
    fn fired_by(event: EventKind) -> Kinds {
        match event {
            EventKind::NodeCreated | EventKind::NodeDataChanged => Kinds(1 | 4 | 8),
            EventKind::NodeDeleted => Kinds::ALL,
            EventKind::NodeChildrenChanged => Kinds(2 | 4),
            _ => Kinds(0),
        }
    }
}

/// Bytes counted for a watched path of a connection besides the path: its entries in the table,
/// generously.
const PATH_COST: usize = 64;

fn cost(path: &str) -> usize {
    path.len() + PATH_COST
}

/// How many watches there may be, and what they may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchBounds {
    each: Amount,
    in_all: Amount,
}

impl WatchBounds {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            each: Amount {
                watches: options.max_watches,
                bytes: options.max_watch_bytes,
            },
            in_all: Amount {
                watches: options.max_watches_in_all,
                bytes: options.max_watch_bytes_in_all,
            },
        }
    }
}

/// A number of watches, and what they cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    watches: usize,
    bytes: usize,
}

impl Amount {
    fn and(self, more: Amount) -> Amount {
        Amount {
            watches: self.watches + more.watches,
            bytes: self.bytes + more.bytes,
        }
    }

    fn less(self, fewer: Amount) -> Amount {
        Amount {
            watches: self.watches.saturating_sub(fewer.watches),
            bytes: self.bytes.saturating_sub(fewer.bytes),
        }
    }
}

/// Why a watch was not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooManyWatches {
    #[error("its connection has {0} watches; set fewer or raise max_watches")]
    OfConnection(usize),
    #[error("its connection's watches take {0} bytes; set fewer or raise max_watch_bytes")]
    BytesOfConnection(usize),
    #[error("there are {0} watches; set fewer or raise max_watches_in_all")]
    InAll(usize),
    #[error("all watches take {0} bytes; set fewer or raise max_watch_bytes_in_all")]
    BytesInAll(usize),
}

#[derive(Debug)]
struct Watcher {
    conn: u32,
    kinds: Kinds,
}

#[derive(Debug)]
struct Watched {
    path: Box<str>,
    watchers: SmallVec<[Watcher; 2]>,
}

#[derive(Debug)]
struct Watching {
    conn: Arc<Conn>,
    paths: HashSet<u32, RandomState>,
    has: Amount,
}

/// Counts for `wchs` and `mntr`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchCounts {
    pub(crate) connections: usize,
    pub(crate) paths: usize,
    pub(crate) watches: usize,
    /// What they cost, as the bounds count it.
    pub(crate) bytes: usize,
}

/// The table. Guarded by one lock, taken inside the tree's lock (read to add, write to fire).
#[derive(Debug)]
pub(crate) struct WatchTable {
    bounds: WatchBounds,
    watched: Vec<Option<Watched>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: RandomState,
    conns: HashMap<u32, Watching, RandomState>,
    recursive: usize,
    has: Amount,
}

impl WatchTable {
    pub(crate) fn new(bounds: WatchBounds) -> Self {
        Self {
            bounds,
            watched: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::default(),
            conns: HashMap::default(),
            recursive: 0,
            has: Amount::default(),
        }
    }

    fn slot(&self, path: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(path);
        self.index
            .find(hash, |slot| self.path_of(*slot) == Some(path))
            .copied()
    }

    fn path_of(&self, slot: u32) -> Option<&str> {
        self.at(slot).map(|watched| &*watched.path)
    }

    fn at(&self, slot: u32) -> Option<&Watched> {
        self.watched.get(slot as usize).and_then(Option::as_ref)
    }

    fn at_mut(&mut self, slot: u32) -> Option<&mut Watched> {
        self.watched.get_mut(slot as usize).and_then(Option::as_mut)
    }

    fn slot_or_insert(&mut self, path: &str) -> u32 {
        if let Some(slot) = self.slot(path) {
            return slot;
        }
        let watched = Watched {
            path: path.into(),
            watchers: SmallVec::new(),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                if let Some(place) = self.watched.get_mut(slot as usize) {
                    *place = Some(watched);
                }
                slot
            }
            None => {
                self.watched.push(Some(watched));
                u32::try_from(self.watched.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let (watched, hasher) = (&self.watched, &self.hasher);
        self.index
            .insert_unique(hasher.hash_one(path), slot, |slot| {
                let path = watched
                    .get(*slot as usize)
                    .and_then(Option::as_ref)
                    .map_or("", |w| &*w.path);
                hasher.hash_one(path)
            });
        slot
    }

    fn drop_if_unwatched(&mut self, slot: u32) {
        if self
            .at(slot)
            .is_none_or(|watched| !watched.watchers.is_empty())
        {
            return;
        }
        let Some(gone) = self.watched.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        let hash = self.hasher.hash_one(&*gone.path);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        self.free.push(slot);
        if self.free.len() == self.watched.len() {
            self.watched = Vec::new();
            self.free = Vec::new();
            self.index = HashTable::new();
        }
    }

    /// Whether a connection that has `conn_has` may have `more`.
    fn permit(&self, conn_has: Amount, more: Amount) -> Result<(), TooManyWatches> {
        let (own, all) = (conn_has.and(more), self.has.and(more));
        let WatchBounds { each, in_all } = self.bounds;
        if own.watches > each.watches {
            return Err(TooManyWatches::OfConnection(conn_has.watches));
        }
        if own.bytes > each.bytes {
            return Err(TooManyWatches::BytesOfConnection(conn_has.bytes));
        }
        if all.watches > in_all.watches {
            return Err(TooManyWatches::InAll(self.has.watches));
        }
        if all.bytes > in_all.bytes {
            return Err(TooManyWatches::BytesInAll(self.has.bytes));
        }
        Ok(())
    }

    /// Sets a watch. A watch that is there already stays one.
    ///
    /// # Errors
    /// [`TooManyWatches`]: nothing has changed.
    pub(crate) fn add(
        &mut self,
        conn: &Arc<Conn>,
        path: &str,
        kinds: Kinds,
    ) -> Result<(), TooManyWatches> {
        let there = self.slot(path).and_then(|slot| {
            let watchers = &self.at(slot)?.watchers;
            let place = watchers.iter().position(|w| w.conn == conn.id)?;
            Some((slot, place, watchers.get(place)?.kinds))
        });
        let new = there.map_or(kinds, |(_, _, present)| Kinds(kinds.0 & !present.0));
        if new.0 == 0 {
            return Ok(());
        }
        let more = Amount {
            watches: new.count(),
            bytes: there.map_or_else(|| cost(path), |_| 0),
        };
        let conn_has = self.conns.get(&conn.id).map(|watching| watching.has);
        self.permit(conn_has.unwrap_or_default(), more)?;
        let slot = there.map_or_else(|| self.slot_or_insert(path), |(slot, ..)| slot);
        let watching = self.conns.entry(conn.id).or_insert_with(|| Watching {
            conn: Arc::clone(conn),
            paths: HashSet::default(),
            has: Amount::default(),
        });
        watching.paths.insert(slot);
        watching.has = watching.has.and(more);
        self.has = self.has.and(more);
        self.recursive += usize::from(new.has(Kinds::RECURSIVE));
        let Some(watched) = self.at_mut(slot) else {
            return Ok(());
        };
        match there.and_then(|(_, place, _)| watched.watchers.get_mut(place)) {
            Some(watcher) => watcher.kinds.0 |= kinds.0,
            None => watched.watchers.push(Watcher {
                conn: conn.id,
                kinds,
            }),
        }
        Ok(())
    }

    /// Whether the connection has a watch of one of these kinds there.
    pub(crate) fn has(&self, conn: u32, path: &str, kinds: Kinds) -> bool {
        self.slot(path)
            .and_then(|slot| self.at(slot))
            .is_some_and(|watched| {
                watched
                    .watchers
                    .iter()
                    .any(|watcher| watcher.conn == conn && watcher.kinds.has(kinds))
            })
    }

    /// Removes the connection's watches of these kinds there. `false`: it had none.
    pub(crate) fn remove(&mut self, conn: u32, path: &str, kinds: Kinds) -> bool {
        self.slot(path)
            .is_some_and(|slot| self.remove_at(slot, conn, kinds))
    }

    fn remove_at(&mut self, slot: u32, conn: u32, kinds: Kinds) -> bool {
        let Some(watched) = self.at_mut(slot) else {
            return false;
        };
        let Some(place) = watched
            .watchers
            .iter()
            .position(|watcher| watcher.conn == conn)
        else {
            return false;
        };
        let path_cost = cost(&watched.path);
        let Some(watcher) = watched.watchers.get_mut(place) else {
            return false;
        };
        let removed = Kinds(watcher.kinds.0 & kinds.0);
        watcher.kinds.0 &= !kinds.0;
        let is_last = watcher.kinds.0 == 0;
        let fewer = Amount {
            watches: removed.count(),
            bytes: if is_last { path_cost } else { 0 },
        };
        if is_last {
            watched.watchers.swap_remove(place);
        }
        if let Some(watching) = self.conns.get_mut(&conn) {
            watching.has = watching.has.less(fewer);
            if is_last {
                watching.paths.remove(&slot);
            }
        }
        self.has = self.has.less(fewer);
        self.recursive -= usize::from(removed.has(Kinds::RECURSIVE));
        self.drop_if_unwatched(slot);
        removed.0 != 0
    }

    /// Removes all watches of a connection that has ended.
    pub(crate) fn forget(&mut self, conn: u32) {
        let Some(watching) = self.conns.remove(&conn) else {
            return;
        };
        for slot in watching.paths {
            self.remove_at(slot, conn, Kinds::ALL);
        }
    }

    /// Puts the connections that watch this event into `hit`, each once, and removes their one-shot
    /// watches.
    pub(crate) fn fire(&mut self, event: EventKind, path: &str, hit: &mut Vec<u32>) {
        hit.clear();
        if self.has.watches == 0 {
            return;
        }
        let kinds = Kinds::fired_by(event);
        if let Some(slot) = self.slot(path) {
            if let Some(watched) = self.at(slot) {
                hit.extend(
                    watched
                        .watchers
                        .iter()
                        .filter(|w| w.kinds.has(kinds))
                        .map(|w| w.conn),
                );
            }
            let spent = Kinds(kinds.0 & Kinds::ONE_SHOT.0);
            for conn in hit.iter() {
                self.remove_at(slot, *conn, spent);
            }
        }
        if self.recursive > 0 && kinds.has(Kinds::RECURSIVE) {
            let mut above = path;
            while above.len() > 1 {
                let cut = above.rfind('/').unwrap_or(0);
                above = above.get(..cut.max(1)).unwrap_or("/");
                if let Some(watched) = self.slot(above).and_then(|slot| self.at(slot)) {
                    let recursive = watched
                        .watchers
                        .iter()
                        .filter(|w| w.kinds.has(Kinds::RECURSIVE));
                    hit.extend(recursive.map(|w| w.conn));
                }
            }
            hit.sort_unstable();
            hit.dedup();
        }
    }

    pub(crate) fn conn(&self, id: u32) -> Option<&Arc<Conn>> {
        self.conns.get(&id).map(|watching| &watching.conn)
    }

    pub(crate) fn counts(&self) -> WatchCounts {
        WatchCounts {
            connections: self
                .conns
                .values()
                .filter(|watching| !watching.paths.is_empty())
                .count(),
            paths: self.index.len(),
            watches: self.has.watches,
            bytes: self.has.bytes,
        }
    }

    /// Appends further watched paths with the sessions that watch them: a slice from the slot
    /// `from` on, of about `max_items` items and `max_bytes` bytes. The slot at which the next
    /// slice begins; `None`: there are no more. What changes between slices may be found or not.
    pub(crate) fn next_watched(
        &self,
        from: usize,
        (max_items, max_bytes): (usize, usize),
        found: &mut Vec<WatchedPath>,
    ) -> Option<usize> {
        let (mut items, mut bytes) = (0, 0);
        for (slot, watched) in self.watched.iter().enumerate().skip(from) {
            if items >= max_items || bytes >= max_bytes {
                return Some(slot);
            }
            items += 1;
            let Some(watched) = watched else {
                continue;
            };
            items += watched.watchers.len();
            bytes += watched.path.len();
            let conns = watched.watchers.iter().filter_map(|w| self.conn(w.conn));
            found.push(WatchedPath {
                path: watched.path.clone(),
                sessions: conns.map(|conn| conn.session()).collect(),
            });
        }
        None
    }
}

/// A watched path, and the sessions that watch it.
#[derive(Debug)]
pub(crate) struct WatchedPath {
    pub(crate) path: Box<str>,
    pub(crate) sessions: SmallVec<[i64; 2]>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::conn::tests::conn;
    use crate::report::listings::{SLICE_BYTES, SLICE_ITEMS};

    fn table() -> WatchTable {
        WatchTable::new(WatchBounds::new(&Options::default()))
    }

    fn fired(table: &mut WatchTable, event: EventKind, path: &str) -> Vec<u32> {
        let mut hit = Vec::new();
        table.fire(event, path, &mut hit);
        hit
    }

    #[test]
    fn a_one_shot_watch_fires_once_and_leaves_nothing_behind() {
        let mut table = table();
        let one = conn(1);
        table.add(&one, "/a", Kinds::DATA).unwrap();
        table.add(&one, "/a", Kinds::DATA).unwrap();
        assert_eq!(table.counts().watches, 1);
        assert_eq!(fired(&mut table, EventKind::NodeDataChanged, "/a"), [1]);
        assert!(fired(&mut table, EventKind::NodeDataChanged, "/a").is_empty());
        assert_eq!(table.counts(), WatchCounts::default());
    }

    #[test]
    fn data_and_child_watches_fire_on_their_own_events_and_both_on_deletion() {
        let mut table = table();
        let (one, two) = (conn(1), conn(2));
        table.add(&one, "/a", Kinds::DATA).unwrap();
        table.add(&two, "/a", Kinds::CHILD).unwrap();
        assert_eq!(fired(&mut table, EventKind::NodeChildrenChanged, "/a"), [2]);
        table.add(&two, "/a", Kinds::CHILD).unwrap();
        table.add(&one, "/a", Kinds::CHILD).unwrap();
        let mut hit = fired(&mut table, EventKind::NodeDeleted, "/a");
        hit.sort_unstable();
        assert_eq!(
            hit,
            [1, 2],
            "one event each, whatever the number of watches"
        );
        assert_eq!(table.counts().watches, 0);
    }

    #[test]
    fn recursive_watches_see_the_subtree_but_no_children_changed() {
        let mut table = table();
        let (one, two) = (conn(1), conn(2));
        table.add(&one, "/a", Kinds::RECURSIVE).unwrap();
        table.add(&one, "/a/b/c", Kinds::DATA).unwrap();
        table.add(&two, "/", Kinds::RECURSIVE).unwrap();
        assert_eq!(fired(&mut table, EventKind::NodeCreated, "/a/b/c"), [1, 2]);
        assert_eq!(fired(&mut table, EventKind::NodeDataChanged, "/ab"), [2]);
        assert!(fired(&mut table, EventKind::NodeChildrenChanged, "/a/b").is_empty());
        assert_eq!(fired(&mut table, EventKind::NodeDeleted, "/a"), [1, 2]);
        assert_eq!(table.counts().watches, 2);
    }

    #[test]
    fn persistent_watches_stay_until_removed() {
        let mut table = table();
        let one = conn(1);
        table.add(&one, "/a", Kinds::PERSISTENT).unwrap();
        table.add(&one, "/a", Kinds::DATA).unwrap();
        for _ in 0..2 {
            assert_eq!(fired(&mut table, EventKind::NodeDataChanged, "/a"), [1]);
            assert_eq!(fired(&mut table, EventKind::NodeChildrenChanged, "/a"), [1]);
        }
        assert!(!table.remove(1, "/a", Kinds::DATA), "it had fired");
        assert!(table.has(1, "/a", Kinds::of(WatcherKind::Any)));
        assert!(table.remove(1, "/a", Kinds::PERSISTENT));
        assert!(fired(&mut table, EventKind::NodeDataChanged, "/a").is_empty());
    }

    #[test]
    fn a_walk_in_slices_finds_every_watched_path_once_and_bounds_each_slice() {
        let mut table = table();
        let (one, two) = (conn(1), conn(2));
        let count = SLICE_ITEMS + 10;
        for n in 0..count {
            table.add(&one, &format!("/{n}"), Kinds::DATA).unwrap();
        }
        table.remove(1, "/7", Kinds::DATA);
        table.add(&two, "/8", Kinds::CHILD).unwrap();
        let mut found = Vec::new();
        let mut from = Some(0);
        let mut slices = 0;
        while let Some(slot) = from {
            let before = found.len();
            from = table.next_watched(slot, (SLICE_ITEMS, SLICE_BYTES), &mut found);
            assert!(found.len() - before <= SLICE_ITEMS);
            slices += 1;
        }
        assert!(slices > 1);
        let watchers: usize = found.iter().map(|watched| watched.sessions.len()).sum();
        assert_eq!((found.len(), watchers), (count - 1, count));
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found.dedup_by(|a, b| a.path == b.path);
        assert_eq!(found.len(), count - 1);
        let long = "x".repeat(SLICE_BYTES);
        for n in 0..3 {
            table
                .add(&two, &format!("/{n}/{long}"), Kinds::DATA)
                .unwrap();
        }
        found.clear();
        let next = table.next_watched(count - 1, (SLICE_ITEMS, SLICE_BYTES), &mut found);
        assert_eq!(
            (found.len(), next),
            (2, Some(count + 1)),
            "a slice ends with its bytes"
        );
    }

    #[test]
    fn a_connection_takes_its_watches_with_it() {
        let mut table = table();
        let (one, two) = (conn(1), conn(2));
        for path in ["/a", "/b", "/c/d"] {
            table.add(&one, path, Kinds::DATA).unwrap();
            table.add(&one, path, Kinds::RECURSIVE).unwrap();
        }
        table.add(&two, "/a", Kinds::DATA).unwrap();
        table.forget(1);
        assert_eq!(
            table.counts(),
            WatchCounts {
                connections: 1,
                paths: 1,
                watches: 1,
                bytes: 2 + PATH_COST
            }
        );
        assert_eq!(fired(&mut table, EventKind::NodeDataChanged, "/a"), [2]);
    }

    #[test]
    fn no_connection_and_not_all_together_have_more_watches_and_bytes_than_they_may() {
        let mut table = WatchTable::new(WatchBounds::new(&Options {
            max_watches: 3,
            max_watches_in_all: 4,
            max_watch_bytes: 2 * PATH_COST + 12,
            max_watch_bytes_in_all: 3 * PATH_COST + 13,
            ..Options::default()
        }));
        let (one, two) = (conn(1), conn(2));
        table.add(&one, "/a", Kinds::DATA).unwrap();
        table.add(&one, "/a", Kinds::CHILD).unwrap();
        let path = "/nine-more";
        assert_eq!(
            table.add(&one, "/nine-more!", Kinds::DATA),
            Err(TooManyWatches::BytesOfConnection(2 + PATH_COST))
        );
        table.add(&one, path, Kinds::DATA).unwrap();
        table.add(&one, path, Kinds::DATA).unwrap();
        assert_eq!(
            table.add(&one, path, Kinds::CHILD),
            Err(TooManyWatches::OfConnection(3))
        );
        assert_eq!(
            table.add(&two, "/b", Kinds::DATA),
            Err(TooManyWatches::BytesInAll(12 + 2 * PATH_COST))
        );
        table.add(&two, "/", Kinds::DATA).unwrap();
        assert_eq!(
            table.add(&two, "/", Kinds::CHILD),
            Err(TooManyWatches::InAll(4))
        );
        assert_eq!(fired(&mut table, EventKind::NodeDataChanged, path), [1]);
        table.add(&two, "/b", Kinds::DATA).unwrap();
        for conn in [1, 2] {
            table.forget(conn);
        }
        assert_eq!(table.counts(), WatchCounts::default());
    }

    #[test]
    fn a_table_that_is_empty_again_has_no_memory_and_one_that_is_not_uses_its_places_again() {
        let mut table = table();
        let (one, two) = (conn(1), conn(2));
        for n in 0..100 {
            table.add(&one, &format!("/{n}"), Kinds::DATA).unwrap();
        }
        table.add(&two, "/a", Kinds::DATA).unwrap();
        table.forget(1);
        for n in 100..200 {
            table.add(&one, &format!("/{n}"), Kinds::DATA).unwrap();
        }
        assert_eq!(table.watched.len(), 101);
        table.forget(1);
        table.forget(2);
        assert_eq!((table.watched.capacity(), table.free.capacity()), (0, 0));
        assert_eq!(table.index.capacity(), 0);
        table.add(&one, "/a", Kinds::DATA).unwrap();
        assert_eq!(fired(&mut table, EventKind::NodeDataChanged, "/a"), [1]);
    }
}
