//! Trials with faults of whole servers and of the wires between them, under load.

use std::time::Duration;

use baton_client::{CreateMode, Stat};
use baton_testkit::Direction;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::gaps::Fault;
use super::history::Operation;
use super::load::{Client, PATIENCE, probe};
use super::stage::{ActiveRound, Report, SERVERS, Settings, Stage};
use crate::Result;

/// The index of the client that asks a leader at fault, behind those of the load.
const PROBER: usize = SERVERS;

/// `kill -9` of the leader. Measured on the clients of the others.
pub(super) async fn kill_leader(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::start(settings, false).await?;
    let outcome = kill_leaders(&mut stage).await;
    stage.finish(outcome).await
}

async fn kill_leaders(stage: &mut Stage) -> Result<()> {
    while stage.has_next_run() {
        let leader = stage.ensemble.wait_leader().await?;
        let running = stage.begin().await?;
        let clients = Stage::others(leader);
        let at = stage.clock.now();
        stage.server(leader)?.kill();
        running.load.goes_on(&clients, at).await?;
        stage.moment().await;
        let until = stage.clock.now();
        stage.ensemble.restart(&[leader]).await?;
        stage.all_go_on(&running).await?;
        let fault = Fault { at, until, clients };
        stage.end(running, &[fault], Vec::new()).await?;
    }
    Ok(())
}

/// SIGSTOP of the leader, and SIGCONT seconds later. Requests wait on its sockets when it wakes.
pub(super) async fn pause_leader(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::start(settings, false).await?;
    let outcome = pause_leaders(&mut stage).await;
    stage.finish(outcome).await
}

async fn pause_leaders(stage: &mut Stage) -> Result<()> {
    while stage.has_next_run() {
        let leader = stage.ensemble.wait_leader().await?;
        let running = stage.begin().await?;
        let clients = Stage::others(leader);
        let prober = prober(stage, leader).await?;
        let pause = stage.pause();
        let at = stage.clock.now();
        stage.server(leader)?.pause()?;
        let outcome = ask_while_others_go_on(stage, &running, &clients, &prober, at, pause).await;
        // In any case: it cannot be stopped otherwise.
        let until = stage.clock.now();
        stage.server(leader)?.resume()?;
        let answers = outcome?;
        stage.all_go_on(&running).await?;
        let probed = timeout(PATIENCE, answers).await??;
        prober.session.close_timeout(PATIENCE).await?;
        let fault = Fault { at, until, clients };
        stage.end(running, &[fault], probed).await?;
    }
    Ok(())
}

/// A client of the leader that sends nothing before it is asked to.
async fn prober(stage: &mut Stage, leader: usize) -> Result<Client> {
    let address = stage.server(leader)?.connect_string();
    Client::connect(PROBER, &address).await
}

/// Once the others have another leader, requests are sent to the old one; the fault goes on.
async fn ask_while_others_go_on(
    stage: &mut Stage,
    running: &ActiveRound,
    clients: &[usize],
    prober: &Client,
    at: Duration,
    pause: Duration,
) -> Result<JoinHandle<Vec<Operation>>> {
    running.load.goes_on(clients, at).await?;
    stage.moment().await;
    let answers = probe(prober, &running.round, stage.clock);
    sleep(pause.saturating_sub(stage.clock.now() - at)).await;
    Ok(answers)
}

/// Connections that are cut.
#[derive(Debug, Clone, Copy)]
enum CutConnections {
    /// The leader from both others.
    Off(&'static [Direction]),
    /// The leader from one of the others.
    FromOne,
}

const CUTS: [CutConnections; 4] = [
    CutConnections::Off(&Direction::BOTH),
    CutConnections::Off(&[Direction::Outgoing]),
    CutConnections::Off(&[Direction::Incoming]),
    CutConnections::FromOne,
];

/// The leader is cut off, both ways, one way, and from one of the others only.
pub(super) async fn cut_leader(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::start(settings, true).await?;
    let outcome = cut_leaders(&mut stage).await;
    stage.finish(outcome).await
}

async fn cut_leaders(stage: &mut Stage) -> Result<()> {
    let mut cuts = CUTS.into_iter().cycle();
    while stage.has_next_run() {
        let cut = cuts.next().ok_or("there is no cut")?;
        let leader = stage.ensemble.wait_leader().await?;
        let running = stage.begin().await?;
        let clients = match cut {
            CutConnections::Off(_) => Stage::others(leader),
            // The third one still has a leader, and the leader a majority.
            CutConnections::FromOne => Stage::others((leader + 1) % SERVERS),
        };
        let prober = prober(stage, leader).await?;
        let pause = stage.pause();
        let at = stage.clock.now();
        set_cut(stage, leader, cut, true);
        let outcome = ask_while_others_go_on(stage, &running, &clients, &prober, at, pause).await;
        let until = stage.clock.now();
        set_cut(stage, leader, cut, false);
        let answers = outcome.map_err(|error| format!("{cut:?}: {error}"))?;
        stage.all_go_on(&running).await?;
        let probed = timeout(PATIENCE, answers).await??;
        prober.session.close_timeout(PATIENCE).await?;
        let fault = Fault { at, until, clients };
        stage.end(running, &[fault], probed).await?;
    }
    Ok(())
}

fn set_cut(stage: &Stage, leader: usize, cut: CutConnections, is_cut: bool) {
    match cut {
        CutConnections::Off(directions) => {
            for direction in directions {
                stage.ensemble.set_cut_one_way(leader, *direction, is_cut);
            }
        }
        CutConnections::FromOne => {
            let other = (leader + 1) % SERVERS;
            stage.ensemble.set_cut_between(leader, other, is_cut);
        }
    }
}

/// `kill -9` of all servers. The gap is that until they serve again.
pub(super) async fn kill_all(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::start(settings, false).await?;
    let outcome = kill_all_again_and_again(&mut stage).await;
    stage.finish(outcome).await
}

async fn kill_all_again_and_again(stage: &mut Stage) -> Result<()> {
    let all: Vec<usize> = (0..SERVERS).collect();
    while stage.has_next_run() {
        stage.ensemble.wait_leader().await?;
        let running = stage.begin().await?;
        let at = stage.clock.now();
        let mut order = all.clone();
        stage.rng.shuffle(&mut order);
        for index in order {
            stage.server(index)?.kill();
        }
        stage.ensemble.restart(&all).await?;
        stage.all_go_on(&running).await?;
        let until = stage.clock.now();
        let clients = all.clone();
        let fault = Fault { at, until, clients };
        stage.end(running, &[fault], Vec::new()).await?;
    }
    Ok(())
}

/// Each server is stopped gracefully and started again, one after the other, the leader too.
/// Clients connect to any server; their sessions must all live on.
pub(super) async fn rolling_restart(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::with_moving_clients(settings, 2 * SERVERS).await?;
    let outcome = roll(&mut stage).await;
    stage.finish(outcome).await
}

async fn roll(stage: &mut Stage) -> Result<()> {
    let mut owned = Vec::new();
    for client in &stage.clients {
        let path = format!("/owned-{}", client.index);
        let mode = CreateMode::Ephemeral;
        let made = client.session.create(&path, b"", mode).await?;
        owned.push((path, made.stat));
    }
    while stage.has_next_run() {
        let leader = stage.ensemble.wait_leader().await?;
        let running = stage.begin().await?;
        let mut faults = Vec::new();
        // The leader last, as an operator would.
        for index in Stage::others(leader).into_iter().chain([leader]) {
            faults.push(stage.restart_one(index, None, &running).await?);
        }
        stage.end(running, &faults, Vec::new()).await?;
        for (path, stat) in &owned {
            for client in &stage.clients {
                let session = &client.session;
                let there = session
                    .read_latest("/", |session| session.exists(path))
                    .await?;
                let is_it = |there: &Stat| {
                    (there.czxid, there.ephemeral_owner) == (stat.czxid, stat.ephemeral_owner)
                };
                if !there.as_ref().is_some_and(is_it) {
                    return Err(
                        format!("{path} of session 0x{:x} is gone", stat.ephemeral_owner).into(),
                    );
                }
            }
        }
    }
    Ok(())
}
