//! `baton agent`: the guard of a lock for programs in any language, over HTTP on a unix socket.
//!
//! The interface is `baton_agent`'s; here are its socket and the servers that it uses.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_agent::{Agent, AgentOptions};
use listenfd::ListenFd;

use crate::connection::{Connection, LASTING};
use crate::context::Context;
use crate::duration;
use crate::exit::Failure;
use crate::folders::{self, CHANGED_BY_OTHERS};
use crate::output::record::record;
use crate::servers::http_port::Answer;
use crate::servers::lookup::{self, Found};
use crate::servers::machine::Machine;
use crate::servers::{detached, local};
use crate::signals::{self, Signals};

/// Longest wait for the answer of an agent that runs already.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Hold locks for programs in any language, over HTTP on a unix socket.
///
/// A lock lives as long as the response that holds it: when the program closes it or dies, the
/// agent releases the lock at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton agent &
  curl -N --unix-socket \"$XDG_RUNTIME_DIR/baton/agent.sock\" \\
       -X POST http://localhost/v1/lock/deploy        holds until Ctrl-C
  baton agent --shared --socket /run/baton/agent.sock  for all users

The agent stops at Ctrl-C or TERM, and releases what it holds. Callers of other
users are refused without --shared; with it each user has sessions of its own.
Exit codes: 130 ended by Ctrl-C   125 baton failed   2 usage")]
pub(crate) struct Args {
    /// Listen on this unix socket [default: agent.sock in $XDG_RUNTIME_DIR/baton, or in /run/baton
    /// for root]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Let every user of this machine connect, each with sessions of its own
    #[arg(long)]
    shared: bool,
    /// The session timeout of callers that do not set one
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    session_timeout: Duration,
    /// The most connections at a time; each held lock uses one
    #[arg(long, value_name = "COUNT", default_value_t = 20_000)]
    max_connections: usize,
    /// Start the agent in the background, unless one listens on the socket already; it ends after
    /// ten minutes without use
    #[arg(long)]
    background: bool,
    /// The time without callers after which it ends, for one in the background
    #[arg(long, value_name = "TIME", hide = true, value_parser = duration::parse)]
    exit_when_idle: Option<Duration>,
}

impl Args {
    /// Whether a command has started it in the background.
    pub(crate) const fn is_detached(&self) -> bool {
        self.exit_when_idle.is_some()
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if args.background {
        return start(args, context);
    }
    if args.is_detached() {
        detached::leave_starter();
    }
    context.block_on_one_thread(async {
        let mut signals = match args.is_detached() {
            true => Signals::of_detached()?,
            false => Signals::new()?,
        };
        Connection::during(context, LASTING, async |connection: &Connection| {
            serve(args, context, connection, &mut signals).await
        })
        .await
    })?
}

async fn serve(
    args: &Args,
    context: &Context,
    connection: &Connection,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let mut options = AgentOptions::new(connection.client.config().clone());
    options.session_timeout = args.session_timeout;
    options.max_connections = args.max_connections;
    options.is_shared = args.shared;
    options.exit_when_idle = args.exit_when_idle;
    let inherited = ListenFd::from_env().take_unix_listener(0);
    let refused = |error: &dyn std::fmt::Display| Failure::baton(error.to_string());
    let (agent, socket) = match inherited.map_err(|error| refused(&error))? {
        Some(listener) => {
            let prepared = listener.set_nonblocking(true);
            prepared.map_err(|error| refused(&error))?;
            let listener = tokio::net::UnixListener::from_std(listener);
            let listener = listener.map_err(|error| refused(&error))?;
            let socket = "the socket of the service manager".to_owned();
            (Agent::inherit(listener, options), socket)
        }
        None => {
            let path = match &args.socket {
                Some(path) => std::path::absolute(path).map_err(|error| refused(&error))?,
                None => default_socket()?,
            };
            let agent = Agent::bind(&path, options).await;
            (
                agent.map_err(|error| refused(&error))?,
                path.display().to_string(),
            )
        }
    };
    if args.is_detached() {
        // Its starter's may be on a disk that is to be unmounted.
        std::env::set_current_dir("/").map_err(|error| refused(&error))?;
    }
    let text = format!("agent of {} on {socket}", connection.servers);
    let servers = &connection.servers;
    context.output.result(&record! { socket, servers }, text);
    if args.is_detached() {
        detached::close_output();
    }
    let mut number = signals::INTERRUPT;
    agent.run(async { number = signals.stop().await }).await;
    Ok(signals::lasted_until(number))
}

/// Sees to it that an agent listens, in the background. Of several commands at once, one starts it
/// and the others wait.
fn start(args: &Args, context: &Context) -> Result<u8, Failure> {
    let socket = match &args.socket {
        Some(path) => path.clone(),
        None => default_socket()?,
    };
    let failed = |why: &dyn std::fmt::Display| {
        Failure::baton(format!("{}: no agent was started: {why}", socket.display()))
    };
    if local::try_connect(&socket).is_ok() {
        return refuse_other_servers(&socket, context);
    }
    let log = log_of(&socket);
    let open = || open_log(&log).map_err(|error| failed(&error));
    let turn = open()?;
    turn.lock().map_err(|error| failed(&error))?;
    if local::try_connect(&socket).is_ok() {
        return refuse_other_servers(&socket, context);
    }
    let mut said_before = turn.metadata().map_or(0, |file| file.len());
    if said_before > local::LOG_BYTES {
        turn.set_len(0).map_err(|error| failed(&error))?;
        said_before = 0;
    }
    let idle = local::idle_limit()?;
    let given = std::env::args_os().skip(1);
    let keeps = |name: &str| {
        // One log serves all programs of the user.
        (name.starts_with("XDG_") || name.starts_with("BATON_")) && name != "BATON_LOG"
    };
    let mut agent = detached::command(keeps)
        .args(given.filter(|argument| argument != "--background"))
        .args(["--exit-when-idle", &format!("{}ms", idle.as_millis())])
        // Not the file that is locked: it would stay so as long as the agent runs.
        .stderr(open()?)
        .spawn()
        .map_err(|error| failed(&error))?;
    let mut first = String::new();
    if let Some(output) = agent.stdout.take() {
        let read = BufReader::new(output).read_line(&mut first);
        read.map_err(|error| failed(&error))?;
    }
    if !first.is_empty() || local::try_connect(&socket).is_ok() {
        return Ok(0);
    }
    let _ = agent.wait();
    let last = detached::last_line(&mut open()?, said_before);
    let last = last.unwrap_or_else(|| "it ended without an error message".to_owned());
    Err(failed(&last))
}

/// Refuses the agent that listens there if it has other servers than this command names.
fn refuse_other_servers(socket: &Path, context: &Context) -> Result<u8, Failure> {
    let globals = &context.globals;
    let (found, files) = lookup::servers(globals, &Machine::this()?)?;
    let (Found::Named(named), true) = (
        found,
        globals.servers.is_some() || globals.context.is_some(),
    ) else {
        return Ok(0);
    };
    let origin = named.origin;
    let wanted = files.read()?.config(&named.list, &origin)?.servers();
    match servers_of(socket) {
        Some(used) if used != wanted => Err(Failure::usage(format!(
            "{}: the agent that runs there uses {used}, not {wanted} ({origin}); stop it, or give \
             another --socket",
            socket.display()
        ))),
        _ => Ok(0),
    }
}

/// The servers of the agent that listens there, as its health names them.
fn servers_of(socket: &Path) -> Option<String> {
    let mut agent = UnixStream::connect(socket).ok()?;
    agent.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
    agent.write_all(b"GET /v1/health HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    agent.read_to_string(&mut answer).ok()?;
    let health = Answer::read(&answer)?.body;
    Some(health.get("servers")?.as_str()?.to_owned())
}

/// The log of the agent in the background, beside its socket.
fn log_of(socket: &Path) -> PathBuf {
    let mut log = socket.as_os_str().to_owned();
    log.push(".log");
    log.into()
}

/// Opens the log, which must be this user's: who may write to the folder can put a link there.
fn open_log(path: &Path) -> std::io::Result<File> {
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = File::options();
    options.create(true).append(true).read(true).mode(0o600);
    let file = options.custom_flags(no_link).open(path)?;
    if file.metadata()?.uid() != rustix::process::geteuid().as_raw() {
        let text = format!("{} belongs to another user", path.display());
        return Err(std::io::Error::other(text));
    }
    Ok(file)
}

/// The socket of this user's agent, in a folder of its own.
fn default_socket() -> Result<PathBuf, Failure> {
    let own = rustix::process::geteuid().as_raw();
    let folder = match folders::of_user("XDG_RUNTIME_DIR") {
        _ if own == 0 => PathBuf::from("/run/baton"),
        Some(folder) => folder.join("baton"),
        None => {
            return Err(Failure::usage(
                "no folder for the agent's socket: XDG_RUNTIME_DIR is not set; give --socket",
            ));
        }
    };
    make_own(&folder, own)?;
    Ok(folder.join("agent.sock"))
}

/// Makes the folder, which must be this user's and no other's to change.
fn make_own(folder: &Path, own: u32) -> Result<(), Failure> {
    let mode = if own == 0 { 0o755 } else { 0o700 };
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(folder);
    let about = made.and_then(|()| std::fs::metadata(folder));
    let about = about.map_err(|error| {
        Failure::baton(format!(
            "{}: the folder cannot be made: {error}; give --socket",
            folder.display()
        ))
    })?;
    let why = if about.uid() != own {
        "belongs to another user"
    } else if about.mode() & CHANGED_BY_OTHERS != 0 {
        "may be changed by other users, who could put a socket of their own there"
    } else {
        return Ok(());
    };
    Err(Failure::baton(format!(
        "{}: the folder {why}; give --socket",
        folder.display()
    )))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_socket_folder_that_others_may_change_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let folder = home.path().join("run");
        make_own(&folder, own).unwrap();
        make_own(&folder, own).unwrap();
        assert!(
            make_own(&folder, own + 1)
                .unwrap_err()
                .text
                .contains("another user")
        );
        for mode in [0o770, 0o777, 0o1777] {
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).unwrap();
            let refused = make_own(&folder, own).unwrap_err();
            assert!(refused.text.contains("other users"), "{mode:o}: {refused}");
        }
    }
}
