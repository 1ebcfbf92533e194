//! The workloads A, B, C, D and load of YCSB on three servers: Baton beside Apache ZooKeeper and
//! etcd, in turn on the same machine and disk. Keys and values are 64 bytes or less; some keys are
//! used more than others, by Zipf's law. Each client reads at the server that it is connected to.

use std::path::Path;
use std::process::Command;

use baton_testkit::Target;

use super::stage::SERVERS;
use super::throughput;
use crate::command::output;
use crate::load_generator::{Load, Measurements};
use crate::process::{OwnedChild, server_name, work_dir};
use crate::table::{markdown, ratio, show};
use crate::{Result, go_peers, machine};

/// A heap for a million znodes.
const HEAP: &str = "-Xmx3g";
const CONNECTIONS: u32 = 16;
const IN_FLIGHT: u32 = 32;
const VALUE_BYTES: usize = 64;
/// Seconds before what is measured.
const WARM_UP: u32 = 3;

/// A workload: its name in `xtask/go`, what it is, and that of `baton-bench` with its options.
struct Workload {
    go: &'static str,
    what: &'static str,
    bench: &'static str,
    options: &'static [&'static str],
}

const WORKLOADS: [Workload; 5] = [
    Workload {
        go: "load",
        what: "load: each key once",
        bench: "load",
        options: &[],
    },
    Workload {
        go: "a",
        what: "A: half reads, half writes",
        bench: "mixed",
        options: &["--reads=50", "--zipf"],
    },
    Workload {
        go: "b",
        what: "B: 95 % reads",
        bench: "mixed",
        options: &["--reads=95", "--zipf"],
    },
    Workload {
        go: "c",
        what: "C: reads",
        bench: "get",
        options: &["--zipf"],
    },
    Workload {
        go: "latest",
        what: "D: 95 % reads of the newest, 5 % new keys",
        bench: "latest",
        options: &[],
    },
];

/// Measures each server with `keys` keys and prints the table.
pub(super) async fn take(baton: &Path, keys: usize, seconds: u64) -> Result<()> {
    let mut columns = Vec::new();
    for target in [Target::Baton, Target::ZooKeeper] {
        let name = server_name(target);
        columns.push((name, ours(target, baton, keys, seconds).await?));
    }
    match etcd(keys, seconds) {
        Ok(measured) => columns.push(("etcd".to_owned(), measured)),
        Err(error) => eprintln!("NOT MEASURED: etcd: {error}"),
    }
    println!("{}", render(&columns, keys, seconds));
    Ok(())
}

async fn ours(
    target: Target,
    baton: &Path,
    keys: usize,
    seconds: u64,
) -> Result<Vec<Measurements>> {
    let ensemble = throughput::start(target, baton, HEAP).await?;
    ensemble.wait_leader().await?;
    let pids = throughput::pids(&ensemble)?;
    let mut all = Vec::new();
    for workload in &WORKLOADS {
        eprintln!("{}: {}", server_name(target), workload.what);
        let load = Load {
            workload: workload.bench,
            connections: CONNECTIONS,
            in_flight: IN_FLIGHT,
            servers: &ensemble.connect_string(),
            pids: &pids,
            seconds,
        };
        let mut options = vec![
            "--keep".to_owned(),
            "--run=ycsb".to_owned(),
            format!("--nodes={keys}"),
            format!("--value-bytes={VALUE_BYTES}"),
            format!("--warm-up={WARM_UP}"),
        ];
        options.extend(workload.options.iter().map(|&option| option.to_owned()));
        let mut measured = Measurements::default();
        measured.take(&load, &options)?;
        all.push(measured);
    }
    Ok(all)
}

fn etcd(keys: usize, seconds: u64) -> Result<Vec<Measurements>> {
    let program = go_peers::program()?;
    let dir = work_dir(None)?;
    let servers = go_peers::etcd(dir.path(), SERVERS)?;
    let pids = servers.children.iter().map(OwnedChild::pid);
    let pids = pids.map(|pid| pid.to_string()).collect::<Vec<_>>();
    let mut all = Vec::new();
    for workload in &WORKLOADS {
        eprintln!("etcd: {}", workload.what);
        let mut command = Command::new(&program);
        command.args(["ycsb", workload.go]);
        command.args([servers.addresses.join(","), pids.join(",")]);
        command.args([CONNECTIONS, IN_FLIGHT].map(|number| number.to_string()));
        command.args([keys, VALUE_BYTES].map(|number| number.to_string()));
        command.args([WARM_UP.to_string(), seconds.to_string()]);
        let mut measured = Measurements::default();
        measured.take_report(&serde_json::from_str(&output(&mut command)?)?)?;
        all.push(measured);
    }
    Ok(all)
}

fn render(columns: &[(String, Vec<Measurements>)], keys: usize, seconds: u64) -> String {
    let mut rows = Vec::new();
    for (at, workload) in WORKLOADS.iter().enumerate() {
        let of_each: Vec<&Measurements> =
            columns.iter().filter_map(|(_, all)| all.get(at)).collect();
        let mut row = vec![workload.what.to_owned()];
        let rates = of_each.iter().map(|it| it.ops_per_second.median());
        let rates: Vec<f64> = rates.collect();
        row.extend(rates.iter().map(|&rate| show(rate)));
        let own = rates.first().copied().unwrap_or_default();
        row.extend(rates.iter().skip(1).map(|&rate| ratio(own, rate)));
        row.extend(of_each.iter().map(|it| show(it.cpu_us_per_op.median())));
        row.extend(of_each.iter().map(|it| it.latency()));
        rows.push(row);
    }
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let mut head = vec!["workload".to_owned()];
    head.extend(names.iter().map(|name| format!("{name} op/s")));
    head.extend(names.iter().skip(1).map(|name| format!("to {name}")));
    head.extend(names.iter().map(|name| format!("{name} µs CPU/op")));
    head.extend(names.iter().map(|name| format!("{name} µs p50 / p99")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    format!(
        "Taken on {}, the servers and the load generator on it; {keys} keys, values of {VALUE_BYTES} bytes, {CONNECTIONS} connections × {IN_FLIGHT} in flight, {seconds} s each.\n\n{}",
        machine::describe(),
        markdown(&head, &rows)
    )
}
