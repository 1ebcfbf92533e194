//! Servers that start from a static list over their connections.

use std::time::Duration;

use baton_consensus::Membership;
use baton_peers::bootstrap::{
    Bootstrap, BootstrapStart, Decision, StartRefusal, StaticList, WaitReason,
};
use baton_peers::handshake::{KnownMember, LocalServer};
use tokio::time::sleep;

use crate::memory::{Network, Server, incarnation, name, options};

/// One server and what its data folder has.
struct StartingServer {
    server: Server,
    bootstrap: Bootstrap,
    membership: Option<Membership>,
}

fn list(servers: u64) -> StaticList {
    StaticList::new((1..=servers).map(|id| (id, name(id)))).unwrap()
}

impl StartingServer {
    fn start(network: &Network, id: u64, incarnation: u128, list: StaticList) -> StartingServer {
        let local = LocalServer::new(id, incarnation, 1);
        let server = Server::start_as(network, local, options(id), 3);
        let bootstrap = Bootstrap::new(BootstrapStart {
            list,
            id,
            incarnation,
            promised: 0,
            cluster: 0,
            birth: None,
            new_cluster: 0xc0 + id,
            votes: true,
        });
        StartingServer {
            server,
            bootstrap: bootstrap.unwrap(),
            membership: None,
        }
    }

    /// Handles what has happened, and stores what is to be stored.
    fn step(&mut self) {
        let mut outgoing = Vec::new();
        for event in self.server.so_far() {
            outgoing.extend(self.bootstrap.event(&event));
        }
        match self.bootstrap.decision() {
            Decision::Promise { .. } => outgoing.extend(self.bootstrap.promise_stored()),
            Decision::Store(birth) => {
                self.server.peers.update_local(|local| {
                    local.cluster = birth.cluster;
                    local.membership_index = 1;
                    local.members = birth
                        .membership
                        .members
                        .iter()
                        .map(|member| KnownMember {
                            id: member.id,
                            incarnation: member.incarnation,
                            acknowledged_index: 0,
                        })
                        .collect();
                });
                self.membership = Some(birth.membership);
                outgoing.extend(self.bootstrap.birth_stored());
            }
            _ => {}
        }
        for (to, frame) in outgoing {
            // What is not sent now is sent with the next connection.
            let _ = self.server.peers.send(to, frame);
        }
    }
}

async fn run(servers: &mut [StartingServer], time: Duration) {
    for _ in 0..time.as_millis() / 10 {
        servers.iter_mut().for_each(StartingServer::step);
        sleep(Duration::from_millis(10)).await;
    }
}

fn decisions(servers: &[StartingServer]) -> Vec<Decision> {
    let decisions = servers.iter().map(|server| server.bootstrap.decision());
    decisions.collect()
}

#[tokio::test(start_paused = true)]
async fn r18_three_servers_start_one_cluster_once_the_last_one_is_there() {
    let network = Network::default();
    let start = |id| StartingServer::start(&network, id, incarnation(id), list(3));
    let mut servers = vec![start(1), start(2)];
    run(&mut servers, Duration::from_secs(10)).await;
    let waits = Decision::Wait(WaitReason::Unreached(vec![3]));
    assert_eq!(decisions(&servers), [waits.clone(), waits]);
    servers.push(start(3));
    run(&mut servers, Duration::from_secs(3)).await;
    let member = Decision::Member { cluster: 0xc1 };
    assert_eq!(
        decisions(&servers),
        [member.clone(), member.clone(), member]
    );
    let first = servers[0].membership.clone().unwrap();
    assert_eq!(first.voters, [1, 2, 3]);
    for server in &servers {
        assert_eq!(server.membership.as_ref(), Some(&first));
        let others = (1..=3).filter(|id| server.server.peers.open_lanes(*id).len() == 3);
        assert_eq!(others.count(), 2, "the connections stay");
    }
    // A server that loses its folder meets the cluster, and waits to be admitted.
    for lost in [2, 0] {
        let id = u64::try_from(lost).unwrap() + 1;
        servers.remove(lost);
        servers.insert(lost, StartingServer::start(&network, id, 0xdead, list(3)));
        run(&mut servers, Duration::from_secs(3)).await;
        let joins = Decision::Join { cluster: 0xc1 };
        assert_eq!(servers[lost].bootstrap.decision(), joins);
        assert!(servers[lost].server.peers.open_lanes(2).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn r18_servers_with_different_lists_start_nothing() {
    let network = Network::default();
    let mut servers = vec![
        StartingServer::start(&network, 1, incarnation(1), list(3)),
        StartingServer::start(&network, 2, incarnation(2), list(4)),
        StartingServer::start(&network, 3, incarnation(3), list(3)),
    ];
    run(&mut servers, Duration::from_secs(10)).await;
    assert_eq!(
        decisions(&servers),
        [
            Decision::Refuse(StartRefusal::OtherList(2)),
            Decision::Refuse(StartRefusal::OtherList(1)),
            Decision::Refuse(StartRefusal::OtherList(2)),
        ]
    );
}
