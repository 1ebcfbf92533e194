//! Which faults a seed draws, and how often they come. A run with some kinds of faults only finds
//! what a run with all of them drowns.

use std::time::Duration;

use fastrand::Rng;

use super::bug::ServerBug;
use crate::cluster::Setup;

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
    /// What a client has sent arrives after its next connection is attached.
    ClientLate,
}

impl ServerFault {
    pub(crate) const ALL: [ServerFault; 17] = [
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
    ];
}

/// What one seed has drawn.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub(crate) setup: Setup,
    /// How long faults come.
    pub(crate) active: Duration,
    /// Each kind that comes, and the mean time between two of it.
    pub(crate) faults: Vec<(ServerFault, Duration)>,
}

impl Swarm {
    pub(crate) fn draw(seed: u64, bug: Option<ServerBug>) -> Swarm {
        let mut rng = Rng::with_seed(seed ^ 0x05_3a12);
        let mut choose = |of: &[(u64, u64)]| rng.choice(of).copied().unwrap_or((1, 2));
        let latency_ms = choose(&[(1, 1), (1, 4), (1, 4), (2, 30)]);
        let sync_ms = choose(&[(1, 2), (1, 2), (1, 12), (3, 60)]);
        let servers = match rng.u8(..10) {
            0 | 1 => 5,
            _ => 3,
        };
        let wanted = rng.u64(8..45);
        let mut faults = Vec::new();
        for kind in ServerFault::ALL {
            if rng.u64(..100) < wanted {
                let mean_ms = rng.choice(&[700, 1_500, 4_000]).copied().unwrap_or(1_500);
                let rare = match kind {
                    ServerFault::AllLosePower => 4,
                    _ => 1,
                };
                faults.push((kind, Duration::from_millis(mean_ms * rare)));
            }
        }
        Swarm {
            setup: Setup {
                seed,
                servers,
                latency_ms,
                sync_ms,
                drift_ppm: if rng.bool() { 20_000 } else { 0 },
                mistake: bug.map(ServerBug::mistake),
            },
            active: Duration::from_millis(rng.u64(4_000..16_000)),
            faults,
        }
    }
}
