//! The `baton` command: reads its arguments, runs one verb, turns the outcome into one line and an
//! exit code. Nothing here prints a stack trace or exits anywhere but at the end of `main`.
//!
//! A module uses only modules below it in this table:
//!
//! | module | owns |
//! |---|---|
//! | `cli` | the command line as a whole: the list of verbs, and which code runs each |
//! | `usage` | the one line for a command line that cannot be understood |
//! | `help` | the help pages: verbs in groups, the options of every verb once |
//! | `commands/` | the verbs, one file or folder each: options, help, what is printed |
//! | `run/` | a command that runs while something is held: its options, its processes, its stop |
//! | `znode` | what the verbs on znodes share |
//! | `connection` | the session of a verb: which servers, how long to try |
//! | `waiting` | what is shown while a verb waits |
//! | `walk` | a walk over a tree that reads several nodes at a time |
//! | `locks` | a node of a wait queue as the verbs print it |
//! | `servers/` | which servers are used; the local server; other users' local servers |
//! | `access` | which servers are trusted, and the credentials: files for TLS and authentication |
//! | `settings/` | the settings of `baton serve`: flags, `baton.toml`, `zoo.cfg` |
//! | `context` | the options of every verb, the output, the runtime |
//! | `folders`, `paths` | this user's folders; paths as arguments |
//! | `acl_words` | ACLs in words |
//! | `unfinished` | a folder under way, removed when the user stops the command |
//! | `traces` | traces of this process, where they are exported |
//! | `service_manager` | what systemd hands to a server that it starts, and hears from it |
//! | `first_process` | the work of the first process of a container |
//! | `signals` | the signals that `baton` receives, and its death by one |
//! | `output/` | results, notices, errors, questions, the server's log |
//! | `exit` | exit codes and the error of a verb |
//! | `duration` | durations as arguments and as they are shown |
//! | `build` | what this command was built from |

mod access;
mod acl_words;
mod build;
mod cli;
mod commands;
mod connection;
mod context;
mod duration;
mod exit;
mod first_process;
mod folders;
mod help;
mod locks;
mod output;
mod paths;
mod run;
mod servers;
mod service_manager;
mod settings;
mod signals;
mod traces;
mod unfinished;
mod usage;
mod waiting;
mod walk;
mod znode;

use std::process::ExitCode;
use std::time::Duration;

use baton_server::secret_file;
use clap::CommandFactory;

use crate::output::error_stream;

/// Time that a process that ends waits for the reader of its standard error.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    signals::begin_clean();
    if let Some(code) = run::supervise::divert(std::env::args_os()) {
        return code;
    }
    if let Some(code) = first_process::divert() {
        return code;
    }
    match commands::completions::answer(cli::Cli::command, cli::Cli::globals_of) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(failure) => return usage::refuse(&failure),
    }
    let cli = match cli::Cli::read() {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error, &cli::Cli::command()),
    };
    let context = context::Context::new(cli.globals);
    let outcome = run(cli.verb, &context);
    if let Err(failure) = &outcome {
        context.output.failure(failure);
    }
    // A reader that does not read what this process has written must not keep it from ending.
    error_stream::flush(FLUSH_LIMIT);
    let code = outcome.unwrap_or_else(|failure| failure.exit_code);
    signals::die_if_ended(code);
    ExitCode::from(code)
}

/// Runs the verb with its log and its traces.
fn run(verb: cli::Verb, context: &context::Context) -> Result<u8, exit::Failure> {
    if !verb.has_own_log() {
        let name = verb.traced_as();
        let traces = traces::Traces::of_verb(name, &context.output)?;
        let outcome = traces::Traces::within(traces.as_ref(), || verb.run(context));
        if let Some(traces) = traces {
            traces.finish(&context.output);
        }
        return outcome;
    }
    verb.run(context)
}
