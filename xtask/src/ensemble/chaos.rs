//! A trial with faults of every kind in random order, now and then two at once, for as long as it
//! is given.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use baton_testkit::Direction;
use fastrand::Rng;
use tokio::time::{sleep, timeout};

use super::folders::beside;
use super::history::Operation;
use super::load::{Client, PATIENCE, probe};
use super::stage::{ActiveRound, Report, SERVERS, Settings, Stage};
use crate::Result;

/// The index of the first client that asks a server at fault, behind those of the load.
const PROBER: usize = SERVERS;
/// Steps with one fault or two in one round of load: its znodes have to fit into one listing.
const STEPS_OF_A_ROUND: usize = 3;
/// One fault in this number begins together with the one before it.
const TOGETHER: u8 = 3;

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
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

const KINDS: [Kind; 9] = [
    Kind::Kill,
    Kind::KillAll,
    Kind::Pause,
    Kind::Cut(&Direction::BOTH),
    Kind::Cut(&[Direction::Outgoing]),
    Kind::Cut(&[Direction::Incoming]),
    Kind::CutFromOne,
    Kind::Restart,
    Kind::LoseFolder,
];

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillAll => "kill all",
            Self::Pause => "pause",
            Self::Cut(_) | Self::CutFromOne => "cut",
            Self::Restart => "restart",
            Self::LoseFolder => "lose the folder",
        }
    }

    /// Returns whether the two others can go on by themselves.
    const fn spares_others(self) -> bool {
        !matches!(self, Self::KillAll | Self::CutFromOne)
    }

    /// Returns whether connections of clients stay, on which an answer from the past could come.
    const fn leaves_connections(self) -> bool {
        matches!(self, Self::Pause | Self::Cut(_) | Self::CutFromOne)
    }
}

/// A kind of fault, and the server that it hits first.
#[derive(Debug, Clone, Copy)]
struct Fault {
    kind: Kind,
    victim: usize,
}

impl Fault {
    async fn begin(self, stage: &mut Stage) -> Result<()> {
        match self.kind {
            Kind::Kill => stage.server(self.victim)?.kill(),
            Kind::KillAll => {
                for behind in 0..SERVERS {
                    stage.server((self.victim + behind) % SERVERS)?.kill();
                }
            }
            Kind::Pause => stage.server(self.victim)?.pause()?,
            Kind::Cut(_) | Kind::CutFromOne => self.set_cut(stage, true),
            Kind::Restart => stage.server(self.victim)?.stop().await?,
            Kind::LoseFolder => {
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
    fn end(self, stage: &mut Stage) -> Result<()> {
        match self.kind {
            Kind::Kill | Kind::Restart => stage.server(self.victim)?.launch()?,
            Kind::KillAll => {
                for index in 0..SERVERS {
                    stage.server(index)?.launch()?;
                }
            }
            Kind::Pause => stage.server(self.victim)?.resume()?,
            Kind::Cut(_) | Kind::CutFromOne => self.set_cut(stage, false),
            Kind::LoseFolder => {
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
        if let Kind::Cut(directions) = self.kind {
            for direction in directions {
                stage.ensemble.set_cut_one_way(self.victim, *direction, cut);
            }
        } else {
            let next = (self.victim + 1) % SERVERS;
            stage.ensemble.set_cut_between(self.victim, next, cut);
        }
    }
}

/// Each run has each kind of fault, in a few rounds of load.
pub(super) async fn faults_of_every_kind(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::start(settings, true).await?;
    let outcome = disturb_again_and_again(&mut stage).await;
    stage.finish(outcome).await
}

async fn disturb_again_and_again(stage: &mut Stage) -> Result<()> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    while stage.has_next_run() {
        for steps in steps(&mut stage.rng).chunks(STEPS_OF_A_ROUND) {
            one_round(stage, steps).await?;
            for kind in steps.iter().flatten() {
                *counts.entry(kind.name()).or_default() += 1;
            }
        }
        eprintln!(
            "chaos, run {}, {} s: {counts:?}",
            stage.report.runs,
            stage.clock.now().as_secs()
        );
    }
    Ok(())
}

async fn one_round(stage: &mut Stage, steps: &[Vec<Kind>]) -> Result<()> {
    let running = stage.begin().await?;
    let mut probed = ProbeCounts::default();
    for kinds in steps {
        let faults = choose_victims(stage, kinds).await?;
        let outcome = disturb(stage, &running, &faults, &mut probed).await;
        outcome.map_err(|error| format!("{faults:?}: {error}"))?;
    }
    let round = running.round.clone();
    stage.end(running, &[], probed.operations).await?;
    // A long trial would otherwise fill the memory of the servers.
    let client = stage.clients.first().ok_or("there is no client")?;
    round.remove(client).await
}

/// Every kind in random order; those that come at once are together.
fn steps(rng: &mut Rng) -> Vec<Vec<Kind>> {
    let mut kinds = KINDS;
    rng.shuffle(&mut kinds);
    let mut steps: Vec<Vec<Kind>> = Vec::new();
    for kind in kinds {
        let is_together = rng.u8(..TOGETHER) == 0;
        match steps.last_mut() {
            Some(step) if is_together && may_come_together(step, kind) => step.push(kind),
            _ => steps.push(vec![kind]),
        }
    }
    steps
}

fn may_come_together(step: &[Kind], kind: Kind) -> bool {
    matches!(step, [one] if *one != Kind::KillAll) && kind != Kind::KillAll
}

/// Chooses a server for each of them, every second time the leader first.
async fn choose_victims(stage: &mut Stage, kinds: &[Kind]) -> Result<Vec<Fault>> {
    let leader = stage.ensemble.wait_leader().await?;
    let first = match stage.rng.bool() {
        true => leader,
        false => stage.rng.usize(..SERVERS),
    };
    let further = 1 + stage.rng.usize(..SERVERS - 1);
    let victims = [first, (first + further) % SERVERS];
    let faults = kinds.iter().zip(victims);
    Ok(faults
        .map(|(kind, victim)| Fault {
            kind: *kind,
            victim,
        })
        .collect())
}

/// Requests of clients of servers at fault in one round.
#[derive(Debug, Default)]
struct ProbeCounts {
    clients: usize,
    operations: Vec<Operation>,
}

/// Has faults begin together, last for a while and end together.
async fn disturb(
    stage: &mut Stage,
    running: &ActiveRound,
    faults: &[Fault],
    probed: &mut ProbeCounts,
) -> Result<()> {
    let mut probers = Vec::new();
    for fault in faults.iter().filter(|it| it.kind.leaves_connections()) {
        let address = stage.server(fault.victim)?.connect_string();
        probers.push(Client::connect(PROBER + probed.clients, &address).await?);
        probed.clients += 1;
    }
    let half = match stage.rng.bool() {
        true => Duration::from_millis(stage.rng.u64(50..200)),
        false => stage.pause() / 2,
    };
    let at = stage.clock.now();
    for fault in faults {
        fault.begin(stage).await?;
    }
    if let [fault] = faults
        && fault.kind.spares_others()
    {
        let others = Stage::others(fault.victim);
        running.load.goes_on(&others, at).await?;
    }
    sleep(half).await;
    let answers: Vec<_> = probers
        .iter()
        .map(|prober| probe(prober, &running.round, stage.clock))
        .collect();
    sleep(half).await;
    for fault in faults.iter().rev() {
        fault.end(stage)?;
    }
    stage.all_go_on(running).await?;
    for (prober, answer) in probers.iter().zip(answers) {
        probed.operations.extend(timeout(PATIENCE, answer).await??);
        prober.session.close_timeout(PATIENCE).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_each_kind_of_fault_once_and_some_of_them_together() {
        let mut rng = Rng::with_seed(1);
        let mut together = 0;
        for _ in 0..100 {
            let steps = steps(&mut rng);
            for step in &steps {
                assert!((1..=2).contains(&step.len()));
                assert!(step.len() == 1 || !step.contains(&Kind::KillAll));
                together += usize::from(step.len() == 2);
            }
            for kind in KINDS {
                let times = steps.iter().flatten().filter(|other| **other == kind);
                assert_eq!(times.count(), 1, "{kind:?}");
            }
        }
        assert!((100..400).contains(&together), "{together}");
    }
}
