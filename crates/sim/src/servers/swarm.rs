//! Choice of the faults that a seed draws, and of their frequency. A run with some kinds of faults
//! only finds what a run with all of them drowns.

use std::time::Duration;

use fastrand::Rng;

use crate::cluster::bug::SeededBug;
use crate::cluster::{Setup, SmallSnapshots};
use crate::scenario::Scenario;

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerFault {
    /// No frame between two servers, in either direction.
    CutBoth,
    /// No frame from one server to another.
    CutOneWay,
    /// One server hears no other, and no other hears it.
    Isolate,
    /// The leader is isolated.
    IsolateLeader,
    /// Two groups do not hear each other.
    Partition,
    /// The connections of two servers break.
    Reset,
    /// A server stands still.
    Pause,
    /// The leader stands still.
    PauseLeader,
    /// A process is killed, and starts again later.
    Kill,
    /// A machine loses power, and starts again later.
    PowerLoss,
    /// The leader ends when it has sent entries that its own disk does not have.
    LeaderEnds,
    /// All servers lose power.
    AllLosePower,
    /// Syncs of one server take long.
    Stall,
    /// A machine stops in the middle of a write.
    BreakDisk,
    /// A client's connection breaks.
    ClientReset,
    /// A client's connection delivers nothing any more.
    ClientHole,
    /// Frames of a client arrive after its next connection is attached.
    ClientLate,
    /// A client's connections become slow.
    ClientSlow,
    /// A client's process stands still.
    ClientPause,
    /// The leader hears nobody until it leads no more, and soon hears the others again.
    LeaderHearsNobody,
    /// Leadership moves away and back, and a follower hears nothing of it: what it sends to the
    /// leader meanwhile is partly lost.
    LeaderReturnsUnnoticed,
    /// The leader is isolated and makes few ticks, so that it leads on beside the next one.
    SlowLeaderAlone,
    /// The connections of the leader break with what is on its way, and it ends or stands still.
    LeaderLosesBatches,
    /// A server and its clients reach no other server.
    AloneWithClients,
    /// The leader stands still, and reaches no other server when it goes on; its clients neither.
    LeaderAlone,
    /// Clients stand still until their sessions are nearly over; the leader is isolated by then.
    ClientsNearEnd,
    /// A follower misses what the others do, for longer than they keep it in memory.
    FollowerAway,
    /// One server is left alone.
    MajorityGone,
    /// A disk reports an error.
    FailDisk,
    /// A disk is full for some time.
    FullDisk,
    /// A folder is copied, for later.
    Copy,
    /// Folders are replaced by their copies.
    OldCopy,
    /// A leader is asked to hand over.
    HandOver,
    /// A wall clock jumps.
    StepClock,
    /// A folder is lost, and another one is taken for it (B19).
    LostFolder,
}

/// Faults that come by themselves, at any time.
const PLAIN: [ServerFault; 19] = [
    ServerFault::CutBoth,
    ServerFault::CutOneWay,
    ServerFault::Isolate,
    ServerFault::IsolateLeader,
    ServerFault::Partition,
    ServerFault::Reset,
    ServerFault::Pause,
    ServerFault::PauseLeader,
    ServerFault::Kill,
    ServerFault::PowerLoss,
    ServerFault::LeaderEnds,
    ServerFault::AllLosePower,
    ServerFault::Stall,
    ServerFault::BreakDisk,
    ServerFault::ClientReset,
    ServerFault::ClientHole,
    ServerFault::ClientLate,
    ServerFault::ClientSlow,
    ServerFault::ClientPause,
];

/// Faults that strike logs and elections.
const OF_LOGS: [ServerFault; 20] = [
    ServerFault::CutBoth,
    ServerFault::CutOneWay,
    ServerFault::Isolate,
    ServerFault::IsolateLeader,
    ServerFault::Partition,
    ServerFault::Reset,
    ServerFault::Pause,
    ServerFault::Kill,
    ServerFault::PowerLoss,
    ServerFault::LeaderEnds,
    ServerFault::AllLosePower,
    ServerFault::Stall,
    ServerFault::BreakDisk,
    ServerFault::FailDisk,
    ServerFault::FullDisk,
    ServerFault::LeaderHearsNobody,
    ServerFault::Copy,
    ServerFault::OldCopy,
    ServerFault::HandOver,
    ServerFault::StepClock,
];

/// Faults that may come beside rolled-back folders: those that would keep servers from having a
/// leader come rarely.
const BESIDE_ROLLBACKS: [ServerFault; 5] = [
    ServerFault::Isolate,
    ServerFault::Reset,
    ServerFault::Pause,
    ServerFault::PowerLoss,
    ServerFault::HandOver,
];

/// Faults that are aimed at a promise.
const AIMED: [ServerFault; 7] = [
    ServerFault::LeaderHearsNobody,
    ServerFault::LeaderReturnsUnnoticed,
    ServerFault::SlowLeaderAlone,
    ServerFault::LeaderLosesBatches,
    ServerFault::AloneWithClients,
    ServerFault::LeaderAlone,
    ServerFault::ClientsNearEnd,
];

/// Choices of one seed.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub(crate) setup: Setup,
    /// The session timeout of every client.
    pub(crate) session_timeout: Duration,
    /// When the first fault may come, and how long faults come.
    pub(crate) quiet: Duration,
    pub(crate) active: Duration,
    /// Each kind that comes, and the mean time between two of it.
    pub(crate) faults: Vec<(ServerFault, Duration)>,
    /// Whether figure 8 of the Raft paper is played in place of faults that come by chance.
    pub(crate) plays_figure_eight: bool,
}

impl Swarm {
    pub(crate) fn draw(seed: u64, scenario: &Scenario, bug: Option<SeededBug>) -> Swarm {
        if scenario.strikes_logs {
            return Self::draw_of_logs(seed, scenario.timeouts_ms, bug);
        }
        let mut swarm = Self::draw_of_clients(seed, scenario.timeouts_ms, bug);
        let mut rng = Rng::with_seed(seed ^ 0x0a11_bac4);
        if rng.u8(..8) == 0 && !swarm.setup.read_only_mode {
            swarm.add_rollbacks(&mut rng);
        }
        if rng.u8(..4) == 0 {
            let mean = Duration::from_millis(rng.u64(800..4_000));
            swarm.faults.push((ServerFault::StepClock, mean));
        }
        if scenario.clocks_agree {
            (swarm.setup.skew_ms, swarm.setup.drift_ppm) = (0, 0);
            swarm
                .faults
                .retain(|(kind, _)| *kind != ServerFault::StepClock);
        }
        swarm
    }

    /// For a scenario whose runs strike logs, elections and members.
    fn draw_of_logs(seed: u64, timeouts_ms: &[u64], bug: Option<SeededBug>) -> Swarm {
        let mut rng = Rng::with_seed(seed ^ 0x1065);
        let mut choose = |of: &[(u64, u64)]| rng.choice(of).copied().unwrap_or((1, 2));
        let latency_ms = choose(&[(1, 1), (1, 5), (1, 30)]);
        let sync_ms = choose(&[(1, 1), (1, 8), (1, 60)]);
        let snapshots = SmallSnapshots {
            every_entries: rng.u64(8..40),
            window_bytes: rng.choice([0, 600, 4_000]).unwrap_or(0),
        };
        let wanted = rng.u64(20..70);
        let mut faults = Vec::new();
        for kind in OF_LOGS {
            if rng.u64(..100) < wanted {
                faults.push((kind, mean(&mut rng, kind)));
            }
        }
        let operates = rng.u64(..100) < 60;
        let mut swarm = Swarm {
            setup: Setup {
                seed,
                servers: rng.choice([1, 2, 3, 3, 3, 3, 4, 5]).unwrap_or(3),
                latency_ms,
                sync_ms,
                lane_bytes: 8 << 20,
                drift_ppm: 20_000,
                skew_ms: 2_000,
                bug,
                uncommitted_bytes: rng.choice([Some(400), Some(4_000), None]).flatten(),
                start_crash_percent: 10,
                spares: if operates { rng.u64(0..=2) } else { 0 },
                snapshots: Some(snapshots),
                read_only_mode: false,
            },
            session_timeout: Duration::from_millis(timeouts_ms.first().copied().unwrap_or(1_000)),
            quiet: Duration::ZERO,
            active: Duration::from_millis(rng.u64(3_000..9_000)),
            faults,
            plays_figure_eight: false,
        };
        let kind = rng.u8(..60);
        if kind < 12 || bug == Some(SeededBug::B21) {
            swarm
                .faults
                .retain(|(kind, _)| BESIDE_ROLLBACKS.contains(kind));
            swarm.setup.servers = swarm.setup.servers.max(3);
            swarm.setup.start_crash_percent = 0;
            swarm.add_rollbacks(&mut rng);
        } else if kind < 22 {
            swarm.suit_figure_eight();
        }
        match bug {
            Some(SeededBug::B17 | SeededBug::B18) => {
                swarm.setup.servers = swarm.setup.servers.max(3);
                swarm.setup.spares = 2;
            }
            Some(SeededBug::B19) => {
                swarm.setup.servers = swarm.setup.servers.max(3);
                let mean = Duration::from_millis(1_500);
                swarm.faults.push((ServerFault::LostFolder, mean));
            }
            _ => {}
        }
        swarm
    }

    /// Copies of folders come back at any moment: of a start, a hand-over, an installation or a
    /// change of the members.
    fn add_rollbacks(&mut self, rng: &mut Rng) {
        let copies = rng.choice([150, 400, 1_200]).unwrap_or(400);
        let returns = rng.choice([900, 1_800, 3_500]).unwrap_or(1_800);
        self.faults
            .retain(|(kind, _)| !matches!(kind, ServerFault::Copy | ServerFault::OldCopy));
        for (kind, mean_ms) in [(ServerFault::Copy, copies), (ServerFault::OldCopy, returns)] {
            self.faults.push((kind, Duration::from_millis(mean_ms)));
        }
    }

    /// The scene needs servers that come to rest between its steps.
    fn suit_figure_eight(&mut self) {
        self.plays_figure_eight = true;
        self.faults.clear();
        (self.setup.servers, self.setup.spares) = (3, 0);
        (self.setup.latency_ms, self.setup.sync_ms) = ((2, 3), (1, 4));
        self.setup.start_crash_percent = 0;
        // A message holds one large entry, and not the one behind it.
        self.setup.uncommitted_bytes = Some(400);
        self.active = Duration::from_secs(9);
    }

    fn draw_of_clients(seed: u64, timeouts_ms: &[u64], bug: Option<SeededBug>) -> Swarm {
        let mut rng = Rng::with_seed(seed ^ 0x05_3a12);
        let timeout_ms = rng.choice(timeouts_ms).copied().unwrap_or(4_000);
        let mut choose = |of: &[(u64, u64)]| rng.choice(of).copied().unwrap_or((1, 2));
        let latency_ms = choose(&[(1, 1), (1, 4), (1, 4), (2, 30), (5, 80)]);
        let sync_ms = choose(&[(1, 2), (1, 2), (1, 12), (3, 60)]);
        let servers = rng.u8(..10);
        let faults = match rng.u8(..10) {
            0 | 1 => many(&mut rng),
            2..5 => few(&mut rng),
            _ => aimed(&mut rng),
        };
        let servers = match servers {
            0 | 1 => 5,
            _ => 3,
        };
        let mut swarm = Swarm {
            setup: Setup {
                seed,
                servers,
                latency_ms,
                sync_ms,
                lane_bytes: match rng.u8(..4) {
                    0 => 2 << 10,
                    _ => 8 << 20,
                },
                drift_ppm: if rng.bool() { 20_000 } else { 0 },
                skew_ms: 2_000,
                bug,
                uncommitted_bytes: None,
                start_crash_percent: 0,
                spares: 0,
                snapshots: None,
                read_only_mode: false,
            },
            session_timeout: Duration::from_millis(timeout_ms),
            quiet: match rng.u8(..4) {
                0 => Duration::ZERO,
                _ => Duration::from_millis(rng.u64(500..2_000)),
            },
            active: Duration::from_millis(rng.u64(5_000..18_000)),
            faults,
            plays_figure_eight: false,
        };
        swarm.draw_features(&mut Rng::with_seed(seed ^ 0x00fe_a7e5));
        swarm
    }

    /// Draws the features of the servers besides serving, with faults that lead there.
    fn draw_features(&mut self, rng: &mut Rng) {
        let kind = rng.u8(..9);
        if matches!(kind, 0 | 1 | 5) {
            self.setup.snapshots = Some(SmallSnapshots {
                every_entries: rng.u64(8..40),
                window_bytes: rng.choice([600, 3_000, 12_000]).unwrap_or(3_000),
            });
            let mean = Duration::from_millis(rng.u64(1_500..5_000));
            self.faults.push((ServerFault::FollowerAway, mean));
        }
        if matches!(kind, 2) {
            self.setup.read_only_mode = true;
            let mean = Duration::from_millis(rng.u64(3_000..6_000));
            self.faults.push((ServerFault::MajorityGone, mean));
        }
        if matches!(kind, 3..6) {
            self.setup.servers = 3;
            self.setup.spares = rng.u64(1..=2);
        }
    }
}

type Faults = Vec<(ServerFault, Duration)>;

/// Many kinds at once: they drown each other, and servers rarely come to anything.
fn many(rng: &mut Rng) -> Faults {
    let wanted = rng.u64(8..45);
    let mut faults = Vec::new();
    for kind in PLAIN {
        if rng.u64(..100) < wanted {
            faults.push((kind, mean(rng, kind)));
        }
    }
    faults
}

/// One or two kinds.
fn few(rng: &mut Rng) -> Faults {
    let count = rng.usize(1..=2);
    let kinds = (0..count)
        .filter_map(|_| rng.choice(PLAIN))
        .collect::<Vec<_>>();
    kinds
        .into_iter()
        .map(|kind| (kind, mean(rng, kind)))
        .collect()
}

/// One kind that is aimed at a promise, and perhaps another one.
fn aimed(rng: &mut Rng) -> Faults {
    let kind = rng.choice(AIMED).unwrap_or(ServerFault::LeaderAlone);
    let mean_ms = rng.choice([2_000, 3_500, 6_000]).unwrap_or(3_500);
    let mut faults = vec![(kind, Duration::from_millis(mean_ms))];
    if rng.u8(..3) == 0
        && let Some(kind) = rng.choice(PLAIN)
    {
        faults.push((kind, 2 * mean(rng, kind)));
    }
    faults
}

fn mean(rng: &mut Rng, kind: ServerFault) -> Duration {
    let mean_ms = rng.choice([700, 1_500, 4_000]).unwrap_or(1_500);
    let rare = match kind {
        ServerFault::AllLosePower => 4,
        _ => 1,
    };
    Duration::from_millis(mean_ms * rare)
}
