//! `baton bench`: a load generator for any server of the ZooKeeper protocol. It measures and
//! reports; it never shares code with the client crate for the raw workloads, so that what it
//! measures is the server, and its own cost stays small beside it.
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

use std::io;
use std::time::Duration;

use baton_proto::ErrorCode;
use clap::ValueEnum;

use crate::access::{Access, AccessFiles};
use crate::context::Context;
use crate::exit::Failure;
use crate::signals;
use report::Report;

/// Measure a server: throughput, latency, CPU time of an operation.
///
/// The raw workloads keep `--connections` x `--in-flight` requests under way. `lock`, `handoff` and
/// `queue` run the recipes, one at a time on each connection, each with its own session. All nodes
/// are made below `--path` and removed again at the end.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  baton bench set --servers 127.0.0.1:2181
  baton bench get --connections 1 --in-flight 1 --duration 10s
  baton bench churn --pid $(pidof baton) --json")]
pub(crate) struct Args {
    /// The workload.
    #[arg(value_enum)]
    pub(crate) workload: Workload,
    /// Connections, spread over the servers in turn [default: 16; handoff 8; lock and queue 1].
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<usize>,
    /// Requests kept in flight on each connection.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) in_flight: usize,
    /// `lock`, `handoff` and `work`: how one turn's release and the next turn's acquire are sent.
    #[arg(hide_short_help = true, long, value_name = "HOW", value_enum, default_value_t = Turns::Awaited)]
    pub(crate) turns: Turns,
    /// Bytes of each value.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) value_bytes: usize,
    /// Nodes that `get`, `set` and `mixed` work on.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 1000)]
    pub(crate) nodes: usize,
    /// Measure this long.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = crate::duration::parse, conflicts_with = "ops")]
    pub(crate) duration: Duration,
    /// Measure this many operations instead.
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<u64>,
    /// Run this long before measuring.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = crate::duration::parse)]
    pub(crate) warm_up: Duration,
    /// Process of the server on this machine, for its CPU time and memory; may be repeated.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Vec<u32>,
    /// Node below which the run makes its nodes.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "PATH",
        default_value = "/baton-bench"
    )]
    pub(crate) path: String,
    /// Items that `work` claims in one change.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 1)]
    pub(crate) prefetch: usize,
    /// Leave the nodes in place at the end, to fill a server.
    #[arg(hide_short_help = true, long)]
    pub(crate) keep: bool,
    /// Session timeout to ask for.
    #[arg(hide_short_help = true, long, value_name = "TIME", default_value = "30s", value_parser = crate::duration::parse)]
    pub(crate) session_timeout: Duration,
}

/// The workloads of `baton bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Overwrite existing nodes.
    Set,
    /// Read existing nodes.
    Get,
    /// Create persistent nodes.
    Create,
    /// Create and delete ephemeral sequential nodes; each of the two counts as an operation.
    Churn,
    /// Four reads to one overwrite.
    Mixed,
    /// Acquire and release a lock without contention; one operation is the pair.
    Lock,
    /// Several clients contend for one lock; one operation is a hand-off.
    Handoff,
    /// Replace the only node of a wait queue by a new one at its end, in one change, with nobody to
    /// wait for or to notify: the least that a hand-off costs the server in any
    /// recipe.
    Replace,
    /// Offer an item and poll one; one operation is the pair.
    Queue,
    /// Claim an item of a work queue and acknowledge it; one operation is the pair. The items are
    /// put meanwhile, 500 at a time.
    Work,
}

/// Succession of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Turns {
    /// The end is awaited first.
    Awaited,
    /// Both in one packet.
    Pipelined,
    /// Both in one change; `lock` and `handoff` only.
    Requeued,
}

impl Args {
    /// Connections of this run.
    pub(crate) fn connections(&self) -> usize {
        let usual = match self.workload {
            Workload::Lock | Workload::Replace | Workload::Queue | Workload::Work => 1,
            Workload::Handoff => 8,
            _ => 16,
        };
        self.connections.unwrap_or(usual).max(1)
    }
}

impl Workload {
    /// The name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
            Self::Create => "create",
            Self::Churn => "churn",
            Self::Mixed => "mixed",
            Self::Lock => "lock",
            Self::Handoff => "handoff",
            Self::Replace => "replace",
            Self::Queue => "queue",
            Self::Work => "work",
        }
    }
}

/// Reason why a run has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The server list has no usable entry.
    #[error("no server in '{0}'; name one as host:port or unix:/path with --servers")]
    NoServer(String),
    /// A connection could not be opened.
    #[error("cannot connect to {addr}: {source}; is a server listening there?")]
    Connect {
        /// The address tried.
        addr: String,
        /// The system's error.
        r#source: io::Error,
    },
    /// A connection ended in the run.
    #[error("{addr} ended the connection: {source}; see the server's log")]
    Lost {
        /// The server.
        addr: String,
        /// The system's error.
        r#source: io::Error,
    },
    /// The server's bytes made no sense.
    #[error("{addr} does not answer as a ZooKeeper server: {what}")]
    Protocol {
        /// The server.
        addr: String,
        /// The error.
        what: String,
    },
    /// The server refused an operation, so the run would measure refusals.
    #[error("{addr} refused to {what}: {code}; the run was stopped")]
    Refused {
        /// The server.
        addr: String,
        /// The operation.
        what: &'static str,
        /// Its error code.
        code: ErrorCode,
    },
    /// A recipe failed.
    #[error("the recipe failed: {0}")]
    Recipe(String),
    /// A process named by `--pid` cannot be read.
    #[error(
        "cannot read process {pid}: {what}; --pid works on Linux for processes of this machine"
    )]
    Process {
        /// The process.
        pid: u32,
        /// The error.
        what: String,
    },
    /// The runtime could not be started.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}

/// Runs the workload and prints its measurements.
///
/// # Errors
/// The first error: a run that meets an error has no result.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let Some(servers) = &context.globals.servers else {
        return Err(Failure::usage(
            "bench needs a server to measure; name it with --servers host:port",
        ));
    };
    let access = AccessFiles::of(&context.globals).read()?;
    if servers.contains("tls://") {
        // Refused in the words of every verb if nobody says whom to trust.
        access.config(servers, context.globals.servers_origin)?;
    }
    let report = measure(args, servers, &access);
    let report = report.map_err(|error| Failure::baton(error.to_string()))?;
    context
        .output
        .paragraph(&report, report.to_string().trim_end().to_owned());
    Ok(signals::outcome())
}

fn measure(args: &Args, servers: &str, access: &Access) -> Result<Report, BenchError> {
    // One thread: the generator shares the machine with the server and must leave it the other
    // cores.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BenchError::Runtime)?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        match args.workload {
            Workload::Lock
            | Workload::Handoff
            | Workload::Replace
            | Workload::Queue
            | Workload::Work => recipes::run_recipe(args, servers, access).await,
            _ => load::run_raw(args, servers, access).await,
        }
    })
}
