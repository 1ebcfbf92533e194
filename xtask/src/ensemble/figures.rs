//! Fail-over of Baton and of Apache ZooKeeper, one after the other on the same machine, for
//! `docs/benchmarks.md`.

use std::fs;

use baton_testkit::{Target, zookeeper_is_installed};

use super::faults;
use super::stage::{Report, Settings};
use crate::{Result, machine, page, table};

const PAGE: &str = "docs/benchmarks.md";
const SECTION: &str = "fail-over";

/// Takes the measurements, and writes the page or prints them.
pub(super) async fn take(settings: &Settings, is_printed_only: bool) -> Result<()> {
    let load_before = load();
    let targets = match zookeeper_is_installed() {
        true => vec![Target::ZooKeeper, Target::Baton],
        false => vec![Target::Baton],
    };
    let mut rows = Vec::new();
    for target in targets {
        let of = |runs: usize, pause_ms| Settings {
            target,
            runs,
            pause_ms,
            ..settings.clone()
        };
        // A follower of ZooKeeper's notices a silent leader after syncLimit ticks: 10 s.
        let pause = match target {
            Target::Baton => settings.pause_ms.clone(),
            Target::ZooKeeper => 18_000..=20_000,
        };
        let name = match target {
            Target::Baton => "Baton",
            Target::ZooKeeper => "Apache ZooKeeper",
        };
        let few = settings.runs.div_ceil(10);
        let paused = match target {
            Target::Baton => settings.runs.div_ceil(2),
            Target::ZooKeeper => few,
        };
        let mut add = |what: &str, report: &Report| {
            let row = report.row(&format!("{name}: {what}"));
            println!("{}", row.join(" | "));
            rows.push(row);
        };
        let killed = faults::kill_leader(&of(settings.runs, pause.clone())).await?;
        add("`kill -9` of the leader", &killed);
        let stopped = faults::pause_leader(&of(paused, pause.clone())).await?;
        add("SIGSTOP of the leader", &stopped);
        let rolled = faults::rolling_restart(&of(few, pause)).await?;
        add("each server restarted in turn", &rolled);
    }
    let text = format!(
        "{}\nTaken on {}, all servers and clients on it; average load before {load_before}, after {}.",
        table::markdown(&Report::HEAD, &rows),
        machine::describe(),
        load()
    );
    println!("{text}");
    match is_printed_only {
        true => Ok(()),
        false => page::replace(PAGE, SECTION, &text),
    }
}

/// The average load of the last minute and of the last five.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut numbers = text.split(' ');
    let mut next = || numbers.next().unwrap_or("?").to_owned();
    format!("{} and {}", next(), next())
}
