//! The command's process tree, as its guardian sees it: reaping, and killing all of it.

use std::time::Duration;

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait,
};

/// Something that happened to a child of the guardian.
pub(super) enum Change {
    /// The command stopped, by this signal.
    Stopped(i32),
    /// The command ended.
    Ended(WaitStatus),
}

/// The next change of the command, without waiting. Orphans that ended are reaped on the way.
pub(super) fn next_change(command: Pid) -> Option<Change> {
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) if pid == command => {
                return Some(match status.stopping_signal() {
                    Some(signal) => Change::Stopped(signal),
                    None => Change::Ended(status),
                });
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Sends a signal to the command's group, and wakes it up to receive it where that is needed.
pub(super) fn signal_group(command: Pid, signal: Signal) {
    // The group may be gone already.
    let _ = kill_process_group(command, signal);
    if signal == Signal::TERM {
        let _ = kill_process_group(command, Signal::CONT);
    }
}

/// Kills the command and every descendant, and returns when none is left, with the command's status
/// if it was reaped here. The guardian is their subreaper, so what loses its parent becomes the
/// guardian's child and is found next.
pub(super) fn kill_all(command: Pid) -> Option<WaitStatus> {
    let mut status = None;
    loop {
        let _ = kill_process_group(command, Signal::KILL);
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, ended))) if pid == command => status = Some(ended),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return status,
            }
        }
        pause(Duration::from_millis(2));
    }
}

/// The guardian's children, from the kernel's list. Empty where the kernel keeps none; the group is
/// killed anyway.
fn children() -> Vec<Pid> {
    std::fs::read_to_string("/proc/thread-self/children")
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

/// Waits for processes that were killed and not yet gone.
fn pause(duration: Duration) {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: duration.subsec_nanos().into(),
    };
    let _ = rustix::event::poll(&mut [], Some(&timeout));
}
