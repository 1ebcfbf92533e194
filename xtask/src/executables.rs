//! Test executables, as cargo names them when it builds; those of integration tests are run a
//! module at a time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::{Result, root};

/// Between two checks of a process.
pub(crate) const STEP: Duration = Duration::from_millis(20);

/// A test executable, or one module of it.
#[derive(Debug, Clone)]
pub(crate) struct Executable {
    pub(crate) package: String,
    /// The package and the module, or the target: `baton-locks-client/lifetime`.
    pub(crate) name: String,
    /// The tests of the module; empty: all that the executable has.
    pub(crate) tests: Vec<String>,
    pub(crate) path: PathBuf,
    /// Folder in which cargo would run it.
    pub(crate) folder: PathBuf,
}

impl Executable {
    /// Returns what a line of `--message-format=json` says was built, if that is a test executable.
    pub(crate) fn of_message(message: &Value) -> Option<Self> {
        if message["profile"]["test"] != true {
            return None;
        }
        let path = PathBuf::from(message["executable"].as_str()?);
        let manifest = Path::new(message["manifest_path"].as_str()?);
        let folder = manifest.parent()?.to_owned();
        let text = fs::read_to_string(manifest).ok()?;
        let package = text
            .lines()
            .find_map(|line| line.strip_prefix("name = "))?
            .trim_matches('"')
            .to_owned();
        let target = message["target"]["name"].as_str()?;
        let unit = message["target"]["kind"][0] != "test";
        Some(Self {
            name: match unit {
                true => format!("{package}/unit tests"),
                false => format!("{package}/{target}"),
            },
            package,
            tests: Vec::new(),
            path,
            folder,
        })
    }

    /// One for each module of this executable that has tests, so that a run of it is short.
    fn modules(self) -> Result<Vec<Self>> {
        if !self.name.ends_with("/suite") {
            return Ok(vec![self]);
        }
        let mut list = Command::new(&self.path);
        list.args(["--list", "--format", "terse"])
            .current_dir(&self.folder);
        let output = list
            .output()
            .map_err(|error| format!("{list:?}: {error}"))?;
        let mut modules = BTreeMap::<String, Vec<String>>::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some(test) = line.strip_suffix(": test") {
                let module = test.split("::").next().unwrap_or(test).to_owned();
                modules.entry(module).or_default().push(test.to_owned());
            }
        }
        if modules.is_empty() {
            return Err(format!("{list:?} names no test, and ended with {}", output.status).into());
        }
        let one = |(module, tests)| Self {
            name: format!("{}/{module}", self.package),
            tests,
            ..self.clone()
        };
        Ok(modules.into_iter().map(one).collect())
    }

    /// Returns the modules of these executables.
    pub(crate) fn all_modules(executables: Vec<Self>) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for executable in executables {
            all.extend(executable.modules()?);
        }
        Ok(all)
    }

    /// The same with those of its tests only that are wanted; `None` when none is. An executable
    /// whose tests are not listed is returned as it is.
    pub(crate) fn narrowed(mut self, wanted: impl Fn(&str) -> bool) -> Option<Self> {
        if self.tests.is_empty() {
            return Some(self);
        }
        self.tests.retain(|test| wanted(test));
        (!self.tests.is_empty()).then_some(self)
    }

    /// The arguments that have it run its own tests only.
    pub(crate) fn filter(&self) -> impl Iterator<Item = &str> {
        let exact = (!self.tests.is_empty()).then_some("--exact");
        exact
            .into_iter()
            .chain(self.tests.iter().map(String::as_str))
    }

    /// Builds the tests of these packages, or of all, and lists them.
    pub(crate) fn build(packages: &[String]) -> Result<Vec<Self>> {
        let mut command = Command::new(env!("CARGO"));
        command.args([
            "test",
            "--no-run",
            "--locked",
            "--quiet",
            "--message-format=json",
        ]);
        match packages {
            [] => command.arg("--workspace"),
            some => command.args(some.iter().flat_map(|package| ["--package", package])),
        };
        let output = command
            .current_dir(root())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot start {command:?}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{command:?} ended with {}", output.status).into());
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let messages = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let built = messages.filter_map(|message: Value| Self::of_message(&message));
        Self::all_modules(built.collect())
    }
}

/// Runs a test executable in a process group of its own, with its output in `log`; `None` where its
/// time is up, or `is_over` says so. Kills the group at the end: a test may leave children behind.
pub(crate) fn run_in_group(
    command: &mut Command,
    log: &Path,
    limit: Duration,
    mut is_over: impl FnMut() -> bool,
) -> Result<Option<ExitStatus>> {
    let log = File::create(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?);
    let mut child = command
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if is_over() || begun.elapsed() > limit {
            break None;
        }
        thread::sleep(STEP);
    };
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    child.wait()?;
    Ok(status)
}

/// The tests that an output says have failed.
pub(crate) fn failed_tests(text: &str) -> Vec<String> {
    let failed = text
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    failed
        .map(|test| test.trim_end_matches(" - should panic").to_owned())
        .collect()
}
