//! Several servers that form one ensemble on loopback: Batons or Apache ZooKeepers. Owns the
//! servers, their ports, and the wires between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::embedded::Embedded;
use super::member::Member;
use super::wire::{Callers, Direction, Link, LinkPair, Wire};
use super::zookeeper::{self, Peer};
use super::{
    Backend, LaunchError, POLL, START_PATIENCE, ServerOptions, Target, TestServer, free_addr,
    process,
};
use crate::inspect::srvr;

/// Time that a server may take to report its mode: one that is paused never does.
const PROBE: Duration = Duration::from_secs(1);

/// An ensemble; dropping it kills its servers.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<TestServer>,
    ways: LinkTable,
    wires: Vec<Wire>,
}

/// The way from each server to each other one.
#[derive(Debug)]
struct LinkTable(Vec<Vec<Link>>);

impl LinkTable {
    fn of(size: usize) -> Self {
        // Clones of a way are that way, so each is made by itself.
        let ways = || (0..size).map(|_| Link::default()).collect();
        Self((0..size).map(|_| ways()).collect())
    }

    fn way(&self, from: usize, to: usize) -> Option<&Link> {
        self.0.get(from)?.get(to).filter(|_| from != to)
    }

    /// Both ways of a connection that `caller` opens.
    fn of_connection(&self, caller: usize, to: usize) -> Option<LinkPair> {
        Some(LinkPair {
            outward: self.way(caller, to)?.clone(),
            back: self.way(to, caller)?.clone(),
        })
    }

    fn set(&self, from: usize, to: usize, cut: bool) {
        if let Some(way) = self.way(from, to) {
            way.set_cut(cut);
        }
    }
}

impl Ensemble {
    /// Starts this number of servers and waits until each of them leads or follows: Batons inside
    /// this process, on a runtime of their own; Apache ZooKeepers as processes.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn start(target: Target, size: usize) -> Result<Self, LaunchError> {
        Self::start_with(target, size, ServerOptions::default()).await
    }

    /// [`Ensemble::start`] with other settings.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn start_with(
        target: Target,
        size: usize,
        options: ServerOptions,
    ) -> Result<Self, LaunchError> {
        match target {
            Target::ZooKeeper => Self::zookeepers(size, &options).await,
            Target::Baton => {
                let embedded = |(_, member)| {
                    let embedded = Embedded::member(options.clone(), member)?;
                    Ok(Backend::Embedded(Box::new(embedded)))
                };
                Self::batons(size, options.wires, embedded).await
            }
        }
    }

    /// [`Ensemble::start_with`], each server as a process of its own, which can be paused too. For
    /// Baton that is the `baton` command: see [`baton_binary`](super::baton_binary). One server
    /// stands alone, and neither leads nor follows.
    ///
    /// # Errors
    /// As [`TestServer::start_process`].
    pub async fn start_processes(
        target: Target,
        size: usize,
        options: ServerOptions,
    ) -> Result<Self, LaunchError> {
        match target {
            _ if size == 1 => Ok(Self {
                servers: vec![TestServer::start_process(target, options).await?],
                ways: LinkTable::of(1),
                wires: Vec::new(),
            }),
            Target::ZooKeeper => Self::zookeepers(size, &options).await,
            Target::Baton => {
                let process = |(addr, member)| {
                    let process = process::baton(addr, &options, Some(&member))?;
                    Ok(Backend::Process(process))
                };
                Self::batons(size, options.wires, process).await
            }
        }
    }

    async fn zookeepers(size: usize, options: &ServerOptions) -> Result<Self, LaunchError> {
        let peers = (1..=size)
            .map(|id| {
                Ok(Peer {
                    id,
                    quorum: free_addr()?,
                    election: free_addr()?,
                })
            })
            .collect::<Result<Vec<_>, LaunchError>>()?;
        let ways = LinkTable::of(size);
        let mut servers = Vec::with_capacity(size);
        let mut wires = Vec::new();
        for (index, peer) in peers.iter().enumerate() {
            let addr = free_addr()?;
            // Each server reaches the others' quorum ports over wires of its own.
            let mut seen_by_it = Vec::with_capacity(size);
            for (other_index, other) in peers.iter().enumerate() {
                let mut seen = other.clone();
                if let Some(delay) = options.wires
                    && let Some(both) = ways.of_connection(index, other_index)
                {
                    let wire = Wire::to(other.quorum, Callers::One(both), delay).await?;
                    seen.quorum = wire.addr();
                    wires.push(wire);
                }
                seen_by_it.push(seen);
            }
            let process = zookeeper::member(peer.id, addr, &seen_by_it, options)?;
            servers.push(TestServer {
                target: Target::ZooKeeper,
                addr,
                backend: Backend::Process(process),
            });
        }
        Self::begin(servers, ways, wires).await
    }

    async fn batons(
        size: usize,
        wires_between: Option<Duration>,
        backend: impl Fn((SocketAddr, Member)) -> Result<Backend, LaunchError>,
    ) -> Result<Self, LaunchError> {
        let ways = LinkTable::of(size);
        let mut wires = Vec::new();
        let mut listening = Vec::with_capacity(size);
        let mut advertised = BTreeMap::new();
        for (id, index) in (1..).zip(0..size) {
            let listen = free_addr()?;
            let mut reached_at = listen;
            if let Some(delay) = wires_between {
                // All servers must have the same list of addresses, so the wire finds out who
                // calls.
                let callers = (1..).zip(0..size).filter_map(|(caller_id, caller)| {
                    Some((caller_id, ways.of_connection(caller, index)?))
                });
                let wire = Wire::to(listen, Callers::Batons(callers.collect()), delay).await?;
                reached_at = wire.addr();
                wires.push(wire);
            }
            listening.push((id, listen));
            advertised.insert(u64::from(id), reached_at.to_string());
        }
        let mut servers = Vec::with_capacity(size);
        for (id, listen) in listening {
            let addr = free_addr()?;
            let member = Member {
                id,
                servers: advertised.clone(),
                listen,
            };
            servers.push(TestServer {
                target: Target::Baton,
                addr,
                backend: backend((addr, member))?,
            });
        }
        Self::begin(servers, ways, wires).await
    }

    async fn begin(
        servers: Vec<TestServer>,
        ways: LinkTable,
        wires: Vec<Wire>,
    ) -> Result<Self, LaunchError> {
        let mut ensemble = Self {
            servers,
            ways,
            wires,
        };
        let all: Vec<usize> = (0..ensemble.servers.len()).collect();
        ensemble.restart(&all).await?;
        Ok(ensemble)
    }

    /// Starts these servers at once, after killing those that run, and waits until each leads or
    /// follows. None serves before a majority runs.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn restart(&mut self, indices: &[usize]) -> Result<(), LaunchError> {
        for index in indices {
            if let Some(server) = self.servers.get_mut(*index) {
                server.launch()?;
            }
        }
        for index in indices {
            if let Some(server) = self.servers.get_mut(*index) {
                server.wait_serving().await?;
            }
        }
        Ok(())
    }

    /// Cuts the server with this index off from all others, or mends that: nothing moves between
    /// them and neither is notified, while clients of both go on. Between ZooKeepers votes still
    /// pass; between Batons nothing does.
    ///
    /// # Panics
    /// As [`Ensemble::set_cut_one_way`].
    pub fn set_cut_off(&self, index: usize, cut: bool) {
        for direction in Direction::BOTH {
            self.set_cut_one_way(index, direction, cut);
        }
    }

    /// [`Ensemble::set_cut_off`] for one direction.
    ///
    /// # Panics
    /// The ensemble was started without wires.
    pub fn set_cut_one_way(&self, index: usize, direction: Direction, cut: bool) {
        self.require_wires();
        for other in 0..self.servers.len() {
            match direction {
                Direction::Outgoing => self.ways.set(index, other, cut),
                Direction::Incoming => self.ways.set(other, index, cut),
            }
        }
    }

    /// [`Ensemble::set_cut_off`] for two servers only.
    ///
    /// # Panics
    /// As [`Ensemble::set_cut_one_way`].
    pub fn set_cut_between(&self, one: usize, other: usize, cut: bool) {
        self.set_cut_way(one, other, cut);
        self.set_cut_way(other, one, cut);
    }

    /// [`Ensemble::set_cut_between`] for one direction.
    ///
    /// # Panics
    /// As [`Ensemble::set_cut_one_way`].
    pub fn set_cut_way(&self, from: usize, to: usize, cut: bool) {
        self.require_wires();
        self.ways.set(from, to, cut);
    }

    fn require_wires(&self) {
        assert!(
            !self.wires.is_empty(),
            "an ensemble without wires cannot be cut"
        );
    }

    /// All servers as clients take them.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.servers
            .iter()
            .map(TestServer::connect_string)
            .collect::<Vec<_>>()
            .join(",")
    }

    /// The servers, in the order of their numbers.
    #[must_use]
    pub fn servers(&self) -> &[TestServer] {
        &self.servers
    }

    /// The servers, to be killed, paused and restarted one by one.
    ///
    /// After [`TestServer::kill`] of one, [`TestServer::restart`] waits until it serves again,
    /// which needs a majority.
    pub fn servers_mut(&mut self) -> &mut [TestServer] {
        &mut self.servers
    }

    /// The index of the server that leads now, if one does.
    pub async fn leader(&self) -> Option<usize> {
        for (index, server) in self.servers.iter().enumerate() {
            if mode(server).await.as_deref() == Some("leader") {
                return Some(index);
            }
        }
        None
    }

    /// Waits until one server leads and all others that run follow, and returns the index of that
    /// one.
    ///
    /// # Errors
    /// [`LaunchError::NoLeader`] after a minute.
    pub async fn wait_leader(&self) -> Result<usize, LaunchError> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let mut modes = Vec::new();
            for (index, server) in self.servers.iter().enumerate() {
                if server.runs() {
                    modes.push((index, mode(server).await.unwrap_or_default()));
                }
            }
            let (leaders, others): (Vec<_>, Vec<_>) =
                modes.iter().partition(|(_, mode)| mode == "leader");
            if let [(leader, _)] = leaders[..]
                && others.iter().all(|(_, mode)| mode == "follower")
            {
                return Ok(*leader);
            }
            if Instant::now() > deadline {
                return Err(LaunchError::NoLeader {
                    modes: format!("{modes:?}"),
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Returns the mode that a server reports; `None` if it does not run or does not answer.
async fn mode(server: &TestServer) -> Option<String> {
    if !server.runs() {
        return None;
    }
    let asked = tokio::time::timeout(PROBE, srvr(server.addr(), "Mode"));
    asked.await.ok()?.ok()?
}
