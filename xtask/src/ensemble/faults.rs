//! Faults of whole servers and of the wires between them, and the trials that strike the leader
//! with one of them, again and again, under load.

use std::fs;

use baton_client::{CreateMode, Stat};
use baton_testkit::Direction;
use tokio::time::{sleep, timeout};

use super::folders::beside;
use super::gaps::Fault;
use super::load::{Client, PATIENCE, probe};
use super::stage::{Report, SERVERS, Settings, Stage};
use crate::Result;

/// The index of the first client that asks a server at fault, behind those of the load.
pub(super) const PROBER: usize = SERVERS;

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    Kill,
    /// SIGKILL of all servers.
    KillAll,
    Pause,
    /// From both others.
    Cut(&'static [Direction]),
    /// From the next one only.
    CutFromOne,
    /// SIGTERM, then a start.
    Restart,
    /// It runs with an empty folder, and gets its own again.
    LoseFolder,
}

pub(super) const CUT_BOTH: FaultKind = FaultKind::Cut(&Direction::BOTH);
pub(super) const CUT_OUTGOING: FaultKind = FaultKind::Cut(&[Direction::Outgoing]);
pub(super) const CUT_INCOMING: FaultKind = FaultKind::Cut(&[Direction::Incoming]);

impl FaultKind {
    /// Returns whether the two others can go on by themselves.
    pub(super) const fn spares_others(self) -> bool {
        !matches!(self, Self::KillAll | Self::CutFromOne)
    }

    /// Returns whether connections of clients stay, on which an answer from the past could come.
    pub(super) const fn leaves_connections(self) -> bool {
        matches!(self, Self::Pause | Self::Cut(_) | Self::CutFromOne)
    }
}

/// A kind of fault, and the server that it hits first.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerFault {
    pub(super) kind: FaultKind,
    pub(super) victim: usize,
}

impl ServerFault {
    pub(super) async fn begin(self, stage: &mut Stage) -> Result<()> {
        match self.kind {
            FaultKind::Kill => stage.server(self.victim)?.kill(),
            FaultKind::KillAll => {
                for behind in 0..SERVERS {
                    stage.server((self.victim + behind) % SERVERS)?.kill();
                }
            }
            FaultKind::Pause => stage.server(self.victim)?.pause()?,
            FaultKind::Cut(_) | FaultKind::CutFromOne => self.set_cut(stage, true),
            FaultKind::Restart => stage.server(self.victim)?.stop().await?,
            FaultKind::LoseFolder => {
                let server = stage.server(self.victim)?;
                server.kill();
                let own = server.data_dir();
                fs::rename(&own, beside(&own, "aside"))?;
                server.launch()?;
            }
        }
        Ok(())
    }

    /// Undoes it. The servers may still be starting then.
    pub(super) fn end(self, stage: &mut Stage) -> Result<()> {
        match self.kind {
            FaultKind::Kill | FaultKind::Restart => stage.server(self.victim)?.launch()?,
            FaultKind::KillAll => {
                for index in 0..SERVERS {
                    stage.server(index)?.launch()?;
                }
            }
            FaultKind::Pause => stage.server(self.victim)?.resume()?,
            FaultKind::Cut(_) | FaultKind::CutFromOne => self.set_cut(stage, false),
            FaultKind::LoseFolder => {
                let server = stage.server(self.victim)?;
                server.kill();
                let own = server.data_dir();
                if own.exists() {
                    fs::remove_dir_all(&own)?;
                }
                fs::rename(beside(&own, "aside"), &own)?;
                server.launch()?;
            }
        }
        Ok(())
    }

    fn set_cut(self, stage: &Stage, cut: bool) {
        if let FaultKind::Cut(directions) = self.kind {
            for direction in directions {
                stage.ensemble.set_cut_one_way(self.victim, *direction, cut);
            }
        } else {
            let next = (self.victim + 1) % SERVERS;
            stage.ensemble.set_cut_between(self.victim, next, cut);
        }
    }
}

/// Strikes the leader with these faults in turn, each in a round of its own. The gap is measured on
/// the clients that can go on. A leader whose connections stay is asked for something while the
/// others have another one.
pub(super) async fn strike_leader(
    settings: &Settings,
    has_wires: bool,
    kinds: &[FaultKind],
) -> Result<Report> {
    let mut stage = Stage::start(settings, has_wires).await?;
    let outcome = strike_again_and_again(&mut stage, kinds).await;
    stage.finish(outcome).await
}

async fn strike_again_and_again(stage: &mut Stage, kinds: &[FaultKind]) -> Result<()> {
    let mut kinds = kinds.iter().cycle();
    while stage.has_next_run() {
        let kind = *kinds.next().ok_or("there is no fault")?;
        let outcome = strike(stage, kind).await;
        outcome.map_err(|error| format!("{kind:?}: {error}"))?;
    }
    Ok(())
}

async fn strike(stage: &mut Stage, kind: FaultKind) -> Result<()> {
    let leader = stage.ensemble.wait_leader().await?;
    let fault = ServerFault {
        kind,
        victim: leader,
    };
    let running = stage.begin().await?;
    let clients = match kind {
        FaultKind::KillAll => (0..SERVERS).collect(),
        // The third one still has a leader, and the leader a majority.
        FaultKind::CutFromOne => Stage::others((leader + 1) % SERVERS),
        _ => Stage::others(leader),
    };
    let mut prober = None;
    if kind.leaves_connections() {
        let address = stage.server(leader)?.connect_string();
        prober = Some(Client::connect(PROBER, &address).await?);
    }
    let pause = stage.pause();
    let at = stage.clock.now();
    fault.begin(stage).await?;
    let answers = async {
        if kind == FaultKind::KillAll {
            return Ok(None);
        }
        running.load.goes_on(&clients, at).await?;
        stage.moment().await;
        let asked = prober.as_ref();
        let answers = asked.map(|prober| probe(prober, &running.round, stage.clock));
        if answers.is_some() {
            sleep(pause.saturating_sub(stage.clock.now() - at)).await;
        }
        Result::Ok(answers)
    };
    let answers = answers.await;
    // In any case: a paused server cannot be stopped otherwise.
    let mut until = stage.clock.now();
    fault.end(stage)?;
    let answers = answers?;
    stage.all_go_on(&running).await?;
    if kind == FaultKind::KillAll {
        until = stage.clock.now();
    }
    let mut probed = Vec::new();
    if let (Some(prober), Some(answers)) = (prober, answers) {
        probed = timeout(PATIENCE, answers).await??;
        prober.session.close_timeout(PATIENCE).await?;
    }
    let fault = Fault { at, until, clients };
    stage.end(running, &[fault], probed).await
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
