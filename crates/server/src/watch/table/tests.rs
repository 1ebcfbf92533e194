//! Tests of the watch table: the connections that an event finds, bounds, what is left at the end.

use super::*;
use crate::connections::conn::tests::conn;
use crate::report::listings::{SLICE_BYTES, SLICE_ITEMS};

fn table() -> WatchTable {
    WatchTable::new(WatchBounds::new(&Options::default()))
}

fn fired(table: &mut WatchTable, event: EventKind, path: &str) -> Vec<u32> {
    match table.fire(event, path) {
        EventWatchers::Nobody => Vec::new(),
        EventWatchers::Same | EventWatchers::Others => table.hits().to_vec(),
    }
}

fn forget(table: &mut WatchTable, conn: u32) {
    while table.forget(conn, 10) {}
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
fn watches_that_go_in_any_order_leave_the_others_in_place() {
    let paths = ["/a", "/b", "/c", "/d", "/e", "/f"];
    for first in 0..paths.len() {
        let mut table = table();
        let (one, two) = (conn(1), conn(2));
        for path in paths {
            table.add(&one, path, Kinds::DATA).unwrap();
            table.add(&two, path, Kinds::DATA).unwrap();
        }
        for at in 0..paths.len() {
            let path = paths[(first + 5 * at) % paths.len()];
            assert!(table.remove(1, path, Kinds::DATA), "{path}");
            let slots = &table.conns[&1].paths;
            for (place, slot) in slots.iter().enumerate() {
                let watched = table.at(*slot).unwrap();
                let watcher = &watched.watchers[watched.place(1).unwrap()];
                assert_eq!(watcher.place as usize, place, "{}", watched.path);
            }
            assert_eq!(slots.len(), paths.len() - 1 - at);
        }
        assert_eq!(table.counts().watches, paths.len());
        forget(&mut table, 2);
        assert_eq!(table.counts(), WatchCounts::default());
    }
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
    forget(&mut table, 1);
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
        forget(&mut table, conn);
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
    forget(&mut table, 1);
    for n in 100..200 {
        table.add(&one, &format!("/{n}"), Kinds::DATA).unwrap();
    }
    assert_eq!(table.watched.len(), 101);
    forget(&mut table, 1);
    forget(&mut table, 2);
    assert_eq!((table.watched.capacity(), table.free.capacity()), (0, 0));
    assert_eq!(table.index.capacity(), 0);
    table.add(&one, "/a", Kinds::DATA).unwrap();
    assert_eq!(fired(&mut table, EventKind::NodeDataChanged, "/a"), [1]);
}

#[test]
fn events_that_the_same_connections_watch_do_not_look_at_each_watcher_again() {
    const WATCHERS: usize = 500;
    const EVENTS: usize = 1000;
    let mut table = table();
    let conns: Vec<_> = (1..).take(WATCHERS).map(conn).collect();
    for conn in &conns {
        table.add(conn, "/", Kinds::RECURSIVE).unwrap();
    }
    table.take_work();
    for n in 0..EVENTS {
        let path = format!("/queue/{n}");
        let expected = if n == 0 {
            EventWatchers::Others
        } else {
            EventWatchers::Same
        };
        assert_eq!(table.fire(EventKind::NodeDeleted, &path), expected);
        let parent = table.fire(EventKind::NodeChildrenChanged, "/queue");
        assert_eq!(parent, EventWatchers::Nobody);
    }
    assert_eq!(table.hits().len(), WATCHERS);
    let work = table.take_work();
    assert!(work <= 4 * EVENTS + WATCHERS, "{work}");
    // A change of the watches is seen.
    table.remove(1, "/", Kinds::ALL);
    let fired = table.fire(EventKind::NodeDeleted, "/queue/x");
    assert_eq!(
        (fired, table.hits().len()),
        (EventWatchers::Others, WATCHERS - 1)
    );
}

#[test]
fn watches_that_fire_at_once_are_removed_in_one_pass() {
    const WATCHERS: u32 = 10_000;
    let mut table = table();
    for id in (1..=WATCHERS).rev() {
        table.add(&conn(id), "/a", Kinds::DATA).unwrap();
        table.add(&conn(id), "/a", Kinds::CHILD).unwrap();
    }
    table.take_work();
    let all: Vec<u32> = (1..=WATCHERS).collect();
    assert_eq!(fired(&mut table, EventKind::NodeDataChanged, "/a"), all);
    assert!(table.take_work() <= 1 + all.len());
    // The events that nobody watches any more look at no watcher.
    assert_eq!(fired(&mut table, EventKind::NodeDataChanged, "/a"), [0; 0]);
    assert_eq!(table.take_work(), 1);
    assert_eq!(table.counts().watches, all.len());
    assert_eq!(fired(&mut table, EventKind::NodeDeleted, "/a"), all);
    assert_eq!(table.counts().watches, 0);
}

#[test]
fn a_deep_path_is_hashed_once() {
    let mut table = table();
    let one = conn(1);
    let deep = "/a".repeat(1000);
    table.add(&one, "/a/a", Kinds::RECURSIVE).unwrap();
    table.add(&one, &deep, Kinds::RECURSIVE).unwrap();
    table.take_work();
    let below = format!("{deep}/b");
    assert_eq!(fired(&mut table, EventKind::NodeCreated, &below), [1]);
    assert!(table.take_work() <= 1010);
    assert!(fired(&mut table, EventKind::NodeCreated, "/a").is_empty());
    // What is not a path is not taken for one.
    for path in ["a", "/a/", "//a", ""] {
        assert!(table.add(&one, path, Kinds::DATA).is_ok());
    }
    assert_eq!(table.counts().paths, 6);
}

#[test]
fn the_watches_of_an_ended_connection_go_in_slices() {
    let mut table = table();
    let one = conn(1);
    for n in 0..25 {
        table.add(&one, &format!("/{n}"), Kinds::DATA).unwrap();
    }
    for left in [15, 5, 0] {
        assert!(table.forget(1, 10));
        assert_eq!(table.counts().watches, left);
    }
    assert!(!table.forget(1, 10));
}
