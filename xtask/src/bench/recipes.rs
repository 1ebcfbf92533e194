//! Locks, elections and queues: Baton's beside those of Curator, kazoo, etcd and Redis, each with
//! its own library on a server of its own that syncs every write, in turn on the same disk.

use std::path::Path;
use std::process::Command;

use baton_testkit::Target;

use super::{Args, Case, HANDOFF, LOCK, QUEUE, curator, measure};
use crate::load_generator::Measurements;
use crate::peer::python;
use crate::process::{Server, server_name};
use crate::table::{markdown, show};
use crate::{Result, figure, go_peers, java, root};

/// Seconds before what is measured, and measured.
const WARM_UP: u32 = 3;
const SECONDS: u32 = 6;

const BATON: &str = "ends by the client's own clock before the server can grant the next; token; \
a queue";
const SESSION: &str = "ends when the client receives the end of its session; a queue";
const LEASE: &str =
    "ends when the client receives the end of its lease; revision as token; a queue";
const POLL: &str = "ends after a fixed time; no token; no queue, clients poll each millisecond";

const INTERRUPT: &str = "the leader's thread is interrupted when the client notices a lost \
connection, which may be after the next election; no token; a queue";
const RUNS_ON: &str =
    "the leader's function runs on after the end of its session; no token; a queue";
const TTL: &str = "ends up to a second after its lease, when another may lead; revision as token; \
a queue";

const EXACTLY: &str = "after a lost connection no item twice and none lost; an outcome unknown at \
the session's end is an error, of a take with the item";
const REPEATED: &str = "after a lost connection an offer may add two items, a take may lose one";
const HALF: &str = "after a lost connection an offer fails with unknown outcome, a take may lose \
an item";
const FAILS: &str =
    "after a lost connection both fail with unknown outcome, a take without its item";

const OWN_CLOCK: &str = "an item of a dead consumer returns; its lock ends by the consumer's own \
clock before that; token";
const RETURNS: &str = "an item of a dead consumer returns; a live one that lost it must ask";

/// Library whose recipe is measured.
#[derive(Clone, Copy)]
enum Library {
    Baton,
    Curator,
    Kazoo,
    Etcd,
    Redis,
}

/// Recipes that are measured beside each other.
struct Contest {
    name: &'static str,
    cases: &'static [Case],
    /// Figures of the cases.
    figures: &'static [&'static str],
    /// Library, name of its recipe, and what that guarantees.
    rows: &'static [(Library, &'static str, &'static str)],
}

const CONTESTS: [Contest; 4] = [
    Contest {
        name: "locks",
        cases: &[LOCK, HANDOFF],
        figures: &["locks", "hand-offs"],
        rows: &[
            (Library::Baton, "", BATON),
            (Library::Curator, "", SESSION),
            (Library::Kazoo, "", SESSION),
            (Library::Etcd, ", concurrency.Mutex", LEASE),
            (Library::Redis, ", SET NX and a script", POLL),
        ],
    },
    Contest {
        name: "elections",
        cases: &[Case {
            label: "elections, 8 candidates",
            workload: "election",
            ..HANDOFF
        }],
        figures: &[],
        rows: &[
            (Library::Baton, ", LeaderElection", BATON),
            (Library::Curator, ", LeaderSelector", INTERRUPT),
            (Library::Kazoo, ", Election", RUNS_ON),
            (Library::Etcd, ", concurrency.Election", TTL),
        ],
    },
    Contest {
        name: "queues",
        cases: &[QUEUE, shared(QUEUE)],
        figures: &[],
        rows: &[
            (Library::Baton, ", DistributedQueue", EXACTLY),
            (Library::Curator, ", SimpleDistributedQueue", REPEATED),
            (Library::Kazoo, ", Queue", HALF),
            (Library::Etcd, ", recipes.Queue", FAILS),
            (Library::Redis, ", LPUSH and BRPOP", REPEATED),
        ],
    },
    Contest {
        name: "locking-queues",
        cases: &[LOCKING_QUEUE, shared(LOCKING_QUEUE)],
        figures: &[],
        rows: &[
            (Library::Baton, ", LockingQueue", OWN_CLOCK),
            (Library::Kazoo, ", LockingQueue", RETURNS),
        ],
    },
];

const LOCKING_QUEUE: Case = Case {
    label: "offer, lock and consume, one client",
    workload: "locking-queue",
    ..QUEUE
};

/// The same case with several clients.
const fn shared(case: Case) -> Case {
    Case {
        label: "the same, 8 clients on one queue",
        connections: HANDOFF.connections,
        ..case
    }
}

/// Takes the measurements, prints the tables and draws the figures.
pub(super) fn run(args: &Args, baton: &Path, dir: &Path, run: &str) -> Result<()> {
    for contest in CONTESTS.iter().filter(|contest| args.wants(contest.name)) {
        let mut rows = Vec::new();
        for (library, recipe, guarantee) in contest.rows {
            let name = format!("{}{recipe}", name(*library));
            eprintln!("{}: {name}", contest.name);
            match measured(*library, contest.cases, baton, dir) {
                Ok(measured) => rows.push((name, measured, *guarantee)),
                Err(error) => eprintln!("NOT MEASURED: {name}: {error}"),
            }
        }
        for (at, figure) in contest.figures.iter().enumerate() {
            let rate =
                |of: &[Measurements]| of.get(at).map_or(0.0, |it| it.ops_per_second.median());
            let series = rows
                .iter()
                .map(|(name, measured, _)| (name.clone(), vec![(0.0, rate(measured))]));
            figure::save(figure, series.collect(), run)?;
        }
        let cells = rows.into_iter().map(|(name, measured, guarantee)| {
            let mut row = vec![name];
            row.extend(measured.iter().map(|it| show(it.ops_per_second.median())));
            row.extend(measured.last().map(Measurements::latency));
            row.push(guarantee.to_owned());
            row
        });
        let mut head = vec![contest.name];
        head.extend(contest.cases.iter().map(|case| case.label));
        head.extend(["µs of the last, p50 / p99", "guarantee"]);
        println!("{}", markdown(&head, &cells.collect::<Vec<_>>()));
    }
    Ok(())
}

fn name(library: Library) -> String {
    let on = server_name(Target::ZooKeeper);
    match library {
        Library::Curator => format!("Curator {} on {on}", java::version("curator-recipes")),
        Library::Kazoo => format!("kazoo on {on}"),
        Library::Baton => "Baton".to_owned(),
        Library::Etcd => "etcd".to_owned(),
        Library::Redis => "Redis".to_owned(),
    }
}

/// Runs the cases on a server of their own.
fn measured(
    library: Library,
    cases: &[Case],
    baton: &Path,
    dir: &Path,
) -> Result<Vec<Measurements>> {
    let folder = tempfile::tempdir_in(dir)?;
    let data = folder.path().join("data");
    let take = |measure: &dyn Fn(&Case, &mut Measurements) -> Result<()>| {
        let one = |case| {
            let mut measured = Measurements::default();
            measure(case, &mut measured)?;
            Ok(measured)
        };
        cases.iter().map(one).collect()
    };
    match library {
        Library::Baton => {
            let server = Server::start(Target::Baton, baton, &data)?;
            let reached = (&*server.addr(), server.pid()?);
            take(&|case, measured| measure(case, reached, SECONDS, &[], measured))
        }
        Library::Curator => {
            let server = Server::start(Target::ZooKeeper, baton, &data)?;
            take(&|case, measured| measured.take_peer(curator(case, &server.addr(), SECONDS)?))
        }
        Library::Kazoo => {
            let server = Server::start(Target::ZooKeeper, baton, &data)?;
            let python = python()?;
            take(&|case, measured| {
                let mut command = Command::new(&python);
                command.arg(root().join("xtask/python/recipe_rates.py"));
                command.args([&server.addr(), "/kazoo-bench", case.workload]);
                measured.take_peer(timed(command, case))
            })
        }
        Library::Etcd | Library::Redis => {
            let program = go_peers::program()?;
            let (name, servers) = match library {
                Library::Etcd => ("etcd", go_peers::etcd(&data, 1)?),
                _ => ("redis", go_peers::redis(&data)?),
            };
            take(&|case, measured| {
                let mut command = Command::new(&program);
                command.args([name, case.workload]).args(&servers.addresses);
                measured.take_peer(timed(command, case))
            })
        }
    }
}

/// Adds the number of clients and the times.
fn timed(mut command: Command, case: &Case) -> Command {
    command.args([case.connections, WARM_UP, SECONDS].map(|number| number.to_string()));
    command
}
