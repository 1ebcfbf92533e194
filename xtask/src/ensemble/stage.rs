//! Stage of every trial: three servers, clients on them, rounds of load whose histories are
//! checked, and at the end the check of each data folder.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use baton_testkit::history::{self, Operation};
use baton_testkit::{Ensemble, ServerOptions, Target, TestServer, baton_binary, inspect};
use fastrand::Rng;
use tokio::time::sleep;

use super::gaps::{self, Fault, Spread};
use super::load::{self, Client, Load, PATIENCE, Round, RunClock};
use crate::{Result, command};

pub(super) const SERVERS: usize = 3;
/// Pause between two questions for something that comes soon.
const POLL: Duration = Duration::from_millis(200);
/// Default length of a run that nothing but the time ends.
const LENGTH: Duration = Duration::from_secs(600);
/// Number of lines of a server's log that are shown when a trial has failed.
const LOG_LINES: usize = 25;

/// Settings of the trials.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) target: Target,
    /// The `baton` command; `None` for the one beside this program.
    pub(super) baton: Option<PathBuf>,
    /// Runs of each trial.
    pub(super) runs: usize,
    /// No further run begins after this long.
    pub(super) limit: Option<Duration>,
    pub(super) seed: u64,
    /// Operations of each client in a second.
    pub(super) rate: u32,
    /// For how many milliseconds a server is paused or cut off.
    pub(super) pause_ms: RangeInclusive<u64>,
    /// Threads that make a machine busy.
    pub(super) busy_threads: usize,
    /// The round trip between two servers, where it is not loopback's.
    pub(super) apart: Option<Duration>,
}

impl Settings {
    /// The `baton` command.
    pub(super) fn baton(&self) -> Result<PathBuf> {
        match &self.baton {
            Some(program) => Ok(program.clone()),
            None => Ok(baton_binary()?),
        }
    }

    /// Length of a run that nothing but the time ends.
    pub(super) fn length(&self) -> Duration {
        self.limit.unwrap_or(LENGTH)
    }

    fn options(&self, has_wires: bool) -> ServerOptions {
        let options = ServerOptions {
            baton: self.baton.clone(),
            wires: match self.apart {
                Some(round_trip) => Some(round_trip / 2),
                None => has_wires.then_some(Duration::ZERO),
            },
            ..ServerOptions::default()
        };
        match self.target {
            Target::Baton => options,
            // Those of ZooKeeper's own example of a configuration.
            Target::ZooKeeper => ServerOptions {
                tick: Duration::from_secs(2),
                min_session_timeout: Duration::from_secs(4),
                sync_limit: 5,
                ..options
            },
        }
    }
}

/// Measurements and counts of a trial.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    pub(super) runs: usize,
    /// Times for which clients whom the fault must not hold up had no write acknowledged.
    pub(super) gaps: Spread,
    pub(super) acknowledged: usize,
    /// Writes without an answer, of all clients.
    pub(super) unanswered: usize,
    /// Connections and writes that the same clients lost.
    pub(super) disturbances: u64,
    /// Elections that no fault called for, where they are counted.
    pub(super) elections: u64,
}

impl Report {
    /// The columns of [`Report::row`].
    pub(super) const HEAD: [&str; 8] = [
        "trial",
        "runs",
        "gap p50",
        "gap p99",
        "gap max",
        "writes acknowledged",
        "writes without an answer",
        "connections and writes lost",
    ];

    pub(super) fn row(&self, what: &str) -> Vec<String> {
        let [median, high, max] = self.gaps.cells();
        vec![
            what.to_owned(),
            self.runs.to_string(),
            median,
            high,
            max,
            self.acknowledged.to_string(),
            self.unanswered.to_string(),
            self.disturbances.to_string(),
        ]
    }
}

/// The servers, the clients, and what was found so far.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) settings: Settings,
    pub(super) ensemble: Ensemble,
    pub(super) clients: Vec<Client>,
    pub(super) clock: RunClock,
    pub(super) rng: Rng,
    pub(super) report: Report,
    began: Instant,
    rounds: usize,
}

/// A round that is under way.
#[derive(Debug)]
pub(super) struct ActiveRound {
    pub(super) round: Round,
    pub(super) load: Load,
    /// Number of connections of each client when it began.
    connections: Vec<u64>,
}

impl Stage {
    /// Starts the servers, and a client on each.
    pub(super) async fn start(settings: &Settings, has_wires: bool) -> Result<Self> {
        let mut stage = Self::without_clients(settings, has_wires).await?;
        stage.clients = Client::one_each(stage.ensemble.servers()).await?;
        Ok(stage)
    }

    /// Starts the servers, and this number of clients that connect to any.
    pub(super) async fn with_moving_clients(settings: &Settings, count: usize) -> Result<Self> {
        let mut stage = Self::without_clients(settings, false).await?;
        let servers = stage.ensemble.connect_string();
        for index in 0..count {
            stage.clients.push(Client::connect(index, &servers).await?);
        }
        Ok(stage)
    }

    /// Starts this number of servers with further arguments, and as many clients that connect to
    /// any.
    pub(super) async fn of_size(settings: &Settings, size: usize, args: &[&str]) -> Result<Self> {
        let options = ServerOptions {
            baton_args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            ..settings.options(false)
        };
        let mut stage = Self::with_options(settings, size, options).await?;
        let servers = stage.ensemble.connect_string();
        for index in 0..size {
            stage.clients.push(Client::connect(index, &servers).await?);
        }
        Ok(stage)
    }

    /// Starts the servers.
    pub(super) async fn without_clients(settings: &Settings, has_wires: bool) -> Result<Self> {
        Self::with_options(settings, SERVERS, settings.options(has_wires)).await
    }

    async fn with_options(
        settings: &Settings,
        size: usize,
        options: ServerOptions,
    ) -> Result<Self> {
        Ok(Self {
            settings: settings.clone(),
            ensemble: Ensemble::start_processes(settings.target, size, options).await?,
            clients: Vec::new(),
            clock: RunClock::start(),
            rng: Rng::with_seed(settings.seed),
            report: Report::default(),
            began: Instant::now(),
            rounds: 0,
        })
    }

    /// Returns whether another run is due. Counts it.
    pub(super) fn has_next_run(&mut self) -> bool {
        let has_time = self
            .settings
            .limit
            .is_none_or(|limit| self.began.elapsed() < limit);
        let is_due = self.report.runs < self.settings.runs && (has_time || self.report.runs == 0);
        self.report.runs += usize::from(is_due);
        is_due
    }

    pub(super) fn server(&mut self, index: usize) -> Result<&mut TestServer> {
        let server = self.ensemble.servers_mut().get_mut(index);
        server.ok_or_else(|| format!("there is no server with index {index}").into())
    }

    /// All servers but this one.
    pub(super) fn others(index: usize) -> Vec<usize> {
        (0..SERVERS).filter(|other| *other != index).collect()
    }

    /// Lets the load go on for a moment that is different each time.
    pub(super) async fn moment(&mut self) {
        let millis = self.rng.u64(100..400);
        sleep(Duration::from_millis(millis)).await;
    }

    /// Stops a server and starts it again, as `program` if one is given, and waits until all
    /// clients go on and a server leads.
    pub(super) async fn restart_one(
        &mut self,
        index: usize,
        program: Option<&Path>,
        running: &ActiveRound,
    ) -> Result<Fault> {
        let at = self.clock.now();
        let server = self.server(index)?;
        server.stop().await?;
        if let Some(program) = program {
            server.set_program(program.to_owned())?;
        }
        self.ensemble.restart(&[index]).await?;
        self.all_go_on(running).await?;
        self.moment().await;
        let fault = Fault {
            at,
            until: self.clock.now(),
            clients: self.clients.iter().map(|client| client.index).collect(),
        };
        self.ensemble.wait_leader().await?;
        Ok(fault)
    }

    /// The highest term of any Baton.
    pub(super) async fn term(&self) -> Result<u64> {
        let servers = self.ensemble.servers();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut terms = Vec::new();
            for server in servers {
                let term = inspect::metric(server.addr(), "baton_term").await;
                terms.extend(term.ok().flatten());
            }
            if terms.len() == servers.len() {
                return Ok(terms.into_iter().max().unwrap_or_default());
            }
            if Instant::now() > deadline {
                return Err("a server does not say its term".into());
            }
            sleep(POLL).await;
        }
    }

    /// For how long the next server is paused or cut off.
    pub(super) fn pause(&mut self) -> Duration {
        Duration::from_millis(self.rng.u64(self.settings.pause_ms.clone()))
    }

    /// Has all clients begin a new round, and waits until the writes of each are acknowledged.
    pub(super) async fn begin(&mut self) -> Result<ActiveRound> {
        self.rounds += 1;
        let maker = self.clients.first().ok_or("there is no client")?;
        let round = Round::make(&format!("/round-{}", self.rounds), maker).await?;
        // Otherwise a client could write below a znode that its server does not show yet.
        for client in &self.clients {
            load::catch_up(client).await?;
        }
        let load = Load::start(&self.clients, &round, self.clock, self.settings.rate);
        let running = ActiveRound {
            round,
            load,
            connections: self
                .clients
                .iter()
                .map(|client| client.session.epoch())
                .collect(),
        };
        self.all_go_on(&running).await?;
        self.moment().await;
        Ok(running)
    }

    /// Waits until every client's writes are acknowledged again.
    pub(super) async fn all_go_on(&self, running: &ActiveRound) -> Result<()> {
        let all: Vec<usize> = self.clients.iter().map(|client| client.index).collect();
        running.load.goes_on(&all, self.clock.now()).await
    }

    /// Ends a round: measures the faults, and checks the history against what every server shows.
    pub(super) async fn end(
        &mut self,
        running: ActiveRound,
        faults: &[Fault],
        more: Vec<Operation>,
    ) -> Result<()> {
        let ActiveRound {
            round,
            load,
            connections,
        } = running;
        let mut operations = load.stop().await?;
        operations.extend(more);
        let mut endings = Vec::new();
        for client in &self.clients {
            let state = client.session.state();
            if state.is_final() {
                return Err(
                    format!("the session of client {} was lost: {state}", client.index).into(),
                );
            }
            endings.push(round.ending(client).await?);
        }
        let first = endings.first().cloned().unwrap_or_default();
        let mut problems = history::check(&operations, &first);
        for (client, ending) in self.clients.iter().zip(&endings) {
            if *ending != first {
                problems.push(format!(
                    "client {} sees another ending than client 0: {}",
                    client.index,
                    difference(&format!("{first:?}"), &format!("{ending:?}"))
                ));
            }
        }
        for fault in faults {
            self.report.gaps.push(gaps::after(&operations, fault));
        }
        let counts = |index: usize| {
            let spared = |fault: &Fault| fault.clients.contains(&index);
            !faults.is_empty() && faults.iter().all(spared)
        };
        for (client, before) in self.clients.iter().zip(connections) {
            if counts(client.index) {
                self.report.disturbances += client.session.epoch() - before;
            }
        }
        for operation in &operations {
            self.report.acknowledged += usize::from(operation.act.zxid().is_some());
            if operation.act.is_lost_write() {
                self.report.unanswered += 1;
                self.report.disturbances += u64::from(counts(operation.client));
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "the history of round {} is broken: {}",
                self.rounds,
                problems.join("; ")
            )
            .into()),
        }
    }

    /// Ends a trial with this outcome: stops the servers and checks their data folders, or shows
    /// the servers' logs beside a failure.
    pub(super) async fn finish(mut self, outcome: Result<()>) -> Result<Report> {
        if let Err(error) = outcome {
            self.show_logs();
            return Err(error);
        }
        for client in &self.clients {
            client
                .session
                .close_timeout(Duration::from_secs(10))
                .await?;
        }
        for server in self.ensemble.servers_mut() {
            if server.runs() {
                server.stop().await?;
            }
        }
        if self.settings.target == Target::Baton {
            let baton = self.settings.baton()?;
            for server in self.ensemble.servers() {
                let mut verify = Command::new(&baton);
                command::output(verify.args(["wal", "verify"]).arg(server.data_dir()))?;
            }
        }
        Ok(self.report)
    }

    /// Shows the end of each server's log.
    fn show_logs(&self) {
        for (index, server) in self.ensemble.servers().iter().enumerate() {
            let log = server.log();
            let lines: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
            eprintln!("server {}, on {}:", index + 1, server.addr());
            for line in lines.into_iter().rev() {
                eprintln!("    {line}");
            }
        }
    }
}

/// Returns the place at which two texts begin to differ.
fn difference(one: &str, other: &str) -> String {
    let same = one
        .chars()
        .zip(other.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let from = |text: &str| -> String {
        text.chars()
            .skip(same.saturating_sub(20))
            .take(120)
            .collect()
    };
    format!("{:?} and {:?}", from(one), from(other))
}
