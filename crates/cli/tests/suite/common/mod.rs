//! Common parts of the command's tests: a home of its own for each, processes that end with the
//! test, and waiting for events.

pub mod terminal;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use baton_testkit::{ServerOptions, Target, TestServer};

/// Longer than anything here takes on a slow machine; only a broken test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A home of its own: state folder, local server, files. The server ends itself soon after the last
/// command.
pub struct CommandHome {
    pub dir: tempfile::TempDir,
}

impl CommandHome {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file that only this user may read.
    pub fn write_secret(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// The local server's folder.
    pub fn state(&self) -> PathBuf {
        self.path("state/baton")
    }

    /// Folder that stands for the root of the machine.
    pub fn system(&self, name: &str) -> PathBuf {
        self.path("system").join(name)
    }

    /// `baton` in this home.
    pub fn baton(&self, args: &[&str]) -> Command {
        let mut command = hearing(env!("CARGO_BIN_EXE_baton"));
        command
            .args(args)
            .env("HOME", self.dir.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("BATON_SYSTEM_DIR", self.path("system"))
            .env("BATON_IDLE", "1s")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("BATON_SERVERS")
            .env_remove("BATON_CONFIG")
            .env_remove("BATON_CONTEXT")
            .env_remove("BATON_DATA_DIR")
            .env_remove("BATON_TLS_CA")
            .env_remove("BATON_TLS_CERT")
            .env_remove("BATON_TLS_KEY")
            .env_remove("BATON_AUTH_FILE")
            .env_remove("BATON_HTTP_TOKEN_FILE")
            .env_remove("BATON_INSECURE")
            .env_remove("BATON_LOG")
            .env_remove("BATON_ACL")
            .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
            .env_remove("OTEL_TRACES_EXPORTER")
            .env_remove("TRACEPARENT")
            .stdin(Stdio::null())
            .current_dir(self.dir.path());
        command
    }

    /// Runs `baton` to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.baton(args).output().unwrap())
    }

    /// Starts `baton` and leaves it running, its output piped.
    pub fn spawn(&self, args: &[&str]) -> RunningCommand {
        RunningCommand::new(self.baton(args))
    }
}

impl Drop for CommandHome {
    /// Ends the local server, which outlives the command that started it, before its folder goes.
    fn drop(&mut self) {
        let folder = self.dir.path().to_string_lossy().into_owned();
        for pid in processes(&["serve", &folder]) {
            let _ = Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .status();
        }
    }
}

/// A home, a server, and `baton` on it. On Baton's server, or with BATON_TEST_TARGET=zookeeper on
/// Apache ZooKeeper.
pub struct ServedHome {
    pub home: CommandHome,
    pub servers: String,
    pub server: TestServer,
}

impl ServedHome {
    pub async fn new() -> Self {
        Self::with(ServerOptions::default()).await
    }

    pub async fn with(options: ServerOptions) -> Self {
        let server = TestServer::start_with(Target::from_env().unwrap(), options)
            .await
            .unwrap();
        Self {
            home: CommandHome::new(),
            servers: server.connect_string(),
            server,
        }
    }

    pub fn baton(&self, args: &[&str]) -> Command {
        let mut command = self.home.baton(args);
        command.env("BATON_SERVERS", &self.servers);
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.baton(args).output().unwrap())
    }

    pub fn spawn(&self, args: &[&str]) -> RunningCommand {
        RunningCommand::new(self.baton(args))
    }
}

/// A port that no other test gets: a server that starts again finds its own free.
pub fn free_port() -> u16 {
    baton_testkit::free_addr().unwrap().port()
}

/// Exit code of a process and what it printed.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: code(output.status),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// The one line of complaint; that it is one is part of the promise.
    pub fn complaint(&self) -> &str {
        let lines: Vec<&str> = self
            .err
            .lines()
            .filter(|line| !line.contains("started a local server"))
            .collect();
        assert_eq!(lines.len(), 1, "not one line: {self:?}");
        let line = lines.first().unwrap();
        assert!(line.starts_with("baton: "), "{line}");
        assert!(!line.contains("panicked"), "{line}");
        line
    }
}

/// The exit code as a shell shows it.
fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// A process of the test. Killed if the test ends before it.
pub struct RunningCommand {
    pub child: Child,
    lines: Option<BufReader<std::process::ChildStdout>>,
    errors: Option<std::thread::JoinHandle<String>>,
}

impl RunningCommand {
    pub fn new(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = child.stdout.take().map(BufReader::new);
        let errors = child.stderr.take().map(|mut errors| {
            std::thread::spawn(move || {
                let mut text = String::new();
                let _ = errors.read_to_string(&mut text);
                text
            })
        });
        Self {
            child,
            lines,
            errors,
        }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// The next line of output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.as_mut().unwrap().read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for its end, which has to come.
    pub fn end(mut self) -> Ran {
        let mut status = None;
        until("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        let mut out = String::new();
        let _ = self.lines.take().unwrap().read_to_string(&mut out);
        let err = self.errors.take().unwrap().join().unwrap();
        Ran {
            code: code(status),
            out,
            err,
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `program`, deaf to no signal: what was ignored when the tests were started (HUP by nohup, INT in
/// the background of a script) would stay ignored in it. Where `env` cannot do that, as it was
/// started.
pub fn hearing(program: &str) -> Command {
    static RESETS: OnceLock<bool> = OnceLock::new();
    let reset = ["env", "--default-signal"];
    let resets = RESETS.get_or_init(|| {
        let tried = Command::new(reset[0])
            .args([reset[1], "true"])
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success())
    });
    if !resets {
        return Command::new(program);
    }
    // It becomes the program, with the same process id.
    let mut command = Command::new(reset[0]);
    command.args([reset[1], program]);
    command
}

/// Sends a signal to one process.
pub fn signal(pid: i32, name: &str) {
    let status = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status()
        .unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// Waits until `done`, and fails with `what` if it never is.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Answer of the server at this address to a four-letter word.
pub fn word(addr: &str, word: &str) -> String {
    let mut said = String::new();
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(word.as_bytes()).unwrap();
    stream.read_to_string(&mut said).unwrap();
    said
}

/// Whether a process runs (a zombie does not).
pub fn runs(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .starts_with('Z')
    })
}

/// The processes whose arguments hold all of `parts`.
pub fn processes(parts: &[&str]) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if parts.iter().all(|part| line.contains(part)) && runs(pid) {
            found.push(pid);
        }
    }
    found
}

/// The number in a file that a command writes, once it is there.
pub fn number_in(file: &Path) -> i32 {
    let mut number = None;
    until(&format!("a number in {}", file.display()), || {
        number = std::fs::read_to_string(file)
            .ok()
            .filter(|text| text.ends_with('\n'))
            .and_then(|text| text.trim().parse().ok());
        number.is_some()
    });
    number.unwrap()
}
