//! A trial with faults of every kind in random order, now and then two at once, for as long as it
//! is given.

use std::time::Duration;

use baton_testkit::history::Operation;
use fastrand::Rng;
use tokio::time::{sleep, timeout};

use super::faults::{CUT_BOTH, CUT_INCOMING, CUT_OUTGOING, FaultKind, PROBER, ServerFault};
use super::load::{Client, PATIENCE, probe};
use super::stage::{ActiveRound, Report, SERVERS, Settings, Stage};
use crate::Result;

/// Steps with one fault or two in one round of load: its znodes have to fit into one listing.
const STEPS_OF_A_ROUND: usize = 3;
/// One fault in this number begins together with the one before it.
const TOGETHER: u8 = 3;

const KINDS: [FaultKind; 9] = [
    FaultKind::Kill,
    FaultKind::KillAll,
    FaultKind::Pause,
    CUT_BOTH,
    CUT_OUTGOING,
    CUT_INCOMING,
    FaultKind::CutFromOne,
    FaultKind::Restart,
    FaultKind::LoseFolder,
];

/// Each run has each kind of fault, in a few rounds of load.
pub(super) async fn faults_of_every_kind(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::start(settings, true).await?;
    let outcome = disturb_again_and_again(&mut stage).await;
    stage.finish(outcome).await
}

async fn disturb_again_and_again(stage: &mut Stage) -> Result<()> {
    while stage.has_next_run() {
        for steps in steps(&mut stage.rng).chunks(STEPS_OF_A_ROUND) {
            one_round(stage, steps).await?;
        }
        let seconds = stage.clock.now().as_secs();
        eprintln!("chaos: {} runs in {seconds} s", stage.report.runs);
    }
    Ok(())
}

async fn one_round(stage: &mut Stage, steps: &[Vec<FaultKind>]) -> Result<()> {
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
fn steps(rng: &mut Rng) -> Vec<Vec<FaultKind>> {
    let mut kinds = KINDS;
    rng.shuffle(&mut kinds);
    let mut steps: Vec<Vec<FaultKind>> = Vec::new();
    for kind in kinds {
        let is_together = rng.u8(..TOGETHER) == 0;
        match steps.last_mut() {
            Some(step) if is_together && may_come_together(step, kind) => step.push(kind),
            _ => steps.push(vec![kind]),
        }
    }
    steps
}

fn may_come_together(step: &[FaultKind], kind: FaultKind) -> bool {
    matches!(step, [one] if *one != FaultKind::KillAll) && kind != FaultKind::KillAll
}

/// Chooses a server for each of them, every second time the leader first.
async fn choose_victims(stage: &mut Stage, kinds: &[FaultKind]) -> Result<Vec<ServerFault>> {
    let leader = stage.ensemble.wait_leader().await?;
    let first = match stage.rng.bool() {
        true => leader,
        false => stage.rng.usize(..SERVERS),
    };
    let further = 1 + stage.rng.usize(..SERVERS - 1);
    let victims = [first, (first + further) % SERVERS];
    let faults = kinds.iter().zip(victims);
    Ok(faults
        .map(|(kind, victim)| ServerFault {
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
    faults: &[ServerFault],
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
                assert!(step.len() == 1 || !step.contains(&FaultKind::KillAll));
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
