//! Servers and other children: started on loopback ports that are free, in folders of their own,
//! and ended by their process id, also when a task fails. It never touches a process that it did
//! not start.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{Result, command, java, root};

/// A million znodes on a busy machine take their time.
const START_LIMIT: Duration = Duration::from_secs(300);

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
    if let Some(named) = std::env::var_os("BATON_BIN") {
        return Ok(named.into());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    succeed(
        Command::new(cargo)
            .args([
                "build",
                "--quiet",
                "--profile",
                "dist",
                "--package",
                "baton-locks-cli",
            ])
            .current_dir(root()),
    )?;
    Ok(command::target_dir()?
        .join("dist")
        .join(format!("baton{}", std::env::consts::EXE_SUFFIX)))
}

/// The peer that is measured or tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Baton's server; the path of the command.
    Baton(PathBuf),
    /// Apache ZooKeeper.
    ZooKeeper,
}

impl Kind {
    /// Returns the name in tables.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Baton(_) => "Baton",
            Self::ZooKeeper => "Apache ZooKeeper",
        }
    }
}

/// Settings of a server besides those of every server: TLS and identities.
#[derive(Debug, Clone)]
pub(crate) struct ServerExtras {
    /// Its port with TLS.
    pub(crate) secure_port: u16,
    /// Lines of its zoo.cfg, which both kinds of server read.
    pub(crate) zoo_cfg: String,
    /// Flags of Baton, and options of Java for ZooKeeper.
    pub(crate) baton_flags: Vec<String>,
    pub(crate) java_options: Vec<String>,
}

/// One server process.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    dir: PathBuf,
    port: u16,
    extras: Option<ServerExtras>,
    process: Option<OwnedChild>,
}

impl Server {
    /// Starts a server alone, with its data below `dir`.
    pub(crate) fn start(kind: &Kind, dir: &Path) -> Result<Self> {
        Self::start_with(kind, dir, None)
    }

    /// [`Server::start`] with more than every server has.
    pub(crate) fn start_with(
        kind: &Kind,
        dir: &Path,
        extras: Option<ServerExtras>,
    ) -> Result<Self> {
        let dir = dir.join(kind.name().replace(' ', "-"));
        std::fs::create_dir_all(&dir)?;
        let port = free_port()?;
        if *kind == Kind::ZooKeeper || extras.is_some() {
            let more = extras.as_ref().map_or("", |extras| &extras.zoo_cfg);
            std::fs::write(dir.join("zoo.cfg"), zoo_cfg(&dir, port, more))?;
        }
        let mut server = Self {
            kind: kind.clone(),
            dir,
            port,
            extras,
            process: None,
        };
        server.restart()?;
        Ok(server)
    }

    /// Returns the address at which clients connect with TLS, if there is one.
    pub(crate) fn secure_addr(&self) -> Option<String> {
        let extras = self.extras.as_ref()?;
        Some(format!("127.0.0.1:{}", extras.secure_port))
    }

    /// Returns the address at which clients connect.
    pub(crate) fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The process that serves.
    pub(crate) fn pid(&self) -> Result<u32> {
        Ok(self
            .process
            .as_ref()
            .ok_or("the server is not running")?
            .pid())
    }

    /// Ends the process as a crash would.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts the process on the same port and data, and returns how long it took until it served.
    pub(crate) fn restart(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        self.launch()?;
        self.await_serving()?;
        Ok(begin.elapsed())
    }

    fn launch(&mut self) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("server.log"))?;
        let mut command = match (&self.kind, &self.extras) {
            (Kind::Baton(path), Some(extras)) => {
                let mut command = Command::new(path);
                command.args(["serve", "--config"]);
                command.arg(self.dir.join("zoo.cfg"));
                command.args(&extras.baton_flags);
                command
            }
            (Kind::Baton(path), None) => {
                let mut command = Command::new(path);
                command
                    .args(["serve", "--four-letter-words=*", "--listen"])
                    .args([&self.addr(), "--data-dir"])
                    .arg(self.dir.join("data"));
                command
            }
            (Kind::ZooKeeper, extras) => {
                let class_path = match extras {
                    Some(_) => java::zookeeper_with_tls()?,
                    None => java::zookeeper()?,
                };
                let mut command = java::command(&class_path)?;
                command.args([
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                    "-Dzookeeper.extendedTypesEnabled=true",
                ]);
                command.args(extras.iter().flat_map(|extras| &extras.java_options));
                command.arg(java::SERVER_CLASS);
                command.arg(self.dir.join("zoo.cfg"));
                command
            }
        };
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.process = Some(OwnedChild::start(&mut command)?);
        Ok(())
    }

    /// Waits until the server says by `srvr` which part it plays: it answers `ruok` before it can
    /// serve.
    fn await_serving(&mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < START_LIMIT {
            if let Some(process) = &mut self.process
                && let Some(status) = process.0.try_wait()?
            {
                let log = std::fs::read_to_string(self.dir.join("server.log"))?;
                return Err(
                    format!("{} ended with {status}: {}", self.kind.name(), log.trim()).into(),
                );
            }
            // ZooKeeper opens the port with TLS last.
            let secure = self.secure_addr();
            if self.mode().is_some() && secure.is_none_or(|addr| TcpStream::connect(addr).is_ok()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("{} does not serve after {START_LIMIT:?}", self.kind.name()).into())
    }

    /// `standalone`, `leader` or `follower`, as the server itself says.
    pub(crate) fn mode(&self) -> Option<String> {
        let text = four_letters(self.port, "srvr").ok()?;
        text.lines()
            .find_map(|line| line.strip_prefix("Mode: "))
            .map(str::to_owned)
    }
}

/// Three Apache ZooKeeper servers.
#[derive(Debug)]
pub(crate) struct Ensemble {
    servers: Vec<Server>,
}

impl Ensemble {
    /// Starts three servers that elect a leader.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let mut lines = String::from("initLimit=10\nsyncLimit=5\n");
        let mut servers = Vec::new();
        for id in 1..=3 {
            lines += &format!("server.{id}=127.0.0.1:{}:{}\n", free_port()?, free_port()?);
            let dir = dir.join(format!("zookeeper-{id}"));
            std::fs::create_dir_all(&dir)?;
            servers.push(Server {
                kind: Kind::ZooKeeper,
                dir,
                port: free_port()?,
                extras: None,
                process: None,
            });
        }
        for (id, server) in (1..).zip(&mut servers) {
            std::fs::write(
                server.dir.join("zoo.cfg"),
                zoo_cfg(&server.dir, server.port, &lines),
            )?;
            std::fs::create_dir_all(server.dir.join("data"))?;
            std::fs::write(server.dir.join("data/myid"), format!("{id}\n"))?;
            server.launch()?;
        }
        for server in &mut servers {
            server.await_serving()?;
        }
        Ok(Self { servers })
    }

    /// The servers as a client names them.
    pub(crate) fn addrs(&self) -> String {
        self.servers
            .iter()
            .map(Server::addr)
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Ends the leader as a crash would.
    pub(crate) fn kill_leader(&mut self) -> Result<()> {
        let leader = self
            .servers
            .iter_mut()
            .find(|server| server.mode().as_deref() == Some("leader"));
        leader.ok_or("no server says that it leads")?.kill();
        Ok(())
    }
}

fn zoo_cfg(dir: &Path, port: u16, more: &str) -> String {
    format!(
        "tickTime=2000\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n\
         admin.enableServer=false\n4lw.commands.whitelist=*\n{more}",
        dir.join("data").display()
    )
}

/// A port of loopback that is free.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn four_letters(port: u16, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(word.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// A folder for servers' data, on the disk of the build's folder unless `wanted` names another.
pub(crate) fn work_dir(wanted: Option<&Path>) -> Result<TempDir> {
    let parent = wanted.map_or_else(command::target_dir, |dir| Ok(dir.to_owned()))?;
    Ok(tempfile::Builder::new()
        .prefix("xtask-")
        .tempdir_in(parent)?)
}
