//! Traces on a real collector: a lock of the command and the server's share of it, built with the
//! feature `otel`, go through rotel, which is a collector on the Python package index, and come out
//! of it as one trace.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use baton_testkit::{CollectedSpan, Collector, CollectorBehavior, free_addr};

use super::PartEnd;
use crate::process::{OwnedChild, succeed, work_dir};
use crate::{Result, command, root};

/// The collector, as pip names it. Its package holds the program.
const ROTEL: &str = "rotel==0.0.1a15";
/// Time that a process may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(dir: Option<&Path>) -> Result<PartEnd> {
    let rotel = match rotel() {
        Ok(rotel) => rotel,
        Err(error) => {
            return Ok(PartEnd::Skipped(format!(
                "no collector: {error}; name rotel's program in BATON_ROTEL, or have python3-venv and pip \
                 install {ROTEL}"
            )));
        }
    };
    let baton = build()?;
    let dir = work_dir(dir)?;
    let behind = Collector::start(CollectorBehavior::Good)?;
    let (port, grpc, clients) = (
        free_addr()?.port(),
        free_addr()?.port(),
        free_addr()?.port(),
    );
    let mut collector = Command::new(rotel);
    collector.arg("start");
    for (flag, value) in [
        ("--otlp-http-endpoint", format!("127.0.0.1:{port}")),
        ("--otlp-grpc-endpoint", format!("127.0.0.1:{grpc}")),
        ("--batch-timeout", "50ms".to_owned()),
        ("--exporter", "otlp".to_owned()),
        ("--otlp-exporter-protocol", "http".to_owned()),
        ("--otlp-exporter-compression", "none".to_owned()),
        ("--otlp-exporter-endpoint", behind.url()),
    ] {
        collector.arg(flag).arg(value);
    }
    let _collector = OwnedChild::start(collector.current_dir(dir.path()).stdout(Stdio::null()))?;
    listens("the collector", port)?;
    let servers = format!("127.0.0.1:{clients}");
    let traced = |args: &[&str]| {
        let mut traced = Command::new(&baton);
        traced
            .args(args)
            .env("BATON_SERVERS", &servers)
            .env("OTEL_BSP_SCHEDULE_DELAY", "100")
            .env(
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                format!("http://127.0.0.1:{port}"),
            );
        traced
    };
    let serve = ["serve", "--ephemeral", "--listen", &servers];
    let _server = OwnedChild::start(traced(&serve).stdout(Stdio::null()))?;
    listens("the server", clients)?;
    succeed(&mut traced(&[
        "lock",
        "/jobs/nightly",
        "--",
        "sleep",
        "0.2",
    ]))?;
    let is_whole = |spans: &[CollectedSpan]| {
        let has = |name: &str| spans.iter().any(|span| span.name == name);
        has("baton lock") && has("delete")
    };
    let spans = behind.wait_for(is_whole);
    let verb = spans.iter().find(|span| span.name == "baton lock");
    let verb = verb.ok_or("no span of the command")?;
    if let Some(other) = spans.iter().find(|span| span.trace_id != verb.trace_id) {
        return Err(format!("a span is in another trace: {other:?}").into());
    }
    for (name, service) in [
        ("acquire", "baton"),
        ("hold", "baton"),
        ("release", "baton"),
        ("create2", "baton-server"),
        ("delete", "baton-server"),
    ] {
        let of_name = |span: &&CollectedSpan| span.name == name && span.service == service;
        if !spans.iter().any(|span| of_name(&span)) {
            return Err(format!("{service} has no span {name}: {spans:#?}").into());
        }
    }
    print(&spans, verb, 0);
    Ok(PartEnd::Passed)
}

/// Prints a span and what is below it.
fn print(spans: &[CollectedSpan], span: &CollectedSpan, depth: usize) {
    let events: Vec<_> = span.events.iter().map(|(name, _)| &**name).collect();
    println!(
        "{:indent$}{} {} [{}] {} µs {}",
        "",
        span.name,
        span.text("baton.path"),
        span.service,
        span.end_ns.saturating_sub(span.start_ns) / 1000,
        events.join(" "),
        indent = 2 * depth,
    );
    let mut below: Vec<_> = spans
        .iter()
        .filter(|other| other.parent_id == span.span_id)
        .collect();
    below.sort_by_key(|span| span.start_ns);
    for child in below {
        print(spans, child, depth + 1);
    }
}

/// The collector's program: the one that is named, or that of an environment made here.
fn rotel() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("BATON_ROTEL") {
        return Ok(named.into());
    }
    let venv = command::target_dir()?.join("xtask-rotel");
    let python = venv.join("bin/python");
    let find = || {
        let where_it_is = "import rotel, os; print(os.path.dirname(rotel.__file__))";
        let found = command::output(Command::new(&python).args(["-c", where_it_is]));
        found.map(|folder| Path::new(folder.trim()).join("rotel-agent"))
    };
    if let Ok(rotel) = find() {
        return Ok(rotel);
    }
    command::output(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let pip = ["-m", "pip", "install", "--quiet", "--pre", ROTEL];
    command::output(Command::new(&python).args(pip))?;
    find()
}

/// The command with its feature: the one that `BATON_BIN` names, or a build without optimisation.
fn build() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("BATON_BIN") {
        return Ok(named.into());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["build", "--quiet", "--package", "baton-locks-cli"];
    let mut build = Command::new(cargo);
    build.args(arguments).args(["--features", "otel"]);
    succeed(build.current_dir(root()))?;
    Ok(command::target_dir()?.join("debug/baton"))
}

/// Waits until somebody listens on the port.
fn listens(who: &str, port: u16) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > until {
            return Err(format!("{who} does not listen on {port}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
