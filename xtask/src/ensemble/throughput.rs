//! Throughput of three servers and its cost: Baton beside Apache ZooKeeper, in turn on the same
//! machine and disk, for `docs/benchmarks.md`.

use std::path::Path;
use std::process::Command;

use baton_testkit::{Ensemble, ServerOptions, Target};

use super::stage::SERVERS;
use crate::command::output;
use crate::table::{Series, markdown, ratio, show};
use crate::{Result, machine, page};

const PAGE: &str = "docs/benchmarks.md";
const SECTION: &str = "three servers";

/// A heap that is never short, and both compilers, as Java has them by default. Later options of
/// Java replace those of the test kit, which are for quick starts.
const JAVA: [&str; 2] = ["-Xmx1g", "-XX:TieredStopAtLevel=4"];

/// To whom the clients connect.
#[derive(Debug, Clone, Copy)]
pub(super) enum ClientTarget {
    Leader,
    Follower,
    All,
}

/// A load: a workload of `baton bench`, its connections, and the requests in flight on each.
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

/// Measurements of one load on one ensemble.
#[derive(Debug, Clone, Default)]
pub(super) struct Throughput {
    pub(super) ops_per_second: Series,
    cpu_us_per_op: Series,
    pub(super) p50_us: Series,
    pub(super) p99_us: Series,
}

/// Starts three servers to be measured.
pub(super) async fn start(target: Target, baton: &Path) -> Result<Ensemble> {
    let options = ServerOptions {
        baton: Some(baton.to_owned()),
        has_wires: false,
        java_args: JAVA.map(str::to_owned).into(),
        ..ServerOptions::default()
    };
    Ok(Ensemble::start_processes(target, SERVERS, options).await?)
}

/// Takes the measurements of the rows whose name contains `rows`, and writes the page or prints
/// them. A part of the rows is printed only.
pub(super) async fn take(
    baton: &Path,
    rounds: usize,
    seconds: u64,
    rows: Option<&str>,
    is_printed_only: bool,
) -> Result<()> {
    let mut ensembles = Vec::new();
    for target in [Target::ZooKeeper, Target::Baton] {
        ensembles.push(start(target, baton).await?);
    }
    let is_asked_for = |case: &&Case| rows.is_none_or(|rows| case.label().contains(rows));
    let cases: Vec<&Case> = CASES.iter().filter(is_asked_for).collect();
    if cases.is_empty() {
        let labels: Vec<String> = CASES.iter().map(Case::label).collect();
        return Err(format!("no such row; there are: {}", labels.join("; ")).into());
    }
    let mut book = vec![[Throughput::default(), Throughput::default()]; cases.len()];
    for round in 1..=rounds {
        for (case, measured) in cases.iter().zip(&mut book) {
            for (ensemble, measured) in ensembles.iter().zip(measured) {
                eprintln!("round {round} of {rounds}: {}", case.label());
                measure(baton, case, ensemble, seconds, measured).await?;
            }
        }
    }
    let text = render(&cases, &book, rounds, seconds);
    println!("{text}");
    match is_printed_only || rows.is_some() {
        true => Ok(()),
        false => page::replace(PAGE, SECTION, &text),
    }
}

/// Loads the servers of an ensemble and adds what they did.
pub(super) async fn measure(
    baton: &Path,
    case: &Case,
    ensemble: &Ensemble,
    seconds: u64,
    measured: &mut Throughput,
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
    let mut command = Command::new(baton);
    command.args(["bench", case.workload, "--json", "--servers", &servers]);
    command.args(["--duration", &format!("{seconds}s")]);
    command.args(["--connections", &case.connections.to_string()]);
    command.args(["--in-flight", &case.in_flight.to_string()]);
    for server in ensemble.servers() {
        let pid = server.pid().ok_or("a server does not run")?;
        command.args(["--pid", &pid.to_string()]);
    }
    let report: serde_json::Value = serde_json::from_str(&output(&mut command)?)?;
    let number = |pointer: &str| {
        let number = report.pointer(pointer).and_then(serde_json::Value::as_f64);
        number.ok_or(format!("no {pointer} in {report}"))
    };
    measured.ops_per_second.push(number("/ops_per_second")?);
    measured
        .cpu_us_per_op
        .push(number("/server/cpu_us_per_op")?);
    measured.p50_us.push(number("/latency_us/p50")?);
    measured.p99_us.push(number("/latency_us/p99")?);
    Ok(())
}

fn render(cases: &[&Case], book: &[[Throughput; 2]], rounds: usize, seconds: u64) -> String {
    let rows: Vec<Vec<String>> = cases
        .iter()
        .zip(book)
        .map(|(case, [theirs, ours])| {
            let latency = |measured: &Throughput| {
                let (p50, p99) = (measured.p50_us.median(), measured.p99_us.median());
                format!("{} / {}", show(p50), show(p99))
            };
            let (rates, costs) = (
                [theirs, ours].map(|measured| measured.ops_per_second.median()),
                [theirs, ours].map(|measured| measured.cpu_us_per_op.median()),
            );
            vec![
                case.label(),
                show(rates[0]),
                show(rates[1]),
                ratio(rates[1], rates[0]),
                show(costs[0]),
                show(costs[1]),
                ratio(costs[1], costs[0]),
                latency(theirs),
                latency(ours),
            ]
        })
        .collect();
    let head = [
        "workload, connections × in flight, through",
        "ZooKeeper op/s",
        "Baton op/s",
        "ratio",
        "ZooKeeper µs CPU/op",
        "Baton µs CPU/op",
        "ratio",
        "ZooKeeper µs p50 / p99",
        "Baton µs p50 / p99",
    ];
    format!(
        "Taken on {}, all six servers and the load generator on it; median of {rounds} rounds of {seconds} s. The CPU time is that of all three servers.\n\n{}",
        machine::describe(),
        markdown(&head, &rows)
    )
}
