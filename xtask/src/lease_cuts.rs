//! `cargo xtask lease-cuts`: Baton's lease on three real Apache ZooKeeper servers, one of which is
//! cut off from its leader.
//!
//! Each round many locks are held on one follower, with session timeouts from the shortest to the
//! longest that a stock ensemble grants, by sessions that are idle, that read and that write, with
//! one server known or all, and by the command. Then the follower is cut off, both ways or one way.
//! No guard may say that it holds after another was granted the lock. Locks are acquired at
//! different instants, so that each cut meets their heartbeats at different phases.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton::{Client, Config, Guard, Mutex};
use baton_client::{
    BootInstant, BoxFuture, BoxStream, Clock, CreateMode, Endpoint, Host, LeaseMode, LeaseOptions,
    SocketTransport, SystemClock, Transport,
};
use baton_testkit::{Direction, Ensemble, ServerOptions, Target};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::process::{OwnedChild, build_baton};
use crate::{Result, machine, table};

const TICK: Duration = Duration::from_secs(2);
const TIMEOUTS: [u64; 4] = [4, 12, 30, 40];
const LOADS: [Load; 3] = [Load::Idle, Load::Reading, Load::Writing];
/// Between two questions to a guard, and between two lines of a command.
const STEP: Duration = Duration::from_millis(5);
/// Between two requests of a session that reads or writes.
const PACE: Duration = Duration::from_millis(500);
/// In how many phases a heartbeat's period is cut up for the report.
const PHASES: u128 = 8;

/// Cut a follower that serves holders off from its leader, and see that no guard outlives the next
/// grant.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of rounds for each `syncLimit` and kind of cut.
    #[arg(long, value_name = "N", default_value_t = 2)]
    rounds: usize,
    /// `syncLimit` of the ensembles.
    #[arg(long, value_name = "TICKS", value_delimiter = ',', default_values_t = [5, 20])]
    sync_limits: Vec<u32>,
    /// Sessions of 30 s and more use leases by ping, and state this `syncLimit`, though it is
    /// wrong: the experiment must find locks that are held twice then.
    #[arg(long, value_name = "TICKS")]
    misstate: Option<u32>,
}

impl Args {
    /// Returns the lease options of a session of this timeout, in seconds.
    fn lease(&self, timeout: u64) -> LeaseOptions {
        match self.misstate.filter(|_| timeout >= 30) {
            None => LeaseOptions::default(),
            sync_limit => LeaseOptions {
                tick: Some(TICK),
                sync_limit,
                mode: LeaseMode::Ping,
                ..LeaseOptions::default()
            },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    Idle,
    Reading,
    Writing,
    /// `baton lock`, whose command writes lines.
    Command,
}

/// One holder, and what is known of it.
struct Holder {
    timeout: u64,
    load: Load,
    all_known: bool,
    path: String,
    acquired: BootInstant,
    /// The last instant at which it was known to hold: as its own guard says, or by the last line
    /// of its command.
    last: JoinHandle<std::result::Result<LastMoment, Failure>>,
}

/// Error of the tasks.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Last moment at which something was held.
enum LastMoment {
    Held(BootInstant),
    /// It was given back, not lost: the session survived the cut.
    Survived,
}

/// Connects to one server only, until it is allowed to connect to any.
#[derive(Debug)]
struct PinnedConnector {
    to: SocketAddr,
    pinned: Arc<AtomicBool>,
}

impl Transport for PinnedConnector {
    fn resolve(&self, host: &Host) -> BoxFuture<std::io::Result<Vec<Endpoint>>> {
        SocketTransport.resolve(host)
    }

    fn connect(&self, endpoint: &Endpoint) -> BoxFuture<std::io::Result<BoxStream>> {
        if self.pinned.load(Ordering::Relaxed) && *endpoint != Endpoint::Tcp(self.to) {
            let refused = std::io::ErrorKind::ConnectionRefused;
            return Box::pin(async move { Err(refused.into()) });
        }
        SocketTransport.connect(endpoint)
    }
}

/// Observations of a cell of the report.
#[derive(Default)]
struct CellObservations {
    runs: usize,
    broken: usize,
    worst: Duration,
    survived: usize,
    phases: BTreeSet<u128>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    crate::peer::require()?;
    let baton = build_baton()?;
    let runtime = Runtime::new()?;
    let mut seen: BTreeMap<(u64, Load), CellObservations> = BTreeMap::new();
    for sync_limit in &args.sync_limits {
        let options = ServerOptions {
            tick: TICK,
            min_session_timeout: 2 * TICK,
            sync_limit: *sync_limit,
            ..ServerOptions::default()
        };
        let ensemble = runtime.block_on(Ensemble::start_with(Target::ZooKeeper, 3, options))?;
        let kinds: [&[Direction]; 3] = [
            &Direction::BOTH,
            &[Direction::Outgoing],
            &[Direction::Incoming],
        ];
        for round in 0..args.rounds {
            for (kind, cut) in kinds.into_iter().enumerate() {
                let name = format!("/cuts-{sync_limit}-{round}-{kind}");
                println!("syncLimit {sync_limit}, round {}, cut {cut:?}", round + 1);
                let stagger = Duration::from_millis(1_700 * (round as u64 * 3 + kind as u64) + 300);
                runtime.block_on(one(args, &ensemble, &baton, &name, cut, stagger, &mut seen))?;
            }
        }
    }
    report(&seen, args.misstate.is_some())
}

fn report(seen: &BTreeMap<(u64, Load), CellObservations>, is_misstated: bool) -> Result<()> {
    let rows: Vec<Vec<String>> = seen
        .iter()
        .map(|((timeout, load), seen)| {
            vec![
                format!("{timeout} s, {load:?}"),
                seen.runs.to_string(),
                seen.survived.to_string(),
                format!("{} of {PHASES}", seen.phases.len()),
                seen.broken.to_string(),
                format!("{:?}", seen.worst),
            ]
        })
        .collect();
    let head = [
        "holder",
        "runs",
        "survived",
        "phases met",
        "broken",
        "by up to",
    ];
    println!("{}\n{}", table::markdown(&head, &rows), machine::describe());
    match (seen.values().any(|seen| seen.broken > 0), is_misstated) {
        (true, false) => Err("a lock was held twice".into()),
        (false, true) => Err("no lock was held twice: the experiment finds nothing".into()),
        (true, true) | (false, false) => Ok(()),
    }
}

/// One round.
async fn one(
    args: &Args,
    ensemble: &Ensemble,
    baton: &Path,
    name: &str,
    cut: &[Direction],
    stagger: Duration,
    seen: &mut BTreeMap<(u64, Load), CellObservations>,
) -> Result<()> {
    let leader = ensemble.wait_leader().await?;
    let (follower, healthy) = ((leader + 1) % 3, (leader + 2) % 3);
    let server = |index: usize| ensemble.servers().get(index).ok_or("no such server");
    let (at, other) = (server(follower)?.addr(), server(healthy)?.addr());
    let pinned = Arc::new(AtomicBool::new(true));
    let waiter =
        Client::connect(Config::new(&other.to_string())?.session_timeout(TICK * 20)).await?;
    let mut holders = Vec::new();
    for timeout in TIMEOUTS {
        for load in LOADS {
            for all_known in [false, true] {
                let path = format!("{name}/{timeout}-{load:?}-{all_known}");
                let servers = if all_known {
                    ensemble.connect_string()
                } else {
                    at.to_string()
                };
                let transport = PinnedConnector {
                    to: at,
                    pinned: Arc::clone(&pinned),
                };
                let config = Config::new(&servers)?
                    .session_timeout(Duration::from_secs(timeout))
                    .lease(args.lease(timeout))
                    .transport(Arc::new(transport));
                holders.push(hold(config, timeout, load, all_known, path).await?);
                sleep(Duration::from_millis(70)).await;
            }
        }
    }
    let folder = tempfile::tempdir()?;
    for timeout in [30, 40] {
        let path = format!("{name}/{timeout}-command");
        let lines = folder.path().join(format!("{timeout}"));
        holders.push(command(args, baton, at, timeout, path, &lines).await?);
    }
    // The waiters queue up, the schedules settle, and the cut meets another phase in each round.
    let granted: Vec<_> = holders
        .iter()
        .map(|holder| {
            let (waiter, path) = (waiter.clone(), holder.path.clone());
            tokio::spawn(async move {
                let guard = Mutex::new(&waiter, &path)?.acquire().await?;
                Ok::<_, baton::lock::LockError>((SystemClock.now(), guard))
            })
        })
        .collect();
    sleep(Duration::from_secs(12) + stagger).await;
    let cut_at = SystemClock.now();
    for direction in cut {
        ensemble.set_cut_one_way(follower, *direction, true);
    }
    pinned.store(false, Ordering::Relaxed);
    for (holder, granted) in holders.into_iter().zip(granted) {
        let phase_of = Duration::from_secs(holder.timeout) / 4;
        let since = cut_at.saturating_duration_since(holder.acquired);
        let phase = since.as_nanos() % phase_of.as_nanos() * PHASES / phase_of.as_nanos();
        let (granted, guard) = granted.await??;
        drop(guard);
        let cell = seen.entry((holder.timeout, holder.load)).or_default();
        cell.runs += 1;
        cell.phases.insert(phase);
        let last = holder.last.await?.map_err(|error| error.to_string())?;
        match last {
            LastMoment::Survived => cell.survived += 1,
            LastMoment::Held(last) if last > granted => {
                let by = last.saturating_duration_since(granted);
                println!(
                    "HELD TWICE for {by:?}: {} (known: {})",
                    holder.path, holder.all_known
                );
                cell.broken += 1;
                cell.worst = cell.worst.max(by);
            }
            LastMoment::Held(_) => {}
        }
    }
    for direction in cut {
        ensemble.set_cut_one_way(follower, *direction, false);
    }
    waiter.close_timeout(TICK).await?;
    Ok(())
}

/// Acquires a lock and asks its guard, as long as it says that it holds: at most until the cut is
/// long over.
async fn hold(
    config: Config,
    timeout: u64,
    load: Load,
    all_known: bool,
    path: String,
) -> Result<Holder> {
    let client = Client::connect(config).await?;
    let guard = Mutex::new(&client, &path)?.acquire().await?;
    let session = client.session().await?;
    let acquired = SystemClock.now();
    let own = format!("{path}-data");
    session.create(&own, b"", CreateMode::Persistent).await?;
    let busy = tokio::spawn(async move {
        loop {
            match load {
                Load::Reading => drop(session.exists(&own).await),
                Load::Writing => drop(session.set_data(&own, b"x", None).await),
                Load::Idle | Load::Command => {}
            }
            sleep(PACE).await;
        }
    });
    let last = tokio::spawn(async move {
        let last = ask(guard).await;
        busy.abort();
        drop(client);
        Ok(last)
    });
    Ok(Holder {
        timeout,
        load,
        all_known,
        path,
        acquired,
        last,
    })
}

/// Time after the cut at which a hold counts as one that survived it.
const LONG_AFTER: Duration = Duration::from_secs(70);

async fn ask(guard: Guard) -> LastMoment {
    let mut last = SystemClock.now();
    let end = last + LONG_AFTER;
    loop {
        let now = SystemClock.now();
        if guard.check().is_err() {
            return LastMoment::Held(last);
        }
        last = now;
        if now > end {
            // Given back, so that the waiter goes on.
            drop(guard);
            return LastMoment::Survived;
        }
        sleep(STEP).await;
    }
}

/// `baton lock`, whose command appends the wall clock's time to a file.
async fn command(
    args: &Args,
    baton: &Path,
    at: SocketAddr,
    timeout: u64,
    path: String,
    lines: &Path,
) -> Result<Holder> {
    let script = format!(
        "while :; do date +%s%N >> {}; sleep 0.05; done",
        lines.display()
    );
    let mut command = Command::new(baton);
    command
        .args([
            "--servers",
            &at.to_string(),
            "lock",
            "--session-timeout",
            &format!("{timeout}s"),
        ])
        .args(args.misstate.map_or_else(Vec::new, |sync_limit| {
            [
                "--lease",
                "ping",
                "--ensemble-tick",
                "2s",
                "--ensemble-sync-limit",
            ]
            .map(str::to_owned)
            .into_iter()
            .chain([sync_limit.to_string()])
            .collect()
        }))
        .args([&path, "--", "sh", "-c", &script])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let mut child = OwnedChild::start(&mut command)?;
    while !lines.exists() {
        sleep(STEP).await;
    }
    let (acquired, lines) = (SystemClock.now(), lines.to_owned());
    let last = tokio::spawn(async move {
        let end = SystemClock.now() + LONG_AFTER;
        let mut survived = false;
        while child.0.try_wait()?.is_none() {
            if SystemClock.now() > end {
                survived = true;
                break;
            }
            sleep(STEP * 10).await;
        }
        drop(child);
        if survived {
            return Ok(LastMoment::Survived);
        }
        let text = fs::read_to_string(&lines)?;
        let nanos: u64 = text
            .lines()
            .last()
            .ok_or("the command wrote nothing")?
            .parse()?;
        // From the wall clock's time to the clock of the guards.
        let age = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_nanos(nanos))?;
        Ok(LastMoment::Held(SystemClock.now() - age))
    });
    Ok(Holder {
        timeout,
        load: Load::Command,
        all_known: false,
        path,
        acquired,
        last,
    })
}
