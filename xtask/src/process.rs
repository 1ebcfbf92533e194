//! Children, which end with their owner, also when a task fails; servers alone, by the test kit's
//! launcher, for tasks that block. It never touches a process that it did not start.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use baton_testkit::{ServerOptions, Target, TestServer};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::{Result, command, java, root};

/// A child that ends with its owner.
#[derive(Debug)]
pub(crate) struct OwnedChild(pub(crate) Child);

impl OwnedChild {
    /// Starts a command.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.spawn().map_err(|error| {
            format!("cannot start {command:?}: {error}")
        })?))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it as a crash would, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command to its end; its failure is an error.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{command:?} ended with {status}").into())
    }
}

/// Memory of a process in bytes, by the name of its line in `/proc/PID/status`.
pub(crate) fn memory_bytes(pid: u32, line: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mut lines = status.lines();
    let value = lines.find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib = value.and_then(|value| value.split_whitespace().next());
    let kib = kib.ok_or_else(|| format!("process {pid} has no {line}"))?;
    Ok(kib.parse::<f64>()? * 1024.0)
}

/// The processor time that a process has taken so far, in seconds; none once it has ended.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before them may hold spaces. Linux counts in hundredths of a second on every machine
    // in use.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11).map(str::parse::<f64>);
    Some((fields.next()?.ok()? + fields.next()?.ok()?) / 100.0)
}

/// Number of times that threads of a process have woken up so far; none once it has ended.
pub(crate) fn wake_ups(pid: u32) -> Option<u64> {
    let mut count = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // A thread that has ended meanwhile has no file.
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count += line.map_or(0, |count| count.trim().parse().unwrap_or(0));
    }
    Some(count)
}

/// Builds `baton` as packages ship it and returns its path; that of the one that `BATON_BIN` names,
/// if it does.
pub(crate) fn build_baton() -> Result<PathBuf> {
    match std::env::var_os("BATON_BIN") {
        Some(named) => Ok(named.into()),
        None => build("baton-locks-cli", "baton"),
    }
}

/// Builds a program as packages ship it and returns its path.
pub(crate) fn build(package: &str, program: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    succeed(
        Command::new(cargo)
            .args([
                "build",
                "--quiet",
                "--profile",
                "dist",
                "--package",
                package,
            ])
            .current_dir(root()),
    )?;
    Ok(command::target_dir()?
        .join("dist")
        .join(format!("{program}{}", std::env::consts::EXE_SUFFIX)))
}

/// Returns the name of a server in tables, with ZooKeeper's version.
pub(crate) fn server_name(target: Target) -> String {
    match target {
        Target::Baton => "Baton".to_owned(),
        Target::ZooKeeper => format!("ZooKeeper {}", java::version("zookeeper")),
    }
}

/// A server alone in a process of its own, for tasks that block.
#[derive(Debug)]
pub(crate) struct Server {
    runtime: Runtime,
    server: TestServer,
}

impl Server {
    /// Starts a server with its folder at `folder`, and with a Java machine as it is by default.
    pub(crate) fn start(target: Target, baton: &Path, folder: &Path) -> Result<Self> {
        Self::start_with(target, baton, folder, ServerOptions::default())
    }

    /// [`Server::start`] with further options.
    pub(crate) fn start_with(
        target: Target,
        baton: &Path,
        folder: &Path,
        more: ServerOptions,
    ) -> Result<Self> {
        let options = ServerOptions {
            tick: Duration::from_secs(2),
            min_session_timeout: Duration::from_secs(4),
            max_session_timeout: Duration::from_secs(180),
            java_machine: Vec::new(),
            baton: Some(baton.to_owned()),
            folder: Some(folder.to_owned()),
            ..more
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let server = runtime.block_on(TestServer::start_process(target, options))?;
        Ok(Self { runtime, server })
    }

    /// Returns the address at which clients connect with TLS, if there is one.
    pub(crate) fn secure_addr(&self) -> Option<SocketAddr> {
        self.server.secure_addr()
    }

    /// Returns the address at which clients connect.
    pub(crate) fn addr(&self) -> String {
        self.server.connect_string()
    }

    /// The process that serves.
    pub(crate) fn pid(&self) -> Result<u32> {
        Ok(self.server.pid().ok_or("the server is not running")?)
    }

    /// Ends the process as a crash would.
    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts the process on the same port and data, and returns how long it took until it served.
    pub(crate) fn restart(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        self.runtime.block_on(self.server.restart())?;
        Ok(begin.elapsed())
    }
}

/// A folder for servers' data, on the disk of the build's folder unless `wanted` names another.
pub(crate) fn work_dir(wanted: Option<&Path>) -> Result<TempDir> {
    let parent = wanted.map_or_else(command::target_dir, |dir| Ok(dir.to_owned()))?;
    Ok(tempfile::Builder::new()
        .prefix("xtask-")
        .tempdir_in(parent)?)
}
