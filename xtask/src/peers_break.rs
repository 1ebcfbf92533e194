//! `cargo xtask peers-break`: how the locks of other libraries come to be held twice, and Baton's
//! in the same experiment.
//!
//! Each experiment runs four locks side by side on the same Apache ZooKeeper, each on a path of its
//! own, and Baton's once more on an ensemble of three Batons. Both of Baton's columns must be zero
//! in every row, or the run fails. A row of the others is a measurement, never an expectation.

mod calm;
mod ensemble;
mod measurements;
mod pair;

use std::time::Duration;

use baton_testkit::Target;
use tokio::runtime::Runtime;

use crate::peer::require;
use crate::{Result, java, machine, table};
use measurements::Row;

const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_secs(2);

/// The locks, in the order of the columns: those of others, then Baton's.
const SUBJECTS: [Subject; 5] = [
    Subject {
        name: "Curator",
        folder: "curator",
        recipe: "curator-mutex",
        token: "-lock-",
        servers: Target::ZooKeeper,
    },
    Subject {
        name: "kazoo",
        folder: "kazoo",
        recipe: "kazoo-lock",
        token: "__lock__",
        servers: Target::ZooKeeper,
    },
    Subject {
        name: "WriteLock",
        folder: "writelock",
        recipe: "zk-lock",
        token: "/x-",
        servers: Target::ZooKeeper,
    },
    Subject {
        name: "Baton",
        folder: "baton",
        recipe: "baton-lock:curator",
        token: "-lock-",
        servers: Target::ZooKeeper,
    },
    Subject {
        name: "Baton on three Batons",
        folder: "baton",
        recipe: "baton-lock:curator",
        token: "-lock-",
        servers: Target::Baton,
    },
];
/// Number of [`SUBJECTS`] that are not Baton's.
const OTHERS: usize = 3;

/// A lock on servers of one kind.
struct Subject {
    /// Name in the table.
    name: &'static str,
    /// Name in paths.
    folder: &'static str,
    /// The peer's recipe.
    recipe: &'static str,
    /// Part of the names of its nodes.
    token: &'static str,
    servers: Target,
}

/// Repeat the experiments in which other libraries' locks are held twice.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do only these.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Experiment>,
    /// Number of runs of each.
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Experiment {
    /// The holder's server is cut off from the leader (H91).
    CutOff,
    /// The same with a session timeout of 30 s (H91).
    Long,
    /// The holder's server is a leader that loses its quorum (H91).
    Quorum,
    /// The holder is paused and goes on (H25).
    Pause,
    /// The holder's session expires, and it asks for the lock again (H33, H34).
    Again,
    /// The reply to the create of the lock node is lost (H01, H15).
    LostReply,
    /// The same, after the create itself was lost (H01, H15).
    LostTwice,
    /// Eight waiters that pause between acquisitions (H31).
    Hang,
    /// The lock's number passes 2147483647 (H19–H21).
    LastNumber,
}

const ALL: [Experiment; 9] = [
    Experiment::CutOff,
    Experiment::Long,
    Experiment::Quorum,
    Experiment::Pause,
    Experiment::Again,
    Experiment::LostReply,
    Experiment::LostTwice,
    Experiment::Hang,
    Experiment::LastNumber,
];

pub(crate) fn run(args: &Args) -> Result<()> {
    require()?;
    let runtime = Runtime::new()?;
    let mut rows: Vec<Row> = Vec::new();
    for experiment in ALL {
        if !args.only.is_empty() && !args.only.contains(&experiment) {
            continue;
        }
        let found = match experiment {
            Experiment::CutOff => ensemble::cut_off(&runtime, args.runs)?,
            Experiment::Long => ensemble::cut_off_long(&runtime, args.runs)?,
            Experiment::Quorum => ensemble::quorum(&runtime, args.runs)?,
            Experiment::Pause => calm::pause(&runtime, args.runs)?,
            Experiment::Again => calm::again(&runtime, args.runs)?,
            Experiment::LostReply => calm::lost_reply(&runtime, args.runs)?,
            Experiment::LostTwice => calm::lost_twice(&runtime, args.runs)?,
            Experiment::Hang => calm::hang(&runtime, args.runs)?,
            Experiment::LastNumber => calm::last_number(&runtime, args.runs)?,
        };
        for row in &found {
            println!("{}: {}", row.what, row.cells.join(" | "));
        }
        rows.extend(found);
    }
    let head: Vec<&str> = ["experiment"]
        .into_iter()
        .chain(SUBJECTS.iter().map(|subject| subject.name))
        .collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            [row.what.clone()]
                .into_iter()
                .chain(row.cells.clone())
                .collect()
        })
        .collect();
    println!(
        "{}\n{}; Apache ZooKeeper {} (tick 2 s, syncLimit 5), Curator {}, kazoo 2.11.0, zookeeper-recipes 3.8.0; \
         {} runs, session timeout 4 s unless a row says otherwise.",
        table::markdown(&head, &cells),
        machine::describe(),
        java::version("zookeeper"),
        java::version("curator-recipes"),
        args.runs
    );
    let broken: Vec<&str> = rows
        .iter()
        .filter(|row| row.ours_broke)
        .map(|row| row.what.as_str())
        .collect();
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!("Baton's lock broke too: {}", broken.join("; ")).into())
}
