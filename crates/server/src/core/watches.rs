//! Who watches what: every watch of every connection, of all four kinds, in one table (protocol.md §1.7).
//! A path is stored once, a watch costs a few bytes. Never replicated, never logged: a watch ends with its connection.

use std::hash::BuildHasher;
use std::sync::Arc;

use baton_proto::{EventKind, WatcherKind};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet, HashTable};
use smallvec::SmallVec;

use super::conn::Conn;

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

    /// What fires on the znode itself.
    fn fired_by(event: EventKind) -> Kinds {
        match event {
            EventKind::NodeCreated | EventKind::NodeDataChanged => Kinds(1 | 4 | 8),
            EventKind::NodeDeleted => Kinds::ALL,
            EventKind::NodeChildrenChanged => Kinds(2 | 4),
            _ => Kinds(0),
        }
    }
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
}

/// Counts for `wchs` and `mntr`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchCounts {
    pub(crate) connections: usize,
    pub(crate) paths: usize,
    pub(crate) watches: usize,
}

/// The table. Guarded by one lock, taken inside the tree's lock (read to add, write to fire).
#[derive(Debug, Default)]
pub(crate) struct WatchTable {
    watched: Vec<Option<Watched>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: RandomState,
    conns: HashMap<u32, Watching, RandomState>,
    recursive: usize,
    watches: usize,
}

impl WatchTable {
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

    /// Sets a watch. A watch that is there already stays one.
    pub(crate) fn add(&mut self, conn: &Arc<Conn>, path: &str, kinds: Kinds) {
        let slot = self.slot_or_insert(path);
        self.conns
            .entry(conn.id)
            .or_insert_with(|| Watching {
                conn: Arc::clone(conn),
                paths: HashSet::default(),
            })
            .paths
            .insert(slot);
        let Some(watched) = self.at_mut(slot) else {
            return;
        };
        let new = match watched
            .watchers
            .iter_mut()
            .find(|watcher| watcher.conn == conn.id)
        {
            Some(watcher) => {
                let new = Kinds(kinds.0 & !watcher.kinds.0);
                watcher.kinds.0 |= kinds.0;
                new
            }
            None => {
                watched.watchers.push(Watcher {
                    conn: conn.id,
                    kinds,
                });
                kinds
            }
        };
        self.watches += new.count();
        self.recursive += usize::from(new.has(Kinds::RECURSIVE));
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
        let Some(watcher) = watched.watchers.get_mut(place) else {
            return false;
        };
        let removed = Kinds(watcher.kinds.0 & kinds.0);
        watcher.kinds.0 &= !kinds.0;
        if watcher.kinds.0 == 0 {
            watched.watchers.swap_remove(place);
            if let Some(watching) = self.conns.get_mut(&conn) {
                watching.paths.remove(&slot);
            }
        }
        self.watches -= removed.count();
        self.recursive -= usize::from(removed.has(Kinds::RECURSIVE));
        self.drop_if_unwatched(slot);
        removed.0 != 0
    }

    /// The connection is gone, and with it all its watches.
    pub(crate) fn forget(&mut self, conn: u32) {
        let Some(watching) = self.conns.remove(&conn) else {
            return;
        };
        for slot in watching.paths {
            self.remove_at(slot, conn, Kinds::ALL);
        }
    }

    /// Puts into `hit` the connections that this event is for, each once, and removes the watches that fire once.
    pub(crate) fn fire(&mut self, event: EventKind, path: &str, hit: &mut Vec<u32>) {
        hit.clear();
        if self.watches == 0 {
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
            watches: self.watches,
        }
    }

    /// Every watched path with the connections that watch it, in order of path.
    pub(crate) fn by_path(&self) -> Vec<(String, Vec<Arc<Conn>>)> {
        let mut all: Vec<_> = self
            .watched
            .iter()
            .flatten()
            .map(|watched| {
                let conns = watched
                    .watchers
                    .iter()
                    .filter_map(|w| self.conn(w.conn))
                    .cloned()
                    .collect();
                (watched.path.to_string(), conns)
            })
            .collect();
        all.sort_by(|a: &(String, Vec<Arc<Conn>>), b| a.0.cmp(&b.0));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::conn::tests::conn;
    use super::*;

    fn fired(table: &mut WatchTable, event: EventKind, path: &str) -> Vec<u32> {
        let mut hit = Vec::new();
        table.fire(event, path, &mut hit);
        hit
    }

    #[test]
    fn a_one_shot_watch_fires_once_and_leaves_nothing_behind() {
        let mut table = WatchTable::default();
        let one = conn(1);
        table.add(&one, "/a", Kinds::DATA);
        table.add(&one, "/a", Kinds::DATA);
        assert_eq!(table.counts().watches, 1);
        assert_eq!(fired(&mut table, EventKind::NodeDataChanged, "/a"), [1]);
        assert!(fired(&mut table, EventKind::NodeDataChanged, "/a").is_empty());
        assert_eq!(table.counts(), WatchCounts::default());
    }

    #[test]
    fn data_and_child_watches_fire_on_their_own_events_and_both_on_deletion() {
        let mut table = WatchTable::default();
        let (one, two) = (conn(1), conn(2));
        table.add(&one, "/a", Kinds::DATA);
        table.add(&two, "/a", Kinds::CHILD);
        assert_eq!(fired(&mut table, EventKind::NodeChildrenChanged, "/a"), [2]);
        table.add(&two, "/a", Kinds::CHILD);
        table.add(&one, "/a", Kinds::CHILD);
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
        let mut table = WatchTable::default();
        let (one, two) = (conn(1), conn(2));
        table.add(&one, "/a", Kinds::RECURSIVE);
        table.add(&one, "/a/b/c", Kinds::DATA);
        table.add(&two, "/", Kinds::RECURSIVE);
        assert_eq!(fired(&mut table, EventKind::NodeCreated, "/a/b/c"), [1, 2]);
        assert_eq!(fired(&mut table, EventKind::NodeDataChanged, "/ab"), [2]);
        assert!(fired(&mut table, EventKind::NodeChildrenChanged, "/a/b").is_empty());
        assert_eq!(fired(&mut table, EventKind::NodeDeleted, "/a"), [1, 2]);
        assert_eq!(table.counts().watches, 2);
    }

    #[test]
    fn persistent_watches_stay_until_removed() {
        let mut table = WatchTable::default();
        let one = conn(1);
        table.add(&one, "/a", Kinds::PERSISTENT);
        table.add(&one, "/a", Kinds::DATA);
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
    fn a_connection_takes_its_watches_with_it() {
        let mut table = WatchTable::default();
        let (one, two) = (conn(1), conn(2));
        for path in ["/a", "/b", "/c/d"] {
            table.add(&one, path, Kinds::DATA);
            table.add(&one, path, Kinds::RECURSIVE);
        }
        table.add(&two, "/a", Kinds::DATA);
        table.forget(1);
        assert_eq!(
            table.counts(),
            WatchCounts {
                connections: 1,
                paths: 1,
                watches: 1
            }
        );
        assert_eq!(fired(&mut table, EventKind::NodeDataChanged, "/a"), [2]);
    }
}
