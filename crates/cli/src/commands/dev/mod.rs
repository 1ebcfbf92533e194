//! `baton dev`: servers on this machine to try things out, each a process of its own. They end with
//! this process, also if it is killed.
//!
//! | module | owns |
//! |---|---|
//! | `dev_context` | the context by which other commands find them |
//! | `mode` | what a server says of itself: leader, follower, alone |
//! | `server_process` | the process of one server: its start and its end |
//! | `plan` | how many servers, their ports, folders and configuration files |

mod dev_context;
mod mode;
mod plan;
mod server_process;

use std::convert::Infallible;
use std::time::Duration;

use self::dev_context::DevContext;
use self::mode::Mode;
use self::plan::{Plan, ServerAddresses};
use self::server_process::ServerProcess;
use crate::context::{Context, SERVERS_FLAG};
use crate::exit::Failure;
use crate::output::record::record;
use crate::signals::{self, Signals};

/// Pause between two looks at the servers while they start.
const START_INTERVAL: Duration = Duration::from_millis(20);
/// Pause between two looks at the servers.
const INTERVAL: Duration = Duration::from_millis(200);
/// Number of looks in a row without a leader before that is said: an election takes less.
const LEADERLESS: u32 = 10;
/// Time that the list of servers waits until each knows the first leader.
const FIRST_LEADER: Duration = Duration::from_secs(5);
/// Pause before a server that has ended is started again, in looks.
const RESTART_AFTER: u32 = 5;

/// Start a server, or several that form an ensemble, to try things out.
///
/// Each server is a process of its own, with a folder of its own, on free ports of 127.0.0.1. Kill
/// one with kill -9 and watch the others go on. All of them end with this command. They talk to
/// each other without TLS.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton dev                               one server
  baton dev --servers 3                   three that form an ensemble
  baton dev --servers 3 --data-dir ./dev  keep the data for the next time
  baton dev --servers 3 --restart         restart a server that was killed
  baton lock --context dev /x -- CMD      in another terminal
  baton --context dev server ls           the role of each server

While it runs, the context dev names its servers; export BATON_CONTEXT=dev
selects it in a shell. It prints the list for --servers, a line for each server
(id, role, address, console, process id, data folder), then one for each server
that ends and each change of the leader. FOLDER/N.toml is the configuration of
server N, and FOLDER/N/server.log its log. FOLDER is --data-dir or
BATON_DATA_DIR, which keeps data and ports, or a new temporary folder that is
removed at the end.
Exit codes: 0 stopped by TERM   2 usage
            125 a server did not start, or every server has ended")]
pub(crate) struct Args {
    /// Number of servers to start, 1 to 7 [default: 1, or as many as the data folder has].
    // The same id as the list of servers that other verbs take, which it replaces here.
    #[arg(long, value_name = "N")]
    servers: Option<String>,
    /// The first port of three ranges, one port of each for each server: for clients, then for
    /// other servers, then for browsers [default: free ports].
    #[arg(long, value_name = "PORT")]
    port_base: Option<u16>,
    /// Restart a server that has ended.
    #[arg(long)]
    restart: bool,
}

/// Runs the servers until a signal comes or all have ended.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    // A list in the environment is for other verbs.
    let from_flag = context.globals.servers_origin == SERVERS_FLAG;
    let count = args.servers.as_deref().filter(|_| from_flag);
    let folder = context.globals.data_dir.as_deref();
    let plan = Plan::make(folder, count, args.port_base)?;
    // On this thread from beginning to end: the servers end with the thread that has started them.
    context.block_on(async {
        let mut signals = Signals::new()?;
        let mut dev = Dev::new(plan, args.restart, context);
        let outcome = tokio::select! {
            failure = dev.run() => Err(failure),
            number = signals.stop() => Ok(number),
        };
        dev.stop().await;
        let number = outcome?;
        let cause = signals::name(number);
        context
            .output
            .verbose(|| format!("the servers have ended, because of {cause}"));
        dev.plan.tidy();
        Ok(signals::lasted_until(number))
    })?
}

/// The servers and what was last said about them.
struct Dev<'a> {
    plan: Plan,
    restart: bool,
    context: &'a Context,
    /// `None`: not yet made, or not possible.
    dev_context: Option<DevContext>,
    /// In the order of the plan; `None`: it has ended.
    processes: Vec<Option<ServerProcess>>,
    /// For each server, the looks since it ended.
    ended_for: Vec<u32>,
    leader: Option<u64>,
    leaderless: u32,
}

impl<'a> Dev<'a> {
    fn new(plan: Plan, restart: bool, context: &'a Context) -> Self {
        Self {
            dev_context: None,
            processes: Vec::new(),
            ended_for: vec![0; plan.places.len()],
            plan,
            restart,
            context,
            leader: None,
            leaderless: 0,
        }
    }

    /// Starts the servers, then reports what becomes of them. Ends only with a failure. Cancelling
    /// leaves the servers to [`Dev::stop`].
    async fn run(&mut self) -> Failure {
        match self.serve().await {
            Ok(never) => match never {},
            Err(failure) => failure,
        }
    }

    async fn serve(&mut self) -> Result<Infallible, Failure> {
        for place in &self.plan.places {
            let process = ServerProcess::start(&self.plan, place)?;
            self.processes.push(Some(process));
        }
        self.all_serve().await?;
        let modes = self.first_modes().await;
        self.dev_context = match DevContext::make(&self.plan.connect_string()) {
            Ok(made) => made,
            Err(failure) => {
                self.context.output.note(failure.text);
                None
            }
        };
        self.show(&modes);
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.check_processes()?;
            let modes = mode::of_all(&self.plan.places).await;
            self.check_leader(&modes);
        }
    }

    /// Waits until every server answers: those of an ensemble wait for each other.
    async fn all_serve(&mut self) -> Result<(), Failure> {
        loop {
            let mut serving = 0;
            for (process, place) in self.processes.iter_mut().zip(&self.plan.places) {
                let Some(process) = process else { continue };
                if let Some(how) = process.ended()? {
                    return Err(process.start_failure(place.id, &how));
                }
                serving += usize::from(process.serves());
            }
            if serving == self.plan.places.len() {
                return Ok(());
            }
            tokio::time::sleep(START_INTERVAL).await;
        }
    }

    /// The modes of all servers, once each knows the leader or needs none.
    async fn first_modes(&mut self) -> Vec<Option<Mode>> {
        let until = tokio::time::Instant::now() + FIRST_LEADER;
        loop {
            let modes = mode::of_all(&self.plan.places).await;
            let settled = modes.iter().all(Option::is_some);
            if settled || tokio::time::Instant::now() >= until {
                self.leader = mode::leader(&self.plan.places, &modes);
                return modes;
            }
            tokio::time::sleep(START_INTERVAL).await;
        }
    }

    fn show(&self, modes: &[Option<Mode>]) {
        let output = &self.context.output;
        let servers = self.plan.connect_string();
        let folder = self.plan.folder.display();
        let kept = if self.plan.is_temporary {
            " (removed when this command ends)"
        } else {
            ""
        };
        let context = self.dev_context.as_ref().map(|_| dev_context::NAME);
        let by_context = context.map_or(String::new(), |name| format!("--context {name}, or "));
        let line =
            format!("baton: serving; use {by_context}--servers {servers}; data in {folder}{kept}");
        let serving = record! {
            event: "serving",
            ?context,
            servers: &servers,
            data_dir: folder.to_string(),
            temporary: self.plan.is_temporary,
        };
        output.result(&serving, line);
        let all = self.plan.places.iter().zip(&self.processes).zip(modes);
        for ((place, process), mode) in all {
            let (server, address, http) = (place.id, place.address(), place.http());
            let pid = process.as_ref().map_or(0, ServerProcess::pid);
            let data_dir = self.plan.folder_of(place).display().to_string();
            let config = self.plan.config_of(place).display().to_string();
            let page = http.as_ref();
            let page = page.map_or(String::new(), |at| format!(", console on http://{at}/"));
            let role = mode.map_or("no leader known", Mode::name);
            let line =
                format!("server {server}: {role}, {address}{page}, pid {pid}, data in {data_dir}");
            let event = "server";
            let shown = record! { event, server, mode, address, http, pid, data_dir, config };
            output.result(&shown, line);
        }
    }

    /// Reports servers that have ended, and starts them again if that is wanted.
    fn check_processes(&mut self) -> Result<(), Failure> {
        for (at, place) in self.plan.places.iter().enumerate() {
            let (Some(process), Some(ended_for)) =
                (self.processes.get_mut(at), self.ended_for.get_mut(at))
            else {
                continue;
            };
            if let Some(running) = process {
                let Some(how) = running.ended()? else {
                    continue;
                };
                let pid = running.pid();
                *process = None;
                *ended_for = 0;
                self.report_end(place, pid, how);
                continue;
            }
            *ended_for += 1;
            if self.restart && *ended_for >= RESTART_AFTER {
                let started = ServerProcess::start(&self.plan, place)?;
                let pid = started.pid();
                *process = Some(started);
                let record = record! { event: "started", server: place.id, pid };
                let line = format!("server {}: started again, pid {pid}", place.id);
                self.context.output.result(&record, line);
            }
        }
        if !self.restart && self.processes.iter().all(Option::is_none) {
            return Err(Failure::baton(
                "every server has ended; start them again with baton dev, or give --restart",
            ));
        }
        Ok(())
    }

    fn report_end(&self, place: &ServerAddresses, pid: u32, how: String) {
        let next = if self.restart {
            "it is started again".to_owned()
        } else {
            let config = self.plan.config_of(place);
            format!("start it with baton serve --config {}", config.display())
        };
        let line = format!("server {}: pid {pid} {how}; {next}", place.id);
        let record = record! { event: "ended", server: place.id, pid, how, restart: self.restart };
        self.context.output.result(&record, line);
    }

    /// Reports that another server is the leader, or that none has been for some time.
    fn check_leader(&mut self, modes: &[Option<Mode>]) {
        if self.plan.places.len() < 2 {
            return;
        }
        let found = mode::leader(&self.plan.places, modes);
        self.leaderless = if found.is_some() {
            0
        } else {
            self.leaderless.saturating_add(1)
        };
        let changed = match found {
            Some(_) => found != self.leader,
            None => self.leader.is_some() && self.leaderless >= LEADERLESS,
        };
        if !changed {
            return;
        }
        let line = match found {
            Some(id) => format!("server {id}: leader"),
            None => "no server is the leader: writes wait for one".to_owned(),
        };
        self.leader = found;
        let record = record! { event: "leader", leader: found };
        self.context.output.result(&record, line);
    }

    /// Stops the servers and waits for their end.
    async fn stop(&mut self) {
        self.dev_context = None;
        let mut running: Vec<_> = self.processes.drain(..).flatten().collect();
        for process in &running {
            process.ask_to_stop();
        }
        for process in &mut running {
            process.wait_for_end().await;
        }
    }
}
