//! Scores, survivors and excuses.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::mutant::{Mutant, one_line};
use super::runner::Outcome;
use super::tree::ChosenMutant;
use crate::{Result, table};

pub(super) const EXCUSED: &str = "xtask/mutants-excused.txt";
const HEAD: [&str; 10] = [
    "module",
    "seed",
    "tests",
    "mutants",
    "caught",
    "did not end",
    "survived",
    "not reached",
    "excused",
    "score",
];

/// A survivor that no test need notice: matched by what it is, not by its line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedSurvivor {
    file: String,
    function: String,
    operator: String,
    original: String,
    why: String,
}

/// All excuses.
#[derive(Debug)]
pub(super) struct AllowedSurvivors(Vec<AllowedSurvivor>);

impl AllowedSurvivors {
    /// Those of the project's list.
    pub(super) fn read(root: &Path) -> Result<Self> {
        Self::parse(&fs::read_to_string(root.join(EXCUSED))?)
    }

    /// Three lines each: file, function and operator; the original; the reason.
    fn parse(text: &str) -> Result<Self> {
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let mut excuses = Vec::new();
        for record in lines.chunks(3) {
            let &[head, original, why] = record else {
                return Err(format!("{EXCUSED}: the last excuse is not whole").into());
            };
            let words: Vec<&str> = head.split_whitespace().collect();
            let (&[file, function, operator], Some(why)) = (&*words, why.strip_prefix("why: "))
            else {
                return Err(format!(
                    "{EXCUSED}: `{head}`: expected `FILE FUNCTION OPERATOR`, the original, `why: REASON`"
                )
                .into());
            };
            excuses.push(AllowedSurvivor {
                file: file.to_owned(),
                function: function.to_owned(),
                operator: operator.to_owned(),
                original: one_line(original),
                why: why.to_owned(),
            });
        }
        Ok(Self(excuses))
    }

    /// Returns why this mutant may survive.
    pub(super) fn of(&self, mutant: &Mutant) -> Option<&str> {
        let excuse = self.0.iter().find(|excuse| {
            excuse.file == mutant.file
                && excuse.function == mutant.function
                && excuse.operator == mutant.operator.to_string()
                && excuse.original == mutant.original
        });
        excuse.map(|excuse| &*excuse.why)
    }

    /// Those that fit no mutant of the files that were scanned.
    pub(super) fn stale<'e>(&'e self, scanned: &'e [Mutant]) -> impl Iterator<Item = String> + 'e {
        self.0
            .iter()
            .filter(|excuse| scanned.iter().any(|mutant| mutant.file == excuse.file))
            .filter(|excuse| !scanned.iter().any(|mutant| self.fits(excuse, mutant)))
            .map(|excuse| {
                format!(
                    "{} {} {}: {}",
                    excuse.file, excuse.function, excuse.operator, excuse.original
                )
            })
    }

    fn fits(&self, excuse: &AllowedSurvivor, mutant: &Mutant) -> bool {
        Self(vec![excuse.clone()]).of(mutant).is_some()
    }
}

/// Mutant of the sample with its outcome.
#[derive(Debug)]
pub(super) struct TriedMutant {
    pub(super) chosen: ChosenMutant,
    pub(super) outcome: Outcome,
}

/// The counts of one module.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct ModuleCounts {
    caught: usize,
    timed_out: usize,
    not_reached: usize,
    survived: usize,
    excused: usize,
    not_run: usize,
}

impl ModuleCounts {
    fn tried(self) -> usize {
        self.caught + self.timed_out + self.not_reached + self.survived + self.excused
    }

    /// Caught, of those that should be: in percent.
    fn percent(self) -> String {
        let caught = self.caught + self.timed_out;
        match self.tried() - self.excused {
            0 => "–".to_owned(),
            all => format!("{} %", caught * 100 / all),
        }
    }
}

/// The whole report of a run.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) seed: u64,
    /// Description of the sample.
    pub(super) sample: String,
    /// Tests that were run: `own` or `all`.
    pub(super) tests: &'static str,
    pub(super) excuses: &'a AllowedSurvivors,
    pub(super) tried: &'a [TriedMutant],
}

impl Report<'_> {
    fn scores(&self) -> BTreeMap<&'static str, ModuleCounts> {
        let mut scores: BTreeMap<&'static str, ModuleCounts> = BTreeMap::new();
        for TriedMutant { chosen, outcome } in self.tried {
            let score = scores.entry(chosen.module).or_default();
            let excused = self.excuses.of(&chosen.mutant).is_some();
            *match outcome {
                Outcome::Caught(_) => &mut score.caught,
                Outcome::TimedOut(_) => &mut score.timed_out,
                Outcome::NotRun => &mut score.not_run,
                _ if excused => &mut score.excused,
                Outcome::NotReached => &mut score.not_reached,
                Outcome::Survived => &mut score.survived,
            } += 1;
        }
        scores
    }

    /// One row a module.
    fn rows(&self) -> Vec<Vec<String>> {
        let scores = self.scores().into_iter();
        let rows = scores.map(|(module, score)| {
            vec![
                format!("`{module}`"),
                self.seed.to_string(),
                self.tests.to_owned(),
                score.tried().to_string(),
                score.caught.to_string(),
                score.timed_out.to_string(),
                score.survived.to_string(),
                score.not_reached.to_string(),
                score.excused.to_string(),
                score.percent(),
            ]
        });
        rows.collect()
    }

    /// The mutants that lived and have no excuse.
    pub(super) fn survivors(&self) -> Vec<&TriedMutant> {
        let lived = self.tried.iter().filter(|tried| {
            matches!(tried.outcome, Outcome::Survived | Outcome::NotReached)
                && self.excuses.of(&tried.chosen.mutant).is_none()
        });
        lived.collect()
    }

    /// Returns the percentage that was caught of those that were tried and need no excuse.
    pub(super) fn caught_percent(&self) -> f64 {
        let (mut caught, mut all) = (0_u32, 0_u32);
        for score in self.scores().into_values() {
            let noticed = score.caught + score.timed_out;
            caught += u32::try_from(noticed).unwrap_or(u32::MAX);
            let lived = score.survived + score.not_reached;
            all += u32::try_from(noticed + lived).unwrap_or(u32::MAX);
        }
        if all == 0 {
            100.0
        } else {
            100.0 * f64::from(caught) / f64::from(all)
        }
    }

    /// For the terminal.
    pub(super) fn print(&self, took: Duration) {
        println!("\n{}", table::markdown(&HEAD, &self.rows()));
        for TriedMutant { chosen, outcome } in self.survivors() {
            let why = match outcome {
                Outcome::NotReached => "not reached",
                _ => "survived",
            };
            println!("{why}: {}", chosen.mutant);
        }
        let not_run: usize = self.scores().values().map(|score| score.not_run).sum();
        if not_run > 0 {
            println!("{not_run} mutants were not run: the time was up");
        }
        println!("seed {}, {}, {} s", self.seed, self.sample, took.as_secs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::scan::scan;

    #[test]
    fn an_excuse_fits_by_function_operator_and_original() {
        let mutants = scan("f.rs", "fn f(a: u8) -> bool {\n    a\n    < 3 }").unwrap();
        let excuses =
            AllowedSurvivors::parse("# list\n\nf.rs f boundary\n  a < 3\n  why: 3 never comes\n")
                .unwrap();
        let excused: Vec<_> = mutants
            .iter()
            .filter_map(|mutant| excuses.of(mutant))
            .collect();
        assert_eq!(excused, ["3 never comes"]);
        assert_eq!(excuses.stale(&mutants).count(), 0);
        let other = scan("f.rs", "fn f(a: u8) -> bool { a < 4 }").unwrap();
        assert_eq!(excuses.stale(&other).count(), 1);
        assert!(AllowedSurvivors::parse("f.rs f boundary\na < 3\n").is_err());
        assert!(AllowedSurvivors::parse("f.rs f\na < 3\nwhy: x\n").is_err());
    }

    #[test]
    fn the_project_s_excuses_can_be_read() {
        AllowedSurvivors::read(&crate::root()).unwrap();
    }
}
