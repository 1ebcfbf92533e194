//! `cargo xtask bench`: the benchmark book. Both servers run on the same disk and are loaded in
//! turn, workload by workload, so that each ratio is made of neighbours in time; a median over
//! rounds is what the table shows.
//!
//! | module | owns |
//! |---|---|
//! | `curves` | the figures |
//! | `recipes` | locks, elections and queues beside etcd's and Redis's too |
//! | `tls` | with TLS and without, beside Apache ZooKeeper with TLS |
//! | `handshakes`, `storm` | what a handshake costs the server; thousands of them at once |

mod curves;
mod handshakes;
mod recipes;
mod storm;
mod tls;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use baton_testkit::Target;

use crate::command::output;
use crate::load_generator::{Load, Measurements, generator};
use crate::peer::python;
use crate::process::{Server, build_baton, memory_bytes, work_dir};
use crate::table::{markdown, ratio, show};
use crate::{Result, figure, java, machine, root};

/// Measure Baton beside Apache ZooKeeper, Curator and kazoo.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Times that everything is measured.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Seconds that each workload is measured.
    #[arg(long, value_name = "N", default_value_t = 5)]
    seconds: u32,
    /// Bytes of each value.
    #[arg(long, value_name = "N", default_value_t = 100)]
    value_bytes: u32,
    /// Measure only these rows, for example set,get-1x1,handoff; with --curves recipes: locks,
    /// elections, queues, locking-queues.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Measure TLS instead: set, get, set-1x1, get-1x1 with it and without, handshakes, storm.
    #[arg(long)]
    tls: bool,
    /// With --tls: connections that are lost and come back at once.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u16).range(1..=8_000))]
    storm: u16,
    /// Take these figures for docs/benchmarks instead.
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    curves: Vec<curves::Curve>,
    /// With --curves: the largest number of znodes, children, sessions or watches.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    most: usize,
    /// Draw the figures again from what was measured.
    #[arg(long)]
    plot: bool,
    /// Folder for the servers' data [default: the build's folder].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A workload of `baton-bench` with its load.
#[derive(Debug)]
struct Case {
    name: &'static str,
    label: &'static str,
    workload: &'static str,
    connections: u32,
    in_flight: u32,
    /// Way in which the end of a turn and the next one reach the server. The peers can only await
    /// the one and begin the other: their measurement is that of the row that does so.
    turns: &'static str,
    /// Items that a work queue claims in one change.
    prefetch: u32,
}

const fn case(
    name: &'static str,
    label: &'static str,
    workload: &'static str,
    connections: u32,
    in_flight: u32,
) -> Case {
    Case {
        name,
        label,
        workload,
        connections,
        in_flight,
        turns: AWAITED,
        prefetch: 1,
    }
}

const fn variant(name: &'static str, label: &'static str, turns: &'static str, of: &Case) -> Case {
    Case {
        name,
        label,
        workload: of.workload,
        connections: of.connections,
        in_flight: of.in_flight,
        turns,
        prefetch: 1,
    }
}

const AWAITED: &str = "awaited";
const PIPELINED: &str = "pipelined";
const REQUEUED: &str = "requeued";

const RAW: [Case; 9] = [
    case("set", "set, 16×32", "set", 16, 32),
    case("create", "create, 16×32", "create", 16, 32),
    case("set-64x64", "set, 64×64", "set", 64, 64),
    case("create-64x64", "create, 64×64", "create", 64, 64),
    case("get", "get, 16×32", "get", 16, 32),
    case(
        "churn",
        "create + delete ephemeral sequential, 16×32",
        "churn",
        16,
        32,
    ),
    case("mixed", "four gets to a set, 16×32", "mixed", 16, 32),
    case("set-1x1", "set, 1×1", "set", 1, 1),
    case("get-1x1", "get, 1×1", "get", 1, 1),
];

const LOCK: Case = case(
    "lock",
    "uncontended lock + unlock, one client",
    "lock",
    1,
    1,
);
const HANDOFF: Case = case("handoff", "contended hand-offs, 8 clients", "handoff", 8, 1);

const QUEUE: Case = case("queue", "queue offer + take, one client", "queue", 1, 1);

const WORK: Case = case(
    "work",
    "work queue claim + acknowledge, one client, one by one",
    "work",
    1,
    1,
);

const RECIPES: [Case; 11] = [
    LOCK,
    variant(
        "lock-pipelined",
        "the same, unlock and next lock in one packet",
        PIPELINED,
        &LOCK,
    ),
    variant(
        "lock-requeued",
        "the same, both in one change (`Mutex::requeue`)",
        REQUEUED,
        &LOCK,
    ),
    HANDOFF,
    variant(
        "handoff-pipelined",
        "the same, release and next acquire in one packet",
        PIPELINED,
        &HANDOFF,
    ),
    variant(
        "handoff-requeued",
        "the same, both in one change (`Mutex::requeue`)",
        REQUEUED,
        &HANDOFF,
    ),
    Case {
        workload: "replace",
        connections: 1,
        ..variant(
            "handoff-bound",
            "the bound: that change alone, one client, nobody to wait for or to notify",
            AWAITED,
            &HANDOFF,
        )
    },
    QUEUE,
    WORK,
    variant(
        "work-pipelined",
        "the same, acknowledge and next claim in one packet",
        PIPELINED,
        &WORK,
    ),
    Case {
        name: "work-16",
        label: "the same, 16 at a time",
        prefetch: 16,
        ..WORK
    },
];

const MILLION: &str = "million";

/// Memory and start of a server.
#[derive(Debug, Clone, Default)]
struct Size {
    idle_bytes: f64,
    million_bytes: f64,
    restart_seconds: f64,
}

/// Library that did the work, and the server on which it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Taker {
    Ours(Target),
    Peer(Target),
}

type Results = HashMap<(&'static str, Taker), Measurements>;

/// The servers, in the order of the columns.
const TARGETS: [Target; 2] = [Target::ZooKeeper, Target::Baton];

/// Another library's way to do the same.
struct Peer {
    name: &'static str,
    command: fn(&Case, &str, u32) -> Result<Command>,
}

/// Returns the peer beside which a recipe is measured, if there is one.
fn peer(case: &Case) -> Option<Peer> {
    match case.name {
        "lock" | "handoff" => Some(Peer {
            name: "Curator",
            command: curator,
        }),
        "work" => Some(Peer {
            name: "kazoo's LockingQueue",
            command: kazoo,
        }),
        _ => None,
    }
}

fn curator(case: &Case, addr: &str, seconds: u32) -> Result<Command> {
    let mut command = java::program("CuratorBench")?;
    let (clients, seconds) = (case.connections.to_string(), seconds.to_string());
    command.args([
        addr,
        "/curator-bench",
        &clients,
        "3",
        &seconds,
        case.workload,
    ]);
    Ok(command)
}

fn kazoo(_case: &Case, addr: &str, seconds: u32) -> Result<Command> {
    let mut command = Command::new(python()?);
    command.arg(root().join("xtask/python/locking_queue.py"));
    command.args([addr, "/kazoo-bench", "3", &seconds.to_string()]);
    Ok(command)
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.plot {
        return figure::draw_all();
    }
    if !args.curves.is_empty() {
        return curves::run(args);
    }
    java::require()?;
    if args.tls {
        return tls::run(args);
    }
    let baton = build_baton()?;
    let dir = work_dir(args.dir.as_deref())?;
    let wanted = |name: &str| args.wants(name);
    let mut book = Results::new();
    let mut sizes = Vec::new();
    {
        let mut servers = Vec::new();
        for target in TARGETS {
            let server = Server::start(target, &baton, &dir.path().join(format!("{target:?}")))?;
            sizes.push(Size {
                idle_bytes: memory_bytes(server.pid()?, "VmRSS")?,
                ..Size::default()
            });
            servers.push((target, server));
        }
        let options = [format!("--value-bytes={}", args.value_bytes)];
        for round in 1..=args.rounds {
            for case in RAW.iter().chain(&RECIPES).filter(|case| wanted(case.name)) {
                for (target, server) in &servers {
                    eprintln!(
                        "round {round} of {}: {} on {target:?}",
                        args.rounds, case.label
                    );
                    let measurements = book.entry((case.name, Taker::Ours(*target))).or_default();
                    let reached = (&*server.addr(), server.pid()?);
                    measure(case, reached, args.seconds, &options, measurements)?;
                }
                let Some(peer) = peer(case) else { continue };
                for (target, server) in &servers {
                    eprintln!(
                        "round {round} of {}: {}, {} on {target:?}",
                        args.rounds, case.label, peer.name
                    );
                    let measurements = book.entry((case.name, Taker::Peer(*target))).or_default();
                    let program = (peer.command)(case, &server.addr(), args.seconds)?;
                    measurements.take_peer(program)?;
                }
            }
        }
    }
    if wanted(MILLION) {
        for (target, size) in TARGETS.into_iter().zip(&mut sizes) {
            eprintln!("one million znodes on {target:?}");
            million(target, &baton, dir.path(), size)?;
        }
    }
    print!("{}", render(args, &book, &sizes));
    Ok(())
}

/// Loads a server with a case; `options` are further ones of `baton-bench`.
fn measure(
    case: &Case,
    (servers, pid): (&str, u32),
    seconds: u32,
    options: &[String],
    measurements: &mut Measurements,
) -> Result<()> {
    let load = Load {
        workload: case.workload,
        connections: case.connections,
        in_flight: case.in_flight,
        servers,
        pids: &[pid],
        seconds: seconds.into(),
    };
    let mut options = options.to_vec();
    if case.turns != AWAITED {
        options.push(format!("--turns={}", case.turns));
    }
    if case.workload == WORK.workload {
        options.push(format!("--prefetch={}", case.prefetch));
    }
    measurements.take(&load, &options)
}

/// Creates this number of nodes, which stay.
fn fill(server: &Server, nodes: usize, options: &[&str]) -> Result<()> {
    let mut fill = generator()?;
    fill.args(["create", "--keep", "--warm-up=0"]);
    fill.arg(format!("--ops={nodes}"));
    fill.args(["--servers", &server.addr()]).args(options);
    output(&mut fill).map(drop)
}

/// Fills a fresh server, then ends it as a crash would and takes the time until it serves again.
fn million(target: Target, baton: &Path, dir: &Path, size: &mut Size) -> Result<()> {
    let mut server = Server::start(target, baton, &dir.join(format!("{target:?}-{MILLION}")))?;
    fill(&server, 1_000_000, &[])?;
    size.million_bytes = memory_bytes(server.pid()?, "VmRSS")?;
    server.kill();
    size.restart_seconds = server.restart()?.as_secs_f64();
    Ok(())
}

fn render(args: &Args, book: &Results, sizes: &[Size]) -> String {
    let [zookeeper, baton] = TARGETS.map(Taker::Ours);
    let mut text = format!(
        "Taken on {}, load generator included; median of {} rounds of {} s.\n\n",
        machine::describe(),
        args.rounds,
        args.seconds
    );
    let mut rows = Vec::new();
    for case in &RAW {
        let (Some(peer), Some(ours)) = (
            book.get(&(case.name, zookeeper)),
            book.get(&(case.name, baton)),
        ) else {
            continue;
        };
        rows.push(ours.beside(peer, case.label));
    }
    if !rows.is_empty() {
        let head = Measurements::head("workload (connections × in flight)");
        text += &markdown(&head, &rows);
        text.push('\n');
    }
    let rate = |case: &Case, who| {
        book.get(&(case.name, who))
            .map_or(0.0, |f: &Measurements| f.ops_per_second.median())
    };
    let rows: Vec<Vec<String>> = RECIPES
        .iter()
        .filter(|case| book.contains_key(&(case.name, baton)))
        .map(|case| {
            let beside = RECIPES
                .iter()
                .find(|one| peer(one).is_some() && case.name.starts_with(one.name))
                .unwrap_or(case);
            let [on_zookeeper, on_baton] = TARGETS.map(|target| rate(beside, Taker::Peer(target)));
            let measurement = |value: f64| {
                if value > 0.0 {
                    show(value)
                } else {
                    "–".to_owned()
                }
            };
            let label = match peer(case) {
                Some(peer) => format!("{} (peer: {})", case.label, peer.name),
                None => case.label.to_owned(),
            };
            vec![
                label,
                measurement(on_zookeeper),
                measurement(rate(case, zookeeper)),
                measurement(on_baton),
                measurement(rate(case, baton)),
                ratio(rate(case, zookeeper), on_zookeeper),
                ratio(rate(case, baton), on_zookeeper),
            ]
        })
        .collect();
    if !rows.is_empty() {
        text += &markdown(
            &[
                "recipe, a second",
                "the peer on ZooKeeper",
                "Baton's recipes on ZooKeeper",
                "the peer on Baton",
                "Baton's recipes on Baton",
                "same server, to the peer",
                "all Baton, to the peer on ZooKeeper",
            ],
            &rows,
        );
        text.push('\n');
    }
    if let [peer, ours] = sizes {
        let megabytes = |bytes: f64| format!("{} MB", show(bytes / 1e6));
        let mut rows = vec![vec![
            "resident, idle after start".to_owned(),
            megabytes(peer.idle_bytes),
            megabytes(ours.idle_bytes),
            ratio(ours.idle_bytes, peer.idle_bytes),
        ]];
        if ours.million_bytes > 0.0 {
            rows.push(vec![
                "resident with one million znodes of 100 bytes".to_owned(),
                megabytes(peer.million_bytes),
                megabytes(ours.million_bytes),
                ratio(ours.million_bytes, peer.million_bytes),
            ]);
            rows.push(vec![
                "from `kill -9` to serving again with them".to_owned(),
                format!("{} s", show(peer.restart_seconds)),
                format!("{} s", show(ours.restart_seconds)),
                ratio(ours.restart_seconds, peer.restart_seconds),
            ]);
        }
        text += &markdown(&["memory and start", "ZooKeeper", "Baton", "ratio"], &rows);
    }
    text
}
