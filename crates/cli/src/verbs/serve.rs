//! `baton serve`: a server in the foreground.
//!
//! It listens on `baton.sock` in its data folder besides what it is told to, so that local commands with the same
//! folder meet it (see `local`). The first line on standard output means that it answers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_server::{Server, StartError};
use tracing_subscriber::filter::LevelFilter;

use crate::args::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::local;
use crate::signals::{self, Signals};
use crate::verbs::zoo_cfg::ZooCfg;

/// Run a server in the foreground, until SIGTERM or Ctrl-C.
///
/// What it has acknowledged is on disk and survives kill -9 and power loss. It speaks the ZooKeeper protocol: baton, Curator,
/// kazoo and other ZooKeeper clients can all use it. Commands of the same user that name the same --data-dir (or none, as
/// the server) find it by themselves, over a unix socket in that folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton serve --data-dir /var/lib/baton --listen 0.0.0.0:2181
  baton serve --ephemeral --listen 127.0.0.1:0     in memory, on a free port
  echo srvr | nc 127.0.0.1 2181                    how it does (words: ruok srvr mntr isro)

The log goes to standard error; BATON_LOG=debug makes it longer, BATON_LOG=warn shorter.
Exit codes: 0 stopped by a signal; 125 could not start, or had to stop.")]
pub(crate) struct Args {
    /// Take address, data folder, session timeouts, words and superuser from a ZooKeeper zoo.cfg; data goes to its dataDir/baton.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "ephemeral", "min_session_timeout", "max_session_timeout"])]
    config: Option<PathBuf>,
    /// Listen on this TCP address; port 0 takes a free one. May be repeated.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Vec<String>,
    /// Listen on this unix socket, for this user only. May be repeated.
    #[arg(long, value_name = "PATH")]
    unix_socket: Vec<PathBuf>,
    /// Keep everything in memory: nothing survives the process.
    #[arg(long)]
    ephemeral: bool,
    /// The step of the session clock.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "200ms")]
    tick: Duration,
    /// The shortest session timeout a client is given.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "1s")]
    min_session_timeout: Duration,
    /// The longest session timeout a client is given.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "2m")]
    max_session_timeout: Duration,
    /// The most connections, in all; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    max_connections: usize,
    /// The most connections from one address; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    max_connections_per_address: usize,
    /// The longest request.
    #[arg(long, value_name = "BYTES", default_value_t = 1_048_575)]
    max_frame_bytes: usize,
    /// Write a snapshot after this many log entries.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    snapshot_every_entries: u64,
    /// End when there was neither a connection nor a session for so long.
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    exit_when_idle: Option<Duration>,
    /// Leave the terminal and the session of the command that started it.
    #[arg(long, hide = true)]
    detached: bool,
}

/// Serves until a signal, idleness or a failure ends it.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if args.detached {
        // Fails only for a process that leads a group already, which has left its starter's group then.
        let _ = rustix::process::setsid();
    }
    log_to_stderr();
    let config = args.config.as_deref().map(ZooCfg::read).transpose()?;
    if let Some(config) = config.as_ref().filter(|config| !config.ignored.is_empty()) {
        tracing::warn!("without effect: {}", config.ignored.join(", "));
    }
    let mut sockets = Vec::new();
    for path in &args.unix_socket {
        sockets.push(absolute(path)?);
    }
    let mut builder = Server::builder();
    let mut places: Vec<String> = Vec::new();
    let data = if args.ephemeral {
        if args.listen.is_empty() && sockets.is_empty() {
            return Err(Failure::usage(
                "serve --ephemeral has no address; give --listen HOST:PORT or --unix-socket PATH",
            ));
        }
        builder = builder.in_memory();
        None
    } else {
        let configured = config.as_ref().map(|config| config.data_dir.join("baton"));
        let folder = local::folder(
            configured
                .as_deref()
                .or(context.globals.data_dir.as_deref()),
        )?;
        local::make_folder(&folder)?;
        std::env::set_current_dir(&folder).map_err(|error| {
            Failure::baton(format!(
                "cannot enter the data folder {}: {error}; choose a folder that this user may use",
                folder.display()
            ))
        })?;
        // Relative to the working folder, so that its length is no matter.
        builder = builder.data_dir(&folder).unix_socket(local::SOCKET);
        places.push(format!("unix:{}", folder.join(local::SOCKET).display()));
        Some(folder)
    };
    for address in args
        .listen
        .iter()
        .chain(config.as_ref().map(|config| &config.listen))
    {
        builder = builder.listen(address);
    }
    for path in &sockets {
        local::check_socket_length(path)?;
        builder = builder.unix_socket(path);
        places.push(format!("unix:{}", path.display()));
    }
    builder = builder
        .tick(args.tick)
        .min_session_timeout(args.min_session_timeout)
        .max_session_timeout(args.max_session_timeout)
        .with(|options| {
            options.max_connections = args.max_connections;
            options.max_connections_per_address = args.max_connections_per_address;
            options.max_frame_bytes = args.max_frame_bytes;
            options.snapshot_every_entries = args.snapshot_every_entries;
        });
    if let Some(config) = config {
        builder = builder
            .tick(args.tick.min(config.min_session_timeout))
            .min_session_timeout(config.min_session_timeout)
            .max_session_timeout(config.max_session_timeout)
            .with(|options| config.apply(options));
    }
    context.block_on(async {
        let mut signals = Signals::new()?;
        let server = builder
            .start()
            .await
            .map_err(|error| start_failure(&error))?;
        if server.local_addr().is_some() {
            places.insert(0, server.connect_string());
        }
        announce(context, &places, data.as_deref());
        let ended = tokio::select! {
            number = signals.stop() => Ok(signals::name(number)),
            () = idle(&server, args.exit_when_idle) => Ok("idleness".to_owned()),
            error = server.failed() => Err(Failure::baton(error.to_string())),
        }?;
        tracing::info!("stopping, because of {ended}");
        server
            .shutdown()
            .await
            .map_err(|error| Failure::baton(error.to_string()))?;
        Ok(exit::OK)
    })?
}

/// Resolves when the server has been idle for `limit`; never without a limit.
async fn idle(server: &Server, limit: Option<Duration>) {
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    loop {
        let left = limit.saturating_sub(server.idle());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.max(Duration::from_millis(10))).await;
    }
}

/// Says where it serves: the sign that it does.
fn announce(context: &Context, places: &[String], data: Option<&Path>) {
    #[derive(serde::Serialize)]
    struct Serving<'a> {
        serving: &'a [String],
        data_dir: Option<String>,
        pid: u32,
    }
    let data_dir = data.map(|folder| folder.display().to_string());
    let keeping = data_dir
        .as_ref()
        .map_or("in memory only".to_owned(), |folder| {
            format!("data in {folder}")
        });
    let text = format!("baton: serving on {}; {keeping}", places.join(" and "));
    context.output.result(
        &Serving {
            serving: places,
            data_dir,
            pid: std::process::id(),
        },
        text,
    );
}

fn start_failure(error: &StartError) -> Failure {
    Failure::new(exit::BATON, "server", error.to_string())
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        Failure::usage(format!(
            "{} is no path: {error}; give another",
            path.display()
        ))
    })
}

/// Sends the log to standard error, at the level that BATON_LOG names.
fn log_to_stderr() {
    let level = std::env::var("BATON_LOG")
        .ok()
        .and_then(|level| level.parse::<LevelFilter>().ok());
    // A second initialisation cannot happen: a process runs one verb.
    let _ = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_max_level(level.unwrap_or(LevelFilter::INFO))
        .try_init();
}
