//! Curator's recipes under load on one server that is killed again and again, or on several of
//! which one after the other is killed, through connections that are cut. Owns the faults and their
//! times; the load and the checks are in `xtask/java/CuratorSoak.java`.
//!
//! No fault but one lasts as long as a session may be silent, so every session has to outlive all
//! of them. The one is a cut of a way that some clients have for themselves, which lasts longer.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use baton_testkit::{Ensemble, Proxy, ServerOptions, Target, TestServer, Variant};
use tokio::runtime::Runtime;

use super::{Args, ServerPart};
use crate::command::target_dir;
use crate::process::{OwnedChild, build_baton, server_name};
use crate::{Result, java, table};

const SESSION_TIMEOUT: Duration = Duration::from_secs(8);
/// The longest that a fault lasts which no session may notice.
const LONGEST_HOLE_MS: u64 = 2_000;
const LONGEST_PAUSE_MS: u64 = 3_000;
/// For how long a server is away at most before it is started again: one that stands alone, and one
/// of several.
const LONGEST_AWAY_MS: u64 = 500;
const LONGEST_AWAY_OF_SEVERAL_MS: u64 = 4_000;
/// Between two cuts that end sessions.
const CUT_OFF_EVERY: Duration = Duration::from_secs(25);
/// Opening all clients, or the last turns and the checks at the end.
const PATIENCE: Duration = Duration::from_secs(300);

const CUTS: [Variant; 4] = [
    Variant::Rst,
    Variant::Fin,
    Variant::RstClientOnly,
    Variant::RstServerOnly,
];

const HEAD: [&str; 8] = [
    "recipe",
    "turns",
    "hand-overs",
    "claims after a lost session",
    "suspended",
    "sessions lost",
    "errors",
    "of them nodes forgotten",
];

/// Runs the soak on Baton's servers, or on those that are named.
pub(super) fn run(args: &Args) -> Result<()> {
    java::require()?;
    java::compile()?;
    let target = args.server.map_or(Target::Baton, ServerPart::target);
    let mut servers = Servers::start(target, args.servers.into())?;
    let mut ways = servers.ways()?;
    let mut load = Load::start(&ways, &servers.ensemble.connect_string(), &args.group)?;
    let mut faults = Faults::default();
    faults.inject(
        &mut servers,
        &mut ways,
        Duration::from_secs(args.seconds),
        args.seed,
    )?;
    if let Err(error) = load.end() {
        load.broken.push(error.to_string());
    }
    println!(
        "{}\n{} servers, {}, {} s: {}.",
        table::markdown(&HEAD, &load.rows),
        args.servers,
        server_name(target),
        args.seconds,
        faults.describe()
    );
    match load.broken.as_slice() {
        [] if !load.rows.is_empty() => Ok(()),
        [] => Err("the soak ended without a result".into()),
        some => Err(some.join("; ").into()),
    }
}

/// The servers under the soak, killed one after the other.
struct Servers {
    ensemble: Ensemble,
    /// The index of the next one.
    next: usize,
    runtime: Runtime,
}

impl Servers {
    fn start(target: Target, count: usize) -> Result<Self> {
        let options = ServerOptions {
            baton: Some(build_baton()?),
            wires: None,
            ..ServerOptions::default()
        };
        let runtime = Runtime::new()?;
        let started = Ensemble::start_processes(target, count, options);
        Ok(Self {
            ensemble: runtime.block_on(started)?,
            next: 0,
            runtime,
        })
    }

    /// Two ways to each server.
    fn ways(&self) -> Result<ProxyTable> {
        let proxies = || -> Result<Vec<Proxy>> {
            let start = |server: &TestServer| -> Result<Proxy> {
                Ok(self.runtime.block_on(Proxy::start(server.addr()))?)
            };
            self.ensemble.servers().iter().map(start).collect()
        };
        Ok(ProxyTable {
            lasting: proxies()?,
            cut_off: proxies()?,
            mended_at: None,
        })
    }

    /// Ends a server as a crash would and starts it again, each in its turn.
    fn kill(&mut self, away: Duration) -> Result<()> {
        let index = self.next;
        self.next = (index + 1) % self.ensemble.servers().len();
        let server = self.ensemble.servers_mut().get_mut(index);
        server.ok_or("there is no such server")?.kill();
        thread::sleep(away);
        Ok(self.runtime.block_on(self.ensemble.restart(&[index]))?)
    }

    fn longest_away_ms(&self) -> u64 {
        match self.ensemble.servers() {
            [_] => LONGEST_AWAY_MS,
            _ => LONGEST_AWAY_OF_SEVERAL_MS,
        }
    }
}

/// The ways of the clients to the servers: a proxy to each.
struct ProxyTable {
    lasting: Vec<Proxy>,
    cut_off: Vec<Proxy>,
    /// Time at which the way that is cut off is mended, while it is.
    mended_at: Option<Instant>,
}

impl ProxyTable {
    /// Those that are not cut off now.
    fn sound(&self) -> impl Iterator<Item = &Proxy> {
        let second = match self.mended_at {
            None => self.cut_off.as_slice(),
            Some(_) => &[],
        };
        self.lasting.iter().chain(second)
    }

    fn heal(&self) {
        self.sound().for_each(Proxy::heal);
    }

    fn connect_string(proxies: &[Proxy]) -> String {
        let all: Vec<String> = proxies.iter().map(Proxy::connect_string).collect();
        all.join(",")
    }
}

/// Faults of the servers and of the connections.
#[derive(Debug, Default)]
struct Faults {
    kills: usize,
    cuts: usize,
    holes: usize,
    cut_offs: usize,
    longest_away: Duration,
}

impl Faults {
    fn inject(
        &mut self,
        servers: &mut Servers,
        ways: &mut ProxyTable,
        length: Duration,
        seed: u64,
    ) -> Result<()> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let begin = Instant::now();
        let mut next_cut_off = begin + length / 4;
        for round in 0.. {
            if begin.elapsed() >= length {
                break;
            }
            sleep_ms(rng.u64(..=LONGEST_PAUSE_MS));
            let now = Instant::now();
            if ways.mended_at.is_some_and(|at| now >= at) {
                ways.mended_at = None;
                ways.cut_off.iter().for_each(Proxy::heal);
                next_cut_off = now + CUT_OFF_EVERY;
            } else if ways.mended_at.is_none() && now >= next_cut_off {
                ways.cut_off.iter().for_each(Proxy::partition);
                ways.mended_at = Some(now + SESSION_TIMEOUT.mul_f64(1.5));
                self.cut_offs += 1;
            }
            // Every second one a kill, the others cuts and, now and then, a hole.
            match (round % 2, rng.u64(..=2)) {
                (0, _) => {
                    let away = Duration::from_millis(rng.u64(..=servers.longest_away_ms()));
                    self.kill(servers, away)?;
                }
                (_, 0 | 1) => {
                    let variant = CUTS.get(usize::try_from(rng.u64(..=3))?);
                    let variant = *variant.ok_or("no such cut")?;
                    ways.sound().for_each(|way| way.cut_all(variant));
                    sleep_ms(rng.u64(..=LONGEST_HOLE_MS / 4));
                    ways.heal();
                    self.cuts += 1;
                }
                _ => {
                    ways.sound().for_each(Proxy::partition);
                    sleep_ms(rng.u64(..=LONGEST_HOLE_MS));
                    ways.heal();
                    self.holes += 1;
                }
            }
        }
        ways.mended_at = None;
        ways.heal();
        Ok(())
    }

    fn kill(&mut self, servers: &mut Servers, away: Duration) -> Result<()> {
        let killed = Instant::now();
        servers.kill(away)?;
        self.kills += 1;
        self.longest_away = self.longest_away.max(killed.elapsed());
        Ok(())
    }

    fn describe(&self) -> String {
        format!(
            "one server after the other killed {} times and away for up to {:.1} s, all connections cut {} times, nothing moving for up to {} s {} \
             times, a third of the clients cut off for 1.5 timeouts {} times; session timeout {} s",
            self.kills,
            self.longest_away.as_secs_f64(),
            self.cuts,
            LONGEST_HOLE_MS / 1_000,
            self.holes,
            self.cut_offs,
            SESSION_TIMEOUT.as_secs()
        )
    }
}

fn sleep_ms(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}

/// The process with all clients, and what it said.
struct Load {
    process: OwnedChild,
    lines: mpsc::Receiver<String>,
    rows: Vec<Vec<String>>,
    broken: Vec<String>,
}

impl Load {
    /// Starts it, and waits until all its clients are at work.
    fn start(ways: &ProxyTable, direct: &str, recipes: &str) -> Result<Self> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(target_dir()?.join("xtask-peers.log"))?;
        let mut process = OwnedChild::start(
            java::peer("CuratorSoak")?
                .args([
                    &ProxyTable::connect_string(&ways.lasting),
                    &ProxyTable::connect_string(&ways.cut_off),
                ])
                .args([direct, &SESSION_TIMEOUT.as_millis().to_string(), recipes])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(log),
        )?;
        let stdout = process.0.stdout.take().ok_or("the soak has no pipes")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout)
                .lines()
                .map_while(std::io::Result::ok)
            {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut load = Self {
            process,
            lines,
            rows: Vec::new(),
            broken: Vec::new(),
        };
        load.listen("ready")?;
        Ok(load)
    }

    /// Lets it have its last turns, and reads its results.
    fn end(&mut self) -> Result<()> {
        let mut commands = self.process.0.stdin.take().ok_or("the soak has no pipes")?;
        writeln!(commands, "stop")?;
        self.listen("ended")
    }

    fn listen(&mut self, until: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self
                .lines
                .recv_timeout(left)
                .map_err(|error| format!("the soak did not say '{until}': {error}"))?;
            if line == until {
                return Ok(());
            }
            if let Some(broken) = line.strip_prefix("broken ") {
                println!("{line}");
                self.broken.push(broken.to_owned());
            } else if let Some(row) = line.strip_prefix("row|") {
                self.rows.push(row.split('|').map(str::to_owned).collect());
            }
        }
    }
}
