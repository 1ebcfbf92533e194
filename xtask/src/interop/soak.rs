//! Curator's recipes under load on one server that is killed again and again, through connections
//! that are cut. Owns the faults and their times; the load and the checks are in
//! `xtask/java/CuratorSoak.java`.
//!
//! No fault but one lasts as long as a session may be silent, so every session has to outlive all
//! of them. The one is a cut of a way that some clients have for themselves, which lasts longer.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use baton_testkit::{Proxy, Target, Variant};
use tokio::runtime::Runtime;

use super::{Args, OnServer, PAGE};
use crate::command::target_dir;
use crate::process::{Kind, Owned, Server, build_baton, work_dir};
use crate::{Result, java, page, table};

const SESSION_TIMEOUT: Duration = Duration::from_secs(8);
/// The longest that a fault lasts which no session may notice.
const LONGEST_HOLE_MS: u64 = 2_000;
const LONGEST_PAUSE_MS: u64 = 3_000;
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

const HEAD: [&str; 7] = [
    "recipe",
    "turns",
    "hand-overs",
    "claims after a lost session",
    "suspended",
    "sessions lost",
    "errors",
];

/// Runs the soak on Baton's server, or on the one that is named.
pub(super) fn run(args: &Args) -> Result<()> {
    java::require()?;
    java::compile()?;
    let kind = match args.server.map(OnServer::target) {
        Some(Target::ZooKeeper) => Kind::ZooKeeper,
        _ => Kind::Baton(build_baton()?),
    };
    let runtime = Runtime::new()?;
    let dir = work_dir(args.dir.as_deref())?;
    let mut server = Server::start(&kind, dir.path())?;
    let upstream: SocketAddr = server.addr().parse()?;
    let mut ways = Ways {
        lasting: runtime.block_on(Proxy::start(upstream))?,
        cut_off: runtime.block_on(Proxy::start(upstream))?,
        mended_at: None,
    };
    let mut load = Load::start(&ways, &server.addr(), &args.group)?;
    let mut faults = Faults::default();
    faults.inject(
        &mut server,
        &mut ways,
        Duration::from_secs(args.seconds),
        args.seed,
    )?;
    if let Err(error) = load.end() {
        load.broken.push(error.to_string());
    }
    let text = format!(
        "{}\n{}, {} s: {}.",
        table::markdown(&HEAD, &load.rows),
        kind.name(),
        args.seconds,
        faults.describe()
    );
    println!("{text}");
    if !args.dry && args.group.is_empty() && kind != Kind::ZooKeeper {
        page::replace(PAGE, "curator soak", &text)?;
    }
    match load.broken.as_slice() {
        [] if !load.rows.is_empty() => Ok(()),
        [] => Err("the soak ended without a result".into()),
        some => Err(some.join("; ").into()),
    }
}

/// The ways of the clients to the server.
struct Ways {
    lasting: Proxy,
    cut_off: Proxy,
    /// When the way that is cut off is mended, while it is.
    mended_at: Option<Instant>,
}

impl Ways {
    /// Those that are not cut off now.
    fn sound(&self) -> impl Iterator<Item = &Proxy> {
        let second = self.mended_at.is_none().then_some(&self.cut_off);
        [&self.lasting].into_iter().chain(second)
    }

    fn heal(&self) {
        self.sound().for_each(Proxy::heal);
    }
}

/// What was done to the server and to the connections.
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
        server: &mut Server,
        ways: &mut Ways,
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
                ways.cut_off.heal();
                next_cut_off = now + CUT_OFF_EVERY;
            } else if ways.mended_at.is_none() && now >= next_cut_off {
                ways.cut_off.partition();
                ways.mended_at = Some(now + SESSION_TIMEOUT.mul_f64(1.5));
                self.cut_offs += 1;
            }
            // Every second one a kill, the others cuts and, now and then, a hole.
            match (round % 2, rng.u64(..=2)) {
                (0, _) => self.kill(server, rng.u64(..=500))?,
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

    fn kill(&mut self, server: &mut Server, away_ms: u64) -> Result<()> {
        let killed = Instant::now();
        server.kill();
        sleep_ms(away_ms);
        server.restart()?;
        self.kills += 1;
        self.longest_away = self.longest_away.max(killed.elapsed());
        Ok(())
    }

    fn describe(&self) -> String {
        format!(
            "the server killed {} times and away for up to {:.1} s, all connections cut {} times, nothing moving for up to {} s {} \
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
    process: Owned,
    lines: mpsc::Receiver<String>,
    rows: Vec<Vec<String>>,
    broken: Vec<String>,
}

impl Load {
    /// Starts it, and waits until all its clients are at work.
    fn start(ways: &Ways, direct: &str, recipes: &str) -> Result<Self> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(target_dir()?.join("xtask-peers.log"))?;
        let mut process = Owned::start(
            java::peer("CuratorSoak")?
                .args([
                    &ways.lasting.connect_string(),
                    &ways.cut_off.connect_string(),
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
