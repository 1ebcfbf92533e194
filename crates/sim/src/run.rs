//! One run: a scenario under a plan, and what is true of every scenario when it is over.

use std::collections::BTreeSet;
use std::time::Duration;

use baton_client::Client;

use crate::fault::Plan;
use crate::network::Network;
use crate::scenario::Scenario;
use crate::stage::{FinalState, Stage};

/// The session timeout of every simulated client.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
/// After the actors: long enough for every cleanup, and for every session that no connection owns
/// to expire.
const QUIET: Duration = Duration::from_secs(9);
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// A run that has not ended then will not end: ten times what the longest one takes.
const LIMIT: Duration = Duration::from_secs(7_200);

/// Outcome of one run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Broken promises; empty for a good run.
    pub failures: Vec<String>,
    /// Frames of each client, up and down.
    pub frames: Vec<[usize; 2]>,
    /// Polls of each cancellable call.
    pub polls: Vec<usize>,
    /// Creates that clients sent.
    pub creates: usize,
    /// Marks of the scenario, see [`Boundary`](crate::scenario::Boundary).
    pub marks: BTreeSet<&'static str>,
    /// Virtual time that passed.
    pub elapsed: Duration,
    /// Lines of the transcript, if it was asked for.
    pub transcript: Vec<String>,
}

/// Plays `scenario` under `plan`, on the calling thread. The same arguments give the same report.
#[must_use]
pub fn run(scenario: &Scenario, plan: &Plan, transcript: bool) -> Report {
    fastrand::seed(plan.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(play(scenario, plan, transcript)),
        Err(error) => broken(&error),
    }
}

fn broken(error: &dyn std::fmt::Display) -> Report {
    Report {
        failures: vec![format!("the simulator does not start: {error}")],
        ..Report::default()
    }
}

async fn play(scenario: &Scenario, plan: &Plan, transcript: bool) -> Report {
    let start = tokio::time::Instant::now();
    let network = Network::new(
        plan.seed,
        plan.faults.clone(),
        scenario.clients,
        SESSION_TIMEOUT,
        transcript,
    );
    let network = match network {
        Ok(network) => network,
        Err(error) => return broken(&error),
    };
    let stage = Stage::new(
        network.clone(),
        scenario.clients,
        SESSION_TIMEOUT,
        plan.seed,
        plan.cancels.clone(),
    );
    let stage = match stage {
        Ok(stage) => stage,
        Err(error) => return broken(&error),
    };
    let mut creates = 0;
    let whole = async {
        (scenario.play)(stage.clone()).await;
        creates = network.creates();
        network.heal();
        tokio::time::sleep(QUIET).await;
        if let Some(state) = stage.final_state().await {
            judge_open(scenario, &stage, &state);
            if let Some(check) = scenario.afterwards {
                check(&stage, &state);
            }
        }
        for client in stage.clients() {
            close(&stage, client).await;
        }
        tokio::time::sleep(QUIET).await;
        if let Some(state) = stage.final_state().await {
            judge_closed(&stage, &state);
        }
    };
    tokio::select! {
        biased;
        () = whole => {}
        () = network.endless() => stage.fail("it does not end: clients and server do not stop sending"),
        () = tokio::time::sleep(LIMIT) => stage.fail("it does not end: hours have passed"),
    }
    let report = Report {
        failures: network.recorder().failures(),
        frames: network.frames(),
        polls: stage.polls(),
        creates,
        marks: network.recorder().marks(),
        elapsed: start.elapsed(),
        transcript: network.recorder().transcript(),
    };
    network.shut();
    report
}

pub(crate) async fn close(stage: &Stage, client: &Client) {
    if let Err(error) = client.close_timeout(CLOSE_LIMIT).await {
        stage.fail(&format!("a session cannot be closed: {error}"));
    }
}

/// With all sessions open and nothing going on any more: what the recipes left behind.
pub(crate) fn judge_open(scenario: &Scenario, stage: &Stage, state: &FinalState) {
    for (path, stat) in state.all_nodes() {
        let own = path == "/" || path == "/zookeeper" || path.starts_with("/zookeeper/");
        if !own && !(scenario.keeps)(&path) {
            stage.fail(&format!(
                "left behind: {path} (owner 0x{:x})",
                stat.ephemeral_owner
            ));
        }
    }
    for server in stage.network().servers() {
        for (path, session) in server.watches() {
            if !(scenario.watches)(&path) {
                stage.fail(&format!("watch left behind: {path} by 0x{session:x}"));
            }
        }
    }
}

/// With all sessions closed: nothing of theirs may be there.
pub(crate) fn judge_closed(stage: &Stage, state: &FinalState) {
    for (path, stat) in state.all_nodes() {
        if stat.ephemeral_owner != 0 {
            stage.fail(&format!("outlives its session: {path}"));
        }
    }
    for session in state.sessions() {
        stage.fail(&format!("session 0x{session:x} is still open"));
    }
    for server in stage.network().servers() {
        for (path, _) in server.watches() {
            stage.fail(&format!("watch on {path} outlives its session"));
        }
    }
}
