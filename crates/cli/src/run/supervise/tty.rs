//! Handing the terminal to a process group and taking it back, as a shell with job control does.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, getpgrp};
use rustix::termios::{
    OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp,
};

/// The caller's process group, if standard input is a terminal that it has the use of.
pub(super) fn foreground_group() -> Option<i32> {
    let input = std::io::stdin();
    let own = getpgrp();
    (isatty(&input) && tcgetpgrp(&input).is_ok_and(|group| group == own))
        .then(|| own.as_raw_nonzero().get())
}

/// A terminal that is lent to the command.
///
/// Its methods are for a process that has SIGTTOU blocked: else it would be stopped by them, being
/// in the background.
pub(super) struct Terminal {
    terminal: OwnedFd,
    owner: Pid,
    modes: Option<Termios>,
}

impl Terminal {
    /// The terminal of `owner`, a process group, as it is before it is lent.
    pub(super) fn lend(terminal: OwnedFd, owner: Pid) -> Self {
        let modes = tcgetattr(&terminal).ok();
        Self {
            terminal,
            owner,
            modes,
        }
    }

    /// Gives the terminal to `group`.
    pub(super) fn give(&self, group: Pid) {
        // A terminal that has hung up cannot be given to anyone, and needs not.
        let _ = tcsetpgrp(&self.terminal, group);
    }

    /// Gives the terminal back, and its modes as they were if the borrower had no chance to tidy
    /// up.
    pub(super) fn take_back(&self, untidy: bool) {
        if let (true, Some(modes)) = (untidy, &self.modes) {
            let _ = tcsetattr(&self.terminal, OptionalActions::Now, modes);
        }
        self.give(self.owner);
    }
}
