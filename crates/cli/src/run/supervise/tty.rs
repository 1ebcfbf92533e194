//! The controlling terminal: who has the use of it, and its state after a command that was killed.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal of this process, if it has one.
fn controlling() -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    open("/dev/tty", flags, Mode::empty()).ok()
}

/// Whether this process has a controlling terminal.
pub(super) fn has_terminal() -> bool {
    controlling().is_some()
}

/// The terminal as it was before a command ran in the process group that has the use of it.
///
/// Its methods are for a process that has SIGTTOU blocked: else it would be stopped by them, being
/// in the background.
pub(super) struct Terminal {
    terminal: OwnedFd,
    owner: Pid,
    /// `None` where they are not this command's to restore: others use the terminal, too.
    modes: Option<Termios>,
}

impl Terminal {
    /// The controlling terminal, before a command of the group `owner` uses it.
    pub(super) fn of(owner: Pid, is_alone: bool) -> Option<Self> {
        let terminal = controlling()?;
        let is_in_front = tcgetpgrp(&terminal) == Ok(owner);
        let modes = (is_alone && is_in_front).then(|| tcgetattr(&terminal).ok());
        Some(Self {
            modes: modes.flatten(),
            terminal,
            owner,
        })
    }

    /// Puts the terminal right after the command's end: a shell that was killed has left a group in
    /// front that is gone, and a killed editor its modes. What others use meanwhile stays as it is.
    pub(super) fn restore(&self, was_killed: bool) {
        let Ok(mut front) = tcgetpgrp(&self.terminal) else {
            return;
        };
        if front != self.owner && test_kill_process_group(front) == Err(Errno::SRCH) {
            // A terminal that has hung up cannot be given to anyone, and needs not.
            let _ = tcsetpgrp(&self.terminal, self.owner);
            front = self.owner;
        }
        if let (true, Some(modes)) = (was_killed && front == self.owner, &self.modes) {
            let _ = tcsetattr(&self.terminal, OptionalActions::Now, modes);
        }
    }
}
