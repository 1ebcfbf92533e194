//! A ZooKeeper's data moves to Baton, from there to a second ZooKeeper, and from that one's own snapshot to Baton again.
//! On every server a client has to see the same, to go on with the same session, and to get the same next name; and the
//! first and the last tree have to be the same, byte by byte.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::process::{Kind, Server, output};
use crate::{Result, java};

const TOOL: &str = "TreeTool";

pub(super) fn run(baton: &Path, znodes: usize, dir: &Path) -> Result<()> {
    java::compile()?;
    let first = dir.join("first");
    let mut zookeeper = Server::start(&Kind::ZooKeeper, &first)?;
    let filled = tool(&["fill", &zookeeper.addr(), &znodes.to_string()])?;
    let session: Vec<&str> = filled.split_whitespace().collect();
    let [id, password] = session.as_slice() else {
        return Err(format!("{TOOL} fill printed {filled:?}").into());
    };
    let expected = tool(&["dump", &zookeeper.addr()])?;
    zookeeper.kill();

    let moved = dir.join("moved/Baton/data");
    let data = first.join("Apache-ZooKeeper/data");
    println!("{}", timed("import", import(baton, &data, &moved))?);
    let second = dir.join("second");
    let back = second.join("Apache-ZooKeeper/data");
    println!("{}", timed("export", export(baton, &moved, &back))?);

    let begin = Instant::now();
    let zookeeper = Server::start(&Kind::ZooKeeper, &second)?;
    println!(
        "ZooKeeper serves it after {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    // Its own, written when it started, over the one that it loaded.
    let snapshot = only_snapshot(&back)?;
    let own = dir.join("own/version-2");
    std::fs::create_dir_all(&own)?;
    std::fs::copy(
        &snapshot,
        own.join(snapshot.file_name().unwrap_or_default()),
    )?;
    same(
        "ZooKeeper again",
        &expected,
        &tool(&["dump", &zookeeper.addr()])?,
    )?;
    let attached = tool(&["attach", &zookeeper.addr(), id, password])?;
    drop(zookeeper);

    let begin = Instant::now();
    let server = Server::start(&Kind::Baton(baton.to_owned()), &dir.join("moved"))?;
    println!(
        "Baton serves it after {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    same("Baton", &expected, &tool(&["dump", &server.addr()])?)?;
    let ours = tool(&["attach", &server.addr(), id, password])?;
    same("the session on Baton", &attached, &ours)?;
    drop(server);

    let (again, last) = (dir.join("again"), dir.join("last"));
    timed("import", import(baton, &dir.join("own"), &again))?;
    timed("export", export(baton, &again, &last))?;
    let first_export = dir.join("first-export");
    let reimported = dir.join("reimported");
    timed("import", import(baton, &data, &reimported))?;
    timed("export", export(baton, &reimported, &first_export))?;
    if std::fs::read(only_snapshot(&first_export)?)? != std::fs::read(only_snapshot(&last)?)? {
        return Err("the tree that came back from ZooKeeper is another".into());
    }
    println!(
        "{} lines of every kind and {znodes} more znodes: the same on ZooKeeper, on Baton, and on ZooKeeper again; \
         the session went on with {}",
        expected.lines().count(),
        ours.trim()
    );
    Ok(())
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

/// Runs a command; what it said, and how long it took.
fn timed(name: &str, mut command: Command) -> Result<String> {
    let begin = Instant::now();
    let said = output(&mut command)?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok(format!("{name} took {seconds:.1} s: {}", said.trim()))
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

fn same(what: &str, expected: &str, found: &str) -> Result<()> {
    let mut pairs = expected.lines().zip(found.lines());
    if let Some((expected, found)) = pairs.find(|(expected, found)| expected != found) {
        return Err(format!("{what} shows {found:?}, not {expected:?}").into());
    }
    if expected.lines().count() != found.lines().count() {
        return Err(format!("{what} shows another number of znodes").into());
    }
    Ok(())
}
