//! The command line as a whole: the options every verb shares, and the list of verbs.
//!
//! A verb's own options live in its file under `verbs/`. To add a verb: a file there, a variant
//! here, an arm in [`Verb::run`].

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::bench;
use crate::duration;
use crate::exit::Failure;
use crate::output::{Level, Output};
use crate::verbs;

/// Locks, leaders and queues for programs on many machines.
#[derive(Debug, Parser)]
#[command(
    name = "baton",
    version,
    max_term_width = 100,
    infer_long_args = false,
    after_help = "Try:  baton lock /demo -- echo held\nEach verb has examples: baton help lock"
)]
pub(crate) struct Cli {
    /// What every verb understands.
    #[command(flatten)]
    pub(crate) globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Cli {
    /// Reads this process's arguments, and the environment for those that were not given.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        let mut cli =
            Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        let is_variable = |name| matches.value_source(name) == Some(ValueSource::EnvVariable);
        let globals = &mut cli.globals;
        // An empty variable counts as one that is not set, as in a shell's ${NAME:-default}.
        if is_variable("servers") {
            globals.servers_origin = "BATON_SERVERS in the environment";
            globals.servers.take_if(|list| list.trim().is_empty());
        }
        if is_variable("data_dir") {
            globals
                .data_dir
                .take_if(|folder| folder.as_os_str().is_empty());
        }
        Ok(cli)
    }
}

/// Options that every verb understands.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Options for every verb")]
pub(crate) struct Globals {
    /// The servers to use: host:port,host:port[/chroot], or unix:/path/to.sock.
    ///
    /// Baton's server and Apache ZooKeeper both do. Without it, the first of these counts: servers
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
    /// Where that stands, for messages about it.
    #[arg(skip = "--servers")]
    pub(crate) servers_origin: &'static str,
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
    /// How long to try to reach a server before giving up.
    #[arg(long, global = true, value_name = "DUR", value_parser = duration::parse, default_value = "5s")]
    pub(crate) connect_timeout: Duration,
    /// How long a verb that waits or works on tries to reach a server again after it has lost its
    /// session [default: for ever].
    #[arg(long, global = true, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) give_up_after: Option<Duration>,
    /// Print results and errors as JSON, one object a line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say on standard error what happens and how long it took.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// Write nothing on standard error but errors: no notices, and nothing while it waits.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

/// What a verb is given besides its own options.
pub(crate) struct Context {
    /// The shared options as given.
    pub(crate) globals: Globals,
    /// Where results, errors and remarks go.
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
        let output = Output::new(globals.json, level);
        Self { globals, output }
    }

    /// Runs `work` on a runtime of its own, on the calling thread.
    ///
    /// The calling thread is the process's main thread: a child's death signal hangs on the thread
    /// that spawned it.
    pub(crate) fn block_on<F: Future>(&self, work: F) -> Result<F::Output, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| {
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
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Lock(verbs::lock::Args),
    Sem(verbs::sem::Args),
    Elect(verbs::elect::Args),
    Barrier(verbs::barrier::Args),
    Queue(verbs::queue::Args),
    Member(verbs::member::Args),
    Counter(verbs::counter::Args),
    Serve(verbs::serve::Args),
    Ls(verbs::tree::Ls),
    Get(verbs::tree::Get),
    Set(verbs::tree::Set),
    Create(verbs::tree::Create),
    Rm(verbs::remove::Rm),
    Stat(verbs::tree::StatOf),
    Watch(verbs::tree::Watch),
    Acl(verbs::tree::AclOf),
    Wal(verbs::wal::Args),
    Import(verbs::import::Args),
    Export(verbs::export::Args),
    Bench(bench::Args),
    Completions(verbs::completions::Args),
    Man(verbs::man::Args),
}

impl Verb {
    /// Runs the verb; the number is the process's exit code.
    pub(crate) fn run(self, context: &Context) -> Result<u8, Failure> {
        match self {
            Self::Lock(args) => verbs::lock::run(&args, context),
            Self::Sem(args) => verbs::sem::run(&args, context),
            Self::Elect(args) => verbs::elect::run(&args, context),
            Self::Barrier(args) => verbs::barrier::run(&args, context),
            Self::Queue(args) => verbs::queue::run(&args, context),
            Self::Member(args) => verbs::member::run(&args, context),
            Self::Counter(args) => verbs::counter::run(&args, context),
            Self::Ls(args) => verbs::tree::ls(&args, context),
            Self::Get(args) => verbs::tree::get(&args, context),
            Self::Set(args) => verbs::tree::set(&args, context),
            Self::Create(args) => verbs::tree::create(&args, context),
            Self::Rm(args) => verbs::remove::rm(&args, context),
            Self::Stat(args) => verbs::tree::stat(&args, context),
            Self::Watch(args) => verbs::tree::watch(&args, context),
            Self::Acl(args) => verbs::tree::acl(&args, context),
            Self::Wal(args) => verbs::wal::run(&args, context),
            Self::Import(args) => verbs::import::run(&args, context),
            Self::Export(args) => verbs::export::run(&args, context),
            Self::Serve(args) => verbs::serve::run(&args, context),
            Self::Bench(args) => bench::run(&args, context),
            Self::Completions(args) => verbs::completions::run(&args, context),
            Self::Man(args) => verbs::man::run(&args, context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn wide_lines(command: &clap::Command, found: &mut Vec<String>) {
        let after = [command.get_after_help(), command.get_after_long_help()];
        for text in after.into_iter().flatten().map(ToString::to_string) {
            let wide = text.lines().filter(|line| line.chars().count() > 80);
            found.extend(wide.map(|line| format!("{}: {line}", command.get_name())));
        }
        for verb in command.get_subcommands() {
            wide_lines(verb, found);
        }
    }

    /// Else they are wrapped, and their columns are none any more.
    #[test]
    fn examples_and_tables_fit_a_terminal_of_80_columns() {
        let mut found = Vec::new();
        wide_lines(&Cli::command(), &mut found);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
