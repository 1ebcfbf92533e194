//! Reasons for which a command is stopped before it has ended by itself: messages and failures.

use baton::LostReason;

use crate::exit::Failure;

/// Reason why a command is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The hold that it runs under is lost.
    Lost(LostReason),
    /// Somebody has asked for it, and it is given up once the command has ended.
    Asked,
    /// The command failed its health check. What it runs under is held until it has ended.
    Unhealthy,
}

impl Stop {
    /// The message when a command begins to be stopped, or runs on because of `--on-lost ignore`.
    /// `what` is what is held, like "the lock".
    pub(crate) fn remark(self, what: &str, ignored: bool) -> String {
        let happened = match self {
            Self::Lost(reason) => format!("{what} is lost: {reason}"),
            Self::Asked => format!("somebody asks for {what}"),
            Self::Unhealthy => "the command is unhealthy".to_owned(),
        };
        let follows = if ignored {
            "the command runs on, as --on-lost ignore says"
        } else {
            "stopping the command"
        };
        format!("{happened}; {follows}")
    }

    /// The message for a stop before the command was started.
    pub(crate) fn remark_before(self, what: &str) -> String {
        match self {
            Self::Lost(reason) => {
                format!("{what} was lost before the command was started: {reason}")
            }
            Self::Asked | Self::Unhealthy => {
                format!("{what} was given up before the command was started")
            }
        }
    }

    /// The failure where no command ran. `what` is what was given up, like the path of a lock.
    pub(crate) fn failure(self, what: &str) -> Failure {
        match self {
            Self::Asked => Failure::lost(
                "revoked",
                format!("{what} was released on request; run it again to wait for it"),
            ),
            Self::Lost(reason) => lost(format!("{what} was lost: {reason}; run it again")),
            Self::Unhealthy => lost(format!("{what} was given up; run it again")),
        }
    }

    /// The failure where a command was stopped.
    pub(crate) fn failure_of_command(self, what: &str) -> Failure {
        const DONE: &str = "run it again, it may have done part of its work";
        match self {
            Self::Asked => Failure::lost(
                "revoked",
                format!("{what} was released on request, and the command stopped; {DONE}"),
            ),
            Self::Lost(reason) => lost(format!(
                "{what} was lost ({reason}) and the command stopped; {DONE}"
            )),
            Self::Unhealthy => Failure::lost(
                "unwell",
                format!(
                    "{what} was given up, because the command was unhealthy, and was stopped; {DONE}"
                ),
            ),
        }
    }
}

fn lost(text: String) -> Failure {
    Failure::lost("lost", text)
}
