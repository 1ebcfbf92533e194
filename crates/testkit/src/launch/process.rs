//! A server in a process of its own: start, wait until it serves, signal, kill. Owns the child and
//! its folder; kills by the child's own id only.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::member::Member;
use super::zoo_cfg::zoo_cfg;
use super::{LaunchError, POLL, START_PATIENCE, ServerOptions, free_addr, serves};
use crate::inspect::four_letter_word;

/// Number of lines of a failed server's log that go into the error.
const LOG_LINES: usize = 12;

/// Limit on one question to a starting server.
const PROBE: Duration = Duration::from_millis(500);

/// A server's folder.
#[derive(Debug)]
pub(super) enum Folder {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Folder {
    /// The one that is named, or a temporary one.
    pub(super) fn of(options: &ServerOptions) -> Result<Self, LaunchError> {
        let Some(named) = &options.folder else {
            return Ok(Self::Temporary(temp_dir()?));
        };
        fs::create_dir_all(named).map_err(LaunchError::io("cannot make a server's folder"))?;
        Ok(Self::Kept(named.clone()))
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(folder) => folder,
        }
    }
}

/// A recipe for a server's command, and the child while it runs.
#[derive(Debug)]
pub(super) struct Process {
    what: &'static str,
    pub(super) program: PathBuf,
    args: Vec<String>,
    pub(super) folder: Folder,
    /// Address at which it listens for clients with TLS.
    pub(super) secure_addr: Option<SocketAddr>,
    child: Option<Child>,
}

impl Process {
    pub(super) fn new(
        what: &'static str,
        program: PathBuf,
        args: Vec<String>,
        folder: Folder,
        secure_addr: Option<SocketAddr>,
    ) -> Self {
        Self {
            what,
            program,
            args,
            folder,
            secure_addr,
            child: None,
        }
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    /// Starts the process without waiting until it serves.
    pub(super) fn spawn(&mut self) -> Result<(), LaunchError> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .map_err(LaunchError::io("cannot open the server's log"))?;
        let errors = log
            .try_clone()
            .map_err(LaunchError::io("cannot open the server's log"))?;
        let mut command = dies_with_us(&self.program);
        command
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors);
        self.child = Some(spawn_on_lasting_thread(command)?);
        Ok(())
    }

    pub(super) async fn start(&mut self, addr: SocketAddr) -> Result<(), LaunchError> {
        self.spawn()?;
        self.wait_serving(addr).await
    }

    /// Waits until the server answers `srvr` as one that serves.
    pub(super) async fn wait_serving(&mut self, addr: SocketAddr) -> Result<(), LaunchError> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            // A server that has bound its port but does not serve yet may leave a question
            // unanswered for good.
            if let Ok(Ok(answer)) =
                tokio::time::timeout(PROBE, four_letter_word(addr, "srvr")).await
                && serves(&answer)
                && self.is_secure_port_open().await
            {
                return Ok(());
            }
            let how = match self.child.as_mut().map(Child::try_wait) {
                Some(Ok(Some(status))) => format!("ended at once ({status})"),
                _ if Instant::now() > deadline => {
                    format!("does not serve after {} s", START_PATIENCE.as_secs())
                }
                _ => {
                    tokio::time::sleep(POLL).await;
                    continue;
                }
            };
            self.kill();
            return Err(LaunchError::NotServing {
                what: self.what,
                addr,
                how,
                log: self.log_tail(),
            });
        }
    }

    /// Returns whether it takes clients with TLS, if it is to: ZooKeeper opens that port last.
    async fn is_secure_port_open(&self) -> bool {
        match self.secure_addr {
            Some(addr) => TcpStream::connect(addr).await.is_ok(),
            None => true,
        }
    }

    /// Returns its output so far, over all its starts.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    fn raw_pid(&self) -> Result<Pid, LaunchError> {
        self.pid()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
            .ok_or(LaunchError::NoProcess("a signal"))
    }

    fn failed_at(&self, what: &str) -> impl FnOnce(rustix::io::Errno) -> LaunchError {
        let what = format!("cannot {what} {}", self.what);
        move |error| LaunchError::Io {
            what,
            source: error.into(),
        }
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), LaunchError> {
        kill_process(self.raw_pid()?, signal).map_err(self.failed_at("signal"))
    }

    /// Stops it in its tracks. Sending the signal is not enough: threads run on until one of them
    /// has taken it.
    pub(super) fn pause(&self) -> Result<(), LaunchError> {
        self.signal(Signal::STOP)?;
        waitid(WaitId::Pid(self.raw_pid()?), WaitIdOptions::STOPPED)
            .map_err(self.failed_at("pause"))?;
        Ok(())
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(super) async fn stop(&mut self) -> Result<(), LaunchError> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            match self.child.as_mut().map(Child::try_wait) {
                None | Some(Ok(Some(_))) => {
                    self.child = None;
                    return Ok(());
                }
                Some(Ok(None)) if Instant::now() < deadline => tokio::time::sleep(POLL).await,
                Some(Ok(None)) => {
                    return Err(LaunchError::Io {
                        what: format!("{} has not stopped after SIGTERM", self.what),
                        source: std::io::ErrorKind::TimedOut.into(),
                    });
                }
                Some(Err(source)) => {
                    return Err(LaunchError::Io {
                        what: format!("cannot wait for {}", self.what),
                        source,
                    });
                }
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The `baton` command: `BATON_BIN`, or the one beside the running test's build folder.
///
/// # Errors
/// [`LaunchError::NoBatonBinary`], with the place where it should be.
pub fn baton_binary() -> Result<PathBuf, LaunchError> {
    if let Some(named) = std::env::var_os("BATON_BIN") {
        let named = PathBuf::from(named);
        return if named.is_file() {
            Ok(named)
        } else {
            Err(LaunchError::NoBatonBinary(named))
        };
    }
    let mut dir = std::env::current_exe().map_err(LaunchError::io(
        "cannot find the path of the running program",
    ))?;
    dir.pop();
    if dir.ends_with("deps") || dir.ends_with("examples") {
        dir.pop();
    }
    let binary = dir.join(format!("baton{}", std::env::consts::EXE_SUFFIX));
    if binary.is_file() {
        Ok(binary)
    } else {
        Err(LaunchError::NoBatonBinary(binary))
    }
}

/// A Baton alone, or one of several.
pub(super) fn baton(
    addr: SocketAddr,
    options: &ServerOptions,
    member: Option<&Member>,
) -> Result<Process, LaunchError> {
    let folder = Folder::of(options)?;
    let secure_addr = options.tls.as_ref().map(|_| free_addr()).transpose()?;
    let mut args = vec!["serve".to_owned()];
    if options.by_zoo_cfg {
        let file = zoo_cfg(folder.path(), addr, secure_addr, options, "")?;
        args.push(format!("--config={}", file.display()));
    } else {
        args.extend(settings(folder.path(), addr, secure_addr, options));
    }
    if let Some(member) = member {
        args.push(format!("--server-id={}", member.id));
        args.push(format!("--peer-listen={}", member.listen));
        let tick = options.consensus_tick;
        args.extend(tick.map(|tick| format!("--consensus-tick={}ms", tick.as_millis())));
        let servers = member.servers.iter();
        args.extend(servers.map(|(id, address)| format!("--server={id}={address}")));
    }
    if !options.sasl_users.is_empty() {
        let users = options.sasl_users.iter();
        let lines = users.map(|(name, password)| format!("{name}:{password}\n"));
        let file = folder.path().join("users");
        write_secret(&file, &lines.collect::<String>())?;
        args.push(format!("--sasl-users={}", file.display()));
    }
    if options.requires_sasl {
        args.push("--require-auth=sasl".to_owned());
    }
    args.extend(options.baton_args.iter().cloned());
    let program = match &options.baton {
        Some(program) => program.clone(),
        None => baton_binary()?,
    };
    Ok(Process::new("baton", program, args, folder, secure_addr))
}

/// The options of `baton serve` for what a zoo.cfg would say.
fn settings(
    folder: &Path,
    addr: SocketAddr,
    secure_addr: Option<SocketAddr>,
    options: &ServerOptions,
) -> Vec<String> {
    let millis = |duration: Duration| format!("{}ms", duration.as_millis());
    let mut args = vec![
        format!("--data-dir={}", folder.join("data").display()),
        format!("--listen={addr}"),
        format!("--tick={}", millis(options.tick)),
        format!(
            "--min-session-timeout={}",
            millis(options.min_session_timeout)
        ),
        format!(
            "--max-session-timeout={}",
            millis(options.max_session_timeout)
        ),
        "--four-letter-words=*".to_owned(),
    ];
    if let (Some(tls), Some(addr)) = (&options.tls, secure_addr) {
        args.extend([
            format!("--secure-listen={addr}"),
            format!("--tls-cert={}", tls.server.certificate.display()),
            format!("--tls-key={}", tls.server.key.display()),
            format!("--tls-ca={}", tls.authorities.display()),
            format!("--tls-client-auth={}", tls.client_auth),
        ]);
    }
    args
}

/// Writes a file that nobody else may read.
pub(super) fn write_secret(file: &Path, text: &str) -> Result<(), LaunchError> {
    use std::os::unix::fs::PermissionsExt;

    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::write(file, text)
        .and_then(|()| std::fs::set_permissions(file, private))
        .map_err(LaunchError::io("cannot write a file of passwords"))
}

pub(super) fn temp_dir() -> Result<TempDir, LaunchError> {
    tempfile::Builder::new()
        .prefix("baton-test-")
        .tempdir()
        .map_err(LaunchError::io("cannot make a temporary folder"))
}

/// A command whose process the kernel kills when the test that started it dies, where the system
/// has `setpriv` for that. Otherwise only a drop kills it.
fn dies_with_us(program: &PathBuf) -> Command {
    const SETPRIV: &str = "/usr/bin/setpriv";
    if cfg!(target_os = "linux") && std::path::Path::new(SETPRIV).exists() {
        let mut command = Command::new(SETPRIV);
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

type SpawnRequest = (Command, mpsc::Sender<std::io::Result<Child>>);

/// Starts a child from a thread that lives as long as this process: the kernel counts the *thread*
/// that started a child as the parent whose death kills it, and a test's threads end before the
/// test does.
fn spawn_on_lasting_thread(command: Command) -> Result<Child, LaunchError> {
    static SPAWNER: OnceLock<mpsc::Sender<SpawnRequest>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<SpawnRequest>();
        std::thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let program = command.get_program().to_owned();
    let gone = |_| LaunchError::Io {
        what: "the thread that starts processes has ended".to_owned(),
        source: std::io::ErrorKind::BrokenPipe.into(),
    };
    let (answer, result) = mpsc::channel();
    spawner
        .send((command, answer))
        .map_err(|_| gone(mpsc::RecvError))?;
    result
        .recv()
        .map_err(gone)?
        .map_err(LaunchError::io(format!(
            "cannot start {}",
            program.display()
        )))
}
