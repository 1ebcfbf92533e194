//! `baton-bench`: a load generator for any server of the ZooKeeper protocol. It measures and prints
//! one JSON object; it never shares code with the client crate for the raw workloads, so that what
//! it measures is the server, and its own cost stays small beside it.
//!
//! | module | owns |
//! |---|---|
//! | `recipes` | the workloads of recipes |
//! | `load` | the raw workloads |
//! | `window` | the measured window: warm-up, time or number of operations |
//! | `conn`, `script` | one lean connection; what each connection asks for |
//! | `report` | the result |
//! | `process` | CPU time and memory of a process |

mod conn;
mod load;
mod process;
mod recipes;
mod report;
mod script;
mod window;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use baton_tls::ClientTls;
use clap::{Parser, ValueEnum};

use crate::report::Report;

/// Result of a step of a run: its error is shown on one line.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Measure a server: throughput, latency, CPU time of an operation.
///
/// The raw workloads keep `--connections` x `--in-flight` requests under way. The others run the
/// recipes, one at a time on each connection, each with its own session. All nodes are made below
/// `--path` and removed again at the end.
#[derive(Debug, Parser)]
#[command(name = "baton-bench")]
struct Args {
    /// The workload.
    #[arg(value_enum)]
    workload: Workload,
    /// Servers as host:port,…; tls://host:port with TLS.
    #[arg(long, value_name = "LIST")]
    servers: String,
    /// Certificates of the authorities that sign the servers', for tls://.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Connections, spread over the servers in turn [default: 16; handoff and election 8; lock,
    /// queues, work and replace 1].
    #[arg(long, value_name = "N")]
    connections: Option<usize>,
    /// Requests kept in flight on each connection.
    #[arg(long, value_name = "N", default_value_t = 32)]
    in_flight: usize,
    /// `lock`, `handoff` and `work`: how one turn's release and the next turn's acquire are sent.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Turns::Awaited)]
    turns: Turns,
    /// Bytes of each value.
    #[arg(long, value_name = "N", default_value_t = 100)]
    value_bytes: usize,
    /// Nodes that `load` makes, and that `get`, `set` and `mixed` work on.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    nodes: usize,
    /// Share of the operations of `mixed` that read.
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u64).range(..=100))]
    reads: u64,
    /// Use some nodes more than others, by Zipf's law with the exponent 0.99.
    #[arg(long)]
    zipf: bool,
    /// Measure this long.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, conflicts_with = "ops")]
    seconds: Duration,
    /// Measure this many operations instead.
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// Run this long before measuring.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    warm_up: Duration,
    /// Process of the server on this machine, for its CPU time and memory; may be repeated.
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Node below which the run makes its nodes.
    #[arg(long, value_name = "PATH", default_value = "/baton-bench")]
    path: String,
    /// Name of the run's own node below that, by which a run finds what another has left with
    /// --keep [default: the process id].
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Items that `work` claims in one change.
    #[arg(long, value_name = "N", default_value_t = 1)]
    prefetch: usize,
    /// Leave the nodes in place at the end, to fill a server.
    #[arg(long)]
    keep: bool,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Load that a run makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Overwrite existing nodes.
    Set,
    /// Read existing nodes.
    Get,
    /// Create persistent nodes.
    Create,
    /// Create the nodes that `get`, `set` and `mixed` work on, each once, for runs with the same
    /// --run; needs --keep.
    Load,
    /// Create and delete ephemeral sequential nodes; each of the two counts as an operation.
    Churn,
    /// Four reads to one overwrite, or as --reads says.
    Mixed,
    /// Nineteen reads to one new node; the newest of a connection are read most.
    Latest,
    /// Acquire and release a lock without contention; one operation is the pair.
    Lock,
    /// Several clients contend for one lock; one operation is a hand-off.
    Handoff,
    /// Replace the only node of a wait queue by a new one at its end, in one change, with nobody to
    /// wait for or to notify: the least that a hand-off costs the server in any recipe.
    Replace,
    /// Several candidates for one leadership; each resigns at once. One operation is an election,
    /// its latency the time from the resignation to the next leader's election.
    Election,
    /// Offer an item to one queue and take one; one operation is the pair.
    Queue,
    /// Offer an item to one locking queue, lock one and consume it; one operation is all three.
    LockingQueue,
    /// Claim an item of a work queue and acknowledge it; one operation is the pair. The items are
    /// put meanwhile, 500 at a time.
    Work,
}

/// Succession of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Turns {
    /// The end is awaited first.
    Awaited,
    /// Both in one packet.
    Pipelined,
    /// Both in one change; `lock` and `handoff` only.
    Requeued,
}

impl Args {
    /// Connections of this run.
    fn connections(&self) -> usize {
        let usual = match self.workload {
            Workload::Lock
            | Workload::Replace
            | Workload::Queue
            | Workload::LockingQueue
            | Workload::Work => 1,
            Workload::Handoff | Workload::Election => 8,
            _ => 16,
        };
        self.connections.unwrap_or(usual).max(1)
    }

    /// The node of this run: two runs at a time do not meet.
    fn run_path(&self) -> String {
        match &self.run {
            Some(run) => format!("{}/{run}", self.path),
            None => format!("{}/{}", self.path, std::process::id()),
        }
    }

    /// Whether each connection creates nodes of its own.
    fn creates_own_nodes(&self) -> bool {
        matches!(
            self.workload,
            Workload::Create | Workload::Churn | Workload::Latest
        )
    }

    fn tls(&self) -> Result<Option<ClientTls>> {
        Ok(self.tls_ca.as_ref().map(ClientTls::new).transpose()?)
    }
}

fn main() -> ExitCode {
    let report = args().and_then(|args| measure(&args));
    match report.and_then(|report| Ok(serde_json::to_string(&report)?)) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("baton-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn args() -> Result<Args> {
    let mut args = Args::parse();
    if args.workload == Workload::Load {
        if !args.keep {
            return Err("`load` makes nodes for later runs: add --keep".into());
        }
        args.ops = Some(args.nodes as u64);
        args.warm_up = Duration::ZERO;
    }
    Ok(args)
}

fn measure(args: &Args) -> Result<Report> {
    // One thread: the generator shares the machine with the server and must leave it the other
    // cores.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        match args.workload {
            Workload::Lock
            | Workload::Handoff
            | Workload::Replace
            | Workload::Election
            | Workload::Queue
            | Workload::LockingQueue
            | Workload::Work => recipes::run_recipe(args).await,
            _ => load::run_raw(args).await,
        }
    })
}
