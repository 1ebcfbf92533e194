//! `cargo xtask pods`: the Helm chart without Kubernetes.
//!
//! Processes stand for pods, in network and mount namespaces of their own: each server runs with
//! the arguments and settings that `helm` renders, under its name, which leads to another address
//! after it was moved. What the controller does to pods is done to them under load: deleted, moved
//! with their disks, moved without, given another image one by one, joined by two more. Nothing
//! that was acknowledged may be lost, and no session may end.
//!
//! | module | owns |
//! |---|---|
//! | `pod` | a pod as a process, and what is done to it |
//! | `chart` | the chart as `helm` renders it |

mod chart;
mod pod;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use baton_client::ClientTls;
use baton_testkit::history;
use tokio::runtime::Runtime;

use self::chart::Chart;
use self::pod::Cluster;
use super::load::{self, Client, Load, PATIENCE, Round, RunClock};
use crate::process::build_baton;
use crate::{Result, process};

/// Servers in the beginning, and after the chart was scaled up.
const FOUNDERS: usize = 3;
const SCALED: usize = 5;
const CLIENTS: usize = 6;

/// Do to the servers of the Helm chart what Kubernetes does to pods, under load.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Lint and render the chart, and start nothing.
    #[arg(long)]
    render: bool,
    /// With certificates, for clients and between servers.
    #[arg(long)]
    tls: bool,
    /// Times that everything is done to the first three servers.
    #[arg(long, value_name = "N", default_value_t = 2)]
    runs: usize,
    /// Operations of each client in a second.
    #[arg(long, value_name = "N", default_value_t = 100)]
    rate: u32,
    /// In the namespaces already.
    #[arg(long, hide = true)]
    inside: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let missing: Vec<&str> = ["helm", "unshare", "ip", "mount"]
        .into_iter()
        .filter(|tool| Command::new(tool).arg("--help").output().is_err())
        .collect();
    if !missing.is_empty() {
        return Err(format!("not installed here: {}", missing.join(", ")).into());
    }
    if !args.inside {
        chart::check()?;
        println!("the chart is rendered with 3 and 5 servers, with TLS and without");
    }
    match (args.render, args.inside) {
        (true, _) => Ok(()),
        (false, true) => inside(args),
        (false, false) => enter(),
    }
}

/// Runs this command again in namespaces of its own.
fn enter() -> Result<()> {
    let baton = std::path::absolute(build_baton()?)?;
    let mut again = Command::new("unshare");
    again.args(["--user", "--map-root-user", "--net", "--mount"]);
    again
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1));
    process::succeed(again.arg("--inside").env("BATON_BIN", baton))
}

fn inside(args: &Args) -> Result<()> {
    let baton = build_baton()?;
    let dir = tempfile::tempdir()?;
    let cluster = Cluster::new(dir.path(), args.tls, &baton, SCALED)?;
    std::fs::write(cluster.hosts(), "127.0.0.1 localhost\n")?;
    process::succeed(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    let mut mount = Command::new("mount");
    process::succeed(mount.arg("--bind").arg(cluster.hosts()).arg("/etc/hosts"))?;
    Runtime::new()?.block_on(trial(args, cluster, &baton))
}

/// The clients, the load and what is done.
struct Trial {
    chart: Chart,
    cluster: Cluster,
    images: [PathBuf; 2],
    clients: Vec<Client>,
    round: Round,
    load: Load,
    clock: RunClock,
    done: Vec<(&'static str, Duration)>,
}

async fn trial(args: &Args, mut cluster: Cluster, baton: &Path) -> Result<()> {
    let second = cluster.dir.join("baton-second");
    std::fs::copy(baton, &second)?;
    let chart = Chart {
        replicas: FOUNDERS,
        has_tls: args.tls,
        is_upgrade: false,
    };
    for id in 1..=FOUNDERS {
        cluster.schedule(id)?;
    }
    for id in 1..=FOUNDERS {
        cluster.start(id, chart, baton)?;
    }
    let started = async {
        for id in 1..=FOUNDERS {
            cluster.await_ready(id).await?;
        }
        let mut clients = Vec::new();
        for index in 0..CLIENTS {
            clients.push(connect(&cluster, index, 1..=FOUNDERS).await?);
        }
        let maker = clients.first().ok_or("there is no client")?;
        let round = Round::make("/round", maker).await?;
        for client in &clients {
            load::catch_up(client).await?;
        }
        Result::Ok((clients, round))
    };
    let (clients, round) = match started.await {
        Ok(started) => started,
        Err(error) => {
            cluster.show_logs();
            return Err(error);
        }
    };
    let clock = RunClock::start();
    let mut trial = Trial {
        load: Load::start(&clients, &round, clock, args.rate),
        chart,
        cluster,
        images: [baton.to_owned(), second],
        clients,
        round,
        clock,
        done: Vec::new(),
    };
    if let Err(error) = trial.run(args.runs).await {
        trial.cluster.show_logs();
        return Err(error);
    }
    trial.end(baton).await
}

/// Opens a session with these servers, by their names.
async fn connect(
    cluster: &Cluster,
    index: usize,
    ids: impl Iterator<Item = usize>,
) -> Result<Client> {
    let port = if cluster.has_tls { 2281 } else { 2181 };
    let servers: Vec<String> = ids
        .map(|id| format!("{}:{port}", Chart::host(id)))
        .collect();
    let servers = servers.join(",");
    if !cluster.has_tls {
        return Client::connect(index, &servers).await;
    }
    let tls = cluster.tls();
    let (certificate, key) = (tls.join("tls.crt"), tls.join("tls.key"));
    let tls = ClientTls::new(tls.join("ca.crt"))?.with_identity(certificate, key)?;
    let config = Client::config(&servers)?.tls(tls);
    Client::with(index, config).await
}

impl Trial {
    async fn run(&mut self, runs: usize) -> Result<()> {
        self.goes_on("start").await?;
        for run in 0..runs {
            let id = |step: usize| (run + step) % FOUNDERS + 1;
            self.cluster.pod(id(0))?.delete().await?;
            self.start_again(id(0)).await?;
            self.goes_on("deleted").await?;

            self.cluster.pod(id(1))?.delete().await?;
            self.cluster.reschedule(id(1))?;
            self.start_again(id(1)).await?;
            self.goes_on("another address, the same disk").await?;

            self.cluster.pod(id(2))?.kill();
            self.cluster.reschedule(id(2))?;
            self.start_again(id(2)).await?;
            self.goes_on("machine lost, the same disk").await?;

            self.lose_disk(id(0)).await?;
            self.goes_on("machine and disk lost").await?;

            self.roll().await?;
            self.goes_on("another image, one by one").await?;
        }
        self.scale_up().await?;
        self.goes_on("from 3 to 5 servers").await?;
        self.roll().await?;
        self.goes_on("another image of 5, one by one").await
    }

    async fn start_again(&mut self, id: usize) -> Result<()> {
        let [image, _] = &self.images;
        self.cluster.start(id, self.chart, image)?;
        self.cluster.await_ready(id).await
    }

    /// A machine is lost with its disk: the pod comes back empty and waits for an operator.
    async fn lose_disk(&mut self, id: usize) -> Result<()> {
        self.cluster.pod(id)?.kill();
        self.cluster.reschedule(id)?;
        self.cluster.replace_disk(id)?;
        let [image, _] = self.images.clone();
        self.cluster.start(id, self.chart, &image)?;
        let upgrade = Chart {
            replicas: SCALED,
            is_upgrade: true,
            ..self.chart
        };
        // The options of the job that adds servers reach the same ones.
        let options = upgrade.member_args()?.into_iter();
        let options = options.filter(|arg| arg.starts_with("--"));
        let verb = ["server", "replace", &id.to_string()].map(str::to_owned);
        let args: Vec<String> = verb.into_iter().chain(options).collect();
        self.cluster.run_job(&image, &args)?;
        self.cluster.await_ready(id).await
    }

    /// A rolling update: from the highest number down, each when the one before is ready.
    async fn roll(&mut self) -> Result<()> {
        self.images.reverse();
        let mut ids: Vec<usize> = self.cluster.pods.iter().map(|pod| pod.id).collect();
        ids.sort_unstable();
        for id in ids.into_iter().rev() {
            if !self.cluster.pod(id)?.delete().await? {
                return Err(format!("pod {id} did not end within its grace period").into());
            }
            self.cluster.reschedule(id)?;
            self.start_again(id).await?;
        }
        Ok(())
    }

    /// `helm upgrade` with two servers more: they wait, and the job adds them.
    async fn scale_up(&mut self) -> Result<()> {
        self.chart = Chart {
            replicas: SCALED,
            is_upgrade: true,
            ..self.chart
        };
        let [image, _] = self.images.clone();
        for id in FOUNDERS + 1..=SCALED {
            self.cluster.schedule(id)?;
            self.cluster.start(id, self.chart, &image)?;
        }
        // A job that is started again changes nothing.
        for _ in 0..2 {
            self.cluster.run_job(&image, &self.chart.member_args()?)?;
        }
        for id in FOUNDERS + 1..=SCALED {
            self.cluster.await_ready(id).await?;
        }
        Ok(())
    }

    /// Waits until every client has a write acknowledged that it began now.
    async fn goes_on(&mut self, what: &'static str) -> Result<()> {
        let all: Vec<usize> = (0..self.clients.len()).collect();
        let goes_on = self.load.goes_on(&all, self.clock.now()).await;
        goes_on.map_err(|error| format!("{what}: {error}"))?;
        self.done.push((what, self.clock.now()));
        eprintln!("{:6.1} s: {what}", self.clock.now().as_secs_f64());
        Ok(())
    }

    /// Checks the history against what each server shows.
    async fn end(self, baton: &Path) -> Result<()> {
        let operations = self.load.stop().await?;
        let mut endings = Vec::new();
        for client in &self.clients {
            let state = client.session.state();
            if state.is_final() {
                return Err(
                    format!("the session of client {} was lost: {state}", client.index).into(),
                );
            }
        }
        for id in 1..=SCALED {
            let client = connect(&self.cluster, id, [id].into_iter()).await?;
            endings.push(self.round.ending(&client).await?);
            client.session.close_timeout(PATIENCE).await?;
        }
        let first = endings.first().ok_or("there is no server")?;
        let mut problems = history::check(&operations, first);
        for (id, ending) in (1..).zip(&endings) {
            if ending != first {
                problems.push(format!("server {id} shows another ending than server 1"));
            }
        }
        if !problems.is_empty() {
            self.cluster.show_logs();
            return Err(problems.join("; ").into());
        }
        for client in &self.clients {
            client.session.close_timeout(PATIENCE).await?;
        }
        self.cluster.finish(baton).await?;
        let writes = operations.iter().filter(|it| it.act.zxid().is_some());
        let unknown = operations.iter().filter(|it| it.act.is_lost_write());
        println!(
            "{} changes: {} writes acknowledged, 0 lost; {} without an answer; no session lost",
            self.done.len() - 1,
            writes.count(),
            unknown.count()
        );
        Ok(())
    }
}
