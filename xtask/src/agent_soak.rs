//! `cargo xtask agent-soak`: many guards held through one agent by one program, and what they cost.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use baton_testkit::Target;

use crate::process::{OwnedChild, Server, build_baton, cpu_seconds, memory_bytes, work_dir};
use crate::{Result, table};

/// Hold many locks through the agent, and measure its memory and processor time.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number of guards.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    guards: usize,
    /// For how many seconds they are held.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    seconds: u64,
}

/// Runs the task.
pub(crate) fn run(args: &Args) -> Result<()> {
    let dir = work_dir(None)?;
    let baton = build_baton()?;
    let server = Server::start(Target::Baton, &baton, dir.path())?;
    let socket = dir.path().join("agent.sock");
    let mut command = Command::new(&baton);
    command.args(["agent", "--session-timeout", "30s", "--socket"]);
    command.arg(&socket).env("BATON_SERVERS", server.addr());
    let agent = OwnedChild::start(command.stdout(Stdio::null()))?;
    while UnixStream::connect(&socket).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("at rest: {}", show_memory(agent.pid())?);
    let begun = Instant::now();
    let mut held = Vec::with_capacity(args.guards);
    for number in 0..args.guards {
        let mut stream = UnixStream::connect(&socket)
            .map_err(|error| format!("connection {number}: {error}; raise ulimit -n"))?;
        let request =
            format!("POST /v1/lock/soak/{number} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut lines = BufReader::with_capacity(256, stream).lines();
        let line = lines.find(|line| {
            line.as_ref()
                .map_or(true, |line| line.contains("\"event\""))
        });
        let line = line.ok_or("the agent closed the connection")??;
        if !line.contains("\"held\"") {
            return Err(format!("guard {number}: {line}").into());
        }
        held.push(lines);
    }
    println!(
        "{} guards after {} s: {}",
        args.guards,
        table::show(begun.elapsed().as_secs_f64()),
        show_memory(agent.pid())?
    );
    let before = cpu_seconds(agent.pid()).ok_or("the agent has ended")?;
    std::thread::sleep(Duration::from_secs(args.seconds));
    let after = cpu_seconds(agent.pid()).ok_or("the agent has ended")?;
    let share = (after - before) / args.seconds as f64 * 100.0;
    println!(
        "held for {} s: {share:.2} % of a core, {}",
        args.seconds,
        show_memory(agent.pid())?
    );
    // Each still has what it was granted: the agent has written neither a loss nor an end.
    for (number, mut lines) in held.into_iter().enumerate() {
        let line = lines.find(|line| {
            line.as_ref()
                .map_or(true, |line| line.contains("\"event\""))
        });
        let line = line.ok_or("the agent closed a connection")??;
        if !line.contains("\"lease\"") {
            return Err(format!("guard {number}: {line}").into());
        }
    }
    Ok(())
}

/// The memory of a process in megabytes: its own, and with the pages of its program's file.
fn show_memory(pid: u32) -> Result<String> {
    let megabytes =
        |line: &str| -> Result<String> { Ok(table::show(memory_bytes(pid, line)? / 1e6)) };
    Ok(format!(
        "{} MB, {} MB with its program",
        megabytes("RssAnon")?,
        megabytes("VmRSS")?
    ))
}
