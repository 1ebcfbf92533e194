//! The core on a thread of its own, with a clock that only the test moves and connections without
//! sockets: what a stall costs sessions, and what others see while an entry is being applied.

use std::thread::JoinHandle;

use baton_consensus::EntryKind;
use baton_proto::{Acl, Create, CreateMode, OpCode, PASSWORD_BYTES, Request, frame};
use baton_tree::{CloseReason as SessionEnd, MOST_DELETED_AT_ONCE, Stamp};
use baton_wal::testing::FaultStorage;
use baton_wal::{Record, Storage, Wal};
use bytes::Bytes;
use tokio::runtime::Runtime;

use super::*;
use crate::connections::conn::{CloseReason, Conn};
use crate::connections::inbox::Kind;
use crate::connections::peer::Peer;
use crate::core::batches::outstanding::Content;
use crate::core::turns::CoreTurns;
use crate::net::lag;
use crate::options::Options;
use crate::server::prepare;
use crate::time::{Clock, ServerTime};
use crate::watch::table::Kinds;

mod bounded;
mod earlier_logs;
mod time_reset;

#[path = "../../../tests/suite/support/gate.rs"]
#[allow(dead_code)]
mod gate;
mod identities;

use gate::{Gate, GatedStorage};

mod turns;

const TICK: Duration = Duration::from_millis(10);
/// Sessions of these two timeouts are opened when the test begins.
const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_millis(400);
/// Much longer than either.
const STALL: Duration = Duration::from_secs(1);

/// A clock that only the test moves, and a wall clock that follows it.
fn simulated() -> ServerTime {
    ServerTime::simulated(0, Clock::default())
}

/// A server without sockets, on a clock that stands still.
struct Stage {
    runtime: Runtime,
    state: Arc<ServerState>,
    core: Option<JoinHandle<Result<(), ServerError>>>,
}

impl Stage {
    /// Starts the core on a thread, as in production.
    fn on(storage: Arc<dyn Storage>) -> Self {
        // No sync counts as a stall: how long one takes is measured by the system's clock.
        Self::with_shortest_timeout(storage, Duration::from_secs(3600))
    }

    fn with_shortest_timeout(storage: Arc<dyn Storage>, min_session_timeout: Duration) -> Self {
        Self::at(storage, min_session_timeout, 0)
    }

    /// With a wall clock that shows this.
    fn at(storage: Arc<dyn Storage>, min_session_timeout: Duration, wall_ms: i64) -> Self {
        let options = Options {
            tick: TICK,
            min_session_timeout,
            ..Options::default()
        };
        let runtime = paused();
        let (state, core) = {
            let _clock = runtime.enter();
            let time = ServerTime::simulated(wall_ms, Clock::default());
            prepare(options, None, storage, time, &Starting::default()).unwrap()
        };
        let clock = runtime.handle().clone();
        let turns = {
            let _clock = runtime.enter();
            CoreTurns::new(&state, core)
        };
        let core = std::thread::spawn(move || {
            let _clock = clock.enter();
            let outcome = turns.run();
            if let Err(error) = &outcome {
                eprintln!("the core has stopped: {error}");
            }
            outcome
        });
        Self {
            runtime,
            state,
            core: Some(core),
        }
    }

    fn advance(&self, time: Duration) {
        self.runtime.block_on(tokio::time::advance(time));
    }

    /// Ends the core, which must have met no error.
    fn stop(mut self) {
        self.state.inbox.stop();
        let core = self.core.take().unwrap();
        core.join().unwrap().unwrap();
    }

    fn connect(&self) -> Arc<Conn> {
        self.state.open(Peer::Local).unwrap()
    }

    /// Hands requests of one connection to the core, which makes one entry of them.
    fn submit(&self, conn: &Arc<Conn>, requests: &[(Kind, Vec<u8>)]) {
        let _clock = self.runtime.enter();
        let mut work = Work::default();
        work.begin(conn, &conn.identity(), self.state.time.now());
        for (kind, body) in requests {
            work.push(1, *kind, body);
        }
        assert!(self.state.inbox.submit(&mut work));
    }

    /// Opens a session and waits until it is there.
    fn open(&self, timeout: Duration) -> Arc<Conn> {
        let conn = self.connect();
        let open = Kind::OpenSession {
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap(),
            mirror_read_only: false,
        };
        self.submit(&conn, &[(open, vec![7; PASSWORD_BYTES])]);
        answer(&conn);
        conn
    }

    /// Waits until the core has done all that is due, such as ending sessions behind the answer of
    /// the same turn.
    fn until_core_sleeps(&self) {
        until("the core waits for work", || {
            self.state.inbox.is_core_asleep()
        });
    }

    fn is_open(&self, conn: &Conn) -> bool {
        let tree = self.state.tree.read();
        tree.session(conn.session()).is_some()
    }
}

/// A request that creates a node with `bytes` bytes of data.
pub(crate) fn create(path: &str, bytes: usize) -> (Kind, Vec<u8>) {
    create_of_kind(path, bytes, CreateMode::Persistent)
}

fn create_of_kind(path: &str, bytes: usize, mode: CreateMode) -> (Kind, Vec<u8>) {
    // Length, xid and operation come before the body.
    const HEAD: usize = 12;
    let data = vec![7; bytes];
    let create = Create::new(path, Some(&data), vec![Acl::open_unsafe()], mode);
    let op = create.op.op();
    let request = Request::Create(create);
    let mut frame = Vec::new();
    frame::write_request(&mut frame, 1, &request);
    (Kind::Write(op), frame[HEAD..].to_vec())
}

/// Longer than anything here takes, by the real clock.
const PATIENCE: Duration = Duration::from_secs(30);

fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::yield_now();
    }
}

/// Waits for bytes, and takes them.
fn answer(conn: &Conn) -> Vec<u8> {
    until("an answer", || conn.waiting_bytes() > 0);
    let mut bytes = Vec::new();
    conn.take(&mut bytes, usize::MAX);
    bytes
}

#[test]
fn time_in_which_the_core_stood_still_is_not_charged_to_sessions() {
    let stage = Stage::on(Arc::new(FaultStorage::new()));
    let short = stage.open(SHORT);
    let long = stage.open(LONG);
    stage.until_core_sleeps();
    // The whole process stands still. The core was to look up when the first session's time is
    // over.
    stage.advance(STALL);
    stage.state.inbox.nudge();
    until("the first session ends", || !stage.is_open(&short));
    stage.until_core_sleeps();
    assert!(stage.is_open(&long), "it had half of its time left");
    // What is forgiven is what was too much, and no more: that session ends in its turn.
    stage.advance(LONG - SHORT + 2 * TICK);
    stage.state.inbox.nudge();
    until("the second session ends", || !stage.is_open(&long));
    stage.stop();
}

#[test]
fn a_stall_that_the_sockets_have_seen_too_is_forgiven_once() {
    let stage = Stage::on(Arc::new(FaultStorage::new()));
    let short = stage.open(SHORT);
    stage.until_core_sleeps();
    let mark = stage.state.time.mark();
    stage.advance(STALL);
    stage.state.time.forgive(mark, STALL - SHORT);
    stage.state.inbox.nudge();
    stage.until_core_sleeps();
    assert_eq!(stage.state.time.forgiven(), STALL - SHORT);
    stage.advance(2 * TICK);
    stage.state.inbox.nudge();
    until("its time is over", || !stage.is_open(&short));
    stage.stop();
}

fn with_two_sessions() -> (Stage, FaultStorage, [Arc<Conn>; 2]) {
    let disk = FaultStorage::new();
    let stage = Stage::on(Arc::new(disk.clone()));
    let sessions = [stage.open(SHORT), stage.open(SHORT)];
    stage.until_core_sleeps();
    (stage, disk, sessions)
}

/// Fills the disk under a write of `writer`, and lets [`STALL`] pass.
fn stall_on_full_disk(stage: &Stage, disk: &FaultStorage, writer: &Arc<Conn>) {
    disk.set_capacity(Some(0));
    // More than what is left of the log's last step.
    stage.submit(writer, &[create("/large", 2 << 20)]);
    until("the disk is full", || {
        stage.state.stats.disk_full.load(Relaxed)
    });
    stage.advance(STALL);
}

#[test]
fn time_in_which_a_full_disk_was_waited_for_is_not_charged_to_sessions() {
    let (stage, disk, [writer, silent]) = with_two_sessions();
    let mark = stage.state.time.mark();
    stall_on_full_disk(&stage, &disk, &writer);
    // The sockets were served late as well.
    stage.state.time.forgive(mark, STALL);
    disk.set_capacity(None);
    answer(&writer);
    stage.until_core_sleeps();
    assert!(stage.is_open(&writer) && stage.is_open(&silent));
    assert_eq!(stage.state.time.forgiven(), STALL, "forgiven once");
    stage.stop();
}

#[test]
fn time_in_which_a_full_disk_alone_was_waited_for_is_not_charged_to_sessions() {
    let (stage, disk, [writer, silent]) = with_two_sessions();
    stall_on_full_disk(&stage, &disk, &writer);
    disk.set_capacity(None);
    answer(&writer);
    stage.until_core_sleeps();
    assert!(stage.is_open(&writer) && stage.is_open(&silent));
    stage.stop();
}

#[test]
fn time_in_which_a_sync_hung_is_not_charged_to_sessions() {
    let gate = Gate::default();
    let storage = Arc::new(GatedStorage::new(&gate));
    let stage = Stage::with_shortest_timeout(storage, SHORT);
    let writer = stage.open(SHORT);
    let silent = stage.open(SHORT);
    stage.until_core_sleeps();
    let shut = gate.shut();
    stage.submit(&writer, &[create("/a", 1)]);
    gate.until_reached();
    // The log measures its syncs by the system's clock, so this stall is a real one, a little
    // longer than what it may cost at most.
    std::thread::sleep(SHORT);
    stage.advance(SHORT + 5 * TICK);
    drop(shut);
    answer(&writer);
    stage.until_core_sleeps();
    assert!(stage.is_open(&writer) && stage.is_open(&silent));
    stage.stop();
}

#[test]
fn a_session_has_its_full_timeout_after_a_restart() {
    let disk = FaultStorage::new();
    let stage = Stage::on(Arc::new(disk.clone()));
    let session = stage.open(LONG).session();
    stage.stop();
    let stage = Stage::on(Arc::new(disk));
    let is_open = || stage.state.tree.read().session(session).is_some();
    stage.until_core_sleeps();
    stage.advance(LONG);
    stage.state.inbox.nudge();
    stage.until_core_sleeps();
    assert!(is_open());
    stage.advance(2 * TICK);
    stage.state.inbox.nudge();
    until("its time is over", || !is_open());
    stage.stop();
}

/// Runs `act` while a thread holds the outbox of a connection, as its task does to learn which zxid
/// a ping's answer may carry: the core waits at the next push to it.
fn while_held<T>(stage: &Stage, conn: &Conn, act: impl FnOnce() -> T) -> (Vec<u8>, T) {
    // It has woken every connection that the entry before answered or notified.
    stage.until_core_sleeps();
    let mut bytes = Vec::new();
    let mut done = None;
    conn.take_with_zxid(&mut bytes, || {
        done = Some(act());
        0
    });
    (bytes, done.unwrap())
}

#[test]
fn no_zxid_is_shown_before_the_events_up_to_it_have_been_pushed() {
    let stage = Stage::on(Arc::new(FaultStorage::new()));
    let writer = stage.open(LONG);
    let (first, second) = (stage.open(LONG), stage.open(LONG));
    for watcher in [&first, &second] {
        let mut watches = stage.state.watches.lock();
        watches.add(watcher, "/b", Kinds::DATA).unwrap();
    }
    let before = stage.state.zxid();
    // Its task has taken what there was for it, and asks which zxid that goes up to.
    let (taken, shown) = while_held(&stage, &second, || {
        stage.submit(&writer, &[create("/a", 1), create("/b", 1)]);
        until("the event of the second write is on its way", || {
            first.waiting_bytes() > 0
        });
        stage.state.zxid()
    });
    assert_eq!((taken, shown), (Vec::new(), before + 1));
    assert!(!answer(&second).is_empty(), "the event comes");
    until("the second write is shown", || {
        stage.state.zxid() == before + 2
    });
    stage.stop();
}

#[test]
fn no_answer_leaves_before_its_zxid_is_shown_to_all() {
    let stage = Stage::on(Arc::new(FaultStorage::new()));
    let writer = stage.open(LONG);
    let before = stage.state.zxid();
    while_held(&stage, &writer, || {
        stage.submit(&writer, &[create("/a", 1)]);
        // The core waits to push the answer.
        until("the write is shown", || stage.state.zxid() == before + 1);
    });
    answer(&writer);
    stage.stop();
}

/// Lets the sockets' tasks go on, at the same instant of the test's clock.
fn turns(stage: &Stage) {
    stage.runtime.block_on(async {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    });
}

/// For so long neither the sockets nor the core are late, so that nothing is forgiven. The beat is
/// not done with its last round.
fn beat_on(stage: &Stage, time: Duration) {
    let forgiven = stage.state.time.forgiven();
    // Once the sockets have been read, the core expires sessions in its next turn.
    let look = || {
        for _ in 0..2 {
            stage.state.inbox.nudge();
            stage.until_core_sleeps();
        }
    };
    for _ in 1..time.as_millis() / TICK.as_millis() {
        stage.advance(TICK);
        turns(stage);
        look();
    }
    stage.advance(TICK);
    look();
    assert_eq!(stage.state.time.forgiven(), forgiven);
}

#[test]
fn no_session_ends_before_the_sockets_have_been_read() {
    let stage = Stage::on(Arc::new(FaultStorage::new()));
    stage.runtime.spawn(lag::measure(Arc::clone(&stage.state)));
    turns(&stage);
    let [first, second, third] = [SHORT, LONG, SHORT + LONG].map(|timeout| stage.open(timeout));
    beat_on(&stage, SHORT + TICK);
    assert!(stage.is_open(&first), "the sockets' tasks had no turn");
    // While the core waits for their round, the session gets more time. That round does not count
    // for its end then.
    let more = 5 * TICK;
    stage.state.time.forgive(stage.state.time.mark(), more);
    stage.state.inbox.nudge();
    stage.until_core_sleeps();
    for (session, after) in [(first, more), (second, LONG - SHORT), (third, SHORT)] {
        turns(&stage);
        beat_on(&stage, after);
        assert!(stage.is_open(&session), "this needs a round of its own");
        turns(&stage);
        until("its time is over", || !stage.is_open(&session));
    }
    stage.stop();
}

/// The task that makes the round ends it when it has handed in what waited on the sockets: behind
/// the inbox that the core has taken for this turn.
#[test]
fn no_session_ends_between_the_round_of_the_sockets_and_the_inbox_behind_it() {
    for comes_back in [true, false] {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let _clock = runtime.enter();
        let (state, mut core) = driven_by(&FaultStorage::new(), simulated());
        state.rounds.begin();
        let old = opened(&state, &mut core);
        let session = old.session();
        let is_open = || state.tree.read().session(session).is_some();
        runtime.block_on(tokio::time::advance(STALL + 2 * TICK));
        turn(&mut core, &[]);
        assert!(is_open(), "the sockets are to be read first");
        assert!(state.rounds.set_made(state.rounds.asked()));
        turn(&mut core, &[]);
        assert!(is_open(), "what the round has handed in is not taken yet");
        let new = state.open(Peer::Local).unwrap();
        let reattach = Kind::Reattach {
            session,
            timeout_ms: 1000,
            mirror_read_only: false,
        };
        match comes_back {
            true => turn(&mut core, &[(&new, reattach, &[7; PASSWORD_BYTES])]),
            false => turn(&mut core, &[]),
        }
        assert_eq!(is_open(), comes_back);
    }
}

#[test]
fn a_core_that_has_answered_a_few_spins_for_as_long_as_the_sync_took_at_most() {
    let options = Options::default();
    let storage = Arc::new(FaultStorage::new());
    let (state, mut core) = prepare(
        options,
        None,
        storage,
        ServerTime::new(),
        &Starting::default(),
    )
    .unwrap();
    let conn = state.open(Peer::Local).unwrap();
    let mut work = Work::default();
    work.begin(&conn, &conn.identity(), state.time.now());
    let open = Kind::OpenSession {
        timeout_ms: 1000,
        mirror_read_only: false,
    };
    work.push(1, open, &[7; PASSWORD_BYTES]);
    core.last_sync = Duration::ZERO;
    core.turn(&mut work, state.time.now()).unwrap();
    assert!(!core.last_sync.is_zero());
    let until = core.group_commit.spin_until().unwrap();
    assert!(until <= state.time.now() + core.last_sync);
}

#[test]
fn a_snapshot_that_cannot_begin_is_tried_again_after_a_pause() {
    let storage = Arc::new(FaultStorage::new());
    let options = Options::default();
    let (state, mut core) = prepare(
        options,
        None,
        storage,
        ServerTime::new(),
        &Starting::default(),
    )
    .unwrap();
    state.tree.write().begin_snapshot().unwrap();
    core.snapshots = Snapshots::new(state.options.snapshot_every_entries);
    let now = state.time.now();
    core.turn(&mut Work::default(), now).unwrap();
    let next = core.snapshots.next_look(now).unwrap();
    assert!(next > now + Duration::from_secs(10));
}

/// A server whose core the test drives, on this disk.
fn driven(disk: &FaultStorage) -> (Arc<ServerState>, CoreDriver) {
    driven_by(disk, ServerTime::new())
}

fn driven_by(disk: &FaultStorage, time: ServerTime) -> (Arc<ServerState>, CoreDriver) {
    let storage = Arc::new(disk.clone());
    let options = Options {
        tick: TICK,
        ..Options::default()
    };
    prepare(options, None, storage, time, &Starting::default()).unwrap()
}

/// A runtime whose clock only the test moves.
fn paused() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

/// Hands requests to the core, each in a group of its own, and lets it make one entry of them.
fn turn(core: &mut CoreDriver, requests: &[(&Arc<Conn>, Kind, &[u8])]) {
    let now = core.state.time.now();
    let mut work = Work::default();
    for (conn, kind, body) in requests {
        work.begin(conn, &conn.identity(), now);
        work.push(1, *kind, body);
    }
    core.turn(&mut work, now).unwrap();
}

fn open_session() -> Kind {
    Kind::OpenSession {
        timeout_ms: 1000,
        mirror_read_only: false,
    }
}

fn opened(state: &ServerState, core: &mut CoreDriver) -> Arc<Conn> {
    let conn = state.open(Peer::Local).unwrap();
    turn(core, &[(&conn, open_session(), &[7; PASSWORD_BYTES])]);
    assert_ne!(conn.session(), 0);
    taken(&conn);
    conn
}

/// Returns the bytes that wait for the connection's client, and the reason of its end.
fn taken(conn: &Conn) -> (Vec<u8>, Option<CloseReason>) {
    let mut bytes = Vec::new();
    let closing = conn.take(&mut bytes, usize::MAX).closing;
    (bytes, closing)
}

fn exists(state: &ServerState, path: &str) -> bool {
    let tree = state.tree.read();
    tree.exists(path, &Identity::anonymous()).is_ok()
}

#[test]
fn h02_r29_what_an_old_connection_has_sent_behind_the_re_attachment_is_not_applied() {
    let (state, mut core) = driven(&FaultStorage::new());
    let old = opened(&state, &mut core);
    let new = state.open(Peer::Local).unwrap();
    let reattach = Kind::Reattach {
        session: old.session(),
        timeout_ms: 1000,
        mirror_read_only: false,
    };
    let zxid = state.zxid();
    let (write, before) = create("/before", 1);
    let (_, late) = create("/late", 1);
    // All of it is one entry, so that the core cannot know better before.
    turn(
        &mut core,
        &[
            (&old, write, &before),
            (&new, reattach, &[7; PASSWORD_BYTES]),
            (&old, write, &late),
        ],
    );
    assert!(exists(&state, "/before") && !exists(&state, "/late"));
    assert_eq!(state.zxid(), zxid + 1, "what is refused takes no zxid");
    assert_eq!(taken(&old).1, Some(CloseReason::SessionMoved));
    let (answer, closing) = taken(&new);
    assert!(!answer.is_empty() && closing.is_none());
    // From here on the core refuses it by itself; the new connection goes on.
    turn(&mut core, &[(&old, write, &late), (&new, write, &late)]);
    assert!(exists(&state, "/late"));
    assert_eq!(state.zxid(), zxid + 2);
}

#[test]
fn r28_nothing_overtakes_a_command_that_was_lost() {
    let (state, mut core) = driven(&FaultStorage::new());
    let conn = opened(&state, &mut core);
    conn.attached().unwrap().next_stamp();
    let (write, body) = create("/a", 1);
    turn(&mut core, &[(&conn, write, &body)]);
    assert!(!exists(&state, "/a"));
    assert_eq!(taken(&conn), (Vec::new(), Some(CloseReason::RequestLost)));
}

/// Applies an entry that this server's core has not made.
fn from_elsewhere(core: &mut CoreDriver, batch: BatchBuilder) {
    core.consensus.propose(batch.finish()).unwrap();
    core.settle().unwrap();
}

fn stamp(nonce: u64) -> Option<Stamp> {
    let nonce = std::num::NonZeroU64::new(nonce).unwrap();
    Some(Stamp { nonce, sequence: 0 })
}

#[test]
fn r38_an_entry_of_another_server_takes_the_same_way() {
    let (state, mut core) = driven(&FaultStorage::new());
    let here = opened(&state, &mut core);
    state
        .watches
        .lock()
        .add(&here, "/there", Kinds::DATA)
        .unwrap();
    let nobody = Identity::anonymous();
    let there = 0x0200_0000_0000_0001;
    let (_, body) = create("/there", 1);
    let op = OpCode::Create;
    let mut batch = core.new_batch();
    batch.begin(there, &nobody, stamp(5));
    batch.push(
        0,
        Command::OpenSession {
            session_id: there,
            password: [8; PASSWORD_BYTES],
            timeout_ms: 1000,
        },
    );
    batch.push(1, Command::Write { op, body: &body });
    from_elsewhere(&mut core, batch);
    assert!(exists(&state, "/there"));
    let (event, closing) = taken(&here);
    assert!(!event.is_empty() && closing.is_none(), "the watch fires");
    let clocked = core.clocks.get(there).unwrap();
    assert!(clocked.conn.is_none() && clocked.timeout_ms == 1000);

    // Its client comes here, and then the client of a session of this server goes there.
    let moved = state.open(Peer::Local).unwrap();
    let reattach = Kind::Reattach {
        session: there,
        timeout_ms: 1000,
        mirror_read_only: false,
    };
    turn(&mut core, &[(&moved, reattach, &[8; PASSWORD_BYTES])]);
    assert_eq!(moved.session(), there);
    let mut batch = core.new_batch();
    batch.begin(here.session(), &nobody, stamp(6));
    batch.push(
        0,
        Command::ReattachSession {
            session_id: here.session(),
            password: [7; PASSWORD_BYTES],
            timeout_ms: 2000,
        },
    );
    batch.begin(there, &nobody, None);
    batch.push(
        0,
        Command::CloseSession {
            session_id: there,
            reason: SessionEnd::Expired,
        },
    );
    from_elsewhere(&mut core, batch);
    assert_eq!(taken(&here).1, Some(CloseReason::SessionMoved));
    assert_eq!(core.clocks.get(here.session()).unwrap().timeout_ms, 2000);
    assert_eq!(taken(&moved).1, Some(CloseReason::SessionExpired));
    assert_eq!(state.sessions.load(Relaxed), 1);
}

#[test]
fn r32_a_client_that_has_seen_more_than_its_ensemble_has_is_refused_at_apply() {
    let (state, mut core) = driven(&FaultStorage::new());
    let session = opened(&state, &mut core).session();
    let reattach = Kind::Reattach {
        session,
        timeout_ms: 1000,
        mirror_read_only: false,
    };
    for (kind, ahead, refused) in [
        (reattach, 0, None),
        (reattach, 1, Some(CloseReason::SessionRefused)),
        (open_session(), 0, None),
        (open_session(), 1, Some(CloseReason::SessionRefused)),
    ] {
        let conn = state.open(Peer::Local).unwrap();
        conn.set_ahead(state.zxid() + ahead);
        turn(&mut core, &[(&conn, kind, &[7; PASSWORD_BYTES])]);
        let (answer, closing) = taken(&conn);
        assert_eq!(closing, refused);
        assert_eq!(answer.is_empty(), refused.is_some());
    }
}

/// A server of an ensemble whose tree is behind what its earlier run has asked for.
#[test]
fn a_session_id_that_is_used_at_apply_is_drawn_again() {
    let (state, mut core) = driven(&FaultStorage::new());
    let conns = [(); 3].map(|()| state.open(Peer::Local).unwrap());
    let mut work = Work::default();
    for (conn, byte) in conns.iter().zip(7..) {
        work.begin(conn, &conn.identity(), state.time.now());
        work.push(1, open_session(), &[byte; PASSWORD_BYTES]);
    }
    let work = Arc::new(work);
    let mut builder = core.new_client_batch();
    for place in 0..conns.len() {
        // The second and the third get the id of the first.
        core.ids = SessionIds::new(1, 1_800_000_000_000);
        core.plan(&work, place, place, &mut builder);
    }
    core.submit(builder, Content::Everything, &work);
    drop(work);
    core.turn(&mut Work::default(), state.time.now()).unwrap();
    assert_ne!(conns[0].session(), 0);
    assert_eq!(taken(&conns[1]), (Vec::new(), None), "it waits");
    let mut again = Work::default();
    state.inbox.take(&mut again);
    core.turn(&mut again, state.time.now()).unwrap();
    let tree = state.tree.read();
    for (conn, place) in conns.iter().zip(0_u8..) {
        assert_eq!(conn.session(), conns[0].session() + i64::from(place));
        let session = tree.session(conn.session()).unwrap();
        assert_eq!(session.password, [7 + place; PASSWORD_BYTES]);
    }
}

#[test]
fn no_session_id_is_given_again_by_a_start_with_a_clock_that_was_set_back() {
    let disk = FaultStorage::new();
    let (state, mut core) = driven(&disk);
    let (stays, ends) = (opened(&state, &mut core), opened(&state, &mut core));
    turn(&mut core, &[(&ends, Kind::CloseSession, &[])]);
    drop((state, core));
    let (state, mut core) = driven(&disk);
    core.ids = SessionIds::new(1, 0);
    let next = opened(&state, &mut core);
    assert!(stays.session() < ends.session() && ends.session() < next.session());
}

#[test]
fn a_start_applies_its_log_without_reporting_it_again() {
    let disk = FaultStorage::new();
    let (state, mut core) = driven(&disk);
    let expired = opened(&state, &mut core);
    let kept = opened(&state, &mut core);
    let mut batch = core.new_batch();
    core.push_expiry(expired.session(), &mut batch);
    core.commit_for_nobody(batch).unwrap();
    assert_eq!(state.stats.sessions_expired.load(Relaxed), 1);
    let before = (state.tree.read().digest(), state.zxid());
    drop((state, core));
    let (state, core) = driven(&disk);
    assert_eq!((state.tree.read().digest(), state.zxid()), before);
    assert_eq!(state.stats.sessions_expired.load(Relaxed), 0);
    assert_eq!(state.stats.apply_time.spread().count, 0);
    assert_eq!(state.sessions.load(Relaxed), 1);
    assert!(core.clocks.get(kept.session()).unwrap().conn.is_none());
}

#[test]
fn a_write_of_a_server_without_peers_costs_the_disk_one_write_and_one_sync() {
    let disk = FaultStorage::new();
    let (state, mut core) = driven(&disk);
    let conn = opened(&state, &mut core);
    let (kind, body) = create("/first", 1);
    turn(&mut core, &[(&conn, kind, &body)]);
    let before = disk.operations();
    let (kind, body) = create("/second", 1);
    turn(&mut core, &[(&conn, kind, &body)]);
    assert!(exists(&state, "/second"), "applied in the same turn");
    assert_eq!(disk.operations() - before, 2);
}

#[test]
fn a_turn_without_work_touches_neither_the_disk_nor_the_log() {
    let disk = FaultStorage::new();
    let (_state, mut core) = driven(&disk);
    turn(&mut core, &[]);
    let (last, before) = (core.consensus.last_index(), disk.operations());
    turn(&mut core, &[]);
    assert_eq!(core.consensus.last_index(), last);
    assert_eq!(disk.operations(), before);
    assert!(
        core.deadline()
            .is_none_or(|due| due > core.state.time.now())
    );
}

/// A log with these payloads, as a server of one voter writes it.
fn disk_with(payloads: &[Bytes]) -> FaultStorage {
    let disk = FaultStorage::new();
    let storage = Arc::new(disk.clone());
    let (mut wal, _) = Wal::open(storage, baton_wal::WalOptions::default()).unwrap();
    let entry = |index, kind: EntryKind, payload| {
        Record::Entry(baton_wal::Entry {
            index,
            term: 1,
            kind: kind.as_byte(),
            payload,
        })
    };
    let hard_state = baton_wal::HardState { term: 1, vote: 1 };
    let mut records = vec![
        Record::HardState(hard_state),
        entry(1, EntryKind::Noop, Bytes::new()),
    ];
    for (index, payload) in (2..).zip(payloads) {
        records.push(entry(index, EntryKind::Command, payload.clone()));
    }
    let index = 1 + payloads.len() as u64;
    records.push(Record::Commit { index });
    wal.append(&records).unwrap();
    wal.sync().unwrap();
    disk
}

#[test]
fn r39_a_folder_of_level_1_is_read_and_raised_at_the_start() {
    let mut batch = BatchBuilder::new(FormatLevel::Initial, 1_000);
    let session_id = 0x0100_0000_0000_0001;
    batch.begin(session_id, &Identity::anonymous(), None);
    batch.push(
        0,
        Command::OpenSession {
            session_id,
            password: [7; PASSWORD_BYTES],
            timeout_ms: 1000,
        },
    );
    let (_, body) = create("/old", 1);
    let op = OpCode::Create;
    batch.push(1, Command::Write { op, body: &body });
    let disk = disk_with(&[batch.finish()]);
    let mut last = 2;
    for started in ["raises the level", "finds it raised"] {
        let (state, mut core) = driven(&disk);
        assert!(exists(&state, "/old"));
        assert_eq!(state.tree.read().level(), FormatLevel::NEWEST);
        // The entry that begins the term, and once that of the level.
        last += if last == 2 { 2 } else { 1 };
        assert_eq!(core.consensus.last_index(), last, "{started}");
        let conn = state.open(Peer::Local).unwrap();
        let reattach = Kind::Reattach {
            session: session_id,
            timeout_ms: 1000,
            mirror_read_only: false,
        };
        turn(&mut core, &[(&conn, reattach, &[7; PASSWORD_BYTES])]);
        last += 1;
        assert_eq!(conn.session(), session_id);
    }
}

#[test]
fn r39_a_log_of_a_newer_version_stops_the_start() {
    let raising = BatchBuilder::raising(FormatLevel::NEWEST, 1_000).finish();
    let mut unknown_level = raising.to_vec();
    *unknown_level.last_mut().unwrap() += 1;
    let mut unknown_version = raising.to_vec();
    unknown_version[0] += 1;
    for (payload, remedy) in [
        (unknown_level, "start a newer version of Baton"),
        (unknown_version, "start the version of Baton that wrote it"),
    ] {
        let disk = disk_with(&[payload.into()]);
        let storage = Arc::new(disk.clone());
        let refused = prepare(
            Options::default(),
            None,
            storage,
            ServerTime::new(),
            &Starting::default(),
        );
        let error = refused.map(|_| ()).unwrap_err().to_string();
        assert!(
            error.starts_with("log entry 2 cannot be applied"),
            "{error}"
        );
        assert!(error.ends_with(remedy), "{error}");
    }
}
