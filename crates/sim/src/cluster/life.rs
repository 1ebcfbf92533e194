//! Servers start, end, stand still: what surrounds each of them, and what must be true of all of
//! them after each turn of one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use baton_consensus::{Effects, MessageKind, Role};
use baton_peers::codec::Frame;
use baton_peers::handshake::LocalServer;
use baton_peers::net::SendError;
use baton_proto::CONFIG_PATH;
use baton_server::simulation::{
    CoreObserver, MemberEnvironment, MemberProgress, MemberView, SimulatedClocks, SimulatedMember,
    SimulatedServer, Task,
};
use baton_server::{EnsembleOptions, Options, ServerError};
use baton_tree::{FormatLevel, ServerList, digest_id};
use baton_wal::testing::{Fault, FaultStorage, Loss};
use tokio::time::Instant;

use super::bug::SeededBug;
use super::mark;
use super::server_log::ServerLog;
use super::state::{CLUSTER_ID, Cluster, Setup, SharedState, State, incarnation, wal_options};
use crate::birth::write_birth;
use crate::recorder::Recorder;
use crate::standstill::Standstill;

/// Wall clock at the beginning of a run: 2030.
pub(super) const WALL_MS: i64 = 1_893_456_000_000;
/// One tick of the consensus.
const TICK: Duration = Duration::from_millis(25);
/// Length of each pause of a server that stutters, and of the time between two pauses. A pause of
/// more than a tick would be left out of its sessions' clocks.
const STUTTER: Duration = Duration::from_millis(180);
const BETWEEN_STUTTERS: Duration = Duration::from_millis(20);
/// Time for which a server is away whose start was cut off.
const START_PAUSE: Duration = Duration::from_millis(200);
/// A clock that is off by no more is nearly right.
const NEARLY_RIGHT_MS: i64 = 5_000;
/// Credentials of the user that may change the members.
pub(crate) const SUPERUSER: &[u8] = b"super:sim";

/// Causes of a server's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// The process ends, and the machine runs on: it refuses connections.
    Stays,
    /// The machine stops, and says nothing.
    Fails,
}

impl Cluster {
    /// A server's process starts, if it does not run.
    pub(crate) fn start(&self, id: u64) {
        let begun = {
            let mut state = self.state();
            if state.is_over {
                return;
            }
            let seed = state.rng.u64(1..);
            let listed = (1..=state.setup.servers).chain([id]);
            let servers: BTreeMap<u64, String> = listed
                .map(|id| (id, format!("127.0.0.1:{}", 7000 + id)))
                .collect();
            let Setup {
                bug,
                spares,
                snapshots,
                read_only_mode,
                uncommitted_bytes,
                start_crash_percent,
                ..
            } = state.setup;
            let crashes = start_crash_percent > 0
                && !state.is_calm
                && state.rng.u64(..100) < start_crash_percent;
            let crash_after = if crashes { state.rng.u64(..40) } else { 0 };
            let elapsed = self.0.recorder.start().elapsed().as_millis();
            let Some(seat) = state.seats.get_mut(&id) else {
                return;
            };
            if seat.server.is_some() || seat.waits {
                return;
            }
            seat.life += 1;
            seat.process = Standstill::default();
            seat.refuses = false;
            seat.ends_when_it_sends = false;
            seat.progress = None;
            seat.peers.clear();
            seat.named.clear();
            seat.unknown.clear();
            seat.dialled.clear();
            seat.local = LocalServer {
                level: u32::try_from(FormatLevel::NEWEST.number()).unwrap_or(u32::MAX),
                ..LocalServer::new(id, seat.incarnation, seed)
            };
            if seat.is_empty {
                seat.waits = true;
                let life = seat.life;
                // An operator gives it a list of all that may be members.
                let all = state.seats.keys().copied().collect();
                drop(state);
                self.0
                    .recorder
                    .note(|| format!("s{id} waits to be admitted, with an empty folder"));
                return self.connect_to((id, life), all);
            }
            seat.local.cluster = CLUSTER_ID;
            if crashes {
                let at = seat.disk.operations() + crash_after;
                seat.disk.fail_at(at, Fault::Crash);
                seat.disk_breaks = true;
            }
            let port = Port {
                cluster: self.clone(),
                id,
                life: seat.life,
                process: seat.process.clone(),
            };
            let options = Options {
                server_id: u8::try_from(id).unwrap_or(u8::MAX),
                ensemble: Some(EnsembleOptions {
                    servers,
                    reconfig: spares > 0,
                    read_only_mode,
                    tick: TICK,
                    ..EnsembleOptions::default()
                }),
                super_digest: Some(digest_id(SUPERUSER)),
                snapshot_every_entries: snapshots
                    .map_or(Options::default().snapshot_every_entries, |it| {
                        it.every_entries
                    }),
                ..Options::default()
            };
            let clocks = SimulatedClocks {
                wall_ms: WALL_MS + seat.skew_ms + i64::try_from(elapsed).unwrap_or(0),
                rate_ppm: seat.rate_ppm,
            };
            let member = SimulatedMember {
                incarnation: seat.incarnation,
                log: wal_options(),
                window_bytes: snapshots.map(|it| it.window_bytes),
                uncommitted_bytes,
                seed,
                mistake: bug.and_then(SeededBug::mistake),
                around: Arc::new(port),
            };
            (
                options,
                Arc::new(seat.disk.clone()),
                clocks,
                member,
                seat.life,
            )
        };
        let (options, disk, clocks, member, life) = begun;
        match SimulatedServer::start_member(options, disk, clocks, member) {
            Ok(server) => {
                self.0.recorder.note(|| format!("s{id} starts"));
                let members = server.membership().map(|it| it.members);
                if let Some(seat) = self.state().seats.get_mut(&id) {
                    seat.server = Some(Arc::new(server));
                }
                let members = members.into_iter().flatten();
                self.connect_to((id, life), members.map(|member| member.id).collect());
            }
            Err(error) => {
                let breaks = {
                    let mut state = self.state();
                    let seed = state.rng.u64(..);
                    state.seats.get_mut(&id).is_some_and(|seat| {
                        seat.disk = seat.disk.crash(Loss::Random(seed));
                        std::mem::take(&mut seat.disk_breaks)
                    })
                };
                if !breaks {
                    let what = format!("server {id} does not start: {error}");
                    return self.0.recorder.fail(&what);
                }
                self.0.recorder.mark(mark::CRASH_IN_START);
                self.0
                    .recorder
                    .note(|| format!("s{id} ends in its start: {error}"));
                self.start_later(id, START_PAUSE);
            }
        }
    }

    /// A server starts after a while, if it does not run by then.
    pub(crate) fn start_later(&self, id: u64, away: Duration) {
        let cluster = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(away).await;
            cluster.start(id);
        });
    }

    /// The wall clock of a server jumps.
    pub(crate) fn step_clock(&self, id: u64, by_ms: i64) {
        self.0.recorder.mark(mark::CLOCK_STEPPED);
        self.0
            .recorder
            .note(|| format!("the wall clock of s{id} jumps by {by_ms} ms"));
        let server = {
            let mut state = self.state();
            let Some(seat) = state.seats.get_mut(&id) else {
                return;
            };
            seat.skew_ms += by_ms;
            let (is_wrong, server) = (seat.skew_ms.abs() > NEARLY_RIGHT_MS, seat.server.clone());
            if is_wrong {
                state.wrong_clocks.insert(id);
            }
            server
        };
        if let Some(server) = server {
            server.step_clock(by_ms);
        }
    }

    /// The folder of a server is lost, and another one is taken for it, by mistake (B19).
    pub(crate) fn lose_folder(&self, id: u64) {
        self.end(id, StopCause::Stays);
        let written = {
            let mut state = self.state();
            state.emptied += 1;
            let number = u128::from(state.emptied);
            let mut first = state.first.clone();
            let Some(seat) = state.seats.get_mut(&id) else {
                return;
            };
            seat.disk = FaultStorage::new();
            seat.incarnation = incarnation(id) | number << 64;
            for member in first.members.iter_mut().filter(|it| it.id == id) {
                member.incarnation = seat.incarnation;
            }
            let former = std::mem::replace(&mut seat.log, ServerLog::born());
            seat.log.lost = former.lost;
            seat.log.lost.push(former.image);
            write_birth(&seat.disk, wal_options(), &first)
        };
        if let Err(error) = written {
            let what = format!("server {id} cannot store the first members: {error}");
            self.0.recorder.fail(&what);
        }
    }

    /// A server's process ends, with what `power` says. Returns whether it ran.
    pub(crate) fn end(&self, id: u64, power: StopCause) -> bool {
        let leads = self.leader() == Some(id);
        let ended = {
            let mut state = self.state();
            let seed = state.rng.u64(..);
            let kind = state.rng.u8(..3);
            let Some(seat) = state.seats.get_mut(&id) else {
                return false;
            };
            let Some(server) = seat.server.take() else {
                return false;
            };
            seat.process.end();
            seat.refuses = power == StopCause::Stays;
            let loss = match kind {
                0 => Loss::Nothing,
                1 => Loss::Everything,
                _ => Loss::Random(seed),
            };
            seat.disk = match power {
                StopCause::Stays if !seat.disk_breaks => seat.disk.kill(),
                _ => seat.disk.crash(loss),
            };
            seat.log.ended(std::mem::take(&mut seat.disk_breaks));
            server
        };
        drop(ended);
        self.0
            .recorder
            .note(|| format!("s{id} ends, power {power:?}"));
        if leads {
            self.0.recorder.mark(mark::LEADER_CRASHED);
        }
        self.process_ended(id, power);
        // Refused when the run is over.
        let _ = self.0.ends.send(id);
        true
    }

    /// The cluster admits a server whose folder is empty: it stores the first members, as any
    /// member sends them, and starts as one of them.
    pub(super) fn admit(&self, id: u64) {
        let written = {
            let mut state = self.state();
            let first = state.first.clone();
            let Some(seat) = state.seats.get_mut(&id).filter(|seat| seat.waits) else {
                return;
            };
            seat.waits = false;
            seat.is_empty = false;
            let lost = std::mem::take(&mut seat.log.lost);
            seat.log = ServerLog::born();
            seat.log.lost = lost;
            write_birth(&seat.disk, wal_options(), &first)
        };
        self.0.recorder.mark(mark::ADMITTED);
        self.0.recorder.note(|| format!("s{id} is admitted"));
        match written {
            Ok(()) => self.start(id),
            Err(error) => {
                let what = format!("server {id} cannot store the first members: {error}");
                self.0.recorder.fail(&what);
            }
        }
    }

    /// The folder of a server that is not a member any more is emptied; its process waits to be
    /// admitted from now on.
    pub(crate) fn empty(&self, id: u64) {
        self.end(id, StopCause::Stays);
        {
            let mut state = self.state();
            state.emptied += 1;
            let number = u128::from(state.emptied);
            if let Some(seat) = state.seats.get_mut(&id) {
                seat.disk = FaultStorage::new();
                let former = std::mem::take(&mut seat.log);
                seat.log.lost = former.lost;
                seat.log.lost.push(former.image);
                seat.incarnation = incarnation(id) | number << 64;
                seat.is_empty = true;
                seat.waits = false;
            }
        }
        self.start(id);
    }

    /// Has a leader hand over, as an operator asks for it.
    pub(crate) fn hand_over(&self, from: u64, to: u64) {
        self.0
            .recorder
            .note(|| format!("s{from} is asked to hand over to s{to}"));
        if let Some(server) = self.server(from) {
            server.hand_over(to);
        }
    }

    /// Pauses a server again and again until `end`, each time too shortly to notice that it
    /// did. Its consensus then makes few ticks, and its sessions' clocks run on.
    pub(crate) async fn stutter(&self, id: u64, end: impl Future<Output = ()>) {
        let process = self.state().seats.get(&id).map(|seat| seat.process.clone());
        let Some(process) = process else {
            return;
        };
        self.0.recorder.note(|| format!("s{id} stutters"));
        let stutters = async {
            loop {
                process.begin(STUTTER, true);
                tokio::time::sleep(STUTTER + BETWEEN_STUTTERS).await;
            }
        };
        tokio::select! {
            biased;
            () = end => {}
            () = stutters => {}
        }
    }

    /// A server stands still for some time.
    pub(crate) fn pause(&self, id: u64, length: Duration) {
        if self.leader() == Some(id) {
            self.0.recorder.mark(mark::LEADER_PAUSED);
        }
        let process = self.state().seats.get(&id).map(|seat| seat.process.clone());
        if let Some(process) = process {
            self.0
                .recorder
                .note(|| format!("s{id} stands still for {length:?}"));
            process.begin(length, true);
        }
    }

    /// Syncs of a server take this long.
    pub(crate) fn stall(&self, id: u64, length: Duration) {
        self.0
            .recorder
            .note(|| format!("syncs of s{id} stall for {length:?}"));
        if let Some(seat) = self.state().seats.get_mut(&id) {
            seat.stalled_until = Instant::now() + length;
        }
    }

    /// The machine of a server stops in the middle of one of the next operations of its disk.
    pub(crate) fn break_disk(&self, id: u64) {
        let kinds = [
            Fault::Crash,
            Fault::CrashAfter,
            Fault::TornWrite,
            Fault::Error,
        ];
        self.strike_disk(id, &kinds);
    }

    /// One of the next operations of a server's disk reports an error.
    pub(crate) fn fail_disk(&self, id: u64) {
        self.strike_disk(id, &[Fault::Error, Fault::PartialWrite, Fault::SyncLost]);
    }

    fn strike_disk(&self, id: u64, kinds: &[Fault]) {
        self.0
            .recorder
            .note(|| format!("the disk of s{id} will fail"));
        let mut state = self.state();
        let after = state.rng.u64(..12);
        let fault = state.rng.choice(kinds).copied().unwrap_or(Fault::Crash);
        if let Some(seat) = state
            .seats
            .get_mut(&id)
            .filter(|seat| seat.server.is_some())
        {
            seat.disk_breaks = true;
            seat.disk.fail_at(seat.disk.operations() + after, fault);
        }
    }

    /// The disk of a server is nearly full, until its log has waited for room.
    pub(crate) fn fill_disk(&self, id: u64) {
        self.0
            .recorder
            .note(|| format!("the disk of s{id} is nearly full"));
        let mut state = self.state();
        let spare = state.rng.u64(..3_000);
        if let Some(seat) = state.seats.get(&id) {
            seat.disk.set_capacity(Some(seat.disk.used_bytes() + spare));
        }
    }

    /// The disk of a server has room.
    pub(crate) fn make_room(&self, id: u64) {
        if let Some(seat) = self.state().seats.get(&id) {
            seat.disk.set_capacity(None);
        }
    }

    /// The process of a server ends as soon as it has sent entries of the log, which its own disk
    /// does not have by then.
    pub(crate) fn end_when_it_sends(&self, id: u64) {
        if let Some(seat) = self.state().seats.get_mut(&id) {
            seat.ends_when_it_sends = true;
        }
    }

    /// Nothing goes wrong any more: cuts and pauses end, and every server runs.
    pub(crate) fn heal(&self) {
        self.0
            .recorder
            .note(|| "the servers are whole again".to_owned());
        let down: Vec<u64> = {
            let mut state = self.state();
            for seat in state.seats.values_mut() {
                seat.process.end();
                seat.stalled_until = Instant::now();
                seat.ends_when_it_sends = false;
                seat.disk.clear_fault();
                seat.disk.set_capacity(None);
            }
            state.cuts.clear();
            state.is_calm = true;
            let down = state.seats.iter().filter(|(_, seat)| seat.server.is_none());
            down.map(|(id, _)| *id).collect()
        };
        self.0.cut_changes.notify_waiters();
        for id in down {
            self.start(id);
        }
    }

    /// Returns why the servers are not at rest yet; `None`: one leads, and all are at one entry.
    pub(crate) fn unrest(&self) -> Option<String> {
        let Some(membership) = self.membership() else {
            return Some("no server runs".to_owned());
        };
        if membership.is_joint() {
            return Some(format!("a change is half done: {membership:?}"));
        }
        let state = self.state();
        let mut at = Vec::new();
        for id in membership.members.iter().map(|member| member.id) {
            let seat = state.seats.get(&id);
            match seat.map(|seat| (&seat.server, seat.progress)) {
                Some((Some(_), Some(progress))) => at.push((id, progress)),
                _ => return Some(format!("server {id} does not run")),
            }
        }
        let leader = at.first().and_then(|(_, progress)| progress.role.leader);
        let leads =
            |(id, at): &&(u64, MemberProgress)| at.role.role == Role::Leader && Some(*id) == leader;
        let same = at.windows(2).all(|pair| match pair {
            [(_, one), (_, other)] => {
                (one.role.term, one.role.leader) == (other.role.term, other.role.leader)
                    && (one.applied, one.digest) == (other.applied, other.digest)
            }
            _ => true,
        });
        let is_settled = same && at.iter().filter(leads).count() == 1;
        (!is_settled).then(|| format!("{at:?}"))
    }

    /// A server with what all members have applied; the error says why there is none.
    pub(crate) fn agreed(&self) -> Result<Arc<SimulatedServer>, String> {
        if let Some(unrest) = self.unrest() {
            return Err(unrest);
        }
        let leader = self.leader().and_then(|id| self.server(id));
        leader.ok_or_else(|| "no leader runs".to_owned())
    }

    /// Returns the members that are not those of `/zookeeper/config`; `None`: they are, or there is
    /// no list. A server whose change was not applied is a member for some time, and leaves by
    /// itself.
    pub(crate) fn half_done(&self) -> Option<String> {
        let server = match self.agreed() {
            Ok(server) => server,
            Err(unrest) => return Some(unrest),
        };
        let list = server.data(CONFIG_PATH).unwrap_or_default();
        let list = ServerList::read(&String::from_utf8_lossy(&list))?;
        let listed: Vec<u64> = list.servers.into_keys().collect();
        let mut members = self.members();
        members.sort_unstable();
        (members != listed).then(|| format!("members {members:?}, listed {listed:?}"))
    }

    /// The run is over: nobody starts or dials any more.
    pub(crate) fn shut(&self) {
        let servers: Vec<Arc<SimulatedServer>> = {
            let mut state = self.state();
            state.is_over = true;
            for seat in state.seats.values_mut() {
                seat.waits = false;
            }
            state.ways.clear();
            state.lives.clear();
            let seats = state.seats.values_mut();
            seats.filter_map(|seat| seat.server.take()).collect()
        };
        drop(servers);
    }
}

/// Environment of one process of a server.
struct Port {
    cluster: Cluster,
    id: u64,
    life: u64,
    process: Standstill,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Port {
    /// Ends the process once its present turn is over, and starts another one.
    fn restart_soon(&self) {
        self.end_soon(StopCause::Stays);
        self.cluster.start_later(self.id, START_PAUSE);
    }

    fn fail(&self, outcome: Result<(), String>) {
        if let Err(what) = outcome {
            self.cluster.0.recorder.fail(&what);
        }
    }

    /// Ends the process once its present turn is over.
    fn end_soon(&self, power: StopCause) {
        let (cluster, id, life) = (self.cluster.clone(), self.id, self.life);
        tokio::spawn(async move {
            if cluster.state().lives(id, life) {
                cluster.end(id, power);
            }
            if cluster.state().is_calm {
                cluster.start(id);
            }
        });
    }
}

/// Sees to it that a panic of a server's task fails the run.
struct Witness {
    recorder: Recorder,
    id: u64,
}

impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.recorder
                .fail(&format!("a task of server {} panicked", self.id));
        }
    }
}

impl CoreObserver for Port {
    fn handed_out(&self, effects: &Effects) {
        let shared = &self.cluster.0;
        let mut state = self.cluster.state();
        let outcome = state.handed_out(self.id, effects, shared);
        drop(state);
        self.fail(outcome);
    }

    fn disk_full(&self) {
        self.cluster.0.recorder.mark(mark::DISK_FULL);
        self.cluster.make_room(self.id);
    }
}

impl MemberEnvironment for Port {
    fn recovered(&self, found: &mut baton_wal::Recovered) -> u64 {
        let mut state = self.cluster.state();
        let outcome = state.recovered(self.id, found);
        drop(state);
        outcome.unwrap_or_else(|what| {
            self.fail(Err(what));
            0
        })
    }

    fn stored(&self) {
        let mut state = self.cluster.state();
        let outcome = state.stored(self.id, &self.cluster.0);
        drop(state);
        match outcome {
            Ok(true) => self.restart_soon(),
            Ok(false) => {}
            Err(what) => self.fail(Err(what)),
        }
    }

    fn send(&self, to: u64, frame: Frame) -> Result<(), SendError> {
        let mut state = self.cluster.state();
        if let Frame::Forward(forward) = &frame {
            let name = (self.id, forward.run, forward.first);
            if state.forwarded.insert(name) {
                state.note_forward(self.id);
            } else {
                self.cluster.0.recorder.mark(mark::BATCH_RESENT);
            }
        }
        if let Frame::Raft(messages) = &frame {
            for message in messages {
                let outcome = state.promised(self.id, message, &self.cluster.0);
                self.fail(outcome);
            }
        }
        let has_entries = match &frame {
            Frame::Raft(messages) => messages
                .iter()
                .any(|it| it.kind == MessageKind::Append && !it.entries.is_empty()),
            _ => false,
        };
        let sent = state.send(self.id, to, frame);
        if sent == Err(SendError::Full) {
            self.cluster.0.recorder.mark(mark::TOO_MUCH_WAITS);
        }
        let ends = has_entries
            && state
                .seats
                .get_mut(&self.id)
                .is_some_and(|seat| std::mem::take(&mut seat.ends_when_it_sends));
        drop(state);
        if ends {
            self.end_soon(StopCause::Fails);
        }
        sent
    }

    fn update_local(&self, change: &mut dyn FnMut(&mut LocalServer)) {
        if let Some(seat) = self.cluster.state().seats.get_mut(&self.id) {
            change(&mut seat.local);
        }
        self.cluster.state().end_not_admitted(self.id);
        self.cluster.members_changed((self.id, self.life));
    }

    fn set_peers(&self, ids: &[u64]) {
        let ids = ids.iter().copied().collect();
        self.cluster.connect_to((self.id, self.life), ids);
    }

    fn sync_time(&self) -> Duration {
        let mut state = self.cluster.state();
        let range = state.setup.sync_ms;
        let time = state.draw_ms(range);
        let now = Instant::now();
        let stalled = state.seats.get(&self.id).map(|seat| seat.stalled_until);
        time + stalled.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    fn run(&self, task: Task) -> Task {
        let witness = Witness {
            recorder: self.cluster.0.recorder.clone(),
            id: self.id,
        };
        Box::pin(self.process.run(async move {
            let _witness = witness;
            task.await;
        }))
    }

    fn turned(&self, at: &MemberProgress, view: MemberView) {
        let shared = &self.cluster.0;
        let mut state = self.cluster.state();
        let outcome = state.turned(self.id, at, view, shared);
        drop(state);
        match outcome {
            Ok(true) => self.restart_soon(),
            Ok(false) => {}
            Err(what) => self.fail(Err(what)),
        }
    }

    fn expired(&self, session: i64) {
        let recorder = &self.cluster.0.recorder;
        let mut state = self.cluster.state();
        let before = state.lives.expirations();
        let outcome = state.lives.expired(session);
        let is_first = state.lives.expirations() > before;
        drop(state);
        if is_first {
            recorder.mark(mark::EXPIRED);
            recorder.note(|| format!("session 0x{session:x} expires, by s{}", self.id));
        }
        if let Err(what) = outcome {
            recorder.fail(&what);
        }
    }

    fn expiry_is_void(&self, session: i64) {
        if self.cluster.state().lives.is_answered(session) {
            self.cluster.0.recorder.mark(mark::ENDING_OUTLIVED);
        }
    }

    fn failed(&self, error: &ServerError) {
        let recorder = &self.cluster.0.recorder;
        let breaks = {
            let state = self.cluster.state();
            state
                .seats
                .get(&self.id)
                .is_some_and(|seat| seat.disk_breaks)
        };
        if breaks {
            recorder.mark(mark::CRASH_IN_WRITE);
            recorder.note(|| format!("s{} stops: {error}", self.id));
        } else {
            recorder.fail(&format!("server {} stops: {error}", self.id));
        }
        self.end_soon(StopCause::Fails);
    }
}

impl State {
    /// A server has made a turn: holds what it is then against what is known of all.
    fn turned(
        &mut self,
        id: u64,
        at: &MemberProgress,
        view: MemberView,
        shared: &SharedState,
    ) -> Result<bool, String> {
        let recorder = &shared.recorder;
        let Some(seat) = self.seats.get_mut(&id) else {
            return Ok(false);
        };
        let before = seat.progress.replace(*at);
        seat.log.shown = seat.log.next_shown;
        if let Some(before) = before {
            if at.applied < before.applied
                || at.commit < before.commit
                || at.role.term < before.role.term
            {
                return Err(format!("server {id} went back from {before:?} to {at:?}"));
            }
            let (now, then) = (at.unapplied, before.unapplied);
            if at.changes.installed_snapshots > before.changes.installed_snapshots {
                let applied = at.applied;
                recorder.note(|| {
                    format!("s{id} installs a snapshot up to entry {applied}, which ends its clients' connections")
                });
            }
            for (is_new, mark) in [
                (now.duplicates > then.duplicates, mark::DUPLICATE_DROPPED),
                (now.after_gap > then.after_gap, mark::GAP_REFUSED),
                (now.moved > then.moved, mark::OLD_ATTACHMENT),
                (
                    at.changes.void_expiries > before.changes.void_expiries,
                    mark::VOID_EXPIRY,
                ),
                (
                    at.changes.moved_pings > before.changes.moved_pings,
                    mark::PING_MOVED,
                ),
                (
                    at.changes.installed_snapshots > before.changes.installed_snapshots,
                    mark::SNAPSHOT_INSTALLED,
                ),
                (
                    at.is_read_only && !before.is_read_only,
                    mark::READ_ONLY_MODE,
                ),
            ] {
                if is_new {
                    recorder.mark(mark);
                }
            }
        }
        if before == Some(*at) && at.role.role != Role::Leader {
            seat.log.view = view;
            return Ok(false);
        }
        if at.ends_sessions != at.acts_as_leader {
            return Err(format!(
                "server {id} has clocks of another role than its own: {at:?}"
            ));
        }
        if at.members.is_some() && !(at.applied <= at.commit && at.commit <= at.last) {
            return Err(format!(
                "server {id}: applied, committed and last entry are not in order: {at:?}"
            ));
        }
        self.check_time(id, at, recorder)?;
        if self.is_beyond() {
            return Ok(false);
        }
        self.oracle.digest(id, at.applied, at.digest)?;
        let applied = before.map_or(at.applied, |before| before.applied);
        self.check_log(id, at, view, applied, shared)
    }

    /// The clocks of less than half of the voters do not set the time of the entries.
    fn check_time(
        &mut self,
        id: u64,
        at: &MemberProgress,
        recorder: &Recorder,
    ) -> Result<(), String> {
        let wrong = &self.wrong_clocks;
        let mut memberships = self.seats.values().map(|seat| &seat.log.view.membership);
        self.time_may_be_wrong |= memberships.any(|membership| {
            let voters = membership.voters.iter();
            2 * voters.filter(|id| wrong.contains(id)).count() >= membership.voters.len().max(1)
        });
        let elapsed = recorder.start().elapsed().as_millis();
        let elapsed_ms = i64::try_from(elapsed).unwrap_or(i64::MAX);
        let ahead_ms = at.time_ms - WALL_MS - elapsed_ms;
        // Clocks may run fast for the whole run, too.
        match self.time_may_be_wrong || ahead_ms <= 2 * NEARLY_RIGHT_MS + elapsed_ms / 20 {
            true => Ok(()),
            false => Err(format!(
                "server {id} has entries of {ahead_ms} ms ahead of the clocks of most voters"
            )),
        }
    }
}
