//! The command line as a whole: the options every verb shares, and the list of verbs.
//!
//! A verb's own options live in its file under `commands/`. A new verb is a file there and a row
//! here.

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

/// Declares the verbs: a row has the variant and the module, the name of the verb's span if it
/// writes and is over at some time, and in parentheses what only its code needs.
macro_rules! verbs {
    (@span) => { None };
    (@span $span:literal) => { Some($span) };
    ($($verb:ident $module:ident $($span:literal)? $(($more:expr))?;)*) => {
        /// The verbs.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Verb {
            $($verb(commands::$module::Args),)*
        }

        impl Verb {
            /// The name of the verb's span, if it has one.
            pub(crate) const fn traced_as(&self) -> Option<&'static str> {
                match self {
                    $(Self::$verb(_) => verbs!(@span $($span)?),)*
                }
            }

            /// Runs the verb; the number is the process's exit code.
            pub(crate) fn run(self, context: &Context) -> Result<u8, Failure> {
                match self {
                    $(Self::$verb(args) => commands::$module::run(&args, $($more,)? context),)*
                }
            }
        }
    };
}

verbs! {
    Lock lock "baton lock";
    Sem sem "baton sem";
    Elect elect "baton elect";
    Barrier barrier "baton barrier";
    Queue queue "baton queue";
    Member member "baton member";
    Counter counter "baton counter";
    Agent agent;
    Console console;
    Top top;
    Deadlocks deadlocks;
    Serve serve;
    Server server;
    Doctor doctor;
    Dev dev;
    Cert cert;
    Context context;
    Ls ls;
    Get get;
    Set set "baton set";
    Create create "baton create";
    Rm rm "baton rm";
    Stat stat;
    Watch watch;
    Acl acl "baton acl";
    Wal wal;
    Backup backup;
    Restore restore;
    Import import;
    Export export;
    Completions completions;
    Man man (Cli::command());
    Version version;
}

impl Verb {
    /// Whether the verb begins its log itself, once it has read its settings.
    pub(crate) const fn has_own_log(&self) -> bool {
        matches!(self, Self::Serve(_))
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
