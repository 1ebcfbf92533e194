//! The stub: prepares the command's process from inside, then becomes the command.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use nix::sys::signal::SigSet;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::exit::{self, Failure};
use crate::output::{Level, Output};

/// Arguments: the guardian's pid, `json` or `text`, the command and its arguments.
pub(super) fn main(arguments: Vec<OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let guardian = arguments
        .next()
        .and_then(|pid| pid.to_str()?.parse::<i32>().ok());
    let json = arguments.next().is_some_and(|format| format == "json");
    let Some(command) = arguments.next() else {
        return ExitCode::from(exit::USAGE);
    };
    // A guardian that is killed takes the command with it even where its descendants cannot be
    // followed. It may be dead already: the signal is not sent for a death in the past.
    let armed = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    if !armed || getppid().map(|parent| parent.as_raw_nonzero().get()) != guardian {
        return ExitCode::from(exit::BATON);
    }
    // The guardian's blocked signals came along; the command must be able to hear them.
    if SigSet::empty().thread_set_mask().is_err() {
        return ExitCode::from(exit::BATON);
    }
    let error = std::process::Command::new(&command).args(arguments).exec();
    let shown = command.to_string_lossy();
    let failure = match error.kind() {
        ErrorKind::NotFound => Failure::new(
            exit::NOT_FOUND,
            "command",
            format!(
                "command not found: {shown}; check its name and PATH, or use -c for a shell's line"
            ),
        ),
        _ => Failure::new(
            exit::NOT_EXECUTABLE,
            "command",
            format!(
                "cannot run {shown}: {error}; check that it is a program and that you may execute it"
            ),
        ),
    };
    Output::new(json, Level::Usual).failure(&failure);
    ExitCode::from(failure.exit_code)
}
