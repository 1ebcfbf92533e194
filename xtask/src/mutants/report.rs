//! Scores, survivors and excuses: for the terminal and for `docs/mutants.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::mutant::{Mutant, one_line};
use super::runner::Outcome;
use super::tree::Chosen;
use crate::{Result, table};

const EXCUSED: &str = "xtask/mutants-excused.txt";
const PAGE: &str = "docs/mutants.md";
const BEGIN: &str = "<!-- written by `cargo xtask mutants --write`: begin -->";
const END: &str = "<!-- written by `cargo xtask mutants --write`: end -->";

/// A survivor that no test need notice: matched by what it is, not by its line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Excuse {
    file: String,
    function: String,
    operator: String,
    original: String,
    why: String,
}

/// All excuses.
#[derive(Debug)]
pub(super) struct Excuses(Vec<Excuse>);

impl Excuses {
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
            excuses.push(Excuse {
                file: file.to_owned(),
                function: function.to_owned(),
                operator: operator.to_owned(),
                original: one_line(original),
                why: why.to_owned(),
            });
        }
        Ok(Self(excuses))
    }

    /// Why this mutant may survive.
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

    fn fits(&self, excuse: &Excuse, mutant: &Mutant) -> bool {
        Self(vec![excuse.clone()]).of(mutant).is_some()
    }
}

/// What became of one mutant of the sample.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) chosen: Chosen,
    pub(super) outcome: Outcome,
}

/// The counts of one module.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Score {
    caught: usize,
    timed_out: usize,
    not_reached: usize,
    survived: usize,
    excused: usize,
    not_run: usize,
}

impl Score {
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

/// All that is told of a run.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) seed: u64,
    /// How the sample was drawn, in words.
    pub(super) sample: String,
    pub(super) excuses: &'a Excuses,
    pub(super) tried: &'a [Tried],
}

impl Report<'_> {
    fn scores(&self) -> BTreeMap<&'static str, Score> {
        let mut scores: BTreeMap<&'static str, Score> = BTreeMap::new();
        for Tried { chosen, outcome } in self.tried {
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

    fn table(&self) -> String {
        let head = [
            "module",
            "mutants",
            "caught",
            "did not end",
            "survived",
            "not reached",
            "excused",
            "score",
        ];
        let rows: Vec<Vec<String>> = self
            .scores()
            .into_iter()
            .map(|(module, score)| {
                vec![
                    format!("`{module}`"),
                    score.tried().to_string(),
                    score.caught.to_string(),
                    score.timed_out.to_string(),
                    score.survived.to_string(),
                    score.not_reached.to_string(),
                    score.excused.to_string(),
                    score.percent(),
                ]
            })
            .collect();
        table::markdown(&head, &rows)
    }

    /// The mutants that lived and have no excuse.
    pub(super) fn survivors(&self) -> Vec<&Tried> {
        let lived = self.tried.iter().filter(|tried| {
            matches!(tried.outcome, Outcome::Survived | Outcome::NotReached)
                && self.excuses.of(&tried.chosen.mutant).is_none()
        });
        lived.collect()
    }

    /// For the terminal.
    pub(super) fn print(&self, took: Duration) {
        println!("\n{}", self.table());
        for Tried { chosen, outcome } in self.survivors() {
            let why = match outcome {
                Outcome::NotReached => "not reached",
                _ => "survived",
            };
            println!("{why}: {}", chosen.mutant);
        }
        let not_run: usize = self.scores().values().map(|score| score.not_run).sum();
        if not_run > 0 {
            println!("{not_run} mutants were not run: the time was up; --resume goes on");
        }
        println!("seed {}, {}, {} s", self.seed, self.sample, took.as_secs());
    }

    /// Writes the section of `docs/mutants.md`.
    pub(super) fn write(&self, root: &Path) -> Result<()> {
        let path = root.join(PAGE);
        let page = fs::read_to_string(&path)?;
        fs::write(path, replace_section(&page, &self.section())?)?;
        Ok(())
    }

    fn section(&self) -> String {
        let mut text = format!(
            "Seed {}, {}. A mutant that no test reaches counts as one that survived; the score leaves out those that are \
             excused, whose reasons `{EXCUSED}` has.\n\n{}",
            self.seed,
            self.sample,
            self.table()
        );
        let excused: Vec<Vec<String>> = self
            .tried
            .iter()
            .filter(|tried| matches!(tried.outcome, Outcome::Survived | Outcome::NotReached))
            .filter_map(|Tried { chosen, .. }| {
                let mutant = &chosen.mutant;
                let why = self.excuses.of(mutant)?;
                Some(vec![
                    format!("{} `{}`", chosen.module, mutant.function),
                    format!("{}: `{}`", mutant.operator, cell(&mutant.change())),
                    why.to_owned(),
                ])
            })
            .collect();
        if !excused.is_empty() {
            let head = ["where", "what was broken", "why it may survive"];
            text.push('\n');
            text.push_str(&table::markdown(&head, &excused));
        }
        let survivors = self.survivors();
        if !survivors.is_empty() {
            let rows: Vec<Vec<String>> = survivors
                .iter()
                .map(|tried| {
                    let mutant = &tried.chosen.mutant;
                    vec![
                        format!("{} `{}`", tried.chosen.module, mutant.function),
                        format!("{}: `{}`", mutant.operator, cell(&mutant.change())),
                    ]
                })
                .collect();
            text.push_str("\nSurvivors that still need a test or an excuse:\n\n");
            text.push_str(&table::markdown(&["where", "what was broken"], &rows));
        }
        text
    }
}

/// Code in a cell of a table.
fn cell(code: &str) -> String {
    code.replace('|', "\\|")
}

fn replace_section(page: &str, section: &str) -> Result<String> {
    let (before, rest) = page
        .split_once(BEGIN)
        .ok_or_else(|| format!("{PAGE} has no line `{BEGIN}`"))?;
    let (_, after) = rest
        .split_once(END)
        .ok_or_else(|| format!("{PAGE} has no line `{END}`"))?;
    Ok(format!(
        "{before}{BEGIN}\n\n{}\n\n{END}{after}",
        section.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::scan::scan;

    #[test]
    fn an_excuse_fits_by_function_operator_and_original() {
        let mutants = scan("f.rs", "fn f(a: u8) -> bool {\n    a\n    < 3 }").unwrap();
        let excuses =
            Excuses::parse("# list\n\nf.rs f boundary\n  a < 3\n  why: 3 never comes\n").unwrap();
        let excused: Vec<_> = mutants
            .iter()
            .filter_map(|mutant| excuses.of(mutant))
            .collect();
        assert_eq!(excused, ["3 never comes"]);
        assert_eq!(excuses.stale(&mutants).count(), 0);
        let other = scan("f.rs", "fn f(a: u8) -> bool { a < 4 }").unwrap();
        assert_eq!(excuses.stale(&other).count(), 1);
        assert!(Excuses::parse("f.rs f boundary\na < 3\n").is_err());
        assert!(Excuses::parse("f.rs f\na < 3\nwhy: x\n").is_err());
    }

    #[test]
    fn the_project_s_excuses_can_be_read() {
        Excuses::read(&crate::root()).unwrap();
    }

    #[test]
    fn a_section_replaces_the_one_before() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let replaced = replace_section(&page, "new\n").unwrap();
        assert_eq!(replaced, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert!(replace_section("a", "new").is_err());
    }
}
