//! State that the tasks of a cluster share: its servers, the connections between them, the cuts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baton_consensus::{Member, Membership, Position, Role};
use baton_peers::codec::{Frame, Hello, Lane};
use baton_peers::handshake::LocalServer;
use baton_server::simulation::{MemberProgress, SimulatedServer};
use baton_wal::testing::FaultStorage;
use baton_wal::{WalError, WalOptions};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::bug::SeededBug;
use super::lives::SessionRecords;
use super::oracle::ClusterOracle;
use super::server_log::{CastVote, KeptCommit, ServerLog};
use crate::birth::write_birth;
use crate::frames::Proof;
use crate::recorder::Recorder;
use crate::standstill::Standstill;

/// The cluster of all folders.
pub(crate) const CLUSTER_ID: u64 = 7;

/// Parameters of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    /// Ids are 1 to this.
    pub(crate) servers: u64,
    /// The least and the most milliseconds that a frame between servers takes.
    pub(crate) latency_ms: (u64, u64),
    /// The least and the most milliseconds that a sync takes.
    pub(crate) sync_ms: (u64, u64),
    /// The most bytes that wait for one lane of one server.
    pub(crate) lane_bytes: usize,
    /// Largest drift of clocks, fast or slow, in parts per million.
    pub(crate) drift_ppm: u32,
    /// Largest difference of the clocks at first.
    pub(crate) skew_ms: i64,
    /// Seeded bug of the servers.
    pub(crate) bug: Option<SeededBug>,
    /// Bytes of proposals that may wait to be committed, where that is not the usual number.
    pub(crate) uncommitted_bytes: Option<u64>,
    /// Share of starts that a loss of power cuts off, in percent.
    pub(crate) start_crash_percent: u64,
    /// Servers whose folders are empty at first. Their ids follow on those of the others, and an
    /// operator can add them.
    pub(crate) spares: u64,
    /// Snapshots that a run comes to; with the usual numbers none does.
    pub(crate) snapshots: Option<SmallSnapshots>,
    /// Whether a server that knows no leader serves clients that only read.
    pub(crate) read_only_mode: bool,
}

/// When servers write snapshots, and when they have to send them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallSnapshots {
    /// Entries of the log between two snapshots.
    pub(crate) every_entries: u64,
    /// Bytes of applied entries that a server keeps in memory for those that lag.
    pub(crate) window_bytes: u64,
}

/// One server, or the place for it.
pub(super) struct ServerSlot {
    pub(super) disk: FaultStorage,
    /// Names the folder. An emptied one gets another.
    pub(super) incarnation: u128,
    /// The folder is empty: a process waits with it until the cluster admits it.
    pub(super) is_empty: bool,
    /// A process waits so.
    pub(super) waits: bool,
    pub(super) server: Option<Arc<SimulatedServer>>,
    /// The servers that the process connects to: those that it names, and those to call back.
    pub(super) peers: BTreeSet<u64>,
    pub(super) named: BTreeSet<u64>,
    /// Hellos of servers that it does not know yet.
    pub(super) unknown: BTreeMap<u64, Hello>,
    /// Those for which a task of it does that, by lane.
    pub(super) dialled: BTreeSet<(u64, Lane)>,
    /// Counts its processes. What an earlier one has begun goes no further.
    pub(super) life: u64,
    pub(super) local: LocalServer,
    pub(super) process: Standstill,
    pub(super) rate_ppm: u32,
    pub(super) skew_ms: i64,
    /// Duties of its log.
    pub(super) log: ServerLog,
    pub(super) stalled_until: Instant,
    pub(super) progress: Option<MemberProgress>,
    /// Whether the process was killed while its machine runs on, which refuses connections.
    pub(super) refuses: bool,
    /// Whether an operation of its disk was made to fail.
    pub(super) disk_breaks: bool,
    /// Whether the process ends with the next entries that it sends.
    pub(super) ends_when_it_sends: bool,
}

/// A connection between two servers, which `from` has opened.
pub(super) struct PeerConnection {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) lane: Lane,
    /// Lives of both ends.
    pub(super) lives: (u64, u64),
    /// Hellos of both ends.
    pub(super) hellos: (Hello, Hello),
    /// Whether the end that sends still believes in it, and the one that receives.
    pub(super) from_open: bool,
    pub(super) to_open: bool,
    pub(super) queue: mpsc::UnboundedSender<(Instant, Frame)>,
    pub(super) queued_bytes: usize,
    pub(super) last_due: Instant,
    /// Set when the end that sends has closed it.
    pub(super) ended: watch::Sender<bool>,
}

/// One server's knowledge of another one's process.
#[derive(Default)]
pub(super) struct Presence {
    pub(super) was_open: bool,
    pub(super) ended_with_process: bool,
}

pub(super) struct State {
    pub(super) setup: Setup,
    pub(super) rng: fastrand::Rng,
    pub(super) seats: BTreeMap<u64, ServerSlot>,
    /// Ways by generation.
    pub(super) ways: BTreeMap<u64, PeerConnection>,
    pub(super) generations: u64,
    /// Ways that carry nothing, with the number of cuts that cover each.
    pub(super) cuts: BTreeMap<(u64, u64), u32>,
    /// Presence by observer and observed server.
    pub(super) presence: BTreeMap<(u64, u64), Presence>,
    /// Knowledge of all servers.
    pub(super) oracle: ClusterOracle,
    /// Servers whose wall clocks have jumped far.
    pub(super) wrong_clocks: BTreeSet<u64>,
    /// Whether those were ever half of the voters.
    pub(super) time_may_be_wrong: bool,
    /// Votes by term and candidate.
    pub(super) votes: BTreeMap<(u64, u64), Vec<CastVote>>,
    /// Entries that the servers had committed when rolled-back folders elected a leader without
    /// them.
    pub(super) kept: Option<Vec<KeptCommit>>,
    /// Batches that were sent to a leader.
    pub(super) forwarded: BTreeSet<(u64, u64, u64)>,
    /// When each server has sent its two newest batches for the first time.
    pub(super) streams: BTreeMap<u64, (Instant, Instant)>,
    /// Number of batches of each server that have come to one that did not lead.
    pub(super) ignored: BTreeMap<u64, u64>,
    /// The members that the cluster was born with.
    pub(super) first: Membership,
    /// Folders that were emptied.
    pub(super) emptied: u32,
    pub(super) lives: SessionRecords,
    /// Whether nothing goes wrong any more.
    pub(super) is_calm: bool,
    /// Whether the run is over, and nobody dials or starts any more.
    pub(super) is_over: bool,
}

pub(super) struct SharedState {
    pub(super) state: Mutex<State>,
    pub(super) recorder: Recorder,
    /// Notified at each end of a cut. Wakes in the order of waiting, which a `watch` does not.
    pub(super) cut_changes: Notify,
    /// Notified when rolled-back folders have elected a leader, and nobody there could know.
    pub(super) beyond: Notify,
    /// Servers that have ended, for those who know of their clients.
    pub(super) ends: mpsc::UnboundedSender<u64>,
}

/// Cheap to clone. See the module's page.
#[derive(Clone)]
pub(crate) struct Cluster(pub(super) Arc<SharedState>);

/// Options of every log here: small segments.
pub(super) fn wal_options() -> WalOptions {
    WalOptions {
        cluster_id: Some(CLUSTER_ID),
        segment_bytes: 64 << 10,
        extend_bytes: 16 << 10,
        keep_snapshots: 2,
    }
}

pub(super) fn incarnation(id: u64) -> u128 {
    0x1000 + u128::from(id)
}

impl Cluster {
    /// A cluster whose members know each other, and of which none runs yet. The receiver is
    /// notified of each server that has ended.
    ///
    /// # Errors
    /// A folder cannot be made.
    pub(crate) fn new(
        setup: Setup,
        recorder: Recorder,
    ) -> Result<(Self, mpsc::UnboundedReceiver<u64>), WalError> {
        let mut rng = fastrand::Rng::with_seed(setup.seed ^ 0x00c1_0571);
        let ids: Vec<u64> = (1..=setup.servers).collect();
        let membership = Membership {
            members: ids.iter().map(|id| member(*id)).collect(),
            voters: ids.clone(),
            ..Membership::default()
        };
        let mut seats = BTreeMap::new();
        for id in 1..=setup.servers + setup.spares {
            let disk = FaultStorage::new();
            let is_empty = !ids.contains(&id);
            if !is_empty {
                write_birth(&disk, wal_options(), &membership)?;
            }
            let drift = i64::from(setup.drift_ppm);
            let rate_ppm = u32::try_from(1_000_000 + rng.i64(-drift..=drift)).unwrap_or(1_000_000);
            let seat = ServerSlot {
                disk,
                incarnation: incarnation(id),
                is_empty,
                waits: false,
                server: None,
                peers: BTreeSet::new(),
                named: BTreeSet::new(),
                unknown: BTreeMap::new(),
                dialled: BTreeSet::new(),
                life: 0,
                local: LocalServer::new(id, incarnation(id), 1),
                process: Standstill::default(),
                rate_ppm,
                skew_ms: rng.i64(-2_000..=2_000).clamp(-setup.skew_ms, setup.skew_ms),
                log: match is_empty {
                    true => ServerLog::default(),
                    false => ServerLog::born(),
                },
                stalled_until: Instant::now(),
                progress: None,
                refuses: false,
                disk_breaks: false,
                ends_when_it_sends: false,
            };
            seats.insert(id, seat);
        }
        let (ends, ended) = mpsc::unbounded_channel();
        let lives = SessionRecords::new(setup.drift_ppm);
        let shared = SharedState {
            state: Mutex::new(State {
                setup,
                rng,
                seats,
                ways: BTreeMap::new(),
                generations: 0,
                cuts: BTreeMap::new(),
                presence: BTreeMap::new(),
                oracle: ClusterOracle::default(),
                wrong_clocks: BTreeSet::new(),
                time_may_be_wrong: false,
                votes: BTreeMap::new(),
                kept: None,
                forwarded: BTreeSet::new(),
                streams: BTreeMap::new(),
                ignored: BTreeMap::new(),
                first: membership,
                emptied: 0,
                lives,
                is_calm: false,
                is_over: false,
            }),
            recorder,
            cut_changes: Notify::new(),
            beyond: Notify::new(),
            ends,
        };
        Ok((Self(Arc::new(shared)), ended))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.0.recorder
    }

    /// The id of every server with a log.
    pub(crate) fn ids(&self) -> Vec<u64> {
        let state = self.state();
        let seats = state.seats.iter().filter(|(_, seat)| !seat.is_empty);
        seats.map(|(id, _)| *id).collect()
    }

    /// Every server's id.
    pub(crate) fn all_ids(&self) -> Vec<u64> {
        self.state().seats.keys().copied().collect()
    }

    /// The members as the leader knows them, or the server that has applied most. Not for calls
    /// that come from a server's turn.
    pub(crate) fn membership(&self) -> Option<Membership> {
        let leader = self.leader().and_then(|id| self.server(id));
        leader.or_else(|| self.newest())?.membership()
    }

    /// The ids of the members.
    pub(crate) fn members(&self) -> Vec<u64> {
        let members = self.membership().map(|it| it.members).unwrap_or_default();
        members.into_iter().map(|member| member.id).collect()
    }

    /// The server of this id, while it runs.
    pub(crate) fn server(&self, id: u64) -> Option<Arc<SimulatedServer>> {
        self.state().seats.get(&id)?.server.clone()
    }

    /// The server that has applied most.
    fn newest(&self) -> Option<Arc<SimulatedServer>> {
        let state = self.state();
        let running = state.seats.values().filter(|seat| seat.server.is_some());
        let newest = running.max_by_key(|seat| seat.progress.map(|at| at.applied));
        newest?.server.clone()
    }

    /// The server that leads in the newest term, as the servers themselves see it.
    pub(crate) fn leader(&self) -> Option<u64> {
        self.leader_of(&self.state())
    }

    pub(super) fn leader_of(&self, state: &State) -> Option<u64> {
        let leads = |(id, seat): (&u64, &ServerSlot)| {
            let at = seat.progress.filter(|_| seat.server.is_some())?;
            (at.role.leader == Some(*id)).then_some((at.role.term, *id))
        };
        state.seats.iter().filter_map(leads).max().map(|(_, id)| id)
    }

    /// Whether this server believes that it leads.
    pub(crate) fn leads(&self, id: u64) -> bool {
        let state = self.state();
        let seat = state.seats.get(&id).filter(|seat| seat.server.is_some());
        seat.and_then(|seat| seat.progress)
            .is_some_and(|at| at.role.role == Role::Leader)
    }

    /// Whether this server believes that it leads, in a term after this one.
    pub(crate) fn leads_after(&self, id: u64, term: u64) -> bool {
        let state = self.state();
        let at = state.seats.get(&id).and_then(|seat| seat.progress);
        at.is_some_and(|at| at.role.role == Role::Leader && at.role.term > term)
    }

    /// The leader, if every server has the same log, all of it durable and committed.
    pub(crate) fn leader_of_one_log(&self) -> Option<u64> {
        let state = self.state();
        let mut ends = state.seats.values().map(|seat| {
            let at = seat.progress.filter(|_| seat.server.is_some())?;
            let stored = seat.log.image.last();
            (at.commit == at.last && at.applied == at.last && stored == at.last).then_some(at.last)
        });
        let first = ends.next().flatten()?;
        let same = ends.all(|end| end == Some(first));
        self.leader_of(&state).filter(|_| same)
    }

    /// The first entry of a server's log that is on its disk and not committed.
    pub(crate) fn stored_alone(&self, id: u64) -> Option<Position> {
        let state = self.state();
        let seat = state.seats.get(&id)?;
        let index = seat.progress?.commit + 1;
        let term = seat.log.image.term_at(index)?;
        Some(Position { index, term })
    }

    /// Whether a leader knows that another server has its log up to this entry.
    pub(crate) fn has_matched(&self, leader: u64, id: u64, index: u64) -> Option<()> {
        let state = self.state();
        let mut matched = state.seats.get(&leader)?.log.view.matched.iter();
        matched
            .any(|(peer, at)| *peer == id && *at >= index)
            .then_some(())
    }

    /// Whether a server knows this entry to be committed.
    pub(crate) fn has_committed(&self, id: u64, index: u64) -> bool {
        let state = self.state();
        let at = state.seats.get(&id).and_then(|seat| seat.progress);
        at.is_some_and(|at| at.commit >= index)
    }

    /// A server has granted a session this timeout.
    pub(crate) fn granted(&self, session: i64, timeout: Duration) {
        self.state().lives.granted(session, timeout);
    }

    /// A request of a session was answered. Fails the run where the session has expired too early
    /// for that.
    pub(crate) fn answered(&self, session: i64, proof: Proof) {
        let outcome = self.state().lives.answered(session, proof);
        if let Err(what) = outcome {
            self.0.recorder.fail(&what);
        }
    }

    /// `believes` says whether `who` has a lease on the session.
    pub(crate) fn is_believed(
        &self,
        session: i64,
        who: String,
        believes: impl Fn() -> bool + Send + 'static,
    ) {
        let mut state = self.state();
        state.lives.is_believed(session, who, Box::new(believes));
    }

    /// The newest entry that any server has applied.
    pub(crate) fn applied(&self) -> u64 {
        self.state().oracle.applied()
    }
}

impl State {
    /// Between the two, drawn.
    pub(super) fn draw_ms(&mut self, (least, most): (u64, u64)) -> Duration {
        Duration::from_millis(self.rng.u64(least..=most.max(least)))
    }

    pub(super) fn is_cut(&self, from: u64, to: u64) -> bool {
        self.cuts.get(&(from, to)).is_some_and(|cuts| *cuts > 0)
    }

    /// Whether the process of this life runs.
    pub(super) fn lives(&self, id: u64, life: u64) -> bool {
        let seat = self.seats.get(&id);
        seat.is_some_and(|seat| seat.life == life && (seat.server.is_some() || seat.waits))
    }
}

fn member(id: u64) -> Member {
    Member {
        id,
        incarnation: incarnation(id),
        address: format!("p{id}:1"),
    }
}
