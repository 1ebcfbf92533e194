//! Servers for tests: started on loopback in a temporary folder, killed on drop. Owns the one
//! interface for Baton and Apache ZooKeeper; how each is started is in the modules below.
//!
//! | module | owns |
//! |---|---|
//! | `ensemble` | several servers that form one ensemble |
//! | `embedded` | a Baton in this process |
//! | `zookeeper` | Apache ZooKeeper's jars and settings |
//! | `process` | a server in a process of its own |
//! | `zoo_cfg` | the file of settings that both kinds of server read |
//! | `member` | what a Baton of an ensemble has in its settings |
//! | `wire` | wires between servers, which can be cut |
//! | `background` | a runtime beside those of the tests |
//! | `ports` | which port is handed out |

mod background;
mod embedded;
mod ensemble;
mod member;
mod ports;
mod process;
mod wire;
mod zoo_cfg;
pub(crate) mod zookeeper;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use baton_server::{ServerTlsOptions, TlsFiles};
use rustix::process::Signal;

pub use ensemble::Ensemble;
pub use ports::free_addr;
pub use process::baton_binary;
pub use wire::Direction;
pub use zookeeper::{classpath as zookeeper_classpath, is_installed as zookeeper_is_installed};

use crate::certificates::CertificateFiles;
use embedded::Embedded;
use process::Process;

/// Time that a server may take to start serving.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Interval at which a starting server is asked whether it serves.
const POLL: Duration = Duration::from_millis(10);

/// Kind of server that a test runs against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Baton's own.
    Baton,
    /// Apache ZooKeeper, from the distribution's packages.
    ZooKeeper,
}

impl Target {
    /// The target that the environment variable `BATON_TEST_TARGET` names: `baton`, which is the
    /// default, or `zookeeper`.
    ///
    /// # Errors
    /// [`LaunchError::UnknownTarget`] for any other name.
    pub fn from_env() -> Result<Self, LaunchError> {
        match std::env::var("BATON_TEST_TARGET") {
            Err(_) => Ok(Self::Baton),
            Ok(name) => match name.as_str() {
                "" | "baton" => Ok(Self::Baton),
                "zookeeper" => Ok(Self::ZooKeeper),
                _ => Err(LaunchError::UnknownTarget(name)),
            },
        }
    }
}

/// Reason why a server for a test did not start, or did not act as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// `BATON_TEST_TARGET` names no target.
    #[error("BATON_TEST_TARGET is {0:?}; it may be \"baton\" or \"zookeeper\"")]
    UnknownTarget(String),
    /// Something that has to be installed is not.
    #[error("{missing} is missing; on Debian: apt-get install {packages}")]
    NotInstalled {
        /// The expected thing.
        missing: String,
        /// The packages that bring it.
        packages: &'static str,
    },
    /// The `baton` command is needed as a process and was not found.
    #[error(
        "no `baton` binary at {0}; build it with `cargo build -p baton-locks-cli`, or name one in BATON_BIN"
    )]
    NoBatonBinary(PathBuf),
    /// A file, socket or process failed.
    #[error("{what}: {source}")]
    Io {
        /// The attempted action.
        what: String,
        /// Error of the system.
        r#source: io::Error,
    },
    /// The process ended or did not serve in time.
    #[error("{what} on {addr} {how}; the end of its log: {log}")]
    NotServing {
        /// The server.
        what: &'static str,
        /// Address at which it should have served.
        addr: SocketAddr,
        /// Ended, or too slow.
        how: String,
        /// The last lines of its output, on one line.
        log: String,
    },
    /// An ensemble has no leader, or not all others follow it.
    #[error("no leader whom all others follow, within a minute; the servers are {modes}")]
    NoLeader {
        /// Modes that the servers reported.
        modes: String,
    },
    /// The embedded server did not start, or failed.
    #[error("the embedded server: {0}")]
    Embedded(String),
    /// The operation needs a server in a process of its own, and this one is not running in one.
    #[error(
        "{0} needs a running server process; start it with `TestServer::start_process`, or `restart` it"
    )]
    NoProcess(&'static str),
}

impl LaunchError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Settings of a test server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The base unit of time; sessions expire at its multiples. Default 200 ms.
    pub tick: Duration,
    /// The shortest session timeout granted. Default two ticks: 400 ms.
    pub min_session_timeout: Duration,
    /// The longest session timeout granted. Default 60 s.
    pub max_session_timeout: Duration,
    /// In an ensemble: after this number of ticks without a message from the leader a follower
    /// stops serving. Default 20.
    pub sync_limit: u32,
    /// In an ensemble of Batons: the unit of election time-outs, if not the usual one. A test that
    /// takes an election for a failure sets it high enough for a busy machine.
    pub consensus_tick: Option<Duration>,
    /// Options of the Java machine. Default: a small one that starts quickly.
    pub java_machine: Vec<String>,
    /// Further arguments for Java, such as `-Djute.maxbuffer=4194304`; Baton ignores them. Default
    /// none.
    pub java_args: Vec<String>,
    /// Users of SASL DIGEST-MD5, with their passwords. Default none, and no SASL.
    pub sasl_users: Vec<(String, String)>,
    /// Whether the server serves only who has authenticated by SASL. Default false.
    pub requires_sasl: bool,
    /// The `baton` command of servers that run as processes. Default `None`: that of
    /// [`baton_binary`].
    pub baton: Option<PathBuf>,
    /// Further arguments for `baton serve`, of servers that run as processes. Default none.
    pub baton_args: Vec<String>,
    /// Whether a Baton that runs alone as a process has its settings in a zoo.cfg, as a ZooKeeper
    /// has. Default false.
    pub by_zoo_cfg: bool,
    /// Folder of a server that runs alone as a process, which stays when the server goes; its data
    /// are in `data` there. Default `None`: a temporary one.
    pub folder: Option<PathBuf>,
    /// In an ensemble: how long a byte travels from one server to another, over wires which can be
    /// cut; `None` for no wires. Over a wire a server whose process has ended does not refuse
    /// connections as it would without, so the others take longer to be sure of its end. Default
    /// zero.
    pub wires: Option<Duration>,
    /// Interval at which a Baton in this process looks for znodes whose time is over and for empty
    /// containers; never, if zero. Default 60 s, as for any server.
    pub reap_interval: Duration,
    /// TLS on a port of its own, [`TestServer::secure_addr`], besides the one without. Default
    /// none.
    pub tls: Option<TlsOptions>,
}

/// TLS of a server for tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    /// The server's certificate and key.
    pub server: CertificateFiles,
    /// The PEM file of the authorities that sign the certificates of clients.
    pub authorities: PathBuf,
    /// Whether clients show a certificate, in ZooKeeper's words: `none`, `want`, `need`.
    pub client_auth: &'static str,
}

impl TlsOptions {
    /// The same for a Baton in this process.
    pub(crate) fn of_baton(&self) -> ServerTlsOptions {
        ServerTlsOptions {
            client_auth: self.client_auth.parse().unwrap_or_default(),
            ..ServerTlsOptions::new(TlsFiles {
                certificates: self.server.certificate.clone(),
                key: self.server.key.clone(),
                authorities: Some(self.authorities.clone()),
                revocation_lists: None,
            })
        }
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(200),
            min_session_timeout: Duration::from_millis(400),
            max_session_timeout: Duration::from_secs(60),
            sync_limit: 20,
            consensus_tick: None,
            java_machine: zookeeper::QUICK.map(str::to_owned).into(),
            java_args: Vec::new(),
            sasl_users: Vec::new(),
            requires_sasl: false,
            baton: None,
            baton_args: Vec::new(),
            by_zoo_cfg: false,
            folder: None,
            wires: Some(Duration::ZERO),
            reap_interval: Duration::from_secs(60),
            tls: None,
        }
    }
}

/// Returns whether the answer to `srvr` is that of a server that serves: a Baton that has no leader
/// says that it is looking for one, a ZooKeeper says nothing of its mode then.
fn serves(srvr: &str) -> bool {
    let mut modes = srvr.lines().filter_map(|line| line.strip_prefix("Mode: "));
    modes.any(|mode| mode != "looking")
}

/// Place where a server runs.
#[derive(Debug)]
enum Backend {
    Embedded(Box<Embedded>),
    Process(Process),
}

/// A server on loopback with a folder of its own. Dropping it kills the server and removes the
/// folder.
#[derive(Debug)]
pub struct TestServer {
    target: Target,
    addr: SocketAddr,
    backend: Backend,
}

impl TestServer {
    /// Starts a server: Baton inside this process, on the calling runtime; Apache ZooKeeper as a
    /// process.
    ///
    /// # Errors
    /// What is missing, or why it does not serve.
    pub async fn start(target: Target) -> Result<Self, LaunchError> {
        Self::start_with(target, ServerOptions::default()).await
    }

    /// [`TestServer::start`] with other settings.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn start_with(target: Target, options: ServerOptions) -> Result<Self, LaunchError> {
        match target {
            Target::ZooKeeper => Self::start_process(target, options).await,
            Target::Baton => {
                let mut embedded = Embedded::new(options)?;
                let addr = embedded.start().await?;
                let backend = Backend::Embedded(Box::new(embedded));
                Ok(Self {
                    target,
                    addr,
                    backend,
                })
            }
        }
    }

    /// Starts a server as a process of its own, which can be paused too. For Baton that is the
    /// `baton` command: see [`baton_binary`].
    ///
    /// # Errors
    /// As [`TestServer::start`]; [`LaunchError::NoBatonBinary`].
    pub async fn start_process(
        target: Target,
        options: ServerOptions,
    ) -> Result<Self, LaunchError> {
        // A port that is free now may be taken before the server binds it; then another is tried.
        let mut attempts_left = 2;
        loop {
            let addr = free_addr()?;
            let mut process = match target {
                Target::Baton => process::baton(addr, &options, None)?,
                Target::ZooKeeper => zookeeper::standalone(addr, &options)?,
            };
            match process.start(addr).await {
                Ok(()) => {
                    let backend = Backend::Process(process);
                    return Ok(Self {
                        target,
                        addr,
                        backend,
                    });
                }
                Err(LaunchError::NotServing { log, .. })
                    if attempts_left > 0 && log.contains("in use") =>
                {
                    attempts_left -= 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the kind of server.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Address at which it listens; the same after a restart.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Address at which it listens for clients with TLS, if it does: [`ServerOptions::tls`].
    #[must_use]
    pub fn secure_addr(&self) -> Option<SocketAddr> {
        match &self.backend {
            Backend::Embedded(embedded) => embedded.secure_addr,
            Backend::Process(process) => process.secure_addr,
        }
    }

    /// [`TestServer::addr`] as clients take it.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addr.to_string()
    }

    /// The folder in which it keeps its data.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        let dir = match &self.backend {
            Backend::Embedded(embedded) => embedded.dir.path(),
            Backend::Process(process) => process.folder.path(),
        };
        dir.join("data")
    }

    /// The id of its process, while it runs in one of its own.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match &self.backend {
            Backend::Embedded(_) => None,
            Backend::Process(process) => process.pid(),
        }
    }

    /// Ends it at once and waits until it is gone: a process by SIGKILL, an embedded server by
    /// dropping it, which syncs and says nothing more. Does nothing if it is not running.
    pub fn kill(&mut self) {
        match &mut self.backend {
            Backend::Embedded(embedded) => embedded.kill(),
            Backend::Process(process) => process.kill(),
        }
    }

    /// Stops it gracefully: a process by SIGTERM.
    ///
    /// # Errors
    /// A process that does not run, or has not stopped within 60 s; an embedded server that failed.
    pub async fn stop(&mut self) -> Result<(), LaunchError> {
        match &mut self.backend {
            Backend::Embedded(embedded) => embedded.stop().await,
            Backend::Process(process) => process.stop().await,
        }
    }

    /// Starts it again on the same port with the same data, after killing it if it runs.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn restart(&mut self) -> Result<(), LaunchError> {
        self.launch()?;
        self.wait_serving().await
    }

    /// Has its next start run another `baton` command, such as one of another version.
    ///
    /// # Errors
    /// [`LaunchError::NoProcess`]: it is embedded.
    pub fn set_program(&mut self, program: PathBuf) -> Result<(), LaunchError> {
        match &mut self.backend {
            Backend::Embedded(_) => Err(LaunchError::NoProcess("another program")),
            Backend::Process(process) => {
                process.program = program;
                Ok(())
            }
        }
    }

    /// The first half of [`TestServer::restart`]: does not wait until it serves. A server of an
    /// ensemble may need others for that.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub fn launch(&mut self) -> Result<(), LaunchError> {
        self.kill();
        match &mut self.backend {
            Backend::Embedded(embedded) => embedded.launch(self.addr),
            Backend::Process(process) => process.spawn(),
        }
    }

    /// The second half of [`TestServer::restart`].
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn wait_serving(&mut self) -> Result<(), LaunchError> {
        match &mut self.backend {
            Backend::Embedded(embedded) => embedded.wait_serving(self.addr).await.map(|_| ()),
            Backend::Process(process) => process.wait_serving(self.addr).await,
        }
    }

    /// Returns whether it was started and neither killed nor stopped since.
    #[must_use]
    pub fn runs(&self) -> bool {
        match &self.backend {
            Backend::Embedded(embedded) => embedded.runs(),
            Backend::Process(process) => process.pid().is_some(),
        }
    }

    /// Returns the output of its process so far, over all its starts; nothing of an embedded
    /// server.
    #[must_use]
    pub fn log(&self) -> String {
        match &self.backend {
            Backend::Embedded(_) => String::new(),
            Backend::Process(process) => process.log(),
        }
    }

    /// Stops a process in its tracks with SIGSTOP: sockets stay open, nothing is answered, until
    /// [`TestServer::resume`]. It has stopped when this returns.
    ///
    /// # Errors
    /// [`LaunchError::NoProcess`]: it does not run, or is embedded.
    pub fn pause(&self) -> Result<(), LaunchError> {
        self.running_process()?.pause()
    }

    /// Lets it go on after [`TestServer::pause`].
    ///
    /// # Errors
    /// As [`TestServer::pause`].
    pub fn resume(&self) -> Result<(), LaunchError> {
        self.running_process()?.signal(Signal::CONT)
    }

    fn running_process(&self) -> Result<&Process, LaunchError> {
        match &self.backend {
            Backend::Embedded(_) => Err(LaunchError::NoProcess("a signal")),
            Backend::Process(process) => Ok(process),
        }
    }
}
