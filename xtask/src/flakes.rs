//! `cargo xtask flakes`: which tests do not pass each time on a busy machine.
//!
//! All test executables run again and again, many at once and in another order each time: they are
//! each other's load. A test that fails or does not end once is named, with the output of that run.
//! A process that does not end is killed with its children, by their process group.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::executables::{Executable, failed_tests, run_in_group};
use crate::{Result, machine, root, table};

/// Run the tests many times under load, and name those that do not always pass.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of runs of each test.
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: usize,
    /// Number of executables that run at once.
    #[arg(long, value_name = "N", default_value_t = 16)]
    load: usize,
    /// Run the tests of this package only; may be given several times.
    #[arg(short, long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Only tests with this in their names.
    #[arg(value_name = "TEST")]
    test: Option<String>,
    /// An executable that runs for longer counts as one that does not end, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1_200)]
    limit: u64,
}

/// One run of one executable.
#[derive(Debug, Clone)]
struct Turn {
    executable: usize,
    run: usize,
}

/// Failures of a test, and where the output of the last one is.
#[derive(Debug, Default)]
struct Failures {
    times: usize,
    log: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |test: &str| args.test.as_ref().is_none_or(|part| test.contains(part));
    let executables: Vec<Executable> = Executable::build(&args.packages)?
        .into_iter()
        .filter_map(|executable| executable.narrowed(wanted))
        .collect();
    let logs = root().join("target/flakes");
    let _ = fs::remove_dir_all(&logs);
    fs::create_dir_all(&logs)?;
    let begun = Instant::now();
    let turns = Mutex::new(turns(executables.len(), args.runs));
    let failures = Mutex::new(BTreeMap::<(String, String), Failures>::new());
    let broken = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..args.load.max(1) {
            scope.spawn(|| {
                while let Some(turn) = take(&turns) {
                    let Some(executable) = executables.get(turn.executable) else {
                        continue;
                    };
                    match one(args, executable, &turn, &logs) {
                        Ok((_, failed)) if failed.is_empty() => {}
                        Ok((log, failed)) => {
                            for test in failed {
                                println!(
                                    "{} {test}, run {}: {}",
                                    executable.name,
                                    turn.run,
                                    log.display()
                                );
                                if let Ok(mut failures) = failures.lock() {
                                    let seen = failures
                                        .entry((executable.name.clone(), test))
                                        .or_default();
                                    seen.times += 1;
                                    seen.log.clone_from(&log);
                                }
                            }
                        }
                        Err(error) => {
                            if let Ok(mut broken) = broken.lock() {
                                *broken = Some(error.to_string());
                            }
                            return;
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = broken.into_inner().unwrap_or_default() {
        return Err(error.into());
    }
    let failures = failures.into_inner().unwrap_or_default();
    println!(
        "{} executables, {} runs each, {} at once, in {:.0?}; {}",
        executables.len(),
        args.runs,
        args.load,
        begun.elapsed(),
        machine::describe()
    );
    if failures.is_empty() {
        println!("all passed each time");
        return Ok(());
    }
    let rows: Vec<Vec<String>> = failures
        .iter()
        .map(|((executable, test), seen)| {
            let log = seen.log.display().to_string();
            vec![
                executable.clone(),
                test.clone(),
                seen.times.to_string(),
                log,
            ]
        })
        .collect();
    println!(
        "{}",
        table::markdown(&["executable", "test", "failed", "last output"], &rows)
    );
    Err(format!("{} tests did not pass each time", failures.len()).into())
}

/// All runs of all executables: each run in another order, so that each executable meets other
/// neighbours.
fn turns(executables: usize, runs: usize) -> VecDeque<Turn> {
    let mut turns = VecDeque::new();
    for run in 1..=runs {
        let mut order: Vec<usize> = (0..executables).collect();
        fastrand::Rng::with_seed(run as u64).shuffle(&mut order);
        turns.extend(order.into_iter().map(|executable| Turn { executable, run }));
    }
    turns
}

fn take(turns: &Mutex<VecDeque<Turn>>) -> Option<Turn> {
    turns.lock().ok()?.pop_front()
}

/// Runs an executable once: where its output is, and the tests that failed.
fn one(
    args: &Args,
    executable: &Executable,
    turn: &Turn,
    logs: &Path,
) -> Result<(PathBuf, Vec<String>)> {
    // The unit tests of a library and of a binary have one name.
    let path = logs.join(format!(
        "{}-{}-{}.log",
        executable.name.replace(['/', ' '], "-"),
        turn.executable,
        turn.run
    ));
    let mut command = Command::new(&executable.path);
    match &args.test {
        Some(test) if executable.tests.is_empty() => command.arg(test),
        _ => command.args(executable.filter()),
    };
    command
        .current_dir(&executable.folder)
        .env("CARGO_MANIFEST_DIR", &executable.folder);
    let limit = Duration::from_secs(args.limit);
    let status = run_in_group(&mut command, &path, limit, || false)?;
    let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    let failed = match status {
        Some(status) if status.success() => Vec::new(),
        Some(status) => match failed_tests(&text) {
            failed if failed.is_empty() => vec![format!("(ended with {status})")],
            failed => failed,
        },
        None => vec!["(did not end)".to_owned()],
    };
    if failed.is_empty() {
        fs::remove_file(&path)?;
    }
    Ok((path, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_each_executable_once_in_another_order() {
        let all: Vec<_> = turns(50, 2).into_iter().collect();
        let order = |run| -> Vec<usize> {
            let turns = all.iter().filter(|turn| turn.run == run);
            turns.map(|turn| turn.executable).collect()
        };
        for run in [1, 2] {
            let mut sorted = order(run);
            sorted.sort_unstable();
            assert_eq!(sorted, (0..50).collect::<Vec<_>>());
        }
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn failed_tests_are_found_in_an_output() {
        let text = "running 3 tests\ntest a ... ok\ntest b::c ... FAILED\ntest d - should panic ... FAILED\n";
        assert_eq!(failed_tests(text), ["b::c", "d"]);
        assert_eq!(failed_tests("test a ... ok"), [""; 0]);
    }
}
