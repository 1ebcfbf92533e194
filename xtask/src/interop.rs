//! `cargo xtask interop`: the same promises on Apache ZooKeeper, alone and as three, and in groups with processes of other libraries.
//! Every process that it starts it ends by its process id.

mod curator;
mod import;
mod main_job;
mod matrix;
mod meetings;
mod mixed;
mod page;
mod queues;

use std::path::{Path, PathBuf};
use std::process::Command;

use baton_testkit::Target;

use crate::process::{Kind, build_baton, succeed, work_dir};
use crate::{Result, hazards, java, root};

/// Check Baton against Apache ZooKeeper and beside Curator, kazoo and zookeeper-recipes, and write the tables of docs/peers.md.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Hand-overs between Curator and `baton lock`.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    turns: usize,
    /// Znodes of one kind that move besides some of each kind.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    znodes: usize,
    /// Seconds for which each mixed group runs on each server.
    #[arg(long, value_name = "N", default_value_t = 30)]
    seconds: u64,
    /// Only mixed groups whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    group: String,
    /// Mixed groups only on this server.
    #[arg(long, value_enum)]
    server: Option<OnServer>,
    /// Leave docs/peers.md as it is.
    #[arg(long)]
    dry: bool,
    /// Seed of the crashes and pauses in mixed groups.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder of a kazoo conformance pack, to run it against Baton's server.
    #[arg(long, value_name = "DIR")]
    kazoo: Option<PathBuf>,
    /// Folder for the servers' data [default: the build's folder].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The hazards' tests on Apache ZooKeeper.
    Hazards,
    /// Curator and `baton lock` in one line for one lock.
    Curator,
    /// Lock, election and queue with processes and servers killed.
    MainJob,
    /// A ZooKeeper's data to Baton and back, with `--znodes`.
    Import,
    /// Groups of Baton's processes and another library's on one path, with crashes and pauses.
    Mixed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OnServer {
    Baton,
    Zookeeper,
}

impl OnServer {
    fn target(self) -> Target {
        match self {
            Self::Baton => Target::Baton,
            Self::Zookeeper => Target::ZooKeeper,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    java::require()?;
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    if wanted(Part::Mixed) {
        mixed::run(args)?;
    }
    if wanted(Part::Import) {
        let dir = work_dir(args.dir.as_deref())?;
        import::run(&build_baton()?, args.znodes, dir.path())?;
    }
    if !(wanted(Part::Curator) || wanted(Part::MainJob) || args.kazoo.is_some()) {
        return if wanted(Part::Hazards) {
            hazards_on_zookeeper()
        } else {
            Ok(())
        };
    }
    let baton = build_baton()?;
    let dir = work_dir(args.dir.as_deref())?;
    let kinds = [Kind::Baton(baton.clone()), Kind::ZooKeeper];
    if wanted(Part::Curator) {
        for kind in &kinds {
            curator::run(kind, &baton, args.turns, dir.path())?;
        }
    }
    if wanted(Part::MainJob) {
        main_job::run(&kinds, &baton, dir.path())?;
    }
    if wanted(Part::Hazards) {
        hazards_on_zookeeper()?;
    }
    if let Some(kazoo) = &args.kazoo {
        run_kazoo(kazoo, &baton)?;
    }
    Ok(())
}

fn hazards_on_zookeeper() -> Result<()> {
    let mut names: Vec<String> = hazards::covered(&root())?
        .into_values()
        .flatten()
        .map(|(name, _)| name)
        .collect();
    names.sort();
    names.dedup();
    println!("hazards on Apache ZooKeeper: {} tests", names.len());
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--no-fail-fast"]);
    for package in ["baton-client", "baton", "baton-cli"] {
        command.args(["--package", package]);
    }
    // Every test starts a server of its own; a JVM for each core is enough.
    command.arg("--").arg("--test-threads=2").args(names);
    succeed(
        command
            .env("BATON_TEST_TARGET", "zookeeper")
            .current_dir(root()),
    )
}

/// What Baton's server says in `envi`; one of kazoo's tests compares it with what the pack is told.
const REPORTED_VERSION: &str = "3.9.5";

fn run_kazoo(folder: &Path, baton: &Path) -> Result<()> {
    let serve = format!("{} serve --config {{cfg}}", baton.display());
    let mut command = Command::new("bash");
    succeed(
        command
            .arg(folder.join("run.sh"))
            .args(["--size", "1"])
            .env("SERVER_CMD", serve)
            .env("ZOOKEEPER_VERSION", REPORTED_VERSION),
    )
}
