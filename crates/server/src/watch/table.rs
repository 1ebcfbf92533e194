//! The watch table: every watch of every connection, of all four kinds, in one table (protocol.md
//! §1.7). A path is stored once, a watch costs a few bytes. How many there may be, and how many
//! bytes they may take, is bounded for each connection and for all. Never replicated, never logged:
//! a watch ends with its connection.

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use baton_proto::{EventKind, WatcherKind};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
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
    const NUMBER: usize = 4;

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

/// Bounds on the number of watches and on their cost.
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

/// Reasons for which a watch was not set.
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
    /// Its place in [`Watching::paths`].
    place: u32,
    kinds: Kinds,
}

/// Number of watches of each kind.
#[derive(Debug, Default)]
struct KindCounts([u32; Kinds::NUMBER]);

impl KindCounts {
    fn of(&mut self, kinds: Kinds) -> impl Iterator<Item = &mut u32> {
        let counts = self.0.iter_mut().enumerate();
        let of = counts.filter(move |(bit, _)| kinds.has(Kinds(1 << bit)));
        of.map(|(_, count)| count)
    }

    fn add(&mut self, kinds: Kinds) {
        self.of(kinds).for_each(|count| *count += 1);
    }

    fn remove(&mut self, kinds: Kinds) {
        self.of(kinds)
            .for_each(|count| *count = count.saturating_sub(1));
    }

    fn has(&self, kinds: Kinds) -> bool {
        let mut counts = self.0.iter().enumerate();
        counts.any(|(bit, count)| *count > 0 && kinds.has(Kinds(1 << bit)))
    }
}

#[derive(Debug)]
struct Watched {
    path: Box<str>,
    /// In the order of their connections.
    watchers: SmallVec<[Watcher; 2]>,
    counts: KindCounts,
}

impl Watched {
    /// Returns the place of this connection's watcher, or where it would have to be.
    fn place(&self, conn: u32) -> Result<usize, usize> {
        self.watchers.binary_search_by_key(&conn, |w| w.conn)
    }

    /// The connections with a watch of one of these kinds.
    fn conns(&self, kinds: Kinds) -> impl Iterator<Item = u32> {
        let watchers = self.watchers.iter().filter(move |w| w.kinds.has(kinds));
        watchers.map(|w| w.conn)
    }
}

/// Connections that watch an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventWatchers {
    Nobody,
    /// Those that watched the last event that somebody watched.
    Same,
    /// Those in [`WatchTable::hits`].
    Others,
}

/// The watched paths that an event concerns, and the state of the table.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sources {
    version: u64,
    /// The znode's own path, and the kinds that fire there.
    own: Option<(u32, u8)>,
    /// The paths above it that have recursive watches.
    above: SmallVec<[u32; 4]>,
}

/// Adds a name to the hash of a path. A path's hash is made name by name, so that those of all
/// paths above it are found on the way.
fn add_name(hasher: &mut impl Hasher, name: &str) {
    hasher.write(name.as_bytes());
    hasher.write_u8(b'/');
}

fn hash_of(state: &RandomState, path: &str) -> u64 {
    let mut hasher = state.build_hasher();
    let names = path.strip_prefix('/').unwrap_or(path);
    if !names.is_empty() {
        names
            .split('/')
            .for_each(|name| add_name(&mut hasher, name));
    }
    hasher.finish()
}

#[derive(Debug)]
struct Watching {
    conn: Arc<Conn>,
    /// Slots of the paths, in no order.
    paths: SmallVec<[u32; 4]>,
    has: Amount,
}

/// Counts for `wchs` and `mntr`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchCounts {
    pub(crate) connections: usize,
    pub(crate) paths: usize,
    pub(crate) watches: usize,
    /// Their cost, as the bounds count it.
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
    /// Counts changes of the watches.
    version: u64,
    /// Sources of the watches that made [`WatchTable::hits`].
    fired: Sources,
    hits: Vec<u32>,
    next_hits: Vec<u32>,
    /// Watchers and names of paths that were looked at.
    work: usize,
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
            version: 0,
            fired: Sources::default(),
            hits: Vec::new(),
            next_hits: Vec::new(),
            work: 0,
        }
    }

    fn slot(&self, path: &str) -> Option<u32> {
        self.slot_of(hash_of(&self.hasher, path), path)
    }

    fn slot_of(&self, hash: u64, path: &str) -> Option<u32> {
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
            counts: KindCounts::default(),
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
            .insert_unique(hash_of(hasher, path), slot, |slot| {
                let path = watched
                    .get(*slot as usize)
                    .and_then(Option::as_ref)
                    .map_or("", |w| &*w.path);
                hash_of(hasher, path)
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
        let hash = hash_of(&self.hasher, &gone.path);
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
            let watched = self.at(slot)?;
            let place = watched.place(conn.id).ok()?;
            Some((slot, place, watched.watchers.get(place)?.kinds))
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
            paths: SmallVec::new(),
            has: Amount::default(),
        });
        let place_of_path = u32::try_from(watching.paths.len()).unwrap_or(u32::MAX);
        if there.is_none() {
            watching.paths.push(slot);
        }
        watching.has = watching.has.and(more);
        self.has = self.has.and(more);
        self.recursive += usize::from(new.has(Kinds::RECURSIVE));
        self.version += 1;
        let Some(watched) = self.at_mut(slot) else {
            return Ok(());
        };
        watched.counts.add(new);
        match watched.place(conn.id) {
            Ok(place) => {
                if let Some(watcher) = watched.watchers.get_mut(place) {
                    watcher.kinds.0 |= kinds.0;
                }
            }
            Err(place) => watched.watchers.insert(
                place,
                Watcher {
                    conn: conn.id,
                    place: place_of_path,
                    kinds,
                },
            ),
        }
        Ok(())
    }

    /// Whether the connection has a watch of one of these kinds there.
    pub(crate) fn has(&self, conn: u32, path: &str, kinds: Kinds) -> bool {
        self.slot(path)
            .and_then(|slot| self.at(slot))
            .is_some_and(|watched| {
                let watcher = watched.place(conn).ok();
                let watcher = watcher.and_then(|place| watched.watchers.get(place));
                watcher.is_some_and(|watcher| watcher.kinds.has(kinds))
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
        let Ok(place) = watched.place(conn) else {
            return false;
        };
        let path_cost = cost(&watched.path);
        let Some(watcher) = watched.watchers.get_mut(place) else {
            return false;
        };
        let removed = Kinds(watcher.kinds.0 & kinds.0);
        watcher.kinds.0 &= !kinds.0;
        let last = (watcher.kinds.0 == 0).then_some((path_cost, watcher.place));
        if last.is_some() {
            watched.watchers.remove(place);
        }
        watched.counts.remove(removed);
        self.count_out(conn, removed, last);
        self.drop_if_unwatched(slot);
        removed.0 != 0
    }

    /// Counts watches of a connection out. `last`: the cost of their path and its place in the
    /// connection's list, where the connection has no other watch there.
    fn count_out(&mut self, conn: u32, removed: Kinds, last: Option<(usize, u32)>) {
        let fewer = Amount {
            watches: removed.count(),
            bytes: last.map_or(0, |(bytes, _)| bytes),
        };
        if let Some(watching) = self.conns.get_mut(&conn) {
            watching.has = watching.has.less(fewer);
            let left = last.filter(|(_, place)| (*place as usize) < watching.paths.len());
            if let Some((_, place)) = left {
                watching.paths.swap_remove(place as usize);
                // The last path of the list has come to that place.
                let moved = watching.paths.get(place as usize).copied();
                let moved = moved.and_then(|slot| self.at_mut(slot));
                if let Some(watched) = moved
                    && let Ok(at) = watched.place(conn)
                    && let Some(watcher) = watched.watchers.get_mut(at)
                {
                    watcher.place = place;
                }
            }
        }
        self.has = self.has.less(fewer);
        self.recursive -= usize::from(removed.has(Kinds::RECURSIVE));
        self.version += 1;
    }

    /// Removes all watches of these kinds there.
    fn remove_all(&mut self, slot: u32, kinds: Kinds) {
        let Some(watched) = self.at_mut(slot).filter(|it| it.counts.has(kinds)) else {
            return;
        };
        let path_cost = cost(&watched.path);
        let mut removals = Vec::new();
        watched.watchers.retain(|watcher| {
            let removed = Kinds(watcher.kinds.0 & kinds.0);
            watcher.kinds.0 &= !kinds.0;
            let is_last = watcher.kinds.0 == 0;
            if removed.0 != 0 {
                let last = is_last.then_some((path_cost, watcher.place));
                removals.push((watcher.conn, removed, last));
            }
            !is_last
        });
        for (_, removed, _) in &removals {
            watched.counts.remove(*removed);
        }
        for (conn, removed, last) in removals {
            self.count_out(conn, removed, last);
        }
        self.drop_if_unwatched(slot);
    }

    /// Removes watches of a connection that has ended, those on `most` paths at most. `false`:
    /// there are no more.
    pub(crate) fn forget(&mut self, conn: u32, most: usize) -> bool {
        let Some(watching) = self.conns.get(&conn) else {
            return false;
        };
        let paths: Vec<u32> = watching.paths.iter().rev().take(most).copied().collect();
        if paths.is_empty() {
            self.conns.remove(&conn);
            return false;
        }
        for slot in paths {
            self.remove_at(slot, conn, Kinds::ALL);
        }
        true
    }

    /// Determines the connections that watch this event, each once, and removes their one-shot
    /// watches.
    pub(crate) fn fire(&mut self, event: EventKind, path: &str) -> EventWatchers {
        self.work += 1;
        if self.has.watches == 0 {
            return EventWatchers::Nobody;
        }
        let kinds = Kinds::fired_by(event);
        let own = self.slot(path);
        let own = own.filter(|slot| self.at(*slot).is_some_and(|it| it.counts.has(kinds)));
        let mut sources = Sources {
            version: self.version,
            own: own.map(|slot| (slot, kinds.0)),
            above: SmallVec::new(),
        };
        if self.recursive > 0 && kinds.has(Kinds::RECURSIVE) {
            self.work += self.recursive_above(path, &mut sources.above);
        }
        if own.is_none() && sources.above.is_empty() {
            return EventWatchers::Nobody;
        }
        if sources == self.fired {
            return EventWatchers::Same;
        }
        let mut hits = std::mem::take(&mut self.next_hits);
        hits.clear();
        if let Some(watched) = own.and_then(|slot| self.at(slot)) {
            hits.extend(watched.conns(kinds));
        }
        for slot in &sources.above {
            if let Some(watched) = self.at(*slot) {
                hits.extend(watched.conns(Kinds::RECURSIVE));
            }
        }
        self.work += hits.len();
        hits.sort_unstable();
        hits.dedup();
        let are_same = hits == self.hits;
        self.next_hits = std::mem::replace(&mut self.hits, hits);
        self.fired = sources;
        if let Some(slot) = own {
            self.remove_all(slot, Kinds(kinds.0 & Kinds::ONE_SHOT.0));
        }
        match are_same {
            true => EventWatchers::Same,
            false => EventWatchers::Others,
        }
    }

    /// Removes the watches by which the connections of [`WatchTable::hits`] were found.
    pub(crate) fn remove_hit(&mut self) {
        let fired = std::mem::take(&mut self.fired);
        if let Some((slot, kinds)) = fired.own {
            self.remove_all(slot, Kinds(kinds));
        }
        for slot in fired.above {
            self.remove_all(slot, Kinds::RECURSIVE);
        }
    }

    /// Finds the paths above this one that have recursive watches; how many paths were looked at.
    fn recursive_above(&self, path: &str, found: &mut SmallVec<[u32; 4]>) -> usize {
        let mut hasher = self.hasher.build_hasher();
        let mut looked_at = 0;
        let mut look = |hash, above: &str| {
            looked_at += 1;
            let slot = self.slot_of(hash, above);
            let is_recursive = |slot: &u32| {
                let watched = self.at(*slot);
                watched.is_some_and(|watched| watched.counts.has(Kinds::RECURSIVE))
            };
            found.extend(slot.filter(is_recursive));
        };
        if path.len() > 1 {
            look(hasher.finish(), "/");
        }
        for (end, _) in path.match_indices('/').skip(1) {
            let above = path.get(..end).unwrap_or_default();
            let name = above.rsplit('/').next().unwrap_or_default();
            add_name(&mut hasher, name);
            look(hasher.finish(), above);
        }
        looked_at
    }

    /// The connections that watched the last event that somebody watched, in order.
    pub(crate) fn hits(&self) -> &[u32] {
        &self.hits
    }

    /// Watchers and names of paths that were looked at since [`WatchTable::take_work`].
    pub(crate) const fn work(&self) -> usize {
        self.work
    }

    /// Returns the watchers and names of paths that were looked at since the last call.
    pub(crate) fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.work)
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
