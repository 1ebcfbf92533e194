//! `cargo xtask upgrade`: three servers of an earlier commit become servers of this tree one after
//! the other, under load, and nothing that was acknowledged is lost. It builds that commit in a
//! worktree of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use baton_testkit::Target;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::stage::{Report, SERVERS, Settings, Stage};
use crate::{Result, command, process, root, table};

/// Said by a server whose format level has risen: the last step of an upgrade.
const RAISED: &str = "format level raised";

/// Upgrade three servers of an earlier commit one by one under load, and check what clients saw.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The commit of the earlier servers.
    #[arg(default_value = "7e0eac3")]
    from: String,
    /// The earlier `baton` command, built already; without it, the commit is built.
    #[arg(long, value_name = "FILE")]
    earlier: Option<PathBuf>,
    /// The `baton` command of this tree, built already.
    #[arg(long, value_name = "FILE")]
    later: Option<PathBuf>,
    /// Times that the servers go back to the earlier commit and are upgraded again: all but the
    /// last one, before the format level has risen.
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,
    /// Operations of each client in a second.
    #[arg(long, value_name = "N", default_value_t = 400)]
    rate: u32,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let earlier = match &args.earlier {
        Some(program) => program.clone(),
        None => build_commit(&args.from)?,
    };
    let later = match &args.later {
        Some(program) => program.clone(),
        None => build(&root(), &command::target_dir()?)?,
    };
    let settings = Settings {
        target: Target::Baton,
        baton: Some(earlier.clone()),
        runs: args.runs.max(1),
        limit: None,
        seed: 1,
        rate: args.rate,
        pause_ms: 0..=0,
        busy_threads: 0,
        apart: None,
    };
    let report = Runtime::new()?.block_on(upgrade(&settings, &earlier, &later))?;
    let row = report.row(&format!("upgrade from {}", args.from));
    println!("{}", table::markdown(&Report::HEAD, &[row]));
    Ok(())
}

/// Upgrades the servers in each run. In every run but the last one, one server stays behind, so
/// that the others can go back.
async fn upgrade(settings: &Settings, earlier: &Path, later: &Path) -> Result<Report> {
    let mut stage = Stage::with_moving_clients(settings, 2 * SERVERS).await?;
    let outcome = upgrade_again(&mut stage, earlier, later).await;
    // What the upgraded servers have written is theirs to verify.
    stage.settings.baton = Some(later.to_owned());
    stage.finish(outcome).await
}

async fn upgrade_again(stage: &mut Stage, earlier: &Path, later: &Path) -> Result<()> {
    while stage.has_next_run() {
        let is_last = stage.report.runs == stage.settings.runs;
        let running = stage.begin().await?;
        let mut faults = Vec::new();
        // The leader last, as an operator would.
        let leader = stage.ensemble.wait_leader().await?;
        let others = Stage::others(leader);
        let steps: Vec<(usize, &Path)> = match (is_last, others.as_slice()) {
            (true, _) => others
                .iter()
                .chain([&leader])
                .map(|at| (*at, later))
                .collect(),
            (false, [one, other]) => vec![
                (*one, later),
                (*other, later),
                (*other, earlier),
                (*one, earlier),
            ],
            (false, _) => return Err("there are not three servers".into()),
        };
        for (index, program) in steps {
            let fault = stage.restart_one(index, Some(program), &running);
            faults.push(fault.await?);
            let raised = stage.ensemble.servers().iter();
            let raised = raised
                .filter(|server| server.log().contains(RAISED))
                .count();
            println!(
                "server {} runs {}; {raised} servers have raised their format level",
                index + 1,
                program.display()
            );
            if !is_last && raised > 0 {
                return Err(
                    "the format level has risen while one server was an earlier one".into(),
                );
            }
        }
        stage.end(running, &faults, Vec::new()).await?;
    }
    Ok(())
}

/// Builds the `baton` command of a commit, in a worktree that is gone afterwards.
fn build_commit(commit: &str) -> Result<PathBuf> {
    let folder = TempDir::new()?;
    let tree = folder.path().join("tree");
    let git = || {
        let mut git = Command::new("git");
        git.current_dir(root());
        git
    };
    command::output(
        git()
            .args(["worktree", "add", "--detach"])
            .arg(&tree)
            .arg(commit),
    )?;
    let built = build(&tree, &command::target_dir()?.join("upgrade").join(commit));
    command::output(git().args(["worktree", "remove", "--force"]).arg(&tree))?;
    built
}

/// Builds the `baton` command of a tree, unoptimized: what counts is what it writes.
fn build(tree: &Path, target: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    process::succeed(
        Command::new(cargo)
            .args([
                "build",
                "--quiet",
                "--locked",
                "--package",
                "baton-locks-cli",
            ])
            .arg("--target-dir")
            .arg(target)
            .current_dir(tree),
    )?;
    let name = format!("baton{}", std::env::consts::EXE_SUFFIX);
    Ok(target.join("debug").join(name))
}
