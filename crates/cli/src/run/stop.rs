//! Why a command is stopped before it has ended by itself, and what is said of it.

use baton::LostReason;

use crate::exit::Failure;

/// Why a command is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// What it runs under is lost.
    Lost(LostReason),
    /// Somebody has asked for it, and it is given up once the command has ended.
    Asked,
    /// The command is not well; the lock is ours until it has ended.
    Unwell,
}

impl Stop {
    /// What is said when a command begins to be stopped, or would but for `--on-lost ignore`.
    /// `what` is held, like "the lock".
    pub(crate) fn remark(self, what: &str, ignored: bool) -> String {
        let happened = match self {
            Self::Lost(reason) => format!("{what} is lost: {reason}"),
            Self::Asked => format!("somebody asks for {what}"),
            Self::Unwell => "the command is not well".to_owned(),
        };
        let follows = if ignored {
            "the command runs on, as --on-lost ignore says"
        } else {
            "stopping the command"
        };
        format!("{happened}; {follows}")
    }

    /// What is said where that happened before a command was started.
    pub(crate) fn remark_before(self, what: &str) -> String {
        match self {
            Self::Lost(reason) => {
                format!("{what} was lost before the command was started: {reason}")
            }
            Self::Asked | Self::Unwell => {
                format!("{what} was given up before the command was started")
            }
        }
    }

    /// Why `what`, like the lock's path, was given up, where no command ran.
    pub(crate) fn failure(self, what: &str) -> Failure {
        match self {
            Self::Asked => Failure::lost(
                "revoked",
                format!(
                    "{what}: somebody asked for it, and it was released; run it again to wait for it"
                ),
            ),
            Self::Lost(reason) => lost(format!("{what} was lost: {reason}; run it again")),
            Self::Unwell => lost(format!("{what} was given up; run it again")),
        }
    }

    /// The same, where a command was stopped.
    pub(crate) fn failure_of_command(self, what: &str) -> Failure {
        const DONE: &str = "run it again, it may have done part of its work";
        match self {
            Self::Asked => Failure::lost(
                "revoked",
                format!("{what}: somebody asked for it, and the command stopped; {DONE}"),
            ),
            Self::Lost(reason) => lost(format!(
                "{what} was lost ({reason}) and the command stopped; {DONE}"
            )),
            Self::Unwell => Failure::lost(
                "unwell",
                format!(
                    "{what} was given up, because the command was not well, and was stopped; {DONE}"
                ),
            ),
        }
    }
}

fn lost(text: String) -> Failure {
    Failure::lost("lost", text)
}
