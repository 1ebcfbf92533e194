//! Which faults a seed draws, and how often they come. A run with some kinds of faults only finds
//! what a run with all of them drowns.

use baton_consensus::Config;
use fastrand::Rng;

use super::bug::SeededBug;
use super::timeline::MS_US;

/// One of this many seeds plays the scene.
const SCENE_SHARE: u8 = 12;
/// In one of this many seeds folders are rolled back often, and little else goes wrong.
const ROLLBACK_SHARE: u8 = 5;
/// In one of this many seeds several members change at once.
const LARGE_CHANGE_SHARE: u8 = 4;

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    /// No message between two nodes, in either direction.
    CutBoth,
    /// No message from one node to another.
    CutOneWay,
    /// One node hears nobody, and nobody hears it.
    Isolate,
    /// Two groups do not hear each other.
    Partition,
    /// A connection breaks.
    Reset,
    /// A node's process stands still.
    Pause,
    /// A process or machine stops, and starts again later.
    Crash,
    /// All of them at once.
    CrashAll,
    /// Syncs of one node take long.
    Stall,
    /// An operation of a disk reports an error.
    Error,
    /// A disk is full for some time.
    Full,
    /// A folder is lost.
    LostFolder,
    /// A folder is copied, for later.
    Copy,
    /// A folder is replaced by the copy.
    OldCopy,
    /// A leader is asked to hand over.
    HandOver,
}

impl FaultKind {
    pub(crate) const ALL: [FaultKind; 15] = [
        FaultKind::CutBoth,
        FaultKind::CutOneWay,
        FaultKind::Isolate,
        FaultKind::Partition,
        FaultKind::Reset,
        FaultKind::Pause,
        FaultKind::Crash,
        FaultKind::CrashAll,
        FaultKind::Stall,
        FaultKind::Error,
        FaultKind::Full,
        FaultKind::LostFolder,
        FaultKind::Copy,
        FaultKind::OldCopy,
        FaultKind::HandOver,
    ];
}

/// One of three, drawn.
pub(crate) fn one_of<T>(rng: &mut Rng, (first, second, third): (T, T, T)) -> T {
    match rng.usize(..3) {
        0 => first,
        1 => second,
        _ => third,
    }
}

/// What one seed has drawn.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    /// Nodes that vote at the begin: 1 to `voters`.
    pub(crate) voters: u64,
    /// All nodes.
    pub(crate) nodes: u64,
    /// How long faults come.
    pub(crate) active_us: u64,
    /// Each kind that comes, and the mean time between two of it.
    pub(crate) faults: Vec<(FaultKind, u64)>,
    /// The mean time between two actions of the operator; `None` for none.
    pub(crate) operate_us: Option<u64>,
    /// Whether the operator changes several voters at once, and has them move.
    pub(crate) changes_several: bool,
    /// The mean time between two proposals.
    pub(crate) propose_us: u64,
    /// The least and the most time that a message takes.
    pub(crate) latency_us: (u64, u64),
    /// The least and the most time that a sync takes.
    pub(crate) sync_us: (u64, u64),
    /// Applied entries between two snapshots.
    pub(crate) snapshot_every: u64,
    pub(crate) window_bytes: u64,
    pub(crate) uncommitted_bytes: u64,
    /// How many of a hundred connections that end deliver later what was on its way.
    pub(crate) late_percent: u64,
    /// Whether a process that ends is noticed by the others at once.
    pub(crate) ends_are_noticed: bool,
}

impl Swarm {
    pub(crate) fn draw(rng: &mut Rng, bug: Option<SeededBug>) -> Swarm {
        let voters = *rng.choice(&[1, 2, 3, 3, 3, 3, 4, 5]).unwrap_or(&3);
        let operates = rng.u8(..100) < 60;
        let spare = if operates { rng.u64(0..=2) } else { 0 };
        let mean = |rng: &mut Rng| one_of(rng, (400, 1_000, 2_500)) * MS_US;
        let mut faults = Vec::new();
        let wanted = rng.u64(20..70);
        for kind in FaultKind::ALL {
            if rng.u64(..100) < wanted {
                let rare = matches!(kind, FaultKind::CrashAll | FaultKind::LostFolder);
                faults.push((kind, mean(rng) * if rare { 3 } else { 1 }));
            }
        }
        let mut swarm = Swarm {
            voters,
            nodes: voters + spare,
            active_us: rng.u64(3_000..9_000) * MS_US,
            faults,
            operate_us: operates.then(|| one_of(rng, (100, 300, 800)) * MS_US),
            changes_several: false,
            propose_us: one_of(rng, (8, 25, 80)) * MS_US,
            latency_us: one_of(rng, ((50, 200), (100, 5_000), (1_000, 30_000))),
            sync_us: one_of(rng, ((100, 300), (200, 8_000), (1_000, 60_000))),
            snapshot_every: rng.u64(8..40),
            window_bytes: one_of(rng, (0, 600, 4_000)),
            uncommitted_bytes: one_of(rng, (400, 4_000, 64 << 10)),
            late_percent: one_of(rng, (0, 30, 90)),
            ends_are_noticed: rng.bool(),
        };
        swarm.suit(bug);
        swarm
    }

    /// Whether this seed plays Raft's figure 8 in place of faults that come by chance.
    pub(crate) fn has_scene(seed: u64) -> bool {
        Rng::with_seed(seed ^ 0x0f16_0008).u8(..SCENE_SHARE) == 0
    }

    /// Whether the operator of this seed changes several members at once.
    pub(crate) fn has_large_changes(seed: u64) -> bool {
        Rng::with_seed(seed ^ 0x5e4e_4a11).u8(..LARGE_CHANGE_SHARE) == 0
    }

    /// Whether folders are rolled back often in this seed.
    pub(crate) fn has_rollbacks(seed: u64) -> bool {
        Rng::with_seed(seed ^ 0x0a11_bac4).u8(..ROLLBACK_SHARE) == 0
    }

    /// Copies of folders come back at any moment: of a start, a hand-over, an installation or a
    /// change of the members. What would keep nodes from having a leader comes rarely.
    pub(crate) fn suit_rollbacks(&mut self, rng: &mut Rng) {
        self.voters = self.voters.max(3);
        self.nodes = self.nodes.max(self.voters);
        let beside = [
            FaultKind::Isolate,
            FaultKind::Reset,
            FaultKind::Pause,
            FaultKind::Crash,
            FaultKind::HandOver,
        ];
        self.faults.retain(|(kind, _)| beside.contains(kind));
        for (_, mean_us) in &mut self.faults {
            *mean_us = (*mean_us).max(1_000 * MS_US);
        }
        let copies = one_of(rng, (150, 400, 1_200)) * MS_US;
        self.faults.push((FaultKind::Copy, copies));
        let returns = one_of(rng, (900, 1_800, 3_500)) * MS_US;
        self.faults.push((FaultKind::OldCopy, returns));
    }

    /// Several that come or go need some that are no members yet.
    pub(crate) fn suit_large_changes(&mut self) {
        self.changes_several = true;
        self.nodes = self.nodes.max(self.voters + 2);
        self.operate_us.get_or_insert(300 * MS_US);
    }

    /// The scene needs nodes that come to rest between its steps.
    pub(crate) fn suit_scene(&mut self) {
        (self.voters, self.nodes) = (3, 3);
        self.faults.clear();
        (self.operate_us, self.changes_several) = (None, false);
        self.active_us = 9_000 * MS_US;
        self.propose_us = 80 * MS_US;
        self.latency_us.1 = self.latency_us.1.min(2_000);
        self.latency_us.0 = self.latency_us.0.min(self.latency_us.1);
        self.sync_us.1 = self.sync_us.1.min(4_000);
        self.sync_us.0 = self.sync_us.0.min(self.sync_us.1);
        // A message holds one large entry, and not the one behind it.
        self.uncommitted_bytes = 400;
        self.late_percent = 0;
    }

    /// A bug in changes of the membership cannot be found by a run without one.
    fn suit(&mut self, bug: Option<SeededBug>) {
        match bug {
            Some(SeededBug::B17 | SeededBug::B18) => {
                self.voters = self.voters.max(3);
                self.nodes = self.nodes.max(5);
                self.operate_us.get_or_insert(200 * MS_US);
            }
            Some(SeededBug::B21) => self.suit_rollbacks(&mut Rng::with_seed(21)),
            Some(SeededBug::B19) => {
                self.voters = self.voters.max(3);
                self.nodes = self.nodes.max(self.voters);
                let lost = (FaultKind::LostFolder, 1_500 * MS_US);
                if !self.faults.iter().any(|(kind, _)| *kind == lost.0) {
                    self.faults.push(lost);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn config(&self, id: u64, incarnation: u128, seed: u64) -> Config {
        Config {
            incarnation: Some(incarnation),
            window_bytes: self.window_bytes,
            max_uncommitted_bytes: self.uncommitted_bytes,
            ..Config::member(id, seed)
        }
    }
}
