//! The command line as a whole: the options every verb shares, and the list of verbs.
//!
//! A verb's own options live in its file under `commands/`. To add a verb: a file there, a variant
//! here, an arm in [`Verb::run`].

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::build::VERSION;
use crate::context::{Context, Globals};
use crate::exit::Failure;
use crate::{commands, help};

/// Locks, leaders and queues for programs on many machines.
#[derive(Debug, Parser)]
#[command(
    name = "baton",
    version = VERSION,
    max_term_width = 100,
    infer_long_args = false,
)]
pub(crate) struct Cli {
    /// Options that every verb understands.
    #[command(flatten)]
    pub(crate) globals: Globals,
    /// The verb.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Cli {
    /// Reads this process's arguments, and the environment for those that were not given.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        Self::of(std::env::args_os())
    }

    /// Reads the options of every verb from these arguments, and the environment.
    pub(crate) fn globals_of(arguments: Vec<String>) -> Option<Globals> {
        Some(Self::of(arguments).ok()?.globals)
    }

    /// Reads these arguments, and the environment for those that were not given.
    fn of(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Self, clap::Error> {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        let mut words = arguments.iter().take_while(|word| *word != "--");
        let mut command = help::arranged(Self::command(), words.any(|word| word == "-h"));
        let matches = command.try_get_matches_from_mut(arguments)?;
        let mut cli =
            Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        let is_variable = |name| matches.value_source(name) == Some(ValueSource::EnvVariable);
        let is_detached = matches!(&cli.verb, Verb::Agent(agent) if agent.is_detached());
        let globals = &mut cli.globals;
        // An empty variable counts as one that is not set, as in a shell's ${NAME:-default}.
        if is_variable("servers") {
            globals.servers_origin = "BATON_SERVERS in the environment";
            globals.servers.take_if(|list| list.trim().is_empty());
        }
        if is_variable("context") {
            globals.context.take_if(|name| name.trim().is_empty());
            globals.from_variables.push("context");
        }
        for (name, file) in [
            ("data_dir", &mut globals.data_dir),
            ("tls_ca", &mut globals.tls_ca),
            ("tls_cert", &mut globals.tls_cert),
            ("tls_key", &mut globals.tls_key),
            ("auth_file", &mut globals.auth_file),
        ] {
            if is_variable(name) {
                file.take_if(|path| path.as_os_str().is_empty());
                globals.from_variables.push(name);
            }
            if is_detached {
                // It leaves its starter's folder, and reads certificates again when they change.
                *file = file.take().map(|it| std::path::absolute(&it).unwrap_or(it));
            }
        }
        if is_variable("acl") {
            globals.from_variables.push("acl");
        }
        Ok(cli)
    }
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Lock(commands::lock::Args),
    Sem(commands::sem::Args),
    Elect(commands::elect::Args),
    Barrier(commands::barrier::Args),
    Queue(commands::queue::Args),
    Member(commands::member::Args),
    Counter(commands::counter::Args),
    Agent(commands::agent::Args),
    Console(commands::console::Args),
    Top(commands::top::Args),
    Deadlocks(commands::deadlocks::Args),
    Serve(commands::serve::Args),
    Server(commands::server::Args),
    Doctor(commands::doctor::Args),
    Dev(commands::dev::Args),
    Cert(commands::cert::Args),
    Context(commands::context::Args),
    Ls(commands::ls::Args),
    Get(commands::get::Args),
    Set(commands::set::Args),
    Create(commands::create::Args),
    Rm(commands::rm::Args),
    Stat(commands::stat::Args),
    Watch(commands::watch::Args),
    Acl(commands::acl::Args),
    Wal(commands::wal::Args),
    Backup(commands::backup::Args),
    Restore(commands::restore::Args),
    Import(commands::import::Args),
    Export(commands::export::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
    Version(commands::version::Args),
}

impl Verb {
    /// The name of the verb's span, if it writes and is over at some time.
    pub(crate) const fn traced_as(&self) -> Option<&'static str> {
        Some(match self {
            Self::Lock(_) => "baton lock",
            Self::Sem(_) => "baton sem",
            Self::Elect(_) => "baton elect",
            Self::Barrier(_) => "baton barrier",
            Self::Queue(_) => "baton queue",
            Self::Member(_) => "baton member",
            Self::Counter(_) => "baton counter",
            Self::Create(_) => "baton create",
            Self::Set(_) => "baton set",
            Self::Rm(_) => "baton rm",
            Self::Acl(_) => "baton acl",
            _ => return None,
        })
    }

    /// Whether the verb begins its log itself, once it has read its settings.
    pub(crate) const fn has_own_log(&self) -> bool {
        matches!(self, Self::Serve(_))
    }

    /// Runs the verb; the number is the process's exit code.
    pub(crate) fn run(self, context: &Context) -> Result<u8, Failure> {
        match self {
            Self::Lock(args) => commands::lock::run(&args, context),
            Self::Sem(args) => commands::sem::run(&args, context),
            Self::Elect(args) => commands::elect::run(&args, context),
            Self::Barrier(args) => commands::barrier::run(&args, context),
            Self::Queue(args) => commands::queue::run(&args, context),
            Self::Member(args) => commands::member::run(&args, context),
            Self::Counter(args) => commands::counter::run(&args, context),
            Self::Ls(args) => commands::ls::run(&args, context),
            Self::Get(args) => commands::get::run(&args, context),
            Self::Set(args) => commands::set::run(&args, context),
            Self::Create(args) => commands::create::run(&args, context),
            Self::Rm(args) => commands::rm::run(&args, context),
            Self::Stat(args) => commands::stat::run(&args, context),
            Self::Watch(args) => commands::watch::run(&args, context),
            Self::Acl(args) => commands::acl::run(&args, context),
            Self::Wal(args) => commands::wal::run(&args, context),
            Self::Backup(args) => commands::backup::run(&args, context),
            Self::Restore(args) => commands::restore::run(&args, context),
            Self::Import(args) => commands::import::run(&args, context),
            Self::Export(args) => commands::export::run(&args, context),
            Self::Agent(args) => commands::agent::run(&args, context),
            Self::Console(args) => commands::console::run(&args, context),
            Self::Top(args) => commands::top::run(&args, context),
            Self::Deadlocks(args) => commands::deadlocks::run(&args, context),
            Self::Serve(args) => commands::serve::run(&args, context),
            Self::Server(args) => commands::server::run(&args, context),
            Self::Doctor(args) => commands::doctor::run(&args, context),
            Self::Dev(args) => commands::dev::run(&args, context),
            Self::Cert(args) => commands::cert::run(&args, context),
            Self::Context(args) => commands::context::run(&args, context),
            Self::Completions(args) => commands::completions::run(&args, context),
            Self::Man(args) => commands::man::run(&args, Cli::command(), context),
            Self::Version(args) => commands::version::run(&args, context),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

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

    #[test]
    fn an_agent_that_leaves_its_starters_folder_finds_its_files() {
        let ca = |last: &str| {
            let words = ["baton", "--tls-ca", "ca.pem", "agent", last];
            let globals = Cli::globals_of(words.map(str::to_owned).to_vec());
            globals.and_then(|globals| globals.tls_ca)
        };
        let here = std::env::current_dir().unwrap();
        assert_eq!(ca("--exit-when-idle=1s"), Some(here.join("ca.pem")));
        assert_eq!(ca("--background"), Some("ca.pem".into()));
    }

    /// Longer lines are wrapped, which breaks the columns.
    #[test]
    fn examples_and_tables_fit_a_terminal_of_80_columns() {
        let mut found = Vec::new();
        wide_lines(&Cli::command(), &mut found);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
