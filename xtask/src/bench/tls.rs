//! TLS on beside TLS off, and beside Apache ZooKeeper with TLS, in one run. Both servers have a
//! port of each kind, and are loaded in turn.

use std::collections::BTreeMap;
use std::path::Path;

use baton_testkit::Target;

use super::{Args, Case, RAW, handshakes, measure, storm};
use crate::load_generator::Measurements;
use crate::process::{build_baton, work_dir};
use crate::secure::Credentials;
use crate::table::{markdown, ratio, show};
use crate::{Result, machine};

/// The workloads that are measured with TLS.
const CASES: [&str; 4] = ["set", "get", "set-1x1", "get-1x1"];

/// Library of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Plain,
    Tls,
    ZooKeeper,
}

const COLUMNS: [Column; 3] = [Column::ZooKeeper, Column::Plain, Column::Tls];

type Results = BTreeMap<(&'static str, Column), Measurements>;

/// Takes all of it and prints each table as soon as it is known.
pub(super) fn run(args: &Args) -> Result<()> {
    let baton = build_baton()?;
    let dir = work_dir(args.dir.as_deref())?;
    let credentials = Credentials::make(&baton, dir.path())?;
    println!(
        "Taken on {}, load generator included; median of {} rounds of {} s.\n",
        machine::describe(),
        args.rounds,
        args.seconds
    );
    if CASES.iter().any(|case| args.wants(case)) {
        println!("{}", rates(args, &baton, dir.path(), &credentials)?);
    }
    if args.wants("handshakes") {
        println!("{}", handshakes::run(&baton, dir.path(), &credentials)?);
    }
    if args.wants("storm") {
        let table = storm::run(args.storm, &baton, dir.path(), &credentials)?;
        println!("{table}");
    }
    Ok(())
}

fn rates(args: &Args, baton: &Path, dir: &Path, credentials: &Credentials) -> Result<String> {
    let dir = dir.join("rates");
    let start = |target, name| credentials.start(target, baton, &dir.join(name), "want");
    let ours = start(Target::Baton, "baton")?;
    let theirs = start(Target::ZooKeeper, "zookeeper")?;
    let cases: Vec<&Case> = RAW
        .iter()
        .filter(|case| CASES.contains(&case.name) && args.wants(case.name))
        .collect();
    let mut book = Results::new();
    for round in 1..=args.rounds {
        for case in &cases {
            for column in COLUMNS {
                eprintln!(
                    "round {round} of {}: {}, {column:?}",
                    args.rounds, case.label
                );
                let (server, has_tls) = match column {
                    Column::Plain => (&ours, false),
                    Column::Tls => (&ours, true),
                    Column::ZooKeeper => (&theirs, true),
                };
                let servers = match server.secure_addr().filter(|_| has_tls) {
                    Some(addr) => format!("tls://{addr}"),
                    None => server.addr(),
                };
                let trusts = format!("--tls-ca={}", credentials.authority(true).display());
                let options = if has_tls { vec![trusts] } else { Vec::new() };
                let measurements = book.entry((case.name, column)).or_default();
                let reached = (&*servers, server.pid()?);
                measure(case, reached, args.seconds, &options, measurements)?;
            }
        }
    }
    let rows: Vec<Vec<String>> = cases.iter().filter_map(|case| row(case, &book)).collect();
    let head = [
        "workload (connections × in flight)",
        "ZooKeeper with TLS op/s",
        "Baton op/s",
        "Baton with TLS op/s",
        "to plain",
        "to ZooKeeper",
        "ZooKeeper with TLS µs CPU/op",
        "Baton µs CPU/op",
        "Baton with TLS µs CPU/op",
        "ZooKeeper with TLS µs p50",
        "Baton µs p50",
        "Baton with TLS µs p50",
    ];
    Ok(markdown(&head, &rows) + "\n")
}

fn row(case: &Case, book: &Results) -> Option<Vec<String>> {
    let of = |column| book.get(&(case.name, column));
    let all = [of(Column::ZooKeeper)?, of(Column::Plain)?, of(Column::Tls)?];
    let [theirs, plain, tls] = all.map(|one| one.ops_per_second.median());
    let mut cells = vec![case.label.to_owned()];
    cells.extend([theirs, plain, tls].map(show));
    cells.extend([ratio(tls, plain), ratio(tls, theirs)]);
    cells.extend(all.map(|one| show(one.cpu_us_per_op.median())));
    cells.extend(all.map(|one| show(one.p50_us.median())));
    Some(cells)
}
