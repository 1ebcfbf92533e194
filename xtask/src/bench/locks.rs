//! Figures of locks: Baton's beside those of Curator, kazoo, etcd and Redis, each with its own
//! library on a server of its own that syncs every write, in turn on the same disk.

use std::path::Path;
use std::process::Command;

use baton_testkit::Target;

use super::{Case, HANDOFF, LOCK, curator, measure};
use crate::load_generator::Measurements;
use crate::peer::python;
use crate::process::{Server, server_name};
use crate::table::{markdown, show};
use crate::{Result, figure, go_peers, java, root};

/// Seconds before what is measured, and measured.
const WARM_UP: u32 = 3;
const SECONDS: u32 = 8;

const BATON: &str = "ends by the client's own clock before the server can grant the next; token; \
a queue";
const SESSION: &str = "ends when the client receives the end of its session; a queue";
const ETCD: &str = "ends when the client receives the end of its lease; revision as token; a queue";
const REDIS: &str = "ends after a fixed time; no token; no queue, clients poll each millisecond";

/// Measured lock: its name, what it promises, and the rates of one client and of eight.
struct Row {
    name: String,
    promises: &'static str,
    rates: [f64; 2],
}

/// Takes the measurements, prints the table and draws the figures.
pub(super) fn run(baton: &Path, dir: &Path, run: &str) -> Result<()> {
    let on = server_name(Target::ZooKeeper);
    let version = java::version("curator-recipes");
    let all = [
        ("Baton".to_owned(), BATON, ours(baton, dir)),
        (
            format!("Curator {version} on {on}"),
            SESSION,
            on_zookeeper(baton, dir, |addr, connections| {
                let case = Case {
                    connections,
                    ..LOCK
                };
                curator(&case, addr, SECONDS)
            }),
        ),
        (
            format!("kazoo on {on}"),
            SESSION,
            on_zookeeper(baton, dir, |addr, clients| {
                let mut command = Command::new(python()?);
                command.arg(root().join("xtask/python/lock.py"));
                command.args([addr, "/kazoo-lock"]);
                command.args([clients, WARM_UP, SECONDS].map(|number| number.to_string()));
                Ok(command)
            }),
        ),
        (
            "etcd, concurrency.Mutex".to_owned(),
            ETCD,
            in_go("etcd", dir),
        ),
        (
            "Redis, SET NX and a script".to_owned(),
            REDIS,
            in_go("redis", dir),
        ),
    ];
    let mut rows = Vec::new();
    for (name, promises, measured) in all {
        match measured {
            Ok(rates) => rows.push(Row {
                name,
                promises,
                rates,
            }),
            Err(error) => eprintln!("NOT MEASURED: {name}: {error}"),
        }
    }
    for (at, name) in ["locks", "hand-offs"].into_iter().enumerate() {
        let rate = |row: &Row| row.rates.get(at).copied().unwrap_or_default();
        let series = rows
            .iter()
            .map(|row| (row.name.clone(), vec![(0.0, rate(row))]));
        figure::save(name, series.collect(), run)?;
    }
    let cells = rows.into_iter().map(|row| {
        let [alone, contended] = row.rates.map(show);
        vec![row.name, alone, contended, row.promises.to_owned()]
    });
    let head = [
        "lock",
        "lock + unlock a second, one client",
        "hand-offs a second, 8 clients",
        "a holder's lock",
    ];
    println!("{}", markdown(&head, &cells.collect::<Vec<_>>()));
    Ok(())
}

fn ours(baton: &Path, dir: &Path) -> Result<[f64; 2]> {
    let server = Server::start(Target::Baton, baton, &dir.join("locks-baton"))?;
    let reached = (&*server.addr(), server.pid()?);
    rates(|case, measured| measure(case, reached, SECONDS, &[], measured))
}

/// The rates of one client and of several.
fn rates(measure: impl Fn(&Case, &mut Measurements) -> Result<()>) -> Result<[f64; 2]> {
    let mut rates = [0.0; 2];
    for (rate, case) in rates.iter_mut().zip([&LOCK, &HANDOFF]) {
        let mut measured = Measurements::default();
        measure(case, &mut measured)?;
        *rate = measured.ops_per_second.median();
    }
    Ok(rates)
}

fn on_zookeeper(
    baton: &Path,
    dir: &Path,
    program: impl Fn(&str, u32) -> Result<Command>,
) -> Result<[f64; 2]> {
    let folder = tempfile::tempdir_in(dir)?;
    let server = Server::start(Target::ZooKeeper, baton, &folder.path().join("data"))?;
    rates(|case, measured| measured.take_peer(program(&server.addr(), case.connections)?))
}

/// The program of `xtask/go` on a server that it starts.
fn in_go(server: &str, dir: &Path) -> Result<[f64; 2]> {
    let program = go_peers::program()?;
    let servers = match server {
        "etcd" => go_peers::etcd(dir, 1)?,
        _ => go_peers::redis(&dir.join(server))?,
    };
    rates(|case, measured| {
        let mut command = Command::new(&program);
        command.arg(server).args(&servers.addresses);
        command.args([case.connections, WARM_UP, SECONDS].map(|number| number.to_string()));
        measured.take_peer(command)
    })
}
