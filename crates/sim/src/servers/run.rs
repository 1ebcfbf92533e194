//! One seed: servers, clients and faults, and what is true of every run when it is over.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use baton_client::{CreateMode, Error};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::swarm::Swarm;
use super::{faults, figure_eight, operator, reader};
use crate::cluster::Cluster;
use crate::cluster::bug::SeededBug;
use crate::network::Network;
use crate::recorder::Recorder;
use crate::run::{close, judge_closed, judge_open};
use crate::scenario::Scenario;
use crate::stage::Stage;

/// Time for which the members may differ from `/zookeeper/config` once everything is whole again. A
/// server that was added by a change that was not applied leaves after 30 s.
const LIST_LIMIT: Duration = Duration::from_secs(45);
/// Time for the tasks beside the scenario's clients to end then.
const BESIDE_LIMIT: Duration = Duration::from_secs(40);
/// Limit of a write and a sync then.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// Time for which servers go on once rolled-back folders have elected a leader.
const FORKED: Duration = Duration::from_secs(10);
/// Time for servers that are whole to have a leader.
const UNDECIDABLE_AFTER: Duration = Duration::from_secs(4);
/// A run that has not ended then will not end.
const LIMIT: Duration = Duration::from_secs(7_200);

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct ServersSettings {
    /// Scenario of the clients.
    pub scenario: Scenario,
    /// Everything that happens follows from it.
    pub seed: u64,
    /// A mistake that the servers make on purpose.
    pub bug: Option<SeededBug>,
    /// Whether the transcript is kept.
    pub is_recording: bool,
}

/// Outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct ServersReport {
    /// Broken promises; empty for a good run.
    pub failures: Vec<String>,
    /// Rare situations that it came to.
    pub marks: BTreeSet<&'static str>,
    /// Lines of the transcript; empty unless it was to be kept.
    pub transcript: Vec<String>,
    /// Entries of the log.
    pub entries: u64,
    /// Virtual time that passed.
    pub elapsed: Duration,
}

/// Runs one seed, on the calling thread. The same settings give the same report.
#[must_use]
pub fn run(settings: &ServersSettings) -> ServersReport {
    fastrand::seed(settings.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return broken(&error),
    };
    // The engine panics on what it does not expect, and that is a failure like any other.
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(play(settings))));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        broken(&format!("a panic: {}", text.unwrap_or_default()))
    })
}

fn broken(why: &dyn std::fmt::Display) -> ServersReport {
    ServersReport {
        failures: vec![why.to_string()],
        ..ServersReport::default()
    }
}

async fn play(settings: &ServersSettings) -> ServersReport {
    let ServersSettings { scenario, seed, .. } = settings;
    let start = Instant::now();
    let swarm = Swarm::draw(*seed, scenario, settings.bug);
    let timeout = swarm.session_timeout;
    // Long enough for every session that no connection owns to expire.
    let quiet = 2 * timeout + Duration::from_secs(1);
    let recorder = Recorder::new(settings.is_recording);
    recorder.note(|| format!("seed {seed}: {swarm:?}"));
    let (cluster, mut ends) = match Cluster::new(swarm.setup.clone(), recorder.clone()) {
        Ok(made) => made,
        Err(error) => return broken(&error),
    };
    let network = Network::of_cluster(*seed, cluster.clone(), scenario.clients, timeout);
    let stage = Stage::new(
        network.clone(),
        scenario.clients,
        timeout,
        *seed,
        Vec::new(),
    );
    let stage = match stage {
        Ok(stage) => stage,
        Err(error) => return broken(&error),
    };
    for id in cluster.all_ids() {
        cluster.start(id);
    }
    let mut around = JoinSet::new();
    {
        let (network, cluster, swarm) = (network.clone(), cluster.clone(), swarm.clone());
        let clients = scenario.clients;
        around.spawn(async move {
            let scenes = async {
                match swarm.plays_figure_eight {
                    true => figure_eight::play(cluster.clone()).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = faults::strike(network.clone(), cluster.clone(), clients, &swarm) => {}
                () = scenes => {}
            }
            network.heal();
        });
    }
    {
        let network = network.clone();
        around.spawn(async move {
            while let Some(id) = ends.recv().await {
                network.server_ended(id);
            }
        });
    }
    let operator = operator::operate(stage.clone(), cluster.clone(), *seed);
    let operator = (swarm.setup.spares > 0).then(|| tokio::spawn(operator));
    let reader = reader::read(network.clone(), stage.last_client(), *seed);
    let reader = swarm.setup.read_only_mode.then(|| tokio::spawn(reader));
    let whole = async {
        (scenario.play)(stage.clone()).await;
        network.heal();
        for task in [operator, reader].into_iter().flatten() {
            if !matches!(tokio::time::timeout(BESIDE_LIMIT, task).await, Ok(Ok(()))) {
                stage.fail("who changes the members, or only reads, does not come to an end");
            }
        }
        come_to_rest(&cluster, &stage).await;
        tokio::time::sleep(quiet).await;
        if let Some(state) = stage.final_state().await {
            judge_open(scenario, &stage, &state);
            judge_owners(&stage);
            if let Some(check) = scenario.afterwards {
                check(&stage, &state);
            }
        }
        for client in stage.clients() {
            close(&stage, client).await;
        }
        tokio::time::sleep(quiet).await;
        if let Some(state) = stage.final_state().await {
            judge_closed(&stage, &state);
        }
    };
    tokio::select! {
        biased;
        () = cluster.beyond() => {
            network.heal();
            tokio::time::sleep(FORKED).await;
            cluster.check_fork();
        }
        () = undecidable(&cluster, &network) => {}
        () = whole => {}
        () = network.endless() => stage.fail("it does not end: clients and servers do not stop sending"),
        () = tokio::time::sleep(LIMIT) => stage.fail("it does not end: hours have passed"),
    }
    around.abort_all();
    let report = ServersReport {
        failures: recorder.failures(),
        marks: recorder.marks(),
        transcript: recorder.transcript(),
        entries: cluster.applied(),
        elapsed: start.elapsed(),
    };
    network.shut();
    report
}

/// Ends when nothing goes wrong any more, and too few folders have what they had acknowledged for
/// anything to be decided.
async fn undecidable(cluster: &Cluster, network: &Network) {
    loop {
        tokio::time::sleep(UNDECIDABLE_AFTER).await;
        if !network.is_open() {
            tokio::time::sleep(UNDECIDABLE_AFTER).await;
            if cluster.is_undecidable() {
                return;
            }
        }
    }
}

/// Everything is whole again: one server leads, all are at one entry, the members are those that
/// clients are shown, and each takes a write and a sync.
async fn come_to_rest(cluster: &Cluster, stage: &Stage) {
    if stage.final_state().await.is_none() {
        return;
    }
    let limit = Instant::now() + LIST_LIMIT;
    while let Some(difference) = cluster.half_done() {
        if Instant::now() >= limit {
            return stage.fail(&format!(
                "a change of members stays half done: {difference}"
            ));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for id in cluster.members() {
        match tokio::time::timeout(WRITE_LIMIT, write_through(stage, id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => stage.fail(&format!("a write through server {id} fails: {error}")),
            Err(_) => stage.fail(&format!("a write through server {id} has no answer")),
        }
    }
}

/// A write and a sync by a client of this server.
async fn write_through(stage: &Stage, id: u64) -> Result<(), String> {
    let client = stage.client_of(id).map_err(|error| error.to_string())?;
    let session = client.session().await.map_err(|error| error.to_string())?;
    let path = format!("/rest-{id}");
    let said = |error: Error| error.to_string();
    let made = session.create(&path, b"", CreateMode::Ephemeral);
    made.await.map_err(said)?;
    session.sync(&path).await.map_err(said)?;
    session.get_data(&path).await.map_err(said)?;
    let closed = client.close_timeout(Duration::from_secs(2)).await;
    closed.map_err(|error| error.to_string())
}

/// Each ephemeral node has its session.
fn judge_owners(stage: &Stage) {
    for server in stage.network().servers() {
        let sessions = server.sessions();
        for (path, stat) in server.nodes() {
            let owner = stat.ephemeral_owner;
            // Containers and nodes with a time to live are marked by the top byte.
            if owner > 0 && !sessions.contains(&owner) {
                stage.fail(&format!("{path} outlives its session 0x{owner:x}"));
            }
        }
    }
}
