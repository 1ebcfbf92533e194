//! Runs test executables: once without a mutant, to see what each reaches, and then for each mutant
//! those that reach it.
//!
//! It ends only process groups that it started, by their id.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::tree::ChosenMutant;
use crate::Result;
use crate::executables::{Executable, STEP, failed_tests, run_in_group};

/// A run may take this multiple of its normal time, and this much more.
const TIMES: u32 = 4;
const BESIDES: Duration = Duration::from_secs(20);
/// For a run whose normal time is not known.
const LONGEST: Duration = Duration::from_secs(900);
/// Address space of a run, in KiB: a mutant may ask for memory without end.
const MEMORY: &str = "12000000";

/// End of a run of an executable.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RunEnd {
    Passed,
    /// The first test that failed, if the executable said.
    Failed(Option<String>),
    TimedOut,
}

/// Outcome of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A test failed: `baton-locks-client/lifetime h26_...`.
    Caught(String),
    /// An executable did not end.
    TimedOut(String),
    Survived,
    /// No test comes to it.
    NotReached,
    /// The time for all was up.
    NotRun,
}

/// Run of an executable without a mutant.
#[derive(Debug, Clone)]
pub(super) struct BaselineRun {
    pub(super) executable: Executable,
    pub(super) time: Duration,
    pub(super) reached: BTreeSet<u32>,
}

/// Number of mutants of a file that an executable has caught.
type CatchCounts = BTreeMap<(String, String), u32>;

/// Runner of the tests.
#[derive(Debug)]
pub(super) struct Runner {
    /// For outputs and for the tests' temporary files.
    pub(super) scratch: PathBuf,
    pub(super) jobs: usize,
    /// Tests that are left out, by parts of their names.
    pub(super) skip: Vec<String>,
}

/// Purpose of a test process.
enum RunPurpose<'a> {
    Mutant(u32),
    Record(&'a Path),
}

impl Runner {
    /// Runs each executable once without a mutant. One that fails twice is an error.
    pub(super) fn reach(&self, executables: &[Executable]) -> Result<Vec<BaselineRun>> {
        let kept = |test: &str| !self.skip.iter().any(|part| test.contains(part.as_str()));
        let executables = executables.iter().cloned();
        let narrowed = executables.filter_map(|executable| executable.narrowed(kept));
        let waiting = Mutex::new(narrowed.collect::<VecDeque<_>>());
        let done = Mutex::new(Vec::new());
        self.workers(|slot| {
            while let Some(executable) = take(&waiting) {
                let mut result = self.reach_of(&executable, slot);
                if result.is_err() {
                    result = self.reach_of(&executable, slot);
                }
                if let Ok(mut done) = done.lock() {
                    done.push(result);
                }
            }
        });
        let (mut reaches, mut failed) = (Vec::new(), Vec::new());
        for result in done.into_inner().unwrap_or_default() {
            match result {
                Ok(reach) => reaches.push(reach),
                Err(error) => failed.push(error),
            }
        }
        if !failed.is_empty() {
            return Err(format!(
                "without a mutant: {}; --skip TEST leaves a test out",
                failed.join(", ")
            )
            .into());
        }
        reaches.sort_by_key(|reach: &BaselineRun| reach.time);
        Ok(reaches)
    }

    fn reach_of(
        &self,
        executable: &Executable,
        slot: usize,
    ) -> std::result::Result<BaselineRun, String> {
        let record = self.scratch.join(format!("reached-{slot}"));
        let _ = fs::remove_file(&record);
        let begin = Instant::now();
        let ended = self.run(
            executable,
            &RunPurpose::Record(&record),
            None,
            LONGEST,
            slot,
        );
        match ended.map_err(|error| error.to_string())? {
            RunEnd::Passed => {
                let ids = fs::read_to_string(&record).unwrap_or_default();
                Ok(BaselineRun {
                    executable: executable.clone(),
                    time: begin.elapsed(),
                    reached: ids.lines().filter_map(|id| id.parse().ok()).collect(),
                })
            }
            RunEnd::Failed(test) => Err(format!(
                "{} fails at {}",
                executable.name,
                test.as_deref().unwrap_or("no test that it names")
            )),
            RunEnd::TimedOut => Err(format!("{} does not end", executable.name)),
        }
    }

    /// Tries each mutant, and hands over what became of it as soon as that is known.
    pub(super) fn try_all(
        &self,
        mutants: Vec<&ChosenMutant>,
        reaches: &[BaselineRun],
        until: Option<Instant>,
        report: impl Fn(&ChosenMutant, &Outcome, Duration) + Sync,
    ) {
        let waiting = Mutex::new(mutants.into_iter().collect::<VecDeque<_>>());
        let catches = Mutex::new(CatchCounts::new());
        self.workers(|slot| {
            while let Some(mutant) = take(&waiting) {
                let begin = Instant::now();
                let outcome = if until.is_some_and(|until| begin >= until) {
                    Outcome::NotRun
                } else {
                    self.try_one(mutant, reaches, &catches, slot)
                };
                report(mutant, &outcome, begin.elapsed());
            }
        });
    }

    /// The executables that reach it, until one fails: first those that have caught most of the
    /// same file's mutants, then the quickest.
    fn try_one(
        &self,
        mutant: &ChosenMutant,
        reaches: &[BaselineRun],
        catches: &Mutex<CatchCounts>,
        slot: usize,
    ) -> Outcome {
        let key = |executable: &Executable| (mutant.mutant.file.clone(), executable.name.clone());
        let reaching = reaches.iter().filter(|reach| {
            reach.reached.contains(&mutant.id)
                && mutant.source.tests_count(&reach.executable.package)
        });
        let mut reaching: Vec<&BaselineRun> = reaching.collect();
        if let Ok(catches) = catches.lock() {
            reaching.sort_by_key(|reach| Reverse(catches.get(&key(&reach.executable)).copied()));
        }
        let caught = |executable: &Executable| {
            if let Ok(mut catches) = catches.lock() {
                *catches.entry(key(executable)).or_default() += 1;
            }
        };
        for BaselineRun {
            executable, time, ..
        } in &reaching
        {
            let limit = *time * TIMES + BESIDES;
            let active = RunPurpose::Mutant(mutant.id);
            match self.run(executable, &active, None, limit, slot) {
                Ok(RunEnd::Failed(test)) => {
                    // A test that fails once in a while on a busy machine catches nothing.
                    let again = self.run(executable, &active, test.as_deref(), limit, slot);
                    if !matches!(again, Ok(RunEnd::Passed)) {
                        caught(executable);
                        let test = test.unwrap_or_default();
                        return Outcome::Caught(format!("{} {test}", executable.name));
                    }
                }
                Ok(RunEnd::TimedOut) => {
                    caught(executable);
                    return Outcome::TimedOut(executable.name.clone());
                }
                Ok(RunEnd::Passed) => {}
                Err(error) => eprintln!("{}: {error}", executable.name),
            }
        }
        if reaching.is_empty() {
            Outcome::NotReached
        } else {
            Outcome::Survived
        }
    }

    fn workers(&self, work: impl Fn(usize) + Sync) {
        std::thread::scope(|scope| {
            for slot in 0..self.jobs.max(1) {
                let work = &work;
                scope.spawn(move || work(slot));
            }
        });
    }

    /// Runs an executable, or one of its tests, until a test fails, it ends or its time is up.
    fn run(
        &self,
        executable: &Executable,
        active: &RunPurpose<'_>,
        test: Option<&str>,
        limit: Duration,
        slot: usize,
    ) -> Result<RunEnd> {
        let scratch = self.scratch.join(format!("tmp-{slot}"));
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch)?;
        let log_path = self.scratch.join(format!("out-{slot}"));
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -v \"$0\"; exec \"$@\"", MEMORY])
            .arg(&executable.path)
            .current_dir(&executable.folder)
            .env("CARGO_MANIFEST_DIR", &executable.folder)
            .env("TMPDIR", &scratch)
            .env("RUST_BACKTRACE", "0")
            .env_remove("BATON_MUTANT")
            .env_remove("BATON_MUTANT_REACHED");
        match test {
            Some(test) => command.args(["--exact", test]),
            None if executable.tests.is_empty() => {
                command.args(self.skip.iter().flat_map(|test| ["--skip", test]))
            }
            None => command.args(executable.filter()),
        };
        match active {
            RunPurpose::Mutant(id) => command.env("BATON_MUTANT", id.to_string()),
            RunPurpose::Record(path) => command.env("BATON_MUTANT_REACHED", path),
        };
        let mut looked_at = Instant::now();
        let mut failed = None;
        let ended = run_in_group(&mut command, &log_path, limit, || {
            if looked_at.elapsed() > STEP * 10 {
                looked_at = Instant::now();
                failed = failed_test(&log_path);
            }
            failed.is_some()
        })?;
        let ended = match ended {
            Some(status) if status.success() => RunEnd::Passed,
            Some(_) => RunEnd::Failed(failed_test(&log_path)),
            None if failed.is_some() => RunEnd::Failed(failed),
            None => RunEnd::TimedOut,
        };
        let _ = fs::remove_dir_all(&scratch);
        Ok(ended)
    }
}

/// The first test that an output says has failed.
fn failed_test(log: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&fs::read(log).ok()?).into_owned();
    failed_tests(&text).into_iter().next()
}

fn take<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    queue.lock().ok()?.pop_front()
}

/// Describes the time that the tests take, by package.
pub(super) fn summary(reaches: &[BaselineRun]) -> String {
    let mut by_package: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
    for reach in reaches {
        let (executables, time) = by_package.entry(&reach.executable.package).or_default();
        *executables += 1;
        *time += reach.time;
    }
    let parts: Vec<_> = by_package
        .into_iter()
        .map(|(package, (executables, time))| {
            format!("{package}: {executables} executables, {} s", time.as_secs())
        })
        .collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_test_that_failed_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("out");
        fs::write(&log, "running 2 tests\ntest a ... ok\n").unwrap();
        assert_eq!(failed_test(&log), None);
        fs::write(
            &log,
            "test a ... ok\ntest b::c ... FAILED\ntest d ... FAILED\n",
        )
        .unwrap();
        assert_eq!(failed_test(&log).as_deref(), Some("b::c"));
    }

    #[test]
    fn a_run_that_does_not_end_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("test.sh");
        fs::write(
            &script,
            "#!/bin/sh\n[ \"$BATON_MUTANT\" = 7 ] && exec sleep 600\nexit 0\n",
        )
        .unwrap();
        succeeds(Command::new("chmod").arg("+x").arg(&script));
        let executable = Executable {
            package: "p".to_owned(),
            name: "p/t".to_owned(),
            tests: Vec::new(),
            path: script,
            folder: folder.path().to_owned(),
        };
        let runner = Runner {
            scratch: folder.path().join("scratch"),
            jobs: 1,
            skip: Vec::new(),
        };
        let run = |id, limit| {
            let active = RunPurpose::Mutant(id);
            runner.run(&executable, &active, None, limit, 0).unwrap()
        };
        assert_eq!(run(7, Duration::from_millis(50)), RunEnd::TimedOut);
        assert_eq!(run(8, LONGEST), RunEnd::Passed);
    }

    fn succeeds(command: &mut Command) {
        assert!(command.status().unwrap().success());
    }
}
