//! Many seeds, one after the other, and the first failure in full.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::bug::SeededBug;
use super::mark::Mark;
use super::run::{EnsembleReport, Settings, run};

/// What was tried, all of it good.
#[derive(Clone, Debug, Default)]
pub struct EnsembleSummary {
    /// Runs.
    pub runs: u64,
    /// Entries that were committed in all of them.
    pub committed: u64,
    /// Virtual time of all runs.
    pub elapsed: Duration,
    /// How many runs came to each mark, and the seed of the first.
    pub marks: BTreeMap<Mark, (u64, u64)>,
}

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct EnsembleFailure {
    /// Its seed.
    pub seed: u64,
    /// The mistake that was made on purpose.
    pub bug: Option<SeededBug>,
    /// Runs until it was found.
    pub runs: u64,
    /// What came of it, with its transcript.
    pub report: EnsembleReport,
}

impl EnsembleFailure {
    /// The rule that was broken.
    #[must_use]
    pub fn violation(&self) -> &str {
        self.report.violation.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for EnsembleFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, runs, .. } = self;
        for line in &self.report.transcript {
            writeln!(f, "{line}")?;
        }
        writeln!(
            f,
            "ensemble, seed {seed}, after {runs} runs: {}",
            self.violation()
        )?;
        let bug = self
            .bug
            .map_or_else(String::new, |bug| format!(" --bug {bug:?}"));
        writeln!(
            f,
            "see it again: cargo run -p baton-sim -- ensemble --first-seed {seed}{bug}"
        )
    }
}

impl std::error::Error for EnsembleFailure {}

/// Runs `seeds` seeds from `first_seed` on.
///
/// # Errors
/// The first run that broke a rule, with its transcript.
pub fn explore(
    first_seed: u64,
    seeds: u64,
    bug: Option<SeededBug>,
) -> Result<EnsembleSummary, Box<EnsembleFailure>> {
    let mut summary = EnsembleSummary::default();
    for seed in first_seed..first_seed.saturating_add(seeds) {
        let mut settings = Settings {
            seed,
            bug,
            is_recording: false,
        };
        let report = run(&settings);
        summary.runs += 1;
        if report.violation.is_some() {
            settings.is_recording = true;
            return Err(Box::new(EnsembleFailure {
                seed,
                bug,
                runs: summary.runs,
                report: run(&settings),
            }));
        }
        summary.committed += report.committed;
        summary.elapsed += Duration::from_micros(report.elapsed_us);
        for mark in report.marks {
            summary.marks.entry(mark).or_insert((0, seed)).0 += 1;
        }
    }
    Ok(summary)
}
