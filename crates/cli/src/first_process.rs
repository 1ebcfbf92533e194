//! The first process of a container, or of another PID namespace: the system makes it the parent of
//! all orphans there, and gives it no signal that it has no handler for.
//!
//! It starts this program again for the work, passes signals on to it, reaps what descendants
//! leave, and ends with the work's outcome.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sys::signal::SigSet;
use nix::sys::signalfd::SignalFd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

use crate::exit::{self, Failure};
use crate::output::{Level, Output};
use crate::signals;

/// If this is the first process, does its work to the end.
pub(crate) fn divert() -> Option<ExitCode> {
    if !getpid().is_init() {
        return None;
    }
    let code = run().unwrap_or_else(|error| {
        let failure = Failure::baton(format!(
            "cannot start the process that does the work: {error}; mount /proc, or run baton under \
             another first process (docker run --init)"
        ));
        Output::new(false, Level::Usual).failure(&failure);
        failure.exit_code
    });
    Some(ExitCode::from(code))
}

fn run() -> std::io::Result<u8> {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_else(|| "baton".into());
    // Blocked signals reach the first process, too. The other one lets them through again.
    let all = SigSet::all();
    all.thread_block()?;
    let received = SignalFd::new(&all)?;
    let worker = Command::new("/proc/self/exe")
        .arg0(program)
        .args(arguments)
        // The process that hands sockets over names this process.
        .env_remove("LISTEN_PID")
        .spawn()?;
    let worker = i32::try_from(worker.id()).ok().and_then(Pid::from_raw);
    let worker = worker.ok_or_else(|| std::io::Error::other("it has no pid"))?;
    loop {
        let Some(signal) = received.read_signal()? else {
            continue;
        };
        let number = i32::try_from(signal.ssi_signo).unwrap_or(0);
        if number == Signal::CHILD.as_raw() {
            if let Some(code) = reap(worker) {
                return Ok(code);
            }
        } else if !signals::is_by_kernel(signal.ssi_code)
            && let Some(signal) = Signal::from_named_raw(number)
        {
            let _ = kill_process(worker, signal);
        }
    }
}

/// Reaps all that have ended; the worker's outcome, if it is among them.
fn reap(worker: Pid) -> Option<u8> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == worker => {
                let by_signal = status.terminating_signal().map(|number| 128 + number);
                let code = status.exit_status().or(by_signal);
                let code = code.unwrap_or(i32::from(exit::BATON));
                return Some(u8::try_from(code).unwrap_or(u8::MAX));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}
