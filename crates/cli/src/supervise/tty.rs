//! Handing the terminal to a process group and taking it back, as a shell with job control does.

use std::os::fd::AsFd;

use rustix::process::{Pid, getpgrp};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The caller's process group, if standard input is a terminal that it has the use of.
pub(super) fn foreground_group() -> Option<i32> {
    let input = std::io::stdin();
    let own = getpgrp();
    (isatty(&input) && tcgetpgrp(&input).is_ok_and(|group| group == own))
        .then(|| own.as_raw_nonzero().get())
}

/// Gives the terminal to `group`. The caller must have SIGTTOU blocked, else a background process stops here.
pub(super) fn give(terminal: impl AsFd, group: Pid) {
    // A terminal that has hung up cannot be given to anyone, and needs not.
    let _ = tcsetpgrp(terminal, group);
}
