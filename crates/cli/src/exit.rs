//! Exit codes, and the one error type that verbs return.
//!
//! A failure's text is one line: what happened, to what, what to do next. It must never span lines:
//! scripts read it.

/// Success.
pub(crate) const OK: u8 = 0;
/// The answer is "no" or "nothing there": a missing znode, an empty queue.
pub(crate) const NOTHING: u8 = 1;
/// The command line could not be understood.
pub(crate) const USAGE: u8 = 2;
/// `doctor` has found what does not work.
pub(crate) const TROUBLE: u8 = 3;
/// Code of a process that lost or gave up what it held before its command had ended:
/// [`Failure::lost`].
const LOST: u8 = 113;
/// The lock was not acquired in time.
pub(crate) const NOT_ACQUIRED: u8 = 124;
/// The command exists and cannot be run, as in a shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;
/// Baton itself failed: no connection, refused by the server, no such data folder.
pub(crate) const BATON: u8 = 125;

/// Reason why a verb did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    /// The exit code of the process.
    pub(crate) exit_code: u8,
    /// One word for programs, for example `usage` or `connection`.
    pub(crate) kind: &'static str,
    /// One line for people.
    pub(crate) text: String,
}

impl Failure {
    /// A failure of any kind.
    pub(crate) fn new(exit_code: u8, kind: &'static str, text: impl Into<String>) -> Self {
        Self {
            exit_code,
            kind,
            text: one_line(&text.into()),
        }
    }

    /// Baton itself could not do its work (exit code 125).
    pub(crate) fn baton(text: impl Into<String>) -> Self {
        Self::new(BATON, "baton", text)
    }

    /// Failure of a process whose hold is lost, or was given up because somebody asked for it or
    /// the command was unhealthy (exit code 113). This is the only way to that code.
    pub(crate) fn lost(kind: &'static str, text: impl Into<String>) -> Self {
        Self::new(LOST, kind, text)
    }

    /// The servers answered, and no item came within `waited` (exit code 124).
    pub(crate) fn no_item(path: &str, waited: &str) -> Self {
        let text = format!("{path}: no item within {waited}; allow more time with --wait");
        Self::new(NOT_ACQUIRED, "empty", text)
    }

    /// The command line makes no sense (exit code 2).
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, "usage", text)
    }
}

/// Folds text to one line: inner line breaks become spaces.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Next step where this command cannot start itself again, which it does by `/proc/self/exe`.
pub(crate) fn start_remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            "mount /proc and /dev: a further process of baton is started by /proc/self/exe, with /dev/null"
        }
        std::io::ErrorKind::PermissionDenied => "let this user execute baton",
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            "free some room on the disk"
        }
        _ => "free some processes or memory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_never_spans_lines() {
        assert_eq!(Failure::baton("a\n  b").text, "a b");
    }

    #[test]
    fn a_process_that_cannot_start_gets_the_remedy_of_its_cause() {
        for (number, expected) in [
            (2, "/proc"),
            (13, "execute"),
            (28, "disk"),
            (11, "processes"),
        ] {
            let error = std::io::Error::from_raw_os_error(number);
            let remedy = start_remedy(&error);
            assert!(remedy.contains(expected), "{number}: {remedy}");
        }
    }
}
