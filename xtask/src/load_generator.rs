//! `baton-bench`, the load generator of the benchmarks, and what it measures.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::Result;
use crate::command::output;
use crate::process::build;
use crate::table::{Series, ratio, show};

/// Columns of [`Measurements::beside`], after the one of the workload.
const COLUMNS: [&str; 8] = [
    "ZooKeeper op/s",
    "Baton op/s",
    "ratio",
    "ZooKeeper µs CPU/op",
    "Baton µs CPU/op",
    "ratio",
    "ZooKeeper µs p50 / p99",
    "Baton µs p50 / p99",
];

/// Returns a command that runs the generator, which is built once.
pub(crate) fn generator() -> Result<Command> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = match BUILT.get() {
        Some(built) => built,
        None => {
            let built = build("baton-bench", "baton-bench")?;
            BUILT.get_or_init(|| built)
        }
    };
    Ok(Command::new(built))
}

/// A workload of `baton-bench` on some servers.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    pub(crate) workload: &'static str,
    pub(crate) connections: u32,
    pub(crate) in_flight: u32,
    pub(crate) servers: &'a str,
    /// Processes whose processor time counts.
    pub(crate) pids: &'a [u32],
    pub(crate) seconds: u64,
}

impl Load<'_> {
    /// Loads the servers; the report of `baton-bench`.
    pub(crate) fn run(&self, options: &[String]) -> Result<Value> {
        let mut command = generator()?;
        command.args([self.workload, "--servers", self.servers]);
        command.arg(format!("--seconds={}", self.seconds));
        command.arg(format!("--connections={}", self.connections));
        command.arg(format!("--in-flight={}", self.in_flight));
        command.args(self.pids.iter().map(|pid| format!("--pid={pid}")));
        Ok(serde_json::from_str(&output(command.args(options))?)?)
    }
}

/// Measurements of one load on the same servers, a value for each round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measurements {
    pub(crate) ops_per_second: Series,
    pub(crate) cpu_us_per_op: Series,
    pub(crate) p50_us: Series,
    pub(crate) p99_us: Series,
}

impl Measurements {
    /// Loads the servers and adds what they did. `options` are further ones of `baton-bench`.
    pub(crate) fn take(&mut self, load: &Load<'_>, options: &[String]) -> Result<()> {
        self.take_report(&load.run(options)?)
    }

    /// Adds what a report of `baton-bench`, or one of the same form, says.
    pub(crate) fn take_report(&mut self, report: &Value) -> Result<()> {
        self.cpu_us_per_op
            .push(number(report, "/server/cpu_us_per_op")?);
        let names = ["/ops_per_second", "/latency_us/p50", "/latency_us/p99"];
        self.push(report, names)
    }

    /// Adds what another library's program reports.
    pub(crate) fn take_peer(&mut self, mut program: Command) -> Result<()> {
        let report = serde_json::from_str(&output(&mut program)?)?;
        self.push(&report, ["/ops_per_second", "/p50_us", "/p99_us"])
    }

    fn push(&mut self, report: &Value, [rate, p50, p99]: [&str; 3]) -> Result<()> {
        self.ops_per_second.push(number(report, rate)?);
        self.p50_us.push(number(report, p50)?);
        self.p99_us.push(number(report, p99)?);
        Ok(())
    }

    /// The latencies for a table: p50 and p99.
    pub(crate) fn latency(&self) -> String {
        let (p50, p99) = (self.p50_us.median(), self.p99_us.median());
        format!("{} / {}", show(p50), show(p99))
    }

    /// A row of Baton's measurements beside ZooKeeper's.
    pub(crate) fn beside(&self, theirs: &Self, label: &str) -> Vec<String> {
        let mut row = vec![label.to_owned()];
        for of in [
            (|it| it.ops_per_second.median()) as fn(&Self) -> f64,
            |it| it.cpu_us_per_op.median(),
        ] {
            let (theirs, ours) = (of(theirs), of(self));
            row.extend([show(theirs), show(ours), ratio(ours, theirs)]);
        }
        row.extend([theirs.latency(), self.latency()]);
        row
    }

    /// The head of a table of such rows.
    pub(crate) fn head(workload: &'static str) -> Vec<&'static str> {
        [workload].into_iter().chain(COLUMNS).collect()
    }
}

/// The number of a report at this place.
pub(crate) fn number(report: &Value, pointer: &str) -> Result<f64> {
    let number = report.pointer(pointer).and_then(Value::as_f64);
    Ok(number.ok_or_else(|| format!("no {pointer} in {report}"))?)
}
