//! Faults of the servers and of their connections, with their moments, as the seed has drawn them.

use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::swarm::{ServerFault, Swarm};
use crate::cluster::{Cluster, StopCause, mark};
use crate::fault::FaultKind;
use crate::network::Network;

/// A leader that hears nobody leads no more after this long.
const DEPOSED_LIMIT: Duration = Duration::from_secs(3);

/// Time for which a server that hears nobody goes on sending to the leader that it knows.
const UNNOTICED: Duration = Duration::from_millis(430);
/// Limit of a hand-over.
const HAND_OVER_LIMIT: Duration = Duration::from_millis(200);
/// Limit of the wait for the next batch of a stream.
const LOST_LIMIT: Duration = Duration::from_millis(120);
/// Limit of the wait for a stream of writes.
const STREAM_LIMIT: Duration = Duration::from_millis(1_500);
/// A leader that is alone and makes few ticks leads no more after this long.
const STUTTER_LIMIT: Duration = Duration::from_millis(4_000);

/// Jumps of clocks: a correction, an hour, two hours of a time zone, ten years.
const STEPS_MS: [i64; 4] = [1_500, 3_600_000, 7_200_000, 315_360_000_000];

/// Targets of faults.
#[derive(Clone)]
struct Target {
    network: Network,
    cluster: Cluster,
    clients: u64,
    session_timeout: Duration,
}

/// Lets faults come for as long as the seed has drawn. Cancelling ends them.
pub(super) async fn strike(network: Network, cluster: Cluster, clients: usize, swarm: &Swarm) {
    let target = Target {
        network,
        cluster,
        clients: clients as u64,
        session_timeout: swarm.session_timeout,
    };
    tokio::time::sleep(swarm.quiet).await;
    let end = Instant::now() + swarm.active;
    let mut tasks = JoinSet::new();
    for (number, (kind, mean)) in swarm.faults.iter().enumerate() {
        let rng = Rng::with_seed(swarm.setup.seed.wrapping_mul(31) ^ number as u64);
        tasks.spawn(target.clone().repeat(*kind, *mean, rng));
    }
    tokio::time::sleep_until(end).await;
}

/// From a quarter of the mean to nearly twice of it.
fn around(rng: &mut Rng, mean: Duration) -> Duration {
    mean.mul_f64(0.25 + 1.5 * rng.f64())
}

/// Short ones are more frequent.
fn length(rng: &mut Rng, least_ms: u64, most_ms: u64) -> Duration {
    let most_ms = match rng.u8(..3) {
        0 => most_ms,
        1 => least_ms.max(most_ms / 4),
        _ => least_ms.max(most_ms / 16),
    };
    Duration::from_millis(rng.u64(least_ms..=most_ms))
}

impl Target {
    async fn repeat(self, kind: ServerFault, mean: Duration, mut rng: Rng) {
        loop {
            tokio::time::sleep(around(&mut rng, mean)).await;
            if !self.network.is_open() {
                return;
            }
            self.strike(kind, &mut rng);
        }
    }

    /// A client, drawn.
    fn client(&self, rng: &mut Rng) -> usize {
        usize::try_from(rng.u64(..self.clients.max(1))).unwrap_or(0)
    }

    /// A part or a multiple of the session timeout, drawn, in percent.
    fn timeouts(&self, rng: &mut Rng, percent: std::ops::Range<u32>) -> Duration {
        self.session_timeout * rng.u32(percent) / 100
    }

    /// A server hears no other, and its clients reach no other, for this long.
    fn leave_alone(&self, id: u64, length: Duration) {
        self.network.recorder().mark(mark::ALONE_WITH_CLIENTS);
        self.cut_groups(&[id], length);
        for client in self.network.clients_of(id) {
            self.network.confine(client, id, length);
        }
    }

    /// Does something later, unless everything is whole again by then.
    fn later(&self, after: Duration, what: impl FnOnce(Self) + Send + 'static) {
        let target = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            if target.network.is_open() {
                what(target);
            }
        });
    }

    /// A server, drawn.
    fn any(&self, rng: &mut Rng) -> u64 {
        let ids = self.cluster.ids();
        rng.choice(&ids).copied().unwrap_or(1)
    }

    /// Two servers, drawn.
    fn pair(&self, rng: &mut Rng) -> (u64, u64) {
        let one = self.any(rng);
        let others: Vec<u64> = self
            .cluster
            .ids()
            .into_iter()
            .filter(|id| *id != one)
            .collect();
        (one, rng.choice(&others).copied().unwrap_or(one))
    }

    fn leader(&self, rng: &mut Rng) -> u64 {
        self.cluster.leader().unwrap_or_else(|| self.any(rng))
    }

    fn cut_groups(&self, group: &[u64], length: Duration) {
        let mut ways = Vec::new();
        for one in self.cluster.ids() {
            for other in self.cluster.ids() {
                if group.contains(&one) != group.contains(&other) {
                    ways.push((one, other));
                }
            }
        }
        self.cluster.cut(ways, length);
    }

    /// A server ends, and starts again after `away`.
    fn end(&self, id: u64, power: StopCause, away: Duration) {
        if self.cluster.end(id, power) {
            self.cluster.start_later(id, away);
        }
    }

    fn strike(&self, kind: ServerFault, rng: &mut Rng) {
        let cluster = &self.cluster;
        match kind {
            ServerFault::CutBoth => {
                let (one, other) = self.pair(rng);
                cluster.cut(vec![(one, other), (other, one)], length(rng, 50, 7_000));
            }
            ServerFault::CutOneWay => {
                let way = self.pair(rng);
                cluster.cut(vec![way], length(rng, 50, 7_000));
            }
            ServerFault::Isolate => {
                let id = self.any(rng);
                self.cut_groups(&[id], length(rng, 50, 7_000));
            }
            ServerFault::IsolateLeader => {
                let id = self.leader(rng);
                self.cut_groups(&[id], length(rng, 50, 7_000));
            }
            ServerFault::Partition => {
                let mut group = self.cluster.ids();
                group.retain(|_| rng.bool());
                self.cut_groups(&group, length(rng, 50, 7_000));
            }
            ServerFault::Reset => {
                let (one, other) = self.pair(rng);
                cluster.reset(one, other, rng.bool());
            }
            ServerFault::Pause => cluster.pause(self.any(rng), length(rng, 20, 5_000)),
            ServerFault::PauseLeader => cluster.pause(self.leader(rng), length(rng, 20, 5_000)),
            ServerFault::Kill => {
                let id = self.any(rng);
                self.end(id, StopCause::Stays, length(rng, 100, 5_000));
            }
            ServerFault::PowerLoss => {
                let id = self.any(rng);
                self.end(id, StopCause::Fails, length(rng, 100, 5_000));
            }
            ServerFault::LeaderEnds => {
                let id = self.leader(rng);
                cluster.end_when_it_sends(id);
                self.cluster.start_later(id, length(rng, 1_000, 5_000));
            }
            ServerFault::AllLosePower => {
                for id in cluster.ids() {
                    self.end(id, StopCause::Fails, length(rng, 100, 2_000));
                }
            }
            ServerFault::Stall => cluster.stall(self.any(rng), length(rng, 100, 4_000)),
            ServerFault::BreakDisk => {
                let id = self.any(rng);
                cluster.break_disk(id);
                self.cluster.start_later(id, length(rng, 1_000, 5_000));
            }
            ServerFault::FailDisk => {
                let id = self.any(rng);
                cluster.fail_disk(id);
                cluster.start_later(id, length(rng, 300, 3_000));
            }
            ServerFault::FullDisk => {
                let id = self.any(rng);
                cluster.fill_disk(id);
                self.later(length(rng, 200, 2_000), move |target| {
                    target.cluster.make_room(id);
                });
            }
            ServerFault::Copy => cluster.copy_folder(self.any(rng)),
            ServerFault::OldCopy => {
                for id in cluster.put_copies_back() {
                    cluster.start_later(id, length(rng, 20, 1_500));
                }
            }
            ServerFault::HandOver => {
                let to = self.any(rng);
                self.network.recorder().mark(mark::HANDED_OVER);
                cluster.hand_over(self.leader(rng), to);
            }
            ServerFault::StepClock => {
                let by_ms = rng.choice(STEPS_MS).unwrap_or(1_500);
                let sign = rng.choice([1, -1]).unwrap_or(1);
                cluster.step_clock(self.any(rng), by_ms * sign);
            }
            ServerFault::LostFolder => {
                let id = self.any(rng);
                cluster.lose_folder(id);
                cluster.start_later(id, length(rng, 20, 600));
            }
            ServerFault::ClientReset | ServerFault::ClientHole | ServerFault::ClientLate => {
                let client = self.client(rng);
                let kind = match kind {
                    ServerFault::ClientReset => FaultKind::Reset,
                    ServerFault::ClientHole => FaultKind::Hole,
                    _ => FaultKind::Late,
                };
                self.network.disturb(client, kind);
            }
            ServerFault::ClientSlow => {
                let by = self.timeouts(rng, 3..60);
                let client = self.client(rng);
                self.network.slow(client, by, self.timeouts(rng, 50..300));
            }
            ServerFault::ClientPause => {
                let client = self.client(rng);
                self.network.pause(client, self.timeouts(rng, 10..150));
            }
            kind => self.aim(kind, rng),
        }
    }

    /// Leadership goes from `leader` to another server and back, as an operator asks for it, and a
    /// follower whose clients write meanwhile does not notice: it goes on sending its batches to
    /// `leader`, some of them while that one follows.
    async fn flip(self, leader: u64, away: Duration) {
        let streaming = async {
            loop {
                match self.cluster.streaming_follower() {
                    Some(unaware) => return unaware,
                    None => tokio::time::sleep(Duration::from_millis(3)).await,
                }
            }
        };
        let Ok(unaware) = tokio::time::timeout(STREAM_LIMIT, streaming).await else {
            return;
        };
        let mut others = self.cluster.members().into_iter();
        let next = others.find(|id| *id != leader && *id != unaware);
        let (Some(next), true) = (next, self.network.is_open()) else {
            return;
        };
        let ways = self.cluster.ways_to(unaware);
        self.cluster.cut(ways, UNNOTICED);
        let before = self.cluster.ignored_batches(unaware);
        self.cluster.hand_over(leader, next);
        if !self.leads_soon(next).await {
            return;
        }
        // A batch that is lost because it comes while that one follows.
        let lost = async {
            while self.cluster.ignored_batches(unaware) == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if tokio::time::timeout(LOST_LIMIT, lost).await.is_err() {
            tokio::time::sleep(away).await;
        }
        self.cluster.hand_over(next, leader);
        if self.leads_soon(leader).await {
            self.network.recorder().mark(mark::LEADER_RETURNED);
        }
    }

    /// Whether this server leads within a moment.
    async fn leads_soon(&self, id: u64) -> bool {
        let leads = async {
            while !self.cluster.leads(id) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(HAND_OVER_LIMIT, leads).await.is_ok()
    }

    /// The leader hears nobody and nobody hears it, and it makes few ticks: it leads on for long
    /// while another one leads already.
    async fn isolate_slow_leader(self, leader: u64, behind: Duration) {
        let cluster = &self.cluster;
        let ids = cluster.ids().into_iter().filter(|id| *id != leader);
        let ways = ids.flat_map(|id| [(leader, id), (id, leader)]).collect();
        let (deposed, awaits) = tokio::sync::oneshot::channel::<()>();
        cluster.cut_until(ways, async move {
            // Dropped at the end.
            let _ = awaits.await;
            tokio::time::sleep(behind).await;
        });
        let leads = async {
            while cluster.leads(leader) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let leads = async {
            // However it ends.
            let _ = tokio::time::timeout(STUTTER_LIMIT, leads).await;
        };
        cluster.stutter(leader, leads).await;
        drop(deposed);
    }

    fn aim(&self, kind: ServerFault, rng: &mut Rng) {
        let cluster = &self.cluster;
        let leader = self.leader(rng);
        match kind {
            ServerFault::LeaderHearsNobody => {
                let behind = Duration::from_millis(rng.u64(..600));
                cluster.deafen_leader(leader, DEPOSED_LIMIT, behind);
            }
            ServerFault::LeaderReturnsUnnoticed => {
                let away = Duration::from_millis(rng.u64(..25));
                tokio::spawn(self.clone().flip(leader, away));
            }
            ServerFault::SlowLeaderAlone => {
                let behind = Duration::from_millis(rng.u64(..300));
                tokio::spawn(self.clone().isolate_slow_leader(leader, behind));
            }
            ServerFault::FollowerAway => {
                let mut followers = cluster.ids();
                followers.retain(|id| *id != leader);
                let away = Duration::from_millis(rng.u64(1_000..5_000));
                match rng.choice(followers) {
                    Some(id) if rng.bool() => self.end(id, StopCause::Fails, away),
                    Some(id) => self.cut_groups(&[id], away),
                    None => {}
                }
            }
            ServerFault::MajorityGone => {
                let left = self.any(rng);
                let away = Duration::from_millis(rng.u64(3_000..6_500));
                for id in cluster.ids().into_iter().filter(|id| *id != left) {
                    self.end(id, StopCause::Stays, away);
                }
            }
            ServerFault::LeaderLosesBatches => {
                for other in cluster.ids().into_iter().filter(|id| *id != leader) {
                    cluster.reset(leader, other, false);
                }
                match rng.bool() {
                    true => self.end(leader, StopCause::Stays, length(rng, 100, 3_000)),
                    false => cluster.pause(leader, length(rng, 500, 3_000)),
                }
            }
            ServerFault::AloneWithClients => {
                let id = self.any(rng);
                self.leave_alone(id, self.timeouts(rng, 50..250));
            }
            ServerFault::LeaderAlone => {
                // By the end of it another one leads; clients have asked meanwhile.
                cluster.pause(leader, Duration::from_millis(rng.u64(300..1_500)));
                self.leave_alone(leader, self.timeouts(rng, 100..250));
            }
            _ => {
                // Behind its whole timeout a client gives its session up by itself.
                let still = self.timeouts(rng, 75..98);
                for client in 0..usize::try_from(self.clients).unwrap_or(0) {
                    if rng.u8(..3) > 0 {
                        self.network.pause(client, still);
                    }
                }
                // The leader decides that sessions are over while nobody hears it.
                let before = Duration::from_millis(rng.u64(..700));
                let alone = Duration::from_millis(rng.u64(800..3_300));
                self.later(still.saturating_sub(before), move |target| {
                    if let Some(leader) = target.cluster.leader() {
                        target.cut_groups(&[leader], alone);
                    }
                });
            }
        }
    }
}
