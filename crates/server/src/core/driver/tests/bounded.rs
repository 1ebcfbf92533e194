//! Bounds of one turn of the core: ends of sessions and removals in bounded entries, events in
//! runs. The test drives the core, on a clock that only the test moves.

use super::*;

/// A server without sockets on a clock that only the test moves, and the core that the test drives.
struct DrivenCore {
    runtime: Runtime,
    state: Arc<ServerState>,
    core: CoreDriver,
}

impl DrivenCore {
    fn new(disk: &FaultStorage) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let options = Options {
            tick: TICK,
            reap_interval: Duration::from_secs(60),
            container_grace: Duration::from_secs(1),
            ..Options::default()
        };
        let (state, core) = {
            let _clock = runtime.enter();
            let storage = Arc::new(disk.clone());
            prepare(options, None, storage, simulated(), &Starting::default()).unwrap()
        };
        Self {
            runtime,
            state,
            core,
        }
    }

    fn turn(&mut self, requests: &[(&Arc<Conn>, Kind, &[u8])]) {
        let _clock = self.runtime.enter();
        turn(&mut self.core, requests);
    }

    fn open(&mut self) -> Arc<Conn> {
        let _clock = self.runtime.enter();
        opened(&self.state, &mut self.core)
    }

    /// Creates znodes of that kind below `/`, by this connection.
    fn fill(&mut self, conn: &Arc<Conn>, prefix: &str, count: usize, mode: CreateMode) {
        for n in 0..count {
            let (kind, body) = create_of_kind(&format!("/{prefix}{n}"), 0, mode);
            self.turn(&[(conn, kind, &body)]);
        }
        taken(conn);
    }

    fn is_busy(&self) -> bool {
        let _clock = self.runtime.enter();
        let now = self.state.time.now();
        self.core.deadline().is_some_and(|due| due <= now)
    }

    fn ephemerals(&self) -> usize {
        self.state.tree.read().ephemeral_count()
    }
}

#[test]
fn the_end_of_a_session_with_many_ephemerals_lets_others_write_in_between() {
    const ALL: usize = 4 * MOST_DELETED_AT_ONCE + 1;
    let disk = FaultStorage::new();
    let mut driven = DrivenCore::new(&disk);
    let owner = driven.open();
    let other = driven.open();
    driven.fill(&owner, "lock-", ALL, CreateMode::Ephemeral);
    driven.turn(&[(&owner, Kind::CloseSession, &[])]);
    let mut left = driven.ephemerals();
    let mut between = 0;
    while left > 0 {
        let (out, closing) = taken(&owner);
        assert!(out.is_empty() && closing.is_none(), "its znodes are there");
        assert!(driven.is_busy());
        let (kind, body) = create(&format!("/between-{between}"), 1);
        driven.turn(&[(&other, kind, &body)]);
        assert!(!taken(&other).0.is_empty(), "answered in the same turn");
        between += 1;
        let now_left = driven.ephemerals();
        assert!(left - now_left <= 2 * MOST_DELETED_AT_ONCE);
        left = now_left;
    }
    assert!(between > 1);
    let (out, closing) = taken(&owner);
    assert!(!out.is_empty());
    assert_eq!(closing, Some(CloseReason::SessionClosed));
    driven.turn(&[]);
    assert!(!driven.is_busy());
}

#[test]
fn a_server_that_starts_again_completes_the_end_of_a_session() {
    let disk = FaultStorage::new();
    let mut driven = DrivenCore::new(&disk);
    let owner = driven.open();
    let all = 3 * MOST_DELETED_AT_ONCE + 1;
    driven.fill(&owner, "lock-", all, CreateMode::Ephemeral);
    driven.turn(&[(&owner, Kind::CloseSession, &[])]);
    assert!(driven.ephemerals() > 0);
    drop(driven);
    let mut driven = DrivenCore::new(&disk);
    assert!(driven.ephemerals() > 0);
    assert!(driven.is_busy());
    while driven.is_busy() {
        driven.turn(&[]);
    }
    assert_eq!(driven.ephemerals(), 0);
}

#[test]
fn sessions_that_expire_together_end_in_bounded_entries() {
    let mut driven = DrivenCore::new(&FaultStorage::new());
    let each = MOST_DELETED_AT_ONCE / 2;
    for prefix in ["a", "b", "c", "d", "e"] {
        let owner = driven.open();
        driven.fill(&owner, prefix, each, CreateMode::Ephemeral);
    }
    let advance = tokio::time::advance(Duration::from_secs(10));
    driven.runtime.block_on(advance);
    let mut left = driven.ephemerals();
    let mut turns = 0;
    while left > 0 {
        driven.turn(&[]);
        let now_left = driven.ephemerals();
        assert!(left - now_left <= MOST_DELETED_AT_ONCE + each);
        left = now_left;
        turns += 1;
    }
    assert!(turns >= 3, "{turns}");
    assert_eq!(driven.state.sessions.load(Relaxed), 0);
}

#[test]
fn all_that_is_due_is_removed_in_one_interval_in_slices() {
    const ALL: usize = 3 * MOST_DELETED_AT_ONCE + 1;
    let mut driven = DrivenCore::new(&FaultStorage::new());
    let client = driven.open();
    driven.fill(&client, "container-", ALL, CreateMode::Container);
    let before = driven.state.tree.read().node_count();
    driven
        .runtime
        .block_on(tokio::time::advance(Duration::from_secs(61)));
    let mut left = before;
    loop {
        driven.turn(&[]);
        let now_left = driven.state.tree.read().node_count();
        assert!(left - now_left <= MOST_DELETED_AT_ONCE);
        left = now_left;
        if !driven.is_busy() {
            break;
        }
    }
    assert_eq!(before - left, ALL);
}

#[test]
fn many_watchers_of_a_sessions_end_receive_each_event_once_at_the_cost_of_one_step_each() {
    const WATCHERS: usize = 300;
    const ALL: usize = 3 * MOST_DELETED_AT_ONCE;
    let mut driven = DrivenCore::new(&FaultStorage::new());
    let owner = driven.open();
    driven.fill(&owner, "lock-", ALL, CreateMode::Ephemeral);
    let watchers: Vec<_> = (0..WATCHERS).map(|_| driven.open()).collect();
    for watcher in &watchers {
        let mut watches = driven.state.watches.lock();
        watches.add(watcher, "/", Kinds::RECURSIVE).unwrap();
    }
    driven.state.stats.most_steps.store(0, Relaxed);
    driven.turn(&[(&owner, Kind::CloseSession, &[])]);
    while driven.is_busy() {
        driven.turn(&[]);
    }
    let expected = taken(&watchers[0]).0;
    let mut rest = expected.as_slice();
    let mut events = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk() {
        let (event, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        events.push(event);
        rest = after;
    }
    assert_eq!(events.len(), ALL);
    events.sort_unstable();
    events.dedup();
    assert_eq!(events.len(), ALL);
    for watcher in &watchers[1..] {
        assert!(taken(watcher).0 == expected, "another order, or not all");
    }
    // Without the events of each entry being shared, it is the product.
    let most = driven.state.stats.most_steps.load(Relaxed) as usize;
    assert!(most <= 6 * MOST_DELETED_AT_ONCE + 6 * WATCHERS, "{most}");
}

/// Frames of events in these bytes.
fn events(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some((length, after)) = bytes.split_first_chunk() {
        bytes = &after[u32::from_be_bytes(*length) as usize..];
        count += 1;
    }
    count
}

fn multi(ops: Vec<baton_proto::MultiOp<'_>>) -> (Kind, Vec<u8>) {
    let mut body = Vec::new();
    Request::Multi(ops).encode(&mut body);
    (Kind::Write(OpCode::Multi), body)
}

/// The changes come in turns of two znodes, each with its own watchers, so that no two events in a
/// row go to the same connections.
#[test]
fn a_multi_with_more_events_than_are_handed_out_at_once_ends_the_watchers_and_not_the_turn() {
    const WATCHERS: usize = 200;
    const SETS: usize = 3000;
    let mut driven = DrivenCore::new(&FaultStorage::new());
    let writer = driven.open();
    for path in ["/one", "/other", "/quiet"] {
        let (kind, body) = create(path, 1);
        driven.turn(&[(&writer, kind, &body)]);
    }
    taken(&writer);
    let quiet = driven.open();
    let mut watchers = Vec::new();
    for n in 0..2 * WATCHERS {
        let watcher = driven.open();
        let path = if n % 2 == 0 { "/one" } else { "/other" };
        let mut watches = driven.state.watches.lock();
        watches.add(&watcher, path, Kinds::PERSISTENT).unwrap();
        watches.add(&quiet, "/quiet", Kinds::PERSISTENT).unwrap();
        drop(watches);
        watchers.push(watcher);
    }
    driven.state.stats.most_steps.store(0, Relaxed);
    let set = |path| baton_proto::MultiOp::SetData {
        path,
        data: None,
        version: -1,
    };
    let mut ops: Vec<_> = (0..SETS)
        .map(|n| set(if n % 2 == 0 { "/one" } else { "/other" }))
        .collect();
    ops.push(set("/quiet"));
    let (kind, body) = multi(ops);
    driven.turn(&[(&writer, kind, &body)]);
    let (reply, closing) = taken(&writer);
    assert!(!reply.is_empty() && closing.is_none(), "it is answered");
    let most = driven.state.stats.most_steps.load(Relaxed) as usize;
    assert!(
        most < 2 * WATCHERS * SETS / 2,
        "{most} steps, which is each event and each watcher"
    );
    let mut received = Vec::new();
    for watcher in &watchers {
        let (out, closing) = taken(watcher);
        assert_eq!(closing, Some(CloseReason::TooManyEvents));
        received.push(events(&out));
    }
    assert!(received[0] > 0 && received[0] < SETS / 2, "{received:?}");
    let (of_one, of_other) = (received[0], received[1]);
    assert!(received.chunks(2).all(|pair| pair == [of_one, of_other]));
    // A client that receives what few others do has its event all the same.
    let (out, closing) = taken(&quiet);
    assert_eq!((events(&out), closing), (1, None));
}

#[test]
fn znodes_that_the_same_connections_watch_one_by_one_cost_one_step_each() {
    const WATCHERS: usize = 300;
    const ZNODES: usize = 100;
    let mut driven = DrivenCore::new(&FaultStorage::new());
    let writer = driven.open();
    let paths: Vec<String> = (0..ZNODES).map(|n| format!("/{n}")).collect();
    for path in &paths {
        let (kind, body) = create(path, 1);
        driven.turn(&[(&writer, kind, &body)]);
    }
    let watchers: Vec<_> = (0..WATCHERS).map(|_| driven.open()).collect();
    for watcher in &watchers {
        let mut watches = driven.state.watches.lock();
        for path in &paths {
            watches.add(watcher, path, Kinds::DATA).unwrap();
        }
    }
    driven.state.stats.most_steps.store(0, Relaxed);
    let set = |path| baton_proto::MultiOp::SetData {
        path,
        data: None,
        version: -1,
    };
    let (kind, body) = multi(paths.iter().map(|path| set(path.as_str())).collect());
    driven.turn(&[(&writer, kind, &body)]);
    for watcher in &watchers {
        let (out, closing) = taken(watcher);
        assert_eq!((events(&out), closing), (ZNODES, None));
    }
    // Each watch is found once; whom that is handed to is asked and woken once.
    let most = driven.state.stats.most_steps.load(Relaxed) as usize;
    assert!(most <= WATCHERS * (ZNODES + 4) + 4 * ZNODES, "{most}");
}
