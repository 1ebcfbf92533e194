//! The core on a thread of its own, with a clock that only the test moves and connections without
//! sockets: what a stall costs sessions, and what others see while an entry is being applied.

use std::thread::JoinHandle;

use baton_proto::{Acl, Create, CreateOp, OpCode, Request, frame};
use baton_wal::Storage;
use baton_wal::testing::FaultStorage;
use tokio::runtime::Runtime;

use super::*;
use crate::connections::conn::Conn;
use crate::connections::peer::Peer;
use crate::net::lag;
use crate::options::Options;
use crate::server::prepare;
use crate::watch::table::Kinds;

#[path = "../../../tests/suite/support/gate.rs"]
#[allow(dead_code)]
mod gate;

use gate::{Gate, GatedStorage};

const TICK: Duration = Duration::from_millis(10);
/// Sessions of these two timeouts are opened when the test begins.
const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_millis(400);
/// Much longer than either.
const STALL: Duration = Duration::from_secs(1);

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
        let options = Options {
            tick: TICK,
            min_session_timeout,
            ..Options::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let (state, mut core) = {
            let _clock = runtime.enter();
            prepare(options, storage, Some(0), &Starting::default()).unwrap()
        };
        let clock = runtime.handle().clone();
        let core = std::thread::spawn(move || {
            let _clock = clock.enter();
            let outcome = core.run();
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
        work.begin(conn, &conn.identity(), now());
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
fn create(path: &str, bytes: usize) -> (Kind, Vec<u8>) {
    // Length, xid and operation come before the body.
    const HEAD: usize = 12;
    let data = vec![7; bytes];
    let request = Request::Create(Create {
        op: CreateOp::Create,
        path,
        data: Some(&data),
        acl: Some(vec![Acl::open_unsafe()]),
        flags: 0,
        ttl_ms: 0,
    });
    let mut frame = Vec::new();
    frame::write_request(&mut frame, 1, &request);
    (Kind::Write(OpCode::Create), frame[HEAD..].to_vec())
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
    conn.take(&mut bytes, false);
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

/// Whoever holds a connection's outbox, as its task does to learn which zxid a ping's answer may
/// carry, keeps the core from going on behind the next push to it.
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

#[test]
fn a_core_that_has_answered_a_few_spins_for_as_long_as_the_sync_took_at_most() {
    let options = Options::default();
    let storage = Arc::new(FaultStorage::new());
    let (state, mut core) = prepare(options, storage, None, &Starting::default()).unwrap();
    let conn = state.open(Peer::Local).unwrap();
    let mut work = Work::default();
    work.begin(&conn, &conn.identity(), now());
    let open = Kind::OpenSession {
        timeout_ms: 1000,
        mirror_read_only: false,
    };
    work.push(1, open, &[7; PASSWORD_BYTES]);
    core.last_sync = Duration::ZERO;
    core.turn(&work, now()).unwrap();
    assert!(!core.last_sync.is_zero());
    let until = core.group_commit.spin_until().unwrap();
    assert!(until <= now() + core.last_sync);
}

#[test]
fn a_snapshot_that_cannot_begin_is_tried_again_after_a_pause() {
    let storage = Arc::new(FaultStorage::new());
    let options = Options::default();
    let (state, mut core) = prepare(options, storage, None, &Starting::default()).unwrap();
    state.tree.write().begin_snapshot().unwrap();
    core.snapshots = Snapshots::new(state.options.snapshot_every_entries);
    core.turn(&Work::default(), now()).unwrap();
    let next = core.snapshots.next_look().unwrap();
    assert!(next > now() + Duration::from_secs(10));
}
