//! What goes wrong with the servers and their connections, and when: as the seed has drawn it.

use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::swarm::{ServerFault, Swarm};
use crate::cluster::{Cluster, Power};
use crate::fault::FaultKind;
use crate::network::Network;

/// What faults strike.
#[derive(Clone)]
struct Target {
    network: Network,
    cluster: Cluster,
    clients: u64,
}

/// Lets faults come for as long as the seed has drawn. Cancelling ends them.
pub(super) async fn strike(network: Network, cluster: Cluster, clients: usize, swarm: &Swarm) {
    let target = Target {
        network,
        cluster,
        clients: clients as u64,
    };
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
    fn end(&self, id: u64, power: Power, away: Duration) {
        if self.cluster.end(id, power) {
            self.start_later(id, away);
        }
    }

    fn start_later(&self, id: u64, away: Duration) {
        let cluster = self.cluster.clone();
        tokio::spawn(async move {
            tokio::time::sleep(away).await;
            cluster.start(id);
        });
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
                self.end(id, Power::Stays, length(rng, 100, 5_000));
            }
            ServerFault::PowerLoss => {
                let id = self.any(rng);
                self.end(id, Power::Fails, length(rng, 100, 5_000));
            }
            ServerFault::LeaderEnds => {
                let id = self.leader(rng);
                cluster.end_when_it_sends(id);
                self.start_later(id, length(rng, 1_000, 5_000));
            }
            ServerFault::AllLosePower => {
                for id in cluster.ids() {
                    self.end(id, Power::Fails, length(rng, 100, 2_000));
                }
            }
            ServerFault::Stall => cluster.stall(self.any(rng), length(rng, 100, 4_000)),
            ServerFault::BreakDisk => {
                let id = self.any(rng);
                cluster.break_disk(id);
                self.start_later(id, length(rng, 1_000, 5_000));
            }
            ServerFault::ClientReset | ServerFault::ClientHole | ServerFault::ClientLate => {
                let client = usize::try_from(rng.u64(..self.clients.max(1))).unwrap_or(0);
                let kind = match kind {
                    ServerFault::ClientReset => FaultKind::Reset,
                    ServerFault::ClientHole => FaultKind::Hole,
                    _ => FaultKind::Late,
                };
                self.network.disturb(client, kind);
            }
        }
    }
}
