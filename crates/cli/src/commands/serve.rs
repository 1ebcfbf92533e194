//! `baton serve`: a server in the foreground.
//!
//! It listens on `baton.sock` in its data folder besides the addresses that are set, so that local
//! commands with the same folder meet it (see `local`). The first line on standard output means
//! that it answers. What its HTTP shows of the tree is `page`, what its HTTP lets callers hold
//! `locks`, how many files it may open `open_files`.

mod inside;
mod locks;
mod open_files;
mod page;
mod pages;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use baton_console::metrics::RecipeMetrics;
use baton_server::{
    AuditTo, Builder, ClientAuth, EnsembleOptions, Options, Server, StartError, StorageChoice,
};
use rustix::process::{
    DumpableBehavior, Signal, getppid, set_dumpable_behavior, set_parent_process_death_signal,
};
use tokio::signal::unix::{self, SignalKind, signal};

use self::pages::Pages;
use crate::build::BUILD;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::folders;
use crate::output::progress::ShownProgress;
use crate::output::record::record;
use crate::output::{Output, error_stream, log};
use crate::servers::machine::Machine;
use crate::servers::marker::Marker;
use crate::servers::{detached, local};
use crate::service_manager;
use crate::settings::{SettingFlags, Settings, Target};
use crate::signals::{self, Signals};
use crate::traces::Traces;

/// Run a server in the foreground, until SIGTERM or Ctrl-C.
///
/// Every acknowledged write is on disk and survives kill -9 and power loss. It speaks the ZooKeeper
/// protocol: baton, Curator, kazoo and other ZooKeeper clients can all use it. Commands of the same
/// user with the same --data-dir (or none, like the server) find the server by themselves, over a
/// unix socket in that folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton serve --data-dir /var/lib/baton --listen 127.0.0.1:2181
  baton serve --ephemeral --listen 127.0.0.1:0     in memory, on a free port
  baton serve --secure-listen 0.0.0.0:2281 --tls-cert FILE --tls-key FILE
                                                   for other machines, with TLS
  baton serve --listen 0.0.0.0:2181 --insecure     for other machines, without
  baton serve --unix-socket /run/baton/baton.sock --unix-socket-mode 0666
                                                   for all users of this machine
  baton serve --config zoo.cfg --print-config      the settings of such a file
  echo srvr | nc 127.0.0.1 2181                    ruok srvr mntr isro

All settings: baton help settings. Their values here: --print-config.
The log goes to standard error. --log debug makes it longer, --log warn shorter,
--log info,baton_server::net=debug one part of it longer. BATON_LOG in the
environment does the same for this and every other verb.
Exit codes: 0 stopped by a signal; 125 could not start, or had to stop.")]
pub(crate) struct Args {
    /// Take settings from this file: a baton.toml, or a ZooKeeper zoo.cfg, whose data goes to its
    /// dataDir/baton.
    ///
    /// Flags outweigh it. It is read as TOML if its name ends with .toml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print every setting and its origin, as a baton.toml: nothing else is done.
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    settings: SettingFlags,
    /// Leave the terminal and the session of the command that started it.
    #[arg(long, hide = true)]
    detached: bool,
    /// End at once when the process with this id ends, which has started this one.
    #[arg(long, hide = true, value_name = "PID")]
    end_with: Option<i32>,
}

/// Serves until a signal, idleness or a failure ends it.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if args.detached {
        detached::leave_starter();
    }
    if let Some(parent) = args.end_with {
        end_with(parent)?;
    }
    // Before anything secret is read.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let settings = Settings::load_and_add(
        args.config.as_deref(),
        &args.settings,
        context.globals.data_dir.as_deref(),
        service_manager::take_sockets,
    )?;
    if args.print_config {
        print(&settings, context);
        return Ok(exit::OK);
    }
    if settings.target().core_dumps {
        let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    }
    settings.check_exposure()?;
    let log = &settings.target().log;
    log::of_server(&context.output, log.filter.as_ref(), log.format);
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    open_files::raise_limit();
    if args.detached {
        detached::report_rest();
    }
    let traces = Traces::of_server(&context.output);
    let tracer = traces.as_ref().and_then(Traces::write_tracer);
    let target = settings.target();
    let has_http = !target.options.http.is_empty() || !target.options.https.is_empty();
    let past = has_http.then(|| Arc::new(RecipeMetrics::new(target.metrics.clone())));
    let (builder, mut places) = prepare(target, past.clone())?;
    let builder = builder.with(|all| {
        all.tracer = tracer;
        all.commit = BUILD.commit.map(str::to_owned);
        all.lost_log_lines = error_stream::lost_lines();
        open_files::fit_connections(all);
    });
    let data = settings.target().folder();
    let exit_when_idle = settings.target().exit_when_idle;
    let machine = Machine::this()?;
    context.block_on(async {
        let mut signals = match args.detached {
            true => Signals::of_detached()?,
            false => Signals::new()?,
        };
        let _received = survive_size_limit()?;
        // Before it serves: a command that finds it running finds its mark, too.
        let _marker =
            is_users_own(settings.target()).then(|| Marker::leave(&machine.shared_folders()));
        let shown = show_start(args, settings.target(), &context.output);
        let server = tokio::select! {
            started = builder.start() => started.map_err(|error| start_failure(&error))?,
            // As safe as any other end of the process: a folder is recovered again.
            number = signals.stop() => {
                drop(shown);
                tracing::info!("stopping before the start is complete, because of {}", signals::name(number));
                return Ok(signals::lasted_until(number));
            }
        };
        drop(shown);
        let has_http = !server.http_addrs().is_empty() || !server.https_addrs().is_empty();
        let id = settings.target().options.server_id.into();
        let pages = has_http.then(|| Pages::add_to(&server, id, past)).transpose()?;
        let plain = server.local_addrs().iter().map(ToString::to_string);
        let secure = server.secure_addrs().iter();
        let bound = plain.chain(secure.map(|address| format!("tls://{address}")));
        places.splice(0..0, bound);
        let https = server.https_addrs().first().copied();
        announce(context, &places, server.http_addr(), https, data);
        if args.detached {
            detached::close_output();
        }
        service_manager::is_ready();
        let options = &settings.target().options;
        let openings = options.openings();
        let is_open = |setting| openings.iter().any(|opening| opening.setting == setting);
        let plain = open_to_others(
            is_open("listen").then_some(server.local_addrs()),
            is_open("http").then_some(server.http_addrs()),
        );
        let encrypted = is_open("secure_listen").then(|| without_certificates(server.secure_addrs()));
        let unknown = (!can_show_who_they_are(options))
            .then(|| unreadable_elsewhere(server.https_addrs()));
        let words = is_open("four_letter_words")
            .then(|| told_to_strangers(server.local_addrs(), server.secure_addrs()));
        let warnings = [plain, encrypted.flatten(), unknown.flatten(), words.flatten()];
        for warning in warnings.into_iter().flatten() {
            tracing::warn!("{warning}");
        }
        let ensemble = settings.target().options.ensemble.as_ref();
        let is_open = |ensemble: &EnsembleOptions| {
            ensemble.allow_plain_peers && ensemble.has_plain_peers()
        };
        if ensemble.is_some_and(is_open) {
            tracing::warn!(
                "connections between servers may be neither encrypted nor authenticated, as \
                 ensemble.allow_plain_peers allows: any host that reaches the servers' ports can read and \
                 change everything; let only trusted hosts reach them"
            );
        }
        let ended = tokio::select! {
            number = signals.stop() => Ok(Some(number)),
            () = idle(&server, exit_when_idle) => Ok(None),
            error = server.failed() => Err(Failure::baton(error.to_string())),
        }?;
        let cause = ended.map_or_else(|| "idleness".to_owned(), signals::name);
        tracing::info!("stopping, because of {cause}");
        service_manager::is_stopping();
        if let Some(pages) = pages {
            pages.close().await;
        }
        server
            .shutdown()
            .await
            .map_err(|error| Failure::baton(error.to_string()))?;
        if let Some(traces) = traces {
            traces.finish(&context.output);
        }
        Ok(ended.map_or(exit::OK, signals::lasted_until))
    })?
}

/// Shows how far the start is: on a terminal, or to the command that has started this server.
fn show_start(args: &Args, target: &Target, output: &Output) -> ShownProgress {
    let progress = &target.options.progress;
    if !args.detached {
        return ShownProgress::on_status(output, progress);
    }
    let output = output.clone();
    ShownProgress::by(progress, move |line| {
        if let Some(line) = line {
            output.raw(format!("{}{line}\n", local::STARTS).as_bytes());
        }
    })
}

/// Has the kernel kill this process when its parent ends.
fn end_with(parent: i32) -> Result<(), Failure> {
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    tied.map_err(|error| {
        Failure::baton(format!(
            "cannot be tied to process {parent}: {error}; report this"
        ))
    })?;
    // A parent that has ended before sends no signal.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) == Some(parent) {
        return Ok(());
    }
    Err(Failure::baton(format!(
        "process {parent}, which has started this server, has ended; start it again"
    )))
}

/// Makes the data folder and enters it; a builder with all settings, and the unix sockets for
/// people to see.
fn prepare(
    target: &Target,
    observer: Option<Arc<RecipeMetrics>>,
) -> Result<(Builder, Vec<String>), Failure> {
    let mut places = Vec::new();
    let mut options = target.options.clone();
    for path in &mut options.unix_sockets {
        // The working folder is about to change.
        *path = absolute(path)?;
        local::check_socket_length(path)?;
        places.push(format!("unix:{}", path.display()));
    }
    if let Some(path) = &mut options.http_token_file {
        *path = absolute(path)?;
    }
    let of_clients = options.tls.as_mut().map(|tls| &mut tls.files);
    let of_servers = options.ensemble.as_mut();
    let of_servers = of_servers.and_then(|ensemble| ensemble.tls.as_mut());
    for files in of_clients
        .into_iter()
        .chain(of_servers.map(|tls| &mut tls.files))
    {
        let both = [&mut files.certificates, &mut files.key];
        for path in both.into_iter().chain(&mut files.authorities) {
            *path = absolute(path)?;
        }
    }
    if let AuditTo::File(path) = &mut options.audit.to {
        *path = absolute(path)?;
    }
    options.observer = observer.map(|observer| observer as Arc<_>);
    let mut builder = Server::builder();
    if let Some(folder) = target.folder() {
        local::make_folder(folder)?;
        std::env::set_current_dir(folder).map_err(|error| {
            Failure::baton(format!(
                "cannot enter the data folder {}: {error}; choose a folder that this user may use",
                folder.display()
            ))
        })?;
        options.storage = StorageChoice::Folder(folder.to_owned());
        // Relative to the working folder, so that its length is no matter.
        options.private_socket = Some(local::SOCKET.into());
        places.insert(0, format!("unix:{}", folder.join(local::SOCKET).display()));
    }
    builder = builder.with(|all| *all = options);
    Ok((builder, places))
}

/// Whether this is the server that commands of this user use by default, or one that only they can
/// reach: other users are to know.
fn is_users_own(target: &Target) -> bool {
    let options = &target.options;
    let is_alone = options.listen.is_empty()
        && options.secure_listen.is_empty()
        && options.unix_sockets.is_empty();
    target.folder().is_some_and(|folder| {
        is_alone || folders::data(None).is_ok_and(|default| default == folder)
    })
}

/// Makes a write beyond a limited size of files (`ulimit -f`) fail, like one on a full disk, and
/// not end the process.
fn survive_size_limit() -> Result<unix::Signal, Failure> {
    let kind = SignalKind::from_raw(Signal::XFSZ.as_raw());
    signal(kind)
        .map_err(|error| Failure::baton(format!("cannot handle SIGXFSZ: {error}; report this")))
}

/// Shows all settings: as a file that could be read again, or as objects.
fn print(settings: &Settings, context: &Context) {
    if context.output.json() {
        for shown in settings.list() {
            context.output.result(&shown, "");
        }
        return;
    }
    context.output.raw(settings.to_toml().as_bytes());
    for warning in settings.warnings() {
        context.output.note(warning);
    }
    if let Err(refusal) = settings.check_exposure() {
        context
            .output
            .note(format!("such a server does not start: {refusal}"));
    }
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

/// The ports that other machines can reach.
fn reachable(ports: &[SocketAddr]) -> Vec<String> {
    let others = ports
        .iter()
        .filter(|at| !at.ip().to_canonical().is_loopback());
    others.map(ToString::to_string).collect()
}

/// The warning where other machines can reach a port with TLS without a certificate of their own.
fn without_certificates(secure: &[SocketAddr]) -> Option<String> {
    let secure = reachable(secure);
    (!secure.is_empty()).then(|| {
        format!(
            "no client has to show a certificate: all who reach {} (TLS) read and change every znode whose ACL is open to \
             the world; name the authority of your clients with --tls-ca, or let only trusted hosts reach it",
            secure.join(" and ")
        )
    })
}

/// The warning where other machines can have four-letter words answered that list what clients do,
/// though a session needs a proof of who its client is.
fn told_to_strangers(plain: &[SocketAddr], secure: &[SocketAddr]) -> Option<String> {
    let ports = [reachable(plain), reachable(secure)].concat();
    (!ports.is_empty()).then(|| {
        format!(
            "four-letter words are answered without authentication: all who reach {} read addresses, session ids or paths, or reset \
             counters; leave such words out of four_letter_words",
            ports.join(" and ")
        )
    })
}

/// Whether callers of HTTP on other machines have a way to show who they are that the settings
/// name.
fn can_show_who_they_are(options: &Options) -> bool {
    let tls = options.tls.as_ref();
    options.http_token_file.is_some()
        || options.super_digest.is_some()
        || tls.is_some_and(|tls| tls.client_auth != ClientAuth::None)
}

/// The warning where callers of HTTP on other machines are refused.
fn unreadable_elsewhere(https: &[SocketAddr]) -> Option<String> {
    let https = reachable(https);
    (!https.is_empty()).then(|| {
        format!(
            "callers on other machines cannot authenticate at {} (HTTPS): name tokens with --http-token-file, or the authority of \
             their certificates with --tls-ca",
            https.join(" and ")
        )
    })
}

/// The warning where other machines can reach a plain port without authentication; `None` in place
/// of the ports: they have some.
fn open_to_others(clients: Option<&[SocketAddr]>, http: Option<&[SocketAddr]>) -> Option<String> {
    let clients = reachable(clients.unwrap_or_default());
    let http = reachable(http.unwrap_or_default());
    let mut who = Vec::new();
    if !clients.is_empty() {
        who.push(format!(
            "{} read and change every znode whose ACL is open to the world",
            clients.join(" and ")
        ));
    }
    if !http.is_empty() {
        who.push(format!(
            "{} (HTTP) read paths, addresses and session ids",
            http.join(" and ")
        ));
    }
    (!who.is_empty()).then(|| {
        format!(
            "no authentication, no encryption: all who reach {}; let only trusted hosts reach it, or listen on 127.0.0.1 or a unix \
             socket",
            who.join(", all who reach ")
        )
    })
}

/// Says where it serves: the sign that it does.
fn announce(
    context: &Context,
    places: &[String],
    http: Option<SocketAddr>,
    https: Option<SocketAddr>,
    data: Option<&Path>,
) {
    let data_dir = data.map(|folder| folder.display().to_string());
    let keeping = data_dir
        .as_ref()
        .map_or("in memory only".to_owned(), |folder| {
            format!("data in {folder}")
        });
    let http_text = http.map_or(String::new(), |at| format!("; HTTP on {at}"));
    let https_text = https.map_or(String::new(), |at| format!("; HTTPS on {at}"));
    let text = format!(
        "baton: serving on {}; {keeping}{http_text}{https_text}",
        places.join(" and ")
    );
    context.output.result(
        &record! {
            serving: places,
            ?http: http.map(|at| at.to_string()),
            ?https: https.map(|at| at.to_string()),
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
            "{} is not a path: {error}; give another",
            path.display()
        ))
    })
}
