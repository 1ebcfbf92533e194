//! `cargo xtask holder-deaths`: the time from the death of a holder to the next holder.
//!
//! Each run kills a holder with SIGKILL while another process waits: `baton lock` with a command,
//! or a program that holds through the agent. All processes of the holder have a pipe open, which
//! ends with the last of them. No waiter may hold before that.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use baton_testkit::Target;

use crate::process::{OwnedChild, Server, build_baton, succeed, work_dir};
use crate::{Result, table};

/// Kill holders of a lock, and measure when the next waiter holds it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number of deaths of each kind.
    #[arg(long, value_name = "N", default_value_t = 100)]
    runs: usize,
    /// On Apache ZooKeeper instead of Baton's server.
    #[arg(long)]
    zookeeper: bool,
}

/// Runs the task.
pub(crate) fn run(args: &Args) -> Result<()> {
    let dir = work_dir(None)?;
    let baton = build_baton()?;
    let target = match args.zookeeper {
        true => Target::ZooKeeper,
        false => Target::Baton,
    };
    let server = Server::start(target, &baton, dir.path())?;
    let verb = |words: &[&str]| {
        let mut command = Command::new(&baton);
        command.args(words).env("BATON_SERVERS", server.addr());
        command.stderr(Stdio::null());
        command
    };
    let socket = dir.path().join("agent.sock");
    let mut agent = verb(&["agent", "--socket"]);
    let _agent = OwnedChild::start(agent.arg(&socket).stdout(Stdio::null()))?;
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pipe = dir.path().join("alive");
    succeed(Command::new("mkfifo").arg(&pipe))?;
    let shown = pipe.display();
    for (name, is_agent) in [("baton lock -- CMD", false), ("through the agent", true)] {
        let mut times = Vec::new();
        for run in 0..args.runs {
            let path = format!("/deaths{}-{run}", u8::from(is_agent));
            let holder = if is_agent {
                let url = format!("http://localhost/v1/lock{path}");
                let line = format!(
                    "exec 9>{shown}; exec curl -sN -X POST --unix-socket {} {url}",
                    socket.display()
                );
                let mut shell = Command::new("sh");
                shell.args(["-c", &line]);
                shell
            } else {
                let line = format!("exec 9>{shown}; echo held; sleep 1000");
                verb(&["lock", &path, "--", "sh", "-c", &line])
            };
            times.push(death(holder, &pipe, &path, verb)?);
        }
        times.sort_by(f64::total_cmp);
        let early = times.iter().filter(|time| **time < 0.0).count();
        let at = |share: f64| {
            let index = (share * times.len() as f64).ceil() as usize;
            table::show(times.get(index.max(1) - 1).copied().unwrap_or(0.0))
        };
        println!(
            "{name}: {} deaths, next holder after p50 {} ms, p99 {} ms, max {} ms; too early: {early}",
            times.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
        if early > 0 {
            return Err(format!("{name}: {early} waiters held before the holder was gone").into());
        }
    }
    Ok(())
}

/// Kills a holder; the milliseconds from the end of its last process to the next grant.
fn death(
    mut holder: Command,
    pipe: &Path,
    path: &str,
    verb: impl Fn(&[&str]) -> Command,
) -> Result<f64> {
    let mut holder = OwnedChild::start(holder.stdout(Stdio::piped()))?;
    let mut alive = File::open(pipe)?;
    let mut held = lines(&mut holder)?;
    held.read_line(&mut String::new())?;
    let mut waiter = verb(&["lock", path]);
    let mut waiter = OwnedChild::start(waiter.stdout(Stdio::piped()))?;
    while verb(&["ls", path])
        .output()?
        .stdout
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        < 2
    {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (sender, granted) = mpsc::channel();
    let mut grant = lines(&mut waiter)?;
    std::thread::spawn(move || {
        let mut line = String::new();
        // The receiver has gone where the run has failed.
        let _ = sender.send(grant.read_line(&mut line).map(|_| (Instant::now(), line)));
    });
    holder.kill();
    alive.read_to_end(&mut Vec::new())?;
    let gone = Instant::now();
    let (at, line) = granted.recv()??;
    if !line.starts_with("held ") {
        return Err(format!("{path}: the waiter says {line:?}").into());
    }
    let after = at.saturating_duration_since(gone).as_secs_f64();
    let before = gone.saturating_duration_since(at).as_secs_f64();
    Ok((after - before) * 1e3)
}

fn lines(process: &mut OwnedChild) -> Result<BufReader<ChildStdout>> {
    let output = process.0.stdout.take();
    Ok(BufReader::new(output.ok_or("no output to read")?))
}
