//! The hazards' tests on Apache ZooKeeper.

use std::process::Command;

use crate::{Result, hazards, process, root};

pub(super) fn run() -> Result<()> {
    let mut names: Vec<String> = hazards::covered(&root())?
        .into_iter()
        .filter(|(id, _)| id.is_of_recipes())
        .flat_map(|(_, tests)| tests.into_iter().map(|(name, _)| name))
        .collect();
    names.sort();
    names.dedup();
    println!("hazards on Apache ZooKeeper: {} tests", names.len());
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--no-fail-fast"]);
    for package in ["baton-locks-client", "baton-locks", "baton-locks-cli"] {
        command.args(["--package", package]);
    }
    // Every test starts a server of its own; a JVM for each core is enough.
    command.arg("--").arg("--test-threads=2").args(names);
    command.env("BATON_TEST_TARGET", "zookeeper");
    process::succeed(command.env("RUST_BACKTRACE", "0").current_dir(root()))
}
