//! The hazards' tests on Apache ZooKeeper.
//!
//! Owns what is said of those that fail: their names and the end of what each has printed, and
//! nothing of the others.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::{Result, hazards, root};

/// Number of lines shown of a failed test's output.
const TAIL_LINES: usize = 25;

pub(super) fn run() -> Result<()> {
    let mut names: Vec<String> = hazards::covered(&root())?
        .into_iter()
        .filter(|(id, _)| id.is_of_recipes())
        .flat_map(|(_, tests)| tests.into_iter().map(|(name, _)| name))
        .collect();
    names.sort();
    names.dedup();
    let count = names.len();
    println!("hazards on Apache ZooKeeper: {count} tests");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--no-fail-fast"]);
    for package in ["baton-locks-client", "baton-locks", "baton-locks-cli"] {
        command.args(["--package", package]);
    }
    // Every test starts a server of its own; a JVM for each core is enough.
    command.arg("--").arg("--test-threads=2").args(names);
    let ran = command
        .env("BATON_TEST_TARGET", "zookeeper")
        // A panic's message is to be at the end of what a test prints.
        .env("RUST_BACKTRACE", "0")
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo test: {error}"))?;
    if ran.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&ran.stdout);
    let failures = failures(&printed);
    for (name, output) in &failures {
        println!("---- {name}");
        for line in output.iter().skip(output.len().saturating_sub(TAIL_LINES)) {
            println!("{line}");
        }
    }
    if failures.is_empty() {
        return Err(format!("cargo test ended with {}, see above", ran.status).into());
    }
    let failed: Vec<&str> = failures.keys().copied().collect();
    Err(format!(
        "{} of {count} tests failed on Apache ZooKeeper: {}",
        failed.len(),
        failed.join(", ")
    )
    .into())
}

/// The tests that failed, by what the test programs printed one after the other, with what each of
/// them printed.
fn failures(printed: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut failures: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut printing = None;
    let mut listing = false;
    for line in printed.lines() {
        let heads = line
            .strip_prefix("---- ")
            .and_then(|line| line.strip_suffix(" stdout ----"));
        if let Some(name) = heads {
            printing = Some(name);
            failures.entry(name).or_default();
        } else if line == "failures:" {
            // Once before what they printed, once before the list of their names.
            (printing, listing) = (None, true);
        } else if line.starts_with("test result: ") {
            (printing, listing) = (None, false);
        } else if let Some(name) = printing {
            failures.entry(name).or_default().push(line);
        } else if let (true, Some(name)) = (listing, line.strip_prefix("    ")) {
            failures.entry(name).or_default();
        }
    }
    for output in failures.values_mut() {
        while output.last().is_some_and(|line| line.is_empty()) {
            output.pop();
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_distinguished_from_the_rest_of_what_is_printed() {
        let printed = "
running 3 tests
.F
failures:

---- h01_one stdout ----

thread 'h01_one' panicked at x.rs:1:1:
    not so

---- h02_two stdout ----
two

failures:
    h01_one
    h02_two
    h03_silent

test result: FAILED. 1 passed; 3 failed

running 1 test
    indented
test result: ok. 1 passed; 0 failed
";
        let failures = failures(printed);
        let names: Vec<_> = failures.keys().copied().collect();
        assert_eq!(names, ["h01_one", "h02_two", "h03_silent"]);
        assert_eq!(
            failures["h01_one"],
            ["", "thread 'h01_one' panicked at x.rs:1:1:", "    not so"]
        );
        assert_eq!(failures["h02_two"], ["two"]);
        assert!(failures["h03_silent"].is_empty());
    }
}
