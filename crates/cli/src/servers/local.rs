//! The user's own server on this machine: where it lives, and how it comes to run when it is
//! needed.
//!
//! One folder is one server: data, socket, log and the lock for starting it. Two folders never
//! meet. Nothing here speaks the protocol; that the socket takes a connection means that the server
//! runs.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_wal::DirStorage;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::duration;
use crate::exit::{self, Failure};
use crate::servers::detached;

/// The socket's name in the server's folder.
pub(crate) const SOCKET: &str = "baton.sock";
/// With this a line of a server that starts begins, until it serves: for the command that has
/// started it.
pub(crate) const STARTS: &str = "baton: starts: ";
/// The log's name in the server's folder.
const LOG: &str = "server.log";
/// The name of the file that the process that starts the server has locked.
const START_LOCK: &str = "start.lock";
/// A log larger than this is set aside when the server starts.
pub(crate) const LOG_BYTES: u64 = 8 << 20;
/// After this long without connections and sessions, a server that a command started ends itself.
const IDLE: Duration = Duration::from_secs(600);
/// Files in the folder are for this user only, also those that were made otherwise.
const FILE_MODE: u32 = 0o600;
/// The longest path of a unix socket, a limit of the system.
const SOCKET_PATH_BYTES: usize = 107;

/// Makes the folder, for this user only. Refuses one that others own or may write to: a process
/// that can put a socket there can answer instead of the server.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Failure> {
    DirStorage::create(folder)
        .map(drop)
        .map_err(|error| Failure::baton(error.to_string()))
}

/// Refuses a path that the system cannot take for a socket.
pub(crate) fn check_socket_length(path: &Path) -> Result<(), Failure> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES {
        return Err(Failure::usage(format!(
            "the unix socket {} has a path of {bytes} bytes, the system takes {SOCKET_PATH_BYTES}; choose a shorter one",
            path.display()
        )));
    }
    Ok(())
}

/// Whether a server listens on this unix socket. Does not wait: one that has a full backlog
/// listens.
///
/// # Errors
/// The system's error where no server can be reached.
pub(crate) fn try_connect(path: &Path) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A server's folder, open: it can be reached through this however long its path is.
#[derive(Debug)]
pub(crate) struct LocalServer {
    folder: PathBuf,
    /// Held open while its path under /proc is in use.
    _handle: File,
    socket: String,
}

/// That a server was started just now.
#[derive(Debug)]
pub(crate) struct StartedServer {
    /// The new process.
    pub(crate) pid: u32,
    /// After what idle time it ends itself.
    pub(crate) idle: Duration,
    /// Whether a command has started one in this folder before.
    pub(crate) again: bool,
}

impl LocalServer {
    /// The server of this folder, which is made if it does not exist. Whether the server runs is
    /// not checked.
    pub(crate) fn at(folder: PathBuf) -> Result<Self, Failure> {
        make_folder(&folder)?;
        let handle = File::open(&folder).map_err(|error| {
            Failure::baton(format!(
                "cannot open {}: {error}; choose another --data-dir",
                folder.display()
            ))
        })?;
        let plain = folder.join(SOCKET);
        let socket = match plain.to_str() {
            Some(text) if text.len() <= SOCKET_PATH_BYTES && !text.contains(',') => text.to_owned(),
            // The same folder under a short name, that of our handle on it.
            _ => format!(
                "/proc/self/fd/{}/{SOCKET}",
                std::os::fd::AsRawFd::as_raw_fd(&handle)
            ),
        };
        Ok(Self {
            folder,
            _handle: handle,
            socket,
        })
    }

    /// The server of this folder, if one runs there; nothing is made.
    pub(crate) fn running_at(folder: PathBuf) -> Option<Self> {
        if !folder.join(SOCKET).exists() {
            return None;
        }
        Self::at(folder).ok().filter(Self::runs)
    }

    /// The connect string for a client.
    pub(crate) fn connect_string(&self) -> String {
        format!("unix:{}", self.socket)
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn runs(&self) -> bool {
        try_connect(Path::new(&self.socket)).is_ok()
    }

    /// Sees to it that the server runs. Of several commands at once, one starts it and the others
    /// wait.
    ///
    /// Blocks: until the server answers or has failed. Meanwhile `show` gets what it does.
    pub(crate) fn ensure(&self, show: impl Fn(&str)) -> Result<Option<StartedServer>, Failure> {
        if self.runs() {
            return Ok(None);
        }
        let failed = |error: io::Error| {
            Failure::baton(format!(
                "cannot write in {}: {error}; free some room there, or choose another --data-dir",
                self.folder.display()
            ))
        };
        let not_started = |error: io::Error| {
            Failure::baton(format!(
                "cannot start the local server: {error}; {}",
                exit::start_remedy(&error)
            ))
        };
        let lock = self.open(START_LOCK).map_err(failed)?;
        lock.lock().map_err(failed)?;
        if self.runs() {
            return Ok(None);
        }
        // Only a server that a command has started writes its log there.
        let again = self.folder.join(LOG).exists();
        let log = self.open_log().map_err(failed)?;
        let log_from = log.metadata().map_err(failed)?.len();
        let idle = idle_limit()?;
        // It serves later commands, too, from any folder.
        let keeps = |name: &str| ["BATON_LOG", "BATON_SYSTEM_DIR"].contains(&name);
        let mut server = detached::command(keeps)
            .args([
                "serve",
                "--detached",
                "--exit-when-idle",
                &format!("{}ms", idle.as_millis()),
                "--data-dir",
            ])
            .arg(&self.folder)
            .current_dir("/")
            .stderr(log)
            .spawn()
            .map_err(not_started)?;
        let mut first = String::new();
        if let Some(output) = server.stdout.take() {
            let mut output = BufReader::new(output);
            // Its last line comes when it serves; the end of its output without one, when it has
            // failed.
            while output.read_line(&mut first).map_err(not_started)? > 0 {
                let Some(line) = first.strip_prefix(STARTS) else {
                    break;
                };
                show(line.trim_end());
                first.clear();
            }
        }
        if first.is_empty() {
            let _ = server.wait();
            return Err(self.start_failure(log_from));
        }
        Ok(Some(StartedServer {
            pid: server.id(),
            idle,
            again,
        }))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .mode(FILE_MODE)
            .open(self.folder.join(name))?;
        if file.metadata()?.permissions().mode() & 0o777 != FILE_MODE {
            file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        }
        Ok(file)
    }

    fn open_log(&self) -> io::Result<File> {
        let log = self.open(LOG)?;
        if log.metadata()?.len() < LOG_BYTES {
            return Ok(log);
        }
        std::fs::rename(self.folder.join(LOG), self.folder.join(format!("{LOG}.1")))?;
        self.open(LOG)
    }

    /// The last thing that the server wrote before it ended.
    fn start_failure(&self, log_from: u64) -> Failure {
        let last = self.open(LOG).ok();
        let last = last.and_then(|mut log| detached::last_line(&mut log, log_from));
        let why = last.unwrap_or_else(|| {
            let log = self.folder.join(LOG);
            format!("it ended without an error message; see {}", log.display())
        });
        Failure::new(
            exit::BATON,
            "server",
            format!("the local server did not start: {why}"),
        )
    }
}

/// After what idle time a server that is started here ends itself: BATON_IDLE, else ten minutes.
pub(crate) fn idle_limit() -> Result<Duration, Failure> {
    match std::env::var_os("BATON_IDLE").filter(|value| !value.is_empty()) {
        None => Ok(IDLE),
        Some(value) => duration::parse(&value.to_string_lossy())
            .map_err(|error| Failure::usage(format!("BATON_IDLE in the environment: {error}"))),
    }
}
