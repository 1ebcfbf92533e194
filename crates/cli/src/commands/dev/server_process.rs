//! The process of one server: `baton serve` in a process group of its own, so that a Ctrl-C at the
//! terminal reaches `baton dev` alone.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::plan::{Plan, ServerAddresses};
use crate::exit::{self, Failure};
use crate::servers::local;
use crate::signals;

/// The log's name in the server's folder.
const LOG: &str = "server.log";
/// The log is for this user only.
const LOG_MODE: u32 = 0o600;
/// Time that a server may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A server's process. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    pid: u32,
    log: PathBuf,
    /// Whether it has written its first line.
    serves: Arc<AtomicBool>,
}

impl ServerProcess {
    /// Starts the server. Called on the main thread: the kernel ends the server when the thread
    /// that has started it ends.
    ///
    /// # Errors
    /// A folder or a process that cannot be made.
    pub(super) fn start(plan: &Plan, place: &ServerAddresses) -> Result<Self, Failure> {
        let folder = plan.folder_of(place);
        local::make_folder(&folder)?;
        let log = folder.join(LOG);
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(LOG_MODE);
        let log_file = options.open(&log).map_err(|error| {
            Failure::baton(format!(
                "cannot write {}: {error}; free some room there, or choose another --data-dir",
                log.display()
            ))
        })?;
        let mut child = Command::new("/proc/self/exe")
            .arg0("baton")
            .arg("serve")
            .arg("--end-with")
            .arg(std::process::id().to_string())
            .arg("--config")
            .arg(plan.config_of(place))
            // They outweigh the file, or are for other verbs.
            .env_remove("BATON_DATA_DIR")
            .env_remove("BATON_SERVERS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log_file))
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| {
                Failure::baton(format!(
                    "cannot start server {}: {error}; {}",
                    place.id,
                    exit::start_remedy(&error)
                ))
            })?;
        let serves = Arc::new(AtomicBool::new(false));
        if let Some(output) = child.stdout.take() {
            let serves = Arc::clone(&serves);
            tokio::spawn(async move {
                // The end of its output without a line means that it has failed.
                let mut line = String::new();
                let read = BufReader::new(output).read_line(&mut line).await;
                serves.store(read.is_ok_and(|bytes| bytes > 0), Ordering::Release);
            });
        }
        Ok(Self {
            pid: child.id().unwrap_or(0),
            child,
            log,
            serves,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has said that it answers.
    pub(super) fn serves(&self) -> bool {
        self.serves.load(Ordering::Acquire)
    }

    /// Returns the end of the process, if it has ended.
    ///
    /// # Errors
    /// The system's, which has lost the process.
    pub(super) fn ended(&mut self) -> Result<Option<String>, Failure> {
        let ended = self.child.try_wait().map_err(|error| {
            Failure::baton(format!("cannot wait for process {}: {error}", self.pid))
        })?;
        Ok(ended.map(how))
    }

    /// The failure of a server that has ended before it answered, with the last line of its log.
    pub(super) fn start_failure(&self, id: u64, how: &str) -> Failure {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        let why = match last {
            Some(line) => line.strip_prefix("baton: ").unwrap_or(line).to_owned(),
            None => format!(
                "it {how} without an error message; see {}",
                self.log.display()
            ),
        };
        let text = format!("server {id} did not start: {why}");
        Failure::new(exit::BATON, "server", text)
    }

    /// Asks it to stop.
    pub(super) fn ask_to_stop(&self) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        // It is ours until it is waited for, so nobody else has its number.
        if let Some(pid) = pid.filter(|_| self.child.id().is_some()) {
            let _ = kill_process(pid, Signal::TERM);
            // A server that was stopped by a signal can do nothing before it goes on.
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Waits for its end, and kills it if that takes long.
    pub(super) async fn wait_for_end(&mut self) {
        let ended = tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await;
        if ended.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

/// Describes the end of a process, for people.
fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(number)) => format!("was ended by {}", signals::name(number)),
        (Some(code), None) => format!("ended with exit code {code}"),
        (None, None) => "ended".to_owned(),
    }
}
