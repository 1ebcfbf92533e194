//! Every plan for a scenario, one after the other, and the first failure in full.

use std::fmt;
use std::time::Duration;

use crate::fault::{CancelAt, Direction, Edge, Fault, FaultKind, Plan};
use crate::run::{Report, SESSION_TIMEOUT, run};
use crate::scenario::{Boundary, Scenario};

/// Amount of work of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The first seed. Seed 0 has no jitter.
    pub first_seed: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Runs per seed, at most; what goes beyond is thinned out evenly, differently for each seed.
    pub runs: usize,
    /// Runs per seed, beside those, with two things going wrong.
    pub pairs: usize,
}

impl Effort {
    /// Effort that fits into a test: one seed, a bounded number of runs.
    #[must_use]
    pub const fn quick(runs: usize) -> Self {
        Self {
            first_seed: 0,
            seeds: 1,
            runs,
            pairs: runs / 8,
        }
    }
}

/// Counts of the runs that were tried, all of them good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs.
    pub runs: usize,
    /// Frames of the undisturbed run: the boundaries at which faults struck.
    pub frames: usize,
    /// Polls of the undisturbed run: the points of cancellation.
    pub polls: usize,
    /// The most creates that any run sent.
    pub creates: usize,
    /// Virtual time of all runs.
    pub elapsed: Duration,
}

/// A run that went wrong, with all that is needed to see it again.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The scenario's name.
    pub scenario: &'static str,
    /// Plan of its faults.
    pub plan: Plan,
    /// Runs until it was found.
    pub runs: usize,
    /// Report of the run.
    pub report: Report,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scenario,
            plan,
            runs,
            report,
        } = self;
        writeln!(f, "{scenario}, plan {plan}, after {runs} runs:")?;
        for failure in &report.failures {
            writeln!(f, "  {failure}")?;
        }
        writeln!(
            f,
            "see it again: cargo run -p baton-sim -- --scenario {scenario} --plan {plan}"
        )?;
        for line in &report.transcript {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// One run with its transcript, judged as [`explore`] does.
#[must_use]
pub fn replay(scenario: &Scenario, plan: &Plan) -> Report {
    let calm = run(scenario, &Plan::calm(plan.seed), false);
    let mut report = run(scenario, plan, true);
    judge_creates(scenario, &calm, &mut report);
    report
}

/// Runs `scenario` undisturbed, then under every plan that `effort` allows.
///
/// # Errors
/// The first run that went wrong.
pub fn explore(scenario: &Scenario, effort: &Effort) -> Result<Summary, Box<Failure>> {
    let mut summary = Summary::default();
    for seed in effort.first_seed..effort.first_seed.saturating_add(effort.seeds) {
        let calm = run(scenario, &Plan::calm(seed), false);
        let singles = singles(&calm, seed);
        let pairs = pairs(&calm, seed, effort.pairs);
        let step = singles.len().div_ceil(effort.runs.max(1)).max(1);
        let first = usize::try_from(seed).unwrap_or(0) % step;
        if seed == effort.first_seed {
            summary.runs += at_boundaries(scenario)?;
        }
        let chosen = singles.into_iter().skip(first).step_by(step);
        for plan in std::iter::once(Plan::calm(seed)).chain(chosen).chain(pairs) {
            let mut report = run(scenario, &plan, false);
            judge_creates(scenario, &calm, &mut report);
            summary.runs += 1;
            summary.elapsed += report.elapsed;
            summary.creates = summary.creates.max(report.creates);
            if !report.failures.is_empty() {
                return Err(Box::new(Failure {
                    scenario: scenario.name,
                    report: replay(scenario, &plan),
                    plan,
                    runs: summary.runs,
                }));
            }
        }
        summary.frames = calm.frames.iter().flatten().sum();
        summary.polls = calm.polls.iter().sum();
    }
    Ok(summary)
}

/// Plays the plan of each boundary, which must come to its mark, and be good as any other. Returns
/// how many there are.
fn at_boundaries(scenario: &Scenario) -> Result<usize, Box<Failure>> {
    let mut runs = 0;
    for Boundary { mark, plan, .. } in scenario.boundaries() {
        let (plan, mut report) = match plan.parse::<Plan>() {
            Ok(plan) => (plan.clone(), replay(scenario, &plan)),
            Err(error) => {
                let mut report = Report::default();
                report.failures.push(error.to_string());
                (Plan::default(), report)
            }
        };
        runs += 1;
        if report.failures.is_empty() && !report.marks.contains(mark) {
            report.failures.push(format!(
                "it does not come to \"{mark}\" any more; \
                 `cargo run --release -p baton-sim -- --scenario {} --find \"{mark}\"` prints plans that do",
                scenario.name
            ));
        }
        if !report.failures.is_empty() {
            return Err(Box::new(Failure {
                scenario: scenario.name,
                plan,
                runs,
                report,
            }));
        }
    }
    Ok(runs)
}

/// Plans with one thing going wrong that come to `mark`, as many as `wanted`.
#[must_use]
pub fn plans_that_reach(scenario: &Scenario, mark: &str, seed: u64, wanted: usize) -> Vec<Plan> {
    let calm = run(scenario, &Plan::calm(seed), false);
    let plans = std::iter::once(Plan::calm(seed)).chain(singles(&calm, seed));
    let found = plans.filter(|plan| run(scenario, plan, false).marks.contains(mark));
    found.take(wanted).collect()
}

fn judge_creates(scenario: &Scenario, calm: &Report, report: &mut Report) {
    let bound = 2 * calm.creates + scenario.more_creates;
    if report.creates > bound {
        report.failures.push(format!(
            "{} creates were sent, {bound} are the bound",
            report.creates
        ));
    }
}

/// Every fault at every boundary, and every cancellation.
fn singles(calm: &Report, seed: u64) -> Vec<Plan> {
    let mut plans = Vec::new();
    for cancel in cancels(calm) {
        plans.push(Plan {
            seed,
            faults: Vec::new(),
            cancels: vec![cancel],
        });
    }
    for fault in faults(calm) {
        plans.push(Plan {
            seed,
            faults: vec![fault],
            cancels: Vec::new(),
        });
    }
    plans
}

fn cancels(calm: &Report) -> Vec<CancelAt> {
    let mut all = Vec::new();
    for (call, polls) in calm.polls.iter().enumerate() {
        for poll in 0..*polls {
            for edge in [Edge::Before, Edge::After] {
                all.push(CancelAt { call, poll, edge });
            }
        }
    }
    all
}

fn faults(calm: &Report) -> Vec<Fault> {
    let mut all = Vec::new();
    for kind in FaultKind::all(SESSION_TIMEOUT) {
        for (client, [up, down]) in calm.frames.iter().enumerate() {
            for (direction, frames) in [(Direction::Up, *up), (Direction::Down, *down)] {
                for frame in 0..frames {
                    for edge in [Edge::Before, Edge::After] {
                        if kind.strikes(direction, edge) {
                            all.push(Fault {
                                client,
                                direction,
                                frame,
                                edge,
                                kind,
                            });
                        }
                    }
                }
            }
        }
    }
    all
}

/// `count` plans with two things going wrong: two faults, or a fault and a cancellation.
fn pairs(calm: &Report, seed: u64, count: usize) -> Vec<Plan> {
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
    let (faults, cancels) = (faults(calm), cancels(calm));
    let mut plans = Vec::with_capacity(count);
    for _ in 0..count {
        let mut plan = Plan::calm(seed);
        plan.faults.extend(rng.choice(&faults).copied());
        if rng.bool() {
            plan.faults.extend(rng.choice(&faults).copied());
        } else {
            plan.cancels.extend(rng.choice(&cancels).copied());
        }
        plans.push(plan);
    }
    plans
}
