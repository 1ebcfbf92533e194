//! `cargo xtask interop`: the same promises on Apache ZooKeeper, alone and as three, and in groups
//! with processes of other libraries. Every process that it starts it ends by its process id.
//!
//! | module | owns |
//! |---|---|
//! | `alerts`, `traces` | the alert rules on Prometheus; traces on a collector |
//! | `mixed` | groups of Baton's processes and another library's |
//! | `meetings`, `queues`, `matrix` | barriers, groups, counters; queues; who honours whom |
//! | `soak` | Curator's recipes under faults |
//! | `import`, `kazoo`, `on_zookeeper` | ZooKeeper's data; kazoo's tests; hazards on ZooKeeper |
//! | `security` | TLS and identities, of each client on each server |

mod alerts;
mod import;
mod kazoo;
mod matrix;
mod meetings;
mod mixed;
mod on_zookeeper;
mod queues;
mod security;
mod soak;
mod traces;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use baton_testkit::Target;
use clap::ValueEnum;

use crate::process::{build_baton, work_dir};
use crate::{Result, java};

/// The session timeout of members of mixed groups: the shortest that a stock Apache ZooKeeper
/// grants.
const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

/// Check Baton against Apache ZooKeeper and beside Curator, kazoo and zookeeper-recipes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Znodes of one kind that move besides some of each kind.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    znodes: usize,
    /// Seconds for which each mixed group runs on each server, and for which the soak runs.
    #[arg(long, value_name = "N", default_value_t = 30)]
    seconds: u64,
    /// Only mixed groups, recipes of the soak, or clients with TLS, whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    group: String,
    /// Mixed groups only on this server; the soak on this one instead of Baton's.
    #[arg(long, value_enum)]
    server: Option<ServerPart>,
    /// Servers of the soak: one, or this number that are an ensemble.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=7))]
    servers: u8,
    /// Seed of the crashes and pauses in mixed groups.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder of the kazoo conformance pack [default: ../shared/conformance/kazoo beside the
    /// repository].
    #[arg(long, value_name = "DIR")]
    kazoo: Option<PathBuf>,
    /// Folder for the servers' data [default: the build's folder].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// kazoo's own test suite on Baton's server.
    Kazoo,
    /// TLS and identities: clients of both kinds on servers of both kinds.
    Security,
    /// Groups of Baton's processes and another library's on one path, with crashes and pauses.
    Mixed,
    /// A ZooKeeper's data to Baton and back, with `--znodes`.
    Import,
    /// Curator's recipes under load while a server is killed and connections are cut.
    CuratorSoak,
    /// The hazards' tests on Apache ZooKeeper.
    Hazards,
    /// The alert rules by promtool, and on a Prometheus that reads a server.
    Alerts,
    /// Traces of a lock, from the command and the server, on a collector.
    Traces,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ServerPart {
    Baton,
    Zookeeper,
}

impl ServerPart {
    fn target(self) -> Target {
        match self {
            Self::Baton => Target::Baton,
            Self::Zookeeper => Target::ZooKeeper,
        }
    }
}

/// End of a part that did not fail.
enum PartEnd {
    Passed,
    /// Left out, since this is missing.
    Skipped(String),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let parts: Vec<Part> = Part::value_variants()
        .iter()
        .copied()
        .filter(|part| args.only.is_empty() || args.only.contains(part))
        .collect();
    let mut failed = Vec::new();
    let mut summary = Vec::new();
    for part in parts {
        let name = part
            .to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned());
        let begin = Instant::now();
        let outcome = match run_part(part, args) {
            Ok(PartEnd::Passed) => "passed".to_owned(),
            Ok(PartEnd::Skipped(why)) => format!("skipped: {why}"),
            Err(error) => {
                failed.push(format!("{name}: {error}"));
                "FAILED".to_owned()
            }
        };
        let seconds = begin.elapsed().as_secs();
        summary.push(format!("interop {name}: {outcome} ({seconds} s)"));
    }
    // To stderr: stdout is the table, which is read line by line.
    eprintln!("{}", summary.join("\n"));
    match failed.as_slice() {
        [] => Ok(()),
        some => Err(some.join("; ").into()),
    }
}

fn run_part(part: Part, args: &Args) -> Result<PartEnd> {
    match part {
        Part::Kazoo => return kazoo::run(args.kazoo.as_deref()),
        Part::Security => return security::run(args),
        Part::Alerts => return alerts::run(args.dir.as_deref()),
        Part::Traces => return traces::run(args.dir.as_deref()),
        Part::Hazards => on_zookeeper::run()?,
        Part::Mixed => mixed::run(args)?,
        Part::CuratorSoak => soak::run(args)?,
        Part::Import => {
            java::require()?;
            let dir = work_dir(args.dir.as_deref())?;
            import::run(&build_baton()?, args.znodes, dir.path())?;
        }
    }
    Ok(PartEnd::Passed)
}
