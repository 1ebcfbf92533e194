//! The context of every verb: the options that all verbs share, the output, and a runtime.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use tokio::runtime::Builder;

use crate::duration;
use crate::exit::Failure;
use crate::output::{Level, Output, Style, UseColor};

/// The origin of a list of servers on the command line.
pub(crate) const SERVERS_FLAG: &str = "--servers";

/// Options that every verb understands.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Options for every verb")]
pub(crate) struct Globals {
    /// The servers to use: host:port,host:port[/chroot], or unix:/path/to.sock.
    ///
    /// tls:// before the first host means TLS to all of them. Baton's server and Apache ZooKeeper
    /// both do. Without it, the first of these counts: the context of that name; servers
    /// = "LIST" in ~/.config/baton/config.toml, then in /etc/baton/config.toml; the machine's
    /// server, if one answers at /run/baton/baton.sock; a local server of your own, which is
    /// started if it does not run. --data-dir is for the last alone.
    #[arg(
        long,
        global = true,
        value_name = "LIST",
        env = "BATON_SERVERS",
        hide_env_values = true
    )]
    pub(crate) servers: Option<String>,
    /// Origin of `servers`, for messages about it.
    #[arg(skip = SERVERS_FLAG)]
    pub(crate) servers_origin: &'static str,
    /// Use the servers of this context: [context.NAME] in config.toml (see `baton context`).
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "BATON_CONTEXT",
        hide_env_values = true
    )]
    pub(crate) context: Option<String>,
    /// The folder of the local server, and of `serve` [default: $XDG_STATE_HOME/baton].
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "BATON_DATA_DIR",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    pub(crate) data_dir: Option<PathBuf>,
    /// Use TLS to all servers of the list, and trust those whose certificate one of the authorities
    /// in this PEM file has signed.
    ///
    /// A list that begins with tls:// needs it. The certificate of a server has to be for the name
    /// by which the list has the server.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "BATON_TLS_CA",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Present this certificate to servers, a PEM file.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "BATON_TLS_CERT",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate, a PEM file that other users cannot read [default: in the
    /// file of the certificate].
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "BATON_TLS_KEY",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Present the credentials in this file, one SCHEME:CREDENTIAL a line, like
    /// digest:USER:PASSWORD or sasl:USER:PASSWORD. Other users must not be able to read it.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "BATON_AUTH_FILE",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    pub(crate) auth_file: Option<PathBuf>,
    /// ACL of the znodes that the verb creates, missing parents included: entries WHO=PERMISSIONS
    /// with ; between, like creator=all;everyone=read, as for `acl set`. May be repeated [default:
    /// everyone=all].
    #[arg(
        long,
        global = true,
        value_name = "ENTRY",
        value_delimiter = ';',
        env = "BATON_ACL",
        hide_env_values = true
    )]
    pub(crate) acl: Vec<String>,
    /// Ids of the files above, the context and the ACL that variables name.
    #[arg(skip)]
    pub(crate) from_variables: Vec<&'static str>,
    /// Time to try to reach a server before giving up.
    #[arg(long, global = true, value_name = "DUR", value_parser = duration::parse, default_value = "5s")]
    pub(crate) connect_timeout: Duration,
    /// Time that a long-running verb tries to reach a server again after its session was lost
    /// [default: for ever].
    #[arg(long, global = true, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) give_up_after: Option<Duration>,
    /// Print results and errors as JSON, one object a line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Report on standard error what happens and how long it took.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// Write only errors on standard error: no notices, and no progress of waits.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// When to use colour on standard output: auto (on terminals, unless NO_COLOR is set), always
    /// or never.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) color: UseColor,
    /// Print tables in full width, also where the terminal is narrower.
    #[arg(long, global = true)]
    pub(crate) wide: bool,
}

/// The context of a verb: the shared options and the output.
pub(crate) struct Context {
    /// The shared options as given.
    pub(crate) globals: Globals,
    /// Destination of results, errors and remarks.
    pub(crate) output: Output,
}

impl Context {
    /// Makes the context that goes with these options.
    pub(crate) fn new(globals: Globals) -> Self {
        let level = match globals {
            Globals { quiet: true, .. } => Level::Quiet,
            Globals { verbose: true, .. } => Level::Verbose,
            _ => Level::Usual,
        };
        let style = Style {
            color: globals.color,
            wide: globals.wide,
        };
        let output = Output::new(globals.json, level).with_style(style);
        Self { globals, output }
    }

    /// Runs `work` on a runtime of its own, on the calling thread, and its tasks on others.
    ///
    /// The calling thread is the process's main thread: a child's death signal hangs on the thread
    /// that spawned it.
    pub(crate) fn block_on<F: Future>(&self, work: F) -> Result<F::Output, Failure> {
        block_on(Builder::new_multi_thread().worker_threads(2), work)
    }

    /// Runs `work` and its tasks on the calling thread, where a change of threads costs more than
    /// what it would do beside.
    pub(crate) fn block_on_one_thread<F: Future>(&self, work: F) -> Result<F::Output, Failure> {
        block_on(&mut Builder::new_current_thread(), work)
    }
}

fn block_on<F: Future>(builder: &mut Builder, work: F) -> Result<F::Output, Failure> {
    let runtime = builder.enable_all().build().map_err(|error| {
        Failure::baton(format!(
            "cannot start the runtime: {error}; free some threads or memory"
        ))
    })?;
    let outcome = runtime.block_on(work);
    // What still blocks a thread (a server that is slow to start) must not keep the process
    // from ending.
    runtime.shutdown_background();
    Ok(outcome)
}
