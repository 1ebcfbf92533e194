//! Outcomes of mutants in a file that an interrupted run is resumed from: one JSON object a line,
//! the run's own first.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::runner::Outcome;
use crate::Result;

/// Whether a run goes on with the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resume {
    No,
    Yes,
    /// Mutants that survived are tried again: tests have been written since.
    RetrySurvivors,
}

/// The file and what is in it.
#[derive(Debug)]
pub(super) struct Results {
    file: Mutex<File>,
    /// Outcomes by the mutant's key; none for one that does not compile.
    known: BTreeMap<String, Option<Outcome>>,
    /// Those that survived and are to be tried again.
    again: BTreeMap<String, Outcome>,
    own_tests: bool,
}

impl Results {
    /// Begins a run; goes on with the one in the file where `resume` says so and it is the same
    /// run. What has only survived the own tests of its crate is tried again where all tests are
    /// run.
    pub(super) fn open(path: &Path, run: &Value, resume: Resume, own_tests: bool) -> Result<Self> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let (mut known, mut again) = (BTreeMap::new(), BTreeMap::new());
        if resume != Resume::No {
            if lines.next().as_ref() != Some(run) {
                return Err(
                    "nothing to resume: the options are others than those of the last run".into(),
                );
            }
            for line in lines {
                let Some(key) = line["mutant"].as_str() else {
                    continue;
                };
                let outcome = read(&line);
                let lived = matches!(outcome, Some(Outcome::Survived | Outcome::NotReached));
                let widened = line["own tests"] == true && !own_tests;
                let retried = widened || resume == Resume::RetrySurvivors;
                match outcome {
                    Some(outcome) if lived && retried => {
                        known.remove(key);
                        again.insert(key.to_owned(), outcome);
                    }
                    outcome => {
                        again.remove(key);
                        known.insert(key.to_owned(), outcome);
                    }
                }
            }
        } else {
            fs::write(path, format!("{run}\n"))?;
        }
        let file = File::options().append(true).open(path)?;
        Ok(Self {
            file: Mutex::new(file),
            known,
            again,
            own_tests,
        })
    }

    /// Returns whether this mutant is known not to compile.
    pub(super) fn does_not_compile(&self, key: &str) -> bool {
        matches!(self.known.get(key), Some(None))
    }

    /// Returns whether anything is known of an earlier part of the run.
    pub(super) fn is_resumed(&self) -> bool {
        !self.known.is_empty()
    }

    /// Returns the outcome of this mutant. One that is excused is not tried again.
    pub(super) fn outcome(&self, key: &str, excused: bool) -> Option<&Outcome> {
        match self.known.get(key) {
            Some(outcome) => outcome.as_ref(),
            None if excused => self.again.get(key),
            None => None,
        }
    }

    /// Notes what became of a mutant; none for one that does not compile.
    pub(super) fn note(&self, key: &str, outcome: Option<&Outcome>) -> Result<()> {
        let (what, by) = match outcome {
            None => ("does not compile", ""),
            Some(Outcome::Caught(by)) => ("caught", &**by),
            Some(Outcome::TimedOut(by)) => ("timed out", &**by),
            Some(Outcome::Survived) => ("survived", ""),
            Some(Outcome::NotReached) => ("not reached", ""),
            // It is tried when the run is resumed.
            Some(Outcome::NotRun) => return Ok(()),
        };
        let line = json!({ "mutant": key, "outcome": what, "by": by, "own tests": self.own_tests });
        if let Ok(mut file) = self.file.lock() {
            writeln!(file, "{line}")?;
        }
        Ok(())
    }
}

fn read(line: &Value) -> Option<Outcome> {
    let by = line["by"].as_str().unwrap_or_default().to_owned();
    match line["outcome"].as_str()? {
        "caught" => Some(Outcome::Caught(by)),
        "timed out" => Some(Outcome::TimedOut(by)),
        "survived" => Some(Outcome::Survived),
        "not reached" => Some(Outcome::NotReached),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_resumed_only_where_it_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let run = json!({ "seed": 1 });
        let results = Results::open(&path, &run, Resume::No, true).unwrap();
        let caught = Outcome::Caught("p/t test".to_owned());
        results.note("a", Some(&caught)).unwrap();
        results.note("b", None).unwrap();
        results.note("c", Some(&Outcome::NotRun)).unwrap();
        results.note("d", Some(&Outcome::Survived)).unwrap();
        let results = Results::open(&path, &run, Resume::Yes, false).unwrap();
        assert_eq!(results.outcome("a", false), Some(&caught));
        assert!(results.does_not_compile("b") && !results.does_not_compile("a"));
        assert_eq!(results.outcome("c", false), None);
        assert_eq!(
            results.outcome("d", false),
            None,
            "other tests may catch it"
        );
        let results = Results::open(&path, &run, Resume::Yes, true).unwrap();
        assert_eq!(results.outcome("d", false), Some(&Outcome::Survived));
        let results = Results::open(&path, &run, Resume::RetrySurvivors, true).unwrap();
        assert_eq!(results.outcome("d", false), None);
        assert_eq!(results.outcome("d", true), Some(&Outcome::Survived));
        assert!(Results::open(&path, &json!({ "seed": 2 }), Resume::Yes, true).is_err());
        let anew = Results::open(&path, &run, Resume::No, true).unwrap();
        assert!(!anew.is_resumed());
    }
}
