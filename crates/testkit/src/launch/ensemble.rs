//! Several Apache ZooKeeper servers that form one ensemble on loopback. Owns the servers, their
//! ports, and the wires on which they follow each other.

use super::wire::{Direction, Wire};
use super::zookeeper::{self, Peer};
use super::{Backend, LaunchError, ServerOptions, Target, TestServer, free_addr};
use crate::inspect::srvr;

/// An ensemble; dropping it kills its servers.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<TestServer>,
    /// For each server, the wires to all others.
    wires: Vec<Vec<Wire>>,
}

impl Ensemble {
    /// Starts this number of Apache ZooKeeper servers and waits until each of them leads or
    /// follows.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn start(size: usize) -> Result<Self, LaunchError> {
        Self::start_with(size, ServerOptions::default()).await
    }

    /// As [`Ensemble::start`], with other settings.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn start_with(size: usize, options: ServerOptions) -> Result<Self, LaunchError> {
        let peers = (1..=size)
            .map(|id| {
                Ok(Peer {
                    id,
                    quorum: free_addr()?,
                    election: free_addr()?,
                })
            })
            .collect::<Result<Vec<_>, LaunchError>>()?;
        let mut started = Vec::with_capacity(size);
        let mut wires = Vec::with_capacity(size);
        for peer in &peers {
            let addr = free_addr()?;
            // Each server reaches the others' quorum ports over wires of its own.
            let mut own_wires = Vec::with_capacity(size);
            let mut seen_by_it = Vec::with_capacity(size);
            for other in &peers {
                let mut seen = other.clone();
                if other.id != peer.id {
                    let wire = Wire::to(other.quorum).await?;
                    seen.quorum = wire.addr();
                    own_wires.push(wire);
                }
                seen_by_it.push(seen);
            }
            wires.push(own_wires);
            let mut process = zookeeper::member(peer.id, addr, &seen_by_it, &options)?;
            process.spawn()?;
            started.push((addr, process));
        }
        // None serves before a majority runs, so they are waited for when all are started.
        let mut servers = Vec::with_capacity(size);
        for (addr, mut process) in started {
            process.wait_serving(addr).await?;
            servers.push(TestServer {
                target: Target::ZooKeeper,
                addr,
                backend: Backend::Process(process),
            });
        }
        Ok(Self { servers, wires })
    }

    /// Cuts the server with this index off from whichever other it follows, or mends that: nothing
    /// moves between them and neither is notified, while clients of both go on. Votes still pass.
    pub fn set_cut_off(&self, index: usize, cut: bool) {
        for direction in Direction::BOTH {
            self.set_cut_one_way(index, direction, cut);
        }
    }

    /// As [`Ensemble::set_cut_off`], for one direction.
    pub fn set_cut_one_way(&self, index: usize, direction: Direction, cut: bool) {
        for wire in self.wires.get(index).into_iter().flatten() {
            wire.set_cut(direction, cut);
        }
    }

    /// As [`Ensemble::set_cut_off`], for the wire on which one server follows one other, by their
    /// indices.
    pub fn set_cut_from(&self, follower: usize, leader: usize, cut: bool) {
        // A server has no wire to itself, so those behind it are one place further on.
        let place = if leader > follower {
            leader - 1
        } else {
            leader
        };
        if let Some(wire) = self.wires.get(follower).and_then(|wires| wires.get(place)) {
            for direction in Direction::BOTH {
                wire.set_cut(direction, cut);
            }
        }
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
            if server.pid().is_some()
                && let Ok(Some(mode)) = srvr(server.addr(), "Mode").await
                && mode == "leader"
            {
                return Some(index);
            }
        }
        None
    }
}
