//! Many seeds, one after the other, and the first failure in full.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::run::{ServersReport, ServersSettings, run};
use crate::cluster::bug::SeededBug;
use crate::scenario::Scenario;

/// Counts of the runs that were tried, all of them good.
#[derive(Clone, Debug, Default)]
pub struct ServersSummary {
    /// Runs.
    pub runs: u64,
    /// Entries of the logs of all of them.
    pub entries: u64,
    /// Virtual time of all runs.
    pub elapsed: Duration,
    /// Number of runs that came to each mark, and the seed of the first.
    pub marks: BTreeMap<&'static str, (u64, u64)>,
}

/// A run in which something happened that must not.
#[derive(Clone, Debug)]
pub struct ServersFailure {
    /// The scenario's name.
    pub scenario: &'static str,
    /// The seed.
    pub seed: u64,
    /// The mistake that was made on purpose.
    pub bug: Option<SeededBug>,
    /// Runs until it was found.
    pub runs: u64,
    /// Report of the run, with its transcript.
    pub report: ServersReport,
}

impl fmt::Display for ServersFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scenario,
            seed,
            runs,
            report,
            ..
        } = self;
        for line in &report.transcript {
            writeln!(f, "{line}")?;
        }
        writeln!(
            f,
            "{scenario} on several servers, seed {seed}, after {runs} runs:"
        )?;
        for failure in &report.failures {
            writeln!(f, "  {failure}")?;
        }
        let bug = self
            .bug
            .map_or_else(String::new, |bug| format!(" --bug {bug:?}"));
        writeln!(
            f,
            "see it again: cargo run -p baton-sim -- servers --scenario {scenario} --first-seed {seed}{bug}"
        )
    }
}

impl std::error::Error for ServersFailure {}

/// Runs `seeds` seeds of a scenario from `first_seed` on.
///
/// # Errors
/// The first run in which something happened that must not, with its transcript.
pub fn explore(
    scenario: &Scenario,
    first_seed: u64,
    seeds: u64,
    bug: Option<SeededBug>,
) -> Result<ServersSummary, Box<ServersFailure>> {
    let mut summary = ServersSummary::default();
    for seed in first_seed..first_seed.saturating_add(seeds) {
        let mut settings = ServersSettings {
            scenario: *scenario,
            seed,
            bug,
            is_recording: false,
        };
        let report = run(&settings);
        summary.runs += 1;
        if !report.failures.is_empty() {
            settings.is_recording = true;
            return Err(Box::new(ServersFailure {
                scenario: scenario.name,
                seed,
                bug,
                runs: summary.runs,
                report: run(&settings),
            }));
        }
        summary.entries += report.entries;
        summary.elapsed += report.elapsed;
        for mark in report.marks {
            summary.marks.entry(mark).or_insert((0, seed)).0 += 1;
        }
    }
    Ok(summary)
}
