//! TLS on beside TLS off, and beside Apache ZooKeeper with TLS, in one run. Both servers have a
//! port of each kind, and are loaded in turn.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Args, BOOK, Case, Measurements, RAW, ServerConnection, handshakes, measure, storm};
use crate::process::{Kind, Server, build_baton, work_dir};
use crate::secure::Credentials;
use crate::table::{markdown, ratio, show};
use crate::{Result, machine, page};

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

/// Takes all of it and writes it into the book.
pub(super) fn run(args: &Args) -> Result<()> {
    let baton = build_baton()?;
    let dir = work_dir(args.dir.as_deref())?;
    let credentials = Credentials::make(&baton, dir.path())?;
    let mut text = format!(
        "Taken on {}, load generator included; median of {} rounds of {} s.\n\n",
        machine::describe(),
        args.rounds,
        args.seconds
    );
    if CASES.iter().any(|case| args.wants(case)) {
        text += &show_part(rates(args, &baton, dir.path(), &credentials)?);
    }
    if args.wants("handshakes") {
        text += &show_part(handshakes::run(&baton, dir.path(), &credentials)?);
    }
    if args.wants("storm") {
        text += &show_part(storm::run(args.storm, &baton, dir.path(), &credentials)?);
    }
    if args.print {
        Ok(())
    } else {
        page::replace(BOOK, "TLS", &text)
    }
}

/// Prints a table as soon as it is known.
fn show_part(part: String) -> String {
    println!("{part}");
    part
}

fn rates(args: &Args, baton: &Path, dir: &Path, credentials: &Credentials) -> Result<String> {
    let dir = dir.join("rates");
    let ours = credentials.start(&Kind::Baton(baton.to_owned()), &dir, "want")?;
    let theirs = credentials.start(&Kind::ZooKeeper, &dir, "want")?;
    let authorities = credentials.authority(true);
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
                let reached = match column {
                    Column::Plain => ServerConnection::plain(&ours)?,
                    Column::Tls => with_tls(&ours, &authorities)?,
                    Column::ZooKeeper => with_tls(&theirs, &authorities)?,
                };
                let measurements = book.entry((case.name, column)).or_default();
                measure(baton, case, &reached, args.seconds, measurements)?;
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

fn with_tls<'a>(server: &Server, authorities: &'a Path) -> Result<ServerConnection<'a>> {
    let addr = server.secure_addr().ok_or("no port with TLS")?;
    Ok(ServerConnection {
        servers: format!("tls://{addr}"),
        authorities: Some(authorities),
        pid: server.pid()?,
    })
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
