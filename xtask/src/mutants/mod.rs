//! `cargo xtask mutants`: breaks the code in small ways, and sees whether a test fails each time.
//!
//! A build for each mutant would take hours here. So all mutants of a sample are compiled in at
//! once, each behind a switch, and an environment variable chooses the active one. The way of a
//! run, and who owns each step:
//!
//! | file | owns |
//! |---|---|
//! | `report` | scores, survivors, excuses |
//! | `runner` | test executables: what each reaches, and whether one fails with a mutant |
//! | `tree` | the copy of the workspace and its build; mutants that do not compile |
//! | `rewrite` | mutants written into a source text behind their switches |
//! | `sample` | the draw by a seed, the lines that a change touches |
//! | `modules` | the parts of the workspace that are mutated, and whose tests count for each |
//! | `scan`, `operators` | all mutants of a source file: which code is mutated, and how |
//! | `mutant` | one mutant, its identity and how it is shown |
//! | `switch` | the module that each mutated crate gets: the active mutant, those reached |

mod modules;
mod mutant;
mod operators;
mod report;
mod rewrite;
mod runner;
mod sample;
mod scan;
#[cfg(test)]
mod switch;
mod tree;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::{Result, command, root};
use modules::{MODULES, Module};
use report::{AllowedSurvivors, Report, TriedMutant};
use runner::{Outcome, Runner, summary};
use sample::{changed_lines, draw, in_turns, touches};
use tree::{Build, ChosenMutant, Tree};

/// Break the code in small ways, and see that a test fails each time.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this module; may be given several times.
    #[arg(long, value_name = "MODULE")]
    only: Vec<String>,
    /// Mutants of each module; with --in-diff, of all together.
    #[arg(long, value_name = "N", default_value_t = 60)]
    sample: usize,
    /// All mutants instead of a sample.
    #[arg(long)]
    all: bool,
    /// Seed of the draw.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only mutants on lines that differ from this commit.
    #[arg(long, value_name = "COMMIT")]
    in_diff: Option<String>,
    /// Begin no mutant after this time.
    #[arg(long, value_name = "MINUTES")]
    budget: Option<u64>,
    /// List the mutants and build nothing.
    #[arg(long)]
    list: bool,
    /// Fail only where less than this share is caught, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(..=100))]
    least: u8,
    /// Test executables at a time.
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Run only the tests of the mutated crate itself.
    #[arg(long)]
    own_tests: bool,
    /// Leave out tests with this in their names; may be given several times.
    #[arg(long, value_name = "TEST")]
    skip: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let begin = Instant::now();
    let root = root();
    let excuses = AllowedSurvivors::read(&root)?;
    let candidates = candidates(args, &root, &excuses)?;
    if args.list {
        let limit = args.limit();
        for module in MODULES {
            let of_module = candidates
                .iter()
                .filter(|chosen| chosen.module == module.name);
            for chosen in of_module.take(limit) {
                println!("{}", chosen.mutant);
            }
        }
        return Ok(());
    }
    if candidates.is_empty() {
        println!("no mutants in {}", args.sample_in_words());
        return Ok(());
    }
    let folder = command::target_dir()?.join("mutants");
    std::fs::create_dir_all(&folder)?;
    // A lock for the copy and its build: a second run would mix its mutants with these.
    let lock = std::fs::File::create(folder.join("lock"))?;
    if lock.try_lock().is_err() {
        return Err("another `cargo xtask mutants` runs in this target folder".into());
    }
    let mut tree = Tree::copy(&root, &folder)?;
    let mut chosen = viable(args, &mut tree, candidates)?;
    let packages: BTreeSet<&str> = chosen
        .iter()
        .flat_map(|chosen| chosen.source.tests)
        .copied()
        .collect();
    let own: BTreeSet<&str> = chosen.iter().map(|chosen| chosen.source.package).collect();
    let packages = if args.own_tests { own } else { packages };
    eprintln!(
        "{} mutants; building the tests of {}",
        chosen.len(),
        packages.iter().copied().collect::<Vec<_>>().join(", ")
    );
    let executables = tree.build(Build::Tests, &packages, &mut chosen)?;
    eprintln!(
        "{} mutants compile, {} s; running {} executables without a mutant",
        chosen.len(),
        begin.elapsed().as_secs(),
        executables.len()
    );
    let runner = Runner {
        scratch: folder.clone(),
        jobs: args.jobs,
        skip: args.skip.clone(),
    };
    let reaches = runner.reach(&executables)?;
    eprintln!(
        "{}; {} s so far",
        summary(&reaches),
        begin.elapsed().as_secs()
    );
    let until = args
        .budget
        .map(|minutes| begin + Duration::from_secs(60 * minutes));
    let tried = try_all(chosen, &runner, &reaches, &excuses, until);
    let report = Report {
        seed: args.seed,
        sample: args.sample_in_words(),
        tests: if args.own_tests { "own" } else { "all" },
        excuses: &excuses,
        tried: &tried,
    };
    report.print(begin.elapsed());
    match report.survivors().len() {
        lived if report.caught_percent() >= f64::from(args.least) || lived == 0 => Ok(()),
        lived => Err(format!(
            "{lived} mutants survived: write a test that fails on each; where no user could notice a mutant, add it with the \
             reason to {}",
            report::EXCUSED
        )
        .into()),
    }
}

impl Args {
    /// Returns the limit on the mutants of each module.
    fn limit(&self) -> usize {
        if self.all { usize::MAX } else { self.sample }
    }

    fn modules(&self) -> Result<Vec<&'static Module>> {
        let known = || {
            let names: Vec<_> = MODULES.iter().map(|module| module.name).collect();
            names.join(", ")
        };
        if self.only.is_empty() {
            return Ok(MODULES.iter().collect());
        }
        let named = self.only.iter().map(|name| {
            let module = MODULES.iter().find(|module| module.name == name);
            module.ok_or_else(|| format!("{name}: unknown module; there are {}", known()).into())
        });
        named.collect()
    }

    fn sample_in_words(&self) -> String {
        match (&self.in_diff, self.all) {
            (Some(base), _) => format!("the lines that differ from {base}"),
            (None, true) => "all mutants".to_owned(),
            (None, false) => format!("{} mutants a module", self.sample),
        }
    }
}

/// The mutants in the order in which they are tried, more than are wanted: some will not compile.
fn candidates(args: &Args, root: &Path, excuses: &AllowedSurvivors) -> Result<Vec<ChosenMutant>> {
    let changed = match &args.in_diff {
        Some(base) => Some(changed_lines(root, base)?),
        None => None,
    };
    let mut by_module = Vec::new();
    let mut scanned = Vec::new();
    for module in args.modules()? {
        let mut mutants = module.scan(root)?;
        scanned.extend(mutants.iter().cloned());
        if let Some(changed) = &changed {
            mutants.retain(|mutant| touches(changed, mutant));
        }
        let of_module = mutants.len();
        let mut drawn = rewrite::without_overlaps(draw(mutants, args.seed));
        drawn.truncate(args.limit().saturating_mul(3) / 2 + 10);
        if changed.is_none() || of_module > 0 {
            eprintln!("{}: {of_module} mutants", module.name);
        }
        by_module.push(drawn.into_iter().map(|mutant| (module, mutant)).collect());
    }
    for stale in excuses.stale(&scanned) {
        eprintln!("an excuse that fits no mutant any more: {stale}");
    }
    // The sample of a change is the beginning of all together, so that each module has its turn in
    // it.
    let all = match args.in_diff {
        Some(_) => in_turns(by_module),
        None => by_module.into_iter().flatten().collect(),
    };
    let numbered = (1..).zip(all);
    Ok(numbered
        .map(|(id, (module, mutant))| ChosenMutant {
            id,
            module: module.name,
            source: module.source,
            mutant,
        })
        .collect())
}

/// Those that compile, as many as are wanted of each module; of a change, as many as are wanted in
/// all.
fn viable(
    args: &Args,
    tree: &mut Tree,
    mut candidates: Vec<ChosenMutant>,
) -> Result<Vec<ChosenMutant>> {
    if args.in_diff.is_some() {
        // Few: the build of the tests finds those that do not compile, and spares a check of
        // everything that they depend on.
        candidates.truncate(args.limit());
        return Ok(candidates);
    }
    let packages: BTreeSet<&str> = candidates
        .iter()
        .map(|chosen| chosen.source.package)
        .collect();
    tree.build(Build::Check, &packages, &mut candidates)?;
    let mut kept: Vec<ChosenMutant> = Vec::new();
    for chosen in candidates {
        let before = kept.iter().filter(|other| other.module == chosen.module);
        if before.count() < args.limit() {
            kept.push(chosen);
        }
    }
    Ok(kept)
}

/// Tries each mutant; its outcome is printed as soon as it is known.
fn try_all(
    chosen: Vec<ChosenMutant>,
    runner: &Runner,
    reaches: &[runner::BaselineRun],
    excuses: &AllowedSurvivors,
    until: Option<Instant>,
) -> Vec<TriedMutant> {
    let outcomes = Mutex::new(BTreeMap::new());
    let mut waiting = Vec::new();
    let mut of_module = BTreeMap::new();
    for chosen in &chosen {
        let nth = of_module.entry(chosen.module).or_insert(0_usize);
        *nth += 1;
        waiting.push((excuses.of(&chosen.mutant).is_some(), *nth, chosen));
    }
    // The modules take turns. Those that are likely to survive take longest, and matter least.
    waiting.sort_by_key(|(excused, nth, _)| (*excused, *nth));
    let waiting = waiting.into_iter().map(|(.., chosen)| chosen).collect();
    let all = chosen.len();
    runner.try_all(waiting, reaches, until, |chosen, outcome, took| {
        let Ok(mut outcomes) = outcomes.lock() else {
            return;
        };
        outcomes.insert(chosen.id, outcome.clone());
        let done = outcomes.len();
        let mutant = &chosen.mutant;
        let took = took.as_secs();
        match outcome {
            Outcome::NotRun => {}
            Outcome::Caught(by) => println!("{done}/{all} caught, {took} s: {mutant} [{by}]"),
            Outcome::TimedOut(by) => {
                println!("{done}/{all} did not end, {took} s: {mutant} [{by}]")
            }
            Outcome::Survived => println!("{done}/{all} SURVIVED, {took} s: {mutant}"),
            Outcome::NotReached => println!("{done}/{all} NOT REACHED: {mutant}"),
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_default();
    chosen
        .into_iter()
        .map(|chosen| TriedMutant {
            outcome: outcomes.get(&chosen.id).cloned().unwrap_or(Outcome::NotRun),
            chosen,
        })
        .collect()
}
