//! `cargo xtask ensemble`: three servers as processes of their own, and what is done to them under
//! load: killed, paused, cut off, restarted, started with the wrong folder.
//!
//! Clients record what they ask for and what they receive. After each run every history is checked
//! against what each server shows, and at the end `baton wal verify` checks each data folder.
//! `docs/project/ensembles.md` says what each trial is for. Short forms of all of them run as
//! tests.
//!
//! | module | owns |
//! |---|---|
//! | `bound` | one write at a time, beside a loop that does only what no server can do without |
//! | `ycsb` | the workloads of YCSB, beside Apache ZooKeeper and etcd |
//! | `throughput` | operations a second of three servers and their cost, beside Apache ZooKeeper |
//! | `chaos` | faults of every kind in random order |
//! | `lock` | `baton lock` held, and handed on, through every fault |
//! | `faults` | servers that are killed, paused, cut off and restarted under load |
//! | `regions` | reads and writes of servers that are far from each other |
//! | `busy` | elections without a fault: a busy machine, a client with large values |
//! | `idle` | what servers cost that nobody uses |
//! | `stale` | reads at one server right after a write at another, beside Apache ZooKeeper |
//! | `members` | several servers that join and leave at once, while one is killed |
//! | `folders` | servers that are started with an empty folder, or an older one |
//! | `pods/` | the Helm chart without Kubernetes |
//! | `upgrade` | servers of an earlier commit that become servers of this tree |
//! | `stage` | what every trial has: servers, clients, rounds |
//! | `load` | clients that write and read at a steady pace |
//! | `gaps` | how long no write was acknowledged |
//! | `exclusion` | exclusion as the thing that a lock protects sees it |

mod bound;
mod busy;
mod chaos;
mod exclusion;
mod faults;
mod folders;
mod gaps;
mod idle;
mod load;
mod lock;
mod members;
pub(crate) mod pods;
mod regions;
mod stage;
mod stale;
mod throughput;
pub(crate) mod upgrade;
mod ycsb;

#[cfg(test)]
mod tests;

use std::time::Duration;

use baton_testkit::{Target, zookeeper_is_installed};
use tokio::runtime::Runtime;

use self::faults::{CUT_BOTH, CUT_INCOMING, CUT_OUTGOING, FaultKind, strike_leader};
use self::stage::{Report, Settings};
use crate::process::{build_baton, work_dir};
use crate::{Result, figure, machine, scale, table};

/// Kill, pause, cut off and restart three servers under load, and check what clients saw.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only these trials [default: all but busy-machine, large-writes, regions, idle and
    /// comparisons].
    #[arg(value_enum)]
    trials: Vec<Trial>,
    /// Runs of each trial [default: 20; of chaos with --seconds, as many as begin in that time].
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Start no further run of a trial after this time.
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Seed of the moments and orders of faults; elections have a random one.
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// Operations per second of each client.
    #[arg(long, value_name = "N", default_value_t = 400)]
    rate: u32,
    /// The servers.
    #[arg(long, value_enum, default_value_t = Servers::Baton)]
    servers: Servers,
    /// Shortest and longest pause or cut of a server, in milliseconds.
    #[arg(long, value_name = "FROM,TO", value_delimiter = ',', default_values_t = [3_000, 20_000])]
    pause: Vec<u64>,
    /// Threads that keep the processor busy, for busy-machine.
    #[arg(long, value_name = "N", default_value_t = 30)]
    busy: usize,
    /// Round trip between two servers, in milliseconds, over relays that hold each byte for half of
    /// it [default: none; 50 for regions].
    #[arg(long, value_name = "MS")]
    apart: Option<u64>,
    /// Rounds of measurement, for throughput and bound.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Seconds for each workload, for throughput, ycsb and bound.
    #[arg(long, value_name = "S", default_value_t = 4)]
    window: u64,
    /// Keys, for ycsb.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: usize,
    /// Only the rows whose name contains this, for throughput.
    #[arg(long, value_name = "TEXT")]
    rows: Option<String>,
    /// Add the gaps of each trial to the figure of them in docs/benchmarks.
    #[arg(long)]
    figure: bool,
    /// Fail where a gap is longer than its bound, where there were more elections, or where idle
    /// servers cost more.
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Servers {
    Baton,
    Zookeeper,
}

/// Trial of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Trial {
    /// `kill -9` of the leader.
    KillLeader,
    /// SIGSTOP of the leader, SIGCONT later.
    PauseLeader,
    /// The leader is cut off: both ways, one way, from one other.
    CutLeader,
    /// `kill -9` of all.
    KillAll,
    /// Each server is stopped and started in turn.
    RollingRestart,
    /// `baton lock` holds through every fault.
    LockHeld,
    /// `baton lock` is handed on through every fault.
    LockHandedOn,
    /// A follower loses its folder.
    WipedFolder,
    /// A follower is started with an older copy of its folder.
    OlderFolder,
    /// Seven servers: two of them leave, join and are swapped at once, while one is killed.
    Members,
    /// No fault, on a busy machine, for ten minutes or --seconds: how many elections there are.
    BusyMachine,
    /// No fault, one client that writes values of 1 MB without a pause, for ten minutes or
    /// --seconds: how many elections there are, and how long another client's writes take.
    LargeWrites,
    /// Servers are killed, paused, cut off, restarted, and started with an empty folder, in random
    /// order, for as long as --seconds says.
    Chaos,
    /// Operations a second and their cost beside Apache ZooKeeper.
    Throughput,
    /// The workloads of YCSB, beside Apache ZooKeeper and etcd.
    Ycsb,
    /// Sessions opened, with an ephemeral, and closed, for ten seconds or --seconds.
    Churn,
    /// One write at a time, beside the bound that the machine sets and Apache ZooKeeper.
    Bound,
    /// Old values read at one server right after a write at another, beside Apache ZooKeeper.
    StaleReads,
    /// No fault and no client, for ten seconds or --seconds: processor time and wake-ups.
    Idle,
    /// No fault, servers that are far from each other, for ten minutes or --seconds: reads and
    /// writes at each, and how many elections there are.
    Regions,
}

/// All but the one that takes long, and what is taken for the page. Those that only Baton can take
/// part in come last.
const ALL: [Trial; 11] = [
    Trial::KillLeader,
    Trial::PauseLeader,
    Trial::CutLeader,
    Trial::KillAll,
    Trial::RollingRestart,
    Trial::LockHeld,
    Trial::LockHandedOn,
    Trial::WipedFolder,
    Trial::OlderFolder,
    Trial::Members,
    Trial::Chaos,
];

/// The ways in which a leader is cut off.
const CUTS: [FaultKind; 4] = [CUT_BOTH, CUT_OUTGOING, CUT_INCOMING, FaultKind::CutFromOne];

/// Runs of a trial, where nothing else is asked for.
const RUNS: usize = 20;
/// Writes of each round of stale-reads.
const STALE_WRITES: usize = 600;

impl Trial {
    fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns whether it is about what only Baton promises, or about Baton's wires.
    fn is_for_baton_only(self) -> bool {
        matches!(
            self,
            Self::CutLeader
                | Self::WipedFolder
                | Self::OlderFolder
                | Self::Members
                | Self::BusyMachine
                | Self::LargeWrites
                | Self::Chaos
        )
    }

    /// The longest gap that is promised.
    fn bound(self) -> Option<Duration> {
        match self {
            Self::KillLeader => Some(Duration::from_millis(300)),
            Self::PauseLeader => Some(Duration::from_secs(1)),
            Self::RollingRestart => Some(Duration::from_millis(100)),
            _ => None,
        }
    }

    /// The most elections that no fault calls for.
    fn most_elections(self) -> Option<u64> {
        match self {
            Self::BusyMachine => Some(1),
            Self::LargeWrites | Self::Regions => Some(0),
            _ => None,
        }
    }

    async fn run(self, settings: &Settings) -> Result<Report> {
        match self {
            Self::KillLeader => strike_leader(settings, false, &[FaultKind::Kill]).await,
            Self::PauseLeader => strike_leader(settings, false, &[FaultKind::Pause]).await,
            Self::CutLeader => strike_leader(settings, true, &CUTS).await,
            Self::KillAll => strike_leader(settings, false, &[FaultKind::KillAll]).await,
            Self::RollingRestart => faults::rolling_restart(settings).await,
            Self::LockHeld => lock::held(settings).await,
            Self::LockHandedOn => lock::handed_on(settings).await,
            Self::WipedFolder => folders::wiped_folder(settings).await,
            Self::OlderFolder => folders::older_folder(settings).await,
            Self::Members => members::change_several(settings).await,
            Self::BusyMachine => busy::busy_machine(settings).await,
            Self::LargeWrites => busy::large_writes(settings).await,
            Self::Chaos => chaos::faults_of_every_kind(settings).await,
            Self::Regions => regions::take(settings).await,
            Self::Throughput
            | Self::Ycsb
            | Self::Churn
            | Self::Bound
            | Self::StaleReads
            | Self::Idle => Err("a measurement is no trial".into()),
        }
    }
}

/// Takes the measurements of a comparison; false where it is a trial.
async fn measure(trial: Trial, args: &Args, settings: &Settings) -> Result<bool> {
    let (baton, rounds, window) = (settings.baton()?, args.rounds, args.window);
    match trial {
        Trial::Throughput => {
            throughput::take(&baton, rounds, window, args.rows.as_deref()).await?;
        }
        Trial::Ycsb => ycsb::take(&baton, args.keys, window).await?,
        Trial::Churn => churn(settings).await?,
        Trial::Bound => bound::take(&baton, rounds, window).await?,
        Trial::StaleReads => stale::take(&baton, rounds, STALE_WRITES).await?,
        Trial::Idle => idle::take(settings, args.check).await?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sessions that come and go, with an ephemeral each, on three servers.
async fn churn(settings: &Settings) -> Result<()> {
    let ensemble = throughput::start(settings.target, &settings.baton()?, throughput::HEAP).await?;
    ensemble.wait_leader().await?;
    let seconds = settings.limit.map_or(10, |limit| limit.as_secs());
    let servers = ensemble.connect_string();
    let churned = tokio::task::spawn_blocking(move || {
        let clients = scale::Clients::of(&servers).map_err(|error| error.to_string())?;
        scale::churn(&clients, seconds).map_err(|error| error.to_string())
    });
    println!(
        "sessions opened, with an ephemeral, and closed in a second; p99: {}",
        churned.await??
    );
    Ok(())
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let [from, to] = args.pause[..] else {
        return Err("--pause takes two numbers".into());
    };
    let target = match args.servers {
        Servers::Baton => Target::Baton,
        Servers::Zookeeper if !zookeeper_is_installed() => {
            return Err("Apache ZooKeeper is not installed".into());
        }
        Servers::Zookeeper => Target::ZooKeeper,
    };
    let settings = Settings {
        target,
        baton: Some(build_baton()?),
        runs: args.runs.unwrap_or(RUNS),
        limit: args.seconds.map(Duration::from_secs),
        seed: args.seed,
        rate: args.rate,
        pause_ms: from..=to.max(from),
        busy_threads: args.busy,
        apart: args.apart.map(Duration::from_millis),
    };
    let trials = match args.trials.is_empty() {
        true => ALL.to_vec(),
        false => args.trials.clone(),
    };
    let of_run = match args.figure {
        true => Some(machine::run(work_dir(None)?.path())?),
        false => None,
    };
    let runtime = Runtime::new()?;
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for trial in trials {
        let name = trial.name();
        if runtime.block_on(measure(trial, args, &settings))? {
            continue;
        }
        if target == Target::ZooKeeper && trial.is_for_baton_only() {
            return Err(format!("{name} is for Baton only").into());
        }
        let is_limited_by_time = trial == Trial::Chaos && args.seconds.is_some();
        let settings = Settings {
            runs: match args.runs {
                None if is_limited_by_time => usize::MAX,
                _ => settings.runs,
            },
            ..settings.clone()
        };
        match runtime.block_on(trial.run(&settings)) {
            Ok(report) => {
                let high = report.gaps.percentile(99);
                if let Some(bound) = trial.bound().filter(|bound| high > *bound)
                    && args.check
                {
                    failures.push(format!("{name}: p99 is {high:?}, more than {bound:?}"));
                }
                if let Some(most) = trial.most_elections() {
                    println!(
                        "{name}: {} elections in {} runs",
                        report.elections, report.runs
                    );
                    if args.check && report.elections > most * report.runs as u64 {
                        failures.push(format!("{name}: more than {most} election in a run"));
                    }
                    continue;
                }
                if let Some(run) = &of_run {
                    let series = format!("{target:?}, {name}");
                    let gaps = figure::distribution(report.gaps.millis());
                    figure::save("fail-over", vec![(series, gaps)], run)?;
                }
                let row = report.row(&name);
                println!("{}", row.join(" | "));
                rows.push(row);
            }
            Err(error) => {
                println!("{name}: {error}");
                failures.push(format!("{name}: {error}"));
            }
        }
    }
    if !rows.is_empty() {
        println!("{}", table::markdown(&Report::HEAD, &rows));
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("; ").into()),
    }
}
