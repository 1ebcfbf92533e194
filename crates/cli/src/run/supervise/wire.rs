//! The messages between `baton` and the guardian: JSON objects, one a line, over a socket pair.
//!
//! Both ends are the same program file, so there are no versions here.

use serde::{Deserialize, Serialize};

use super::session_ticket::SessionTicket;
use crate::{exit, signals};

/// The action on the command when its lease runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnLost {
    /// TERM as notice, KILL before the deadline.
    Term,
    /// No notice, KILL before the deadline.
    Kill,
    /// USR1 as notice, KILL before the deadline.
    Usr1,
    /// The command runs on, unprotected.
    Ignore,
}

/// From `baton` to the guardian.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "lowercase")]
pub(crate) enum Order {
    /// The first order, sent with the command's standard input attached.
    Start {
        /// The process group that the command joins; `None` for one of its own.
        group: Option<i32>,
        /// Whether the command goes on when Ctrl-Z is pressed.
        unsuspended: bool,
        /// The action at the deadlines.
        on_lost: OnLost,
        /// Between notice and KILL when `baton` has gone, in milliseconds.
        kill_after_ms: u64,
        /// Whether complaints are JSON.
        json: bool,
        /// The session to end if `baton` is killed, once the command is gone.
        session: Option<Box<SessionTicket>>,
        /// Deadline like that of [`Order::Lease`]: never is the command without one.
        notice_at_ns: u64,
        /// Deadline like that of [`Order::Lease`].
        kill_at_ns: u64,
    },
    /// New deadlines, in nanoseconds of CLOCK_BOOTTIME. The newest order counts, until notice was
    /// given.
    Lease {
        /// When to give notice.
        notice_at_ns: u64,
        /// When to kill.
        kill_at_ns: u64,
    },
    /// Pass a signal on to the command's process group.
    Signal {
        /// Its number.
        number: i32,
    },
}

/// From the guardian to `baton`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "lowercase")]
pub(crate) enum Report {
    /// The command runs.
    Started {
        /// Its process.
        pid: i32,
    },
    /// The command was suspended from the keyboard, and set running again.
    Resumed,
    /// The deadline for notice has passed; the command is being stopped.
    Notice,
    /// The command has ended and was reaped.
    Ended(CommandEnd),
    /// The guardian could not do its work.
    Failed {
        /// Reason, in one line.
        text: String,
    },
}

/// End of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandEnd {
    /// Its exit code, if it exited.
    pub(crate) code: Option<i32>,
    /// The signal that ended it, if one did.
    pub(crate) signal: Option<i32>,
    /// Whether the guardian had begun to stop it.
    pub(crate) stopped: bool,
}

impl CommandEnd {
    /// The outcome of a verb whose command has ended so: its exit code, or death by its signal.
    pub(crate) fn outcome(self) -> u8 {
        match (self.code, self.signal) {
            (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
            (None, Some(number)) => signals::ended_by(number),
            (None, None) => exit::BATON,
        }
    }
}
