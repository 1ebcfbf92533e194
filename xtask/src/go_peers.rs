//! Servers of others that a program in Go measures, and that program (`xtask/go`).

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use baton_testkit::free_addr;

use crate::command::target_dir;
use crate::process::{OwnedChild, succeed};
use crate::{Result, root};

const PATIENCE: Duration = Duration::from_secs(20);

/// Servers that end with their owner, and where each is reached.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) children: Vec<OwnedChild>,
    pub(crate) addresses: Vec<String>,
}

/// Builds the program and returns its path.
pub(crate) fn program() -> Result<PathBuf> {
    let program = target_dir()?.join("xtask-go-peers");
    let mut go = Command::new("go");
    go.args(["-C", "xtask/go", "build", "-o"]).arg(&program);
    succeed(go.arg(".").current_dir(root()))?;
    Ok(program)
}

/// Starts `count` servers of etcd, one cluster, with their folders below `dir`.
pub(crate) fn etcd(dir: &Path, count: usize) -> Result<Servers> {
    let mut members = Vec::new();
    for number in 0..count {
        let [clients, peers] = [free_addr()?, free_addr()?].map(|address| address.to_string());
        members.push((format!("etcd-{number}"), clients, peers));
    }
    let cluster = members
        .iter()
        .map(|(name, _, peers)| format!("{name}=http://{peers}"));
    let cluster = cluster.collect::<Vec<_>>().join(",");
    let mut servers = Vec::new();
    for (name, clients, peers) in members {
        let [at_clients, at_peers] = [&clients, &peers].map(|address| format!("http://{address}"));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(dir.join(&name));
        command.args(["--name", &name, "--initial-cluster", &cluster]);
        for option in ["--listen-client-urls", "--advertise-client-urls"] {
            command.args([option, &at_clients]);
        }
        for option in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
            command.args([option, &at_peers]);
        }
        servers.push((command, clients));
    }
    start(servers)
}

/// Starts a server of Redis that syncs every write, with its data in `dir`.
pub(crate) fn redis(dir: &Path) -> Result<Servers> {
    std::fs::create_dir_all(dir)?;
    let address = free_addr()?;
    let mut command = Command::new("redis-server");
    command.args(["--port", &address.port().to_string(), "--appendonly", "yes"]);
    command.args(["--appendfsync", "always", "--save", ""]);
    command.arg("--dir").arg(dir);
    start(vec![(command, address.to_string())])
}

/// Starts all and waits until each serves.
fn start(commands: Vec<(Command, String)>) -> Result<Servers> {
    let (mut children, mut addresses) = (Vec::new(), Vec::new());
    for (mut command, address) in commands {
        children.push(OwnedChild::start(
            command.stdout(Stdio::null()).stderr(Stdio::null()),
        )?);
        addresses.push(address);
    }
    let begun = Instant::now();
    for address in &addresses {
        while TcpStream::connect(address).is_err() {
            if begun.elapsed() > PATIENCE {
                return Err(format!("no server serves {address} within {PATIENCE:?}").into());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(Servers {
        children,
        addresses,
    })
}
