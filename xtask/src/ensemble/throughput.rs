//! Throughput of three servers and its cost: Baton beside Apache ZooKeeper, in turn on the same
//! machine and disk.

use std::path::Path;

use baton_testkit::{Ensemble, ServerOptions, Target, TestServer};

use super::stage::SERVERS;
use crate::load_generator::{Load, Measurements};
use crate::table::markdown;
use crate::{Result, machine};

/// A heap that is never short.
pub(super) const HEAP: &str = "-Xmx1g";

/// To whom the clients connect.
#[derive(Debug, Clone, Copy)]
pub(super) enum ClientTarget {
    Leader,
    Follower,
    All,
}

/// A load: a workload of `baton-bench`, its connections, and the requests in flight on each.
pub(super) struct Case {
    workload: &'static str,
    what: &'static str,
    connections: u32,
    in_flight: u32,
    through: ClientTarget,
}

const fn many(workload: &'static str, what: &'static str, through: ClientTarget) -> Case {
    Case {
        workload,
        what,
        connections: 16,
        in_flight: 32,
        through,
    }
}

const CASES: [Case; 10] = [
    many("set", "set", ClientTarget::Follower),
    many("set", "set", ClientTarget::All),
    many("create", "create", ClientTarget::Follower),
    many("create", "create", ClientTarget::All),
    many("get", "get", ClientTarget::Follower),
    many("get", "get", ClientTarget::All),
    many("mixed", "four gets to a set", ClientTarget::Follower),
    many("mixed", "four gets to a set", ClientTarget::All),
    Case::one(ClientTarget::Leader),
    Case::one(ClientTarget::Follower),
];

impl Case {
    /// One write at a time.
    pub(super) const fn one(through: ClientTarget) -> Self {
        Self {
            workload: "set",
            what: "set",
            connections: 1,
            in_flight: 1,
            through,
        }
    }

    pub(super) fn label(&self) -> String {
        let through = match self.through {
            ClientTarget::Leader => "the leader",
            ClientTarget::Follower => "a follower",
            ClientTarget::All => "all",
        };
        let (connections, in_flight) = (self.connections, self.in_flight);
        format!("{}, {connections}×{in_flight}, {through}", self.what)
    }
}

/// Starts three servers to be measured; Java with this heap and both compilers.
pub(super) async fn start(target: Target, baton: &Path, heap: &str) -> Result<Ensemble> {
    let options = ServerOptions {
        baton: Some(baton.to_owned()),
        wires: None,
        java_machine: [heap, "-XX:+UseSerialGC"].map(str::to_owned).into(),
        ..ServerOptions::default()
    };
    Ok(Ensemble::start_processes(target, SERVERS, options).await?)
}

/// The processes of the servers.
pub(super) fn pids(ensemble: &Ensemble) -> Result<Vec<u32>> {
    let pids = ensemble.servers().iter().map(TestServer::pid);
    let pids: Option<Vec<u32>> = pids.collect();
    Ok(pids.ok_or("a server does not run")?)
}

/// Takes the measurements of the rows whose name contains `rows`, and prints them.
pub(super) async fn take(
    baton: &Path,
    rounds: usize,
    seconds: u64,
    rows: Option<&str>,
) -> Result<()> {
    let mut ensembles = Vec::new();
    for target in [Target::ZooKeeper, Target::Baton] {
        ensembles.push(start(target, baton, HEAP).await?);
    }
    let is_asked_for = |case: &&Case| rows.is_none_or(|rows| case.label().contains(rows));
    let cases: Vec<&Case> = CASES.iter().filter(is_asked_for).collect();
    if cases.is_empty() {
        let labels: Vec<String> = CASES.iter().map(Case::label).collect();
        return Err(format!("no such row; there are: {}", labels.join("; ")).into());
    }
    let mut book = vec![[Measurements::default(), Measurements::default()]; cases.len()];
    for round in 1..=rounds {
        for (case, measured) in cases.iter().zip(&mut book) {
            for (ensemble, measured) in ensembles.iter().zip(measured) {
                eprintln!("round {round} of {rounds}: {}", case.label());
                measure(case, ensemble, seconds, measured).await?;
            }
        }
    }
    println!("{}", render(&cases, &book, rounds, seconds));
    Ok(())
}

/// Loads the servers of an ensemble and adds what they did.
pub(super) async fn measure(
    case: &Case,
    ensemble: &Ensemble,
    seconds: u64,
    measured: &mut Measurements,
) -> Result<()> {
    let leader = ensemble.wait_leader().await?;
    let server = match case.through {
        ClientTarget::Leader => Some(leader),
        ClientTarget::Follower => Some((leader + 1) % SERVERS),
        ClientTarget::All => None,
    };
    let servers = match server.and_then(|index| ensemble.servers().get(index)) {
        Some(server) => server.connect_string(),
        None => ensemble.connect_string(),
    };
    let load = Load {
        workload: case.workload,
        connections: case.connections,
        in_flight: case.in_flight,
        servers: &servers,
        pids: &pids(ensemble)?,
        seconds,
    };
    measured.take(&load, &[])
}

fn render(cases: &[&Case], book: &[[Measurements; 2]], rounds: usize, seconds: u64) -> String {
    let rows: Vec<Vec<String>> = cases
        .iter()
        .zip(book)
        .map(|(case, [theirs, ours])| ours.beside(theirs, &case.label()))
        .collect();
    let head = Measurements::head("workload, connections × in flight, through");
    format!(
        "Taken on {}, all six servers and the load generator on it; median of {rounds} rounds of {seconds} s. The CPU time is that of all three servers.\n\n{}",
        machine::describe(),
        markdown(&head, &rows)
    )
}
