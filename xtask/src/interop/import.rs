//! A ZooKeeper's data moves to Baton, from there to a second ZooKeeper, and from that one's own
//! snapshot to Baton again. On every server a client has to see the same, to go on with the same
//! sessions, and to get the same next name; and the first and the last tree have to be the same,
//! byte by byte. Prints what each move took beside ZooKeeper's own start.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use baton_testkit::Target;

use crate::command::output;
use crate::process::{OwnedChild, Server, cpu_seconds, memory_bytes};
use crate::{Result, java};

const TOOL: &str = "TreeTool";
const SESSION: &str = "session ";

pub(super) fn run(baton: &Path, znodes: usize, dir: &Path) -> Result<()> {
    java::compile()?;
    let first = dir.join("first");
    let mut zookeeper = Server::start(Target::ZooKeeper, baton, &first)?;
    let filled = tool(&["fill", &zookeeper.addr(), &znodes.to_string()])?;
    zookeeper.kill();
    let (sessions, expected): (Vec<_>, Vec<_>) =
        filled.lines().partition(|line| line.starts_with(SESSION));
    let sessions: Vec<&str> = sessions
        .iter()
        .filter_map(|line| line.strip_prefix(SESSION))
        .collect();
    println!(
        "{} znodes made, {} sessions",
        count(&expected),
        sessions.len()
    );

    let moved = dir.join("moved/data");
    let data = first.join("data");
    println!("{}", timed("import", &mut import(baton, &data, &moved))?);
    let second = dir.join("second");
    let back = second.join("data");
    println!("{}", timed("export", &mut export(baton, &moved, &back))?);

    let (zookeeper, took) = serving(Target::ZooKeeper, baton, &second)?;
    println!("ZooKeeper {took}");
    // Its own, written when it started, over the one that it loaded.
    let snapshot = only_snapshot(&back)?;
    let own = dir.join("own/version-2");
    std::fs::create_dir_all(&own)?;
    std::fs::copy(
        &snapshot,
        own.join(snapshot.file_name().unwrap_or_default()),
    )?;
    let attached = attach(&zookeeper, &sessions)?;
    let after = same("ZooKeeper again", &expected, &attached)?;
    drop(zookeeper);

    let (server, took) = serving(Target::Baton, baton, &dir.join("moved"))?;
    println!("Baton {took}");
    let ours = attach(&server, &sessions)?;
    if same("Baton", &expected, &ours)? != after {
        return Err("the sessions or the next name are others on Baton".into());
    }
    drop(server);

    let (again, last) = (dir.join("again"), dir.join("last"));
    let mut import_own = import(baton, &dir.join("own"), &again);
    import_own.arg("--zookeeper-log").arg(dir.join("own"));
    timed("import", &mut import_own)?;
    timed("export", &mut export(baton, &again, &last))?;
    let first_export = dir.join("first-export");
    let reimported = dir.join("reimported");
    timed("import", &mut import(baton, &data, &reimported))?;
    timed("export", &mut export(baton, &reimported, &first_export))?;
    if std::fs::read(only_snapshot(&first_export)?)? != std::fs::read(only_snapshot(&last)?)? {
        return Err("the tree that came back from ZooKeeper is another".into());
    }
    println!(
        "{} znodes: every field the same on ZooKeeper, on Baton, and on ZooKeeper again; {} sessions went on; {}",
        count(&expected),
        sessions.len(),
        after.last().unwrap_or(&"")
    );
    Ok(())
}

/// Returns the number of znodes that these lines report: one each, but for those of the many.
fn count(lines: &[&str]) -> usize {
    let lines = lines.iter().map(|line| match line.split_once("/* ") {
        Some((_, many)) => many
            .split_once(' ')
            .and_then(|(count, _)| count.parse().ok())
            .unwrap_or(0),
        None => 1,
    });
    lines.sum()
}

fn attach(server: &Server, sessions: &[&str]) -> Result<String> {
    let addr = server.addr();
    let mut args = vec!["attach", &addr];
    args.extend(sessions);
    tool(&args)
}

/// The most memory that a process has had so far, in MiB; 0 once it has ended.
fn peak_mib(pid: u32) -> u64 {
    memory_bytes(pid, "VmHWM").map_or(0, |bytes| bytes as u64 >> 20)
}

/// A server on a folder that has data, and what its start took.
fn serving(target: Target, baton: &Path, dir: &Path) -> Result<(Server, String)> {
    let begin = Instant::now();
    let server = Server::start(target, baton, dir)?;
    let seconds = begin.elapsed().as_secs_f64();
    let pid = server.pid()?;
    let (cpu, mib) = (cpu_seconds(pid).unwrap_or(0.0), peak_mib(pid));
    Ok((
        server,
        format!("serves it after {seconds:.1} s, {cpu:.1} s of CPU, with {mib} MiB at most"),
    ))
}

fn tool(args: &[&str]) -> Result<String> {
    output(java::peer(TOOL)?.args(args))
}

fn import(baton: &Path, from: &Path, to: &Path) -> Command {
    let mut command = Command::new(baton);
    command.args(["import", "--zookeeper-data"]).arg(from);
    command.arg("--data-dir").arg(to);
    command
}

fn export(baton: &Path, from: &Path, to: &Path) -> Command {
    let mut command = Command::new(baton);
    command.args(["export", "--data-dir"]).arg(from);
    command.arg("--zookeeper-data").arg(to);
    command
}

/// Runs a command; what it said, how long it took, and the most memory that it had.
fn timed(name: &str, command: &mut Command) -> Result<String> {
    let begin = Instant::now();
    let mut child = OwnedChild::start(command.stdout(Stdio::null()))?;
    let (mut cpu, mut mib) = (0.0, 0);
    let status = loop {
        // Both only grow; of a child that has just ended the measurements are gone.
        cpu = cpu_seconds(child.pid()).unwrap_or(cpu);
        mib = mib.max(peak_mib(child.pid()));
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if !status.success() {
        return Err(format!("{command:?} ended with {status}").into());
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(format!(
        "{name} took {seconds:.1} s, with {mib} MiB at most"
    ))
}

fn only_snapshot(data: &Path) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(data.join("version-2"))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        found.extend(name.starts_with("snapshot.").then_some(path));
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        _ => Err(format!("{} has {} snapshots, not one", data.display(), found.len()).into()),
    }
}

/// Holds the lines that a server shows against those that are expected; returns those that come
/// after them.
fn same<'f>(what: &str, expected: &[&str], found: &'f str) -> Result<Vec<&'f str>> {
    let mut lines = found.lines();
    for expected in expected {
        match lines.next() {
            Some(found) if found == *expected => {}
            found => return Err(format!("{what} shows {found:?}, not {expected:?}").into()),
        }
    }
    Ok(lines.collect())
}
