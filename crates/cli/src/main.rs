//! The `baton` command: reads its arguments, runs one verb, turns the outcome into one line and an
//! exit code.
//!
//! It holds no knowledge of locks or of the protocol: verbs live in `verbs/`, one file each, and
//! lean on the `baton` and `baton-client` crates. Nothing here prints a stack trace or exits
//! anywhere but at the end of `main`.

mod args;
mod bench;
mod confirm;
mod connect;
mod duration;
mod exit;
mod health;
mod lease;
mod local;
mod log;
mod lookup;
mod machine;
mod marker;
mod output;
mod paths;
mod settings;
mod signals;
mod stop;
mod supervise;
mod tenure;
mod unfinished;
mod unshared_locks;
mod verbs;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = supervise::divert(std::env::args_os()) {
        return code;
    }
    let cli = match args::Cli::read() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    let context = args::Context::new(cli.globals);
    match cli.verb.run(&context) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            context.output.failure(&failure);
            ExitCode::from(failure.exit_code)
        }
    }
}
