//! Exit codes, and the one error type that verbs return.
//!
//! A failure's text is one line: what happened, to what, what to do next. It must never span lines:
//! scripts read it.

use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::output::{Level, Output};

/// Success.
pub(crate) const OK: u8 = 0;
/// The answer is "no" or "nothing there": a missing znode, an empty queue.
pub(crate) const NOTHING: u8 = 1;
/// The command line could not be understood.
pub(crate) const USAGE: u8 = 2;
/// The lock was lost, and the command stopped.
pub(crate) const LOST: u8 = 113;
/// The lock was not acquired in time.
pub(crate) const NOT_ACQUIRED: u8 = 124;
/// The command exists and cannot be run, as in a shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;
/// Baton itself failed: no connection, refused by the server, no such data folder.
pub(crate) const BATON: u8 = 125;

/// Why a verb did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    /// What the process exits with.
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

    /// The command line makes no sense (exit code 2).
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, "usage", text)
    }
}

/// Folds text to one line: inner line breaks become spaces.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reports what the argument parser has to say: help and version on standard output, anything else
/// in one line.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let shown = error.print();
        return if shown.is_ok() && error.exit_code() == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(USAGE)
        };
    }
    let json = std::env::args()
        .take_while(|argument| argument != "--")
        .any(|argument| argument == "--json");
    let mut line = usage_line(
        &error.render().to_string(),
        &verbs_of(std::env::args().skip(1)),
    );
    if let Some(tip) = forgotten_dashes(error) {
        line = format!("{tip}; {line}");
    }
    Output::new(json, Level::Usual).failure(&Failure::usage(line));
    ExitCode::from(USAGE)
}

/// What to say to someone who wrote `baton lock /x echo hi`.
fn forgotten_dashes(error: &clap::Error) -> Option<String> {
    let word = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(word) if !word.starts_with('-') => word,
        _ => return None,
    };
    let verbs = verbs_of(std::env::args().skip(1));
    (error.kind() == ErrorKind::UnknownArgument && runs_commands(&verbs))
        .then(|| format!("the command goes after two dashes: -- {word} ..."))
}

/// Whether a verb takes a command to run.
fn runs_commands(verbs: &str) -> bool {
    let takes_one = [
        " lock",
        " sem",
        " elect",
        " barrier",
        " member join",
        " queue work",
    ];
    takes_one.contains(&verbs)
}

/// The verb of a command line, with the verb below it if there is one: whose help to read.
fn verbs_of(arguments: impl Iterator<Item = String>) -> String {
    let cli = crate::args::Cli::command();
    let mut known = &cli;
    let mut found = String::new();
    for argument in arguments {
        if argument == "--" {
            break;
        }
        if let Some(verb) = known.find_subcommand(&argument) {
            found.push(' ');
            found.push_str(verb.get_name());
            known = verb;
        }
    }
    found
}

/// Makes the parser's several lines one: the complaint, its tips, and where to read more.
fn usage_line(rendered: &str, verbs: &str) -> String {
    let parts: Vec<&str> = rendered
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:"))
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        // It would have an option taken for the command to run.
        .filter(|line| !line.starts_with("tip: to pass"))
        .map(|line| line.strip_prefix("error:").unwrap_or(line).trim())
        .collect();
    let complaint = parts.join("; ").replace(":; ", ": ");
    format!("{complaint}; see baton{verbs} --help")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_errors_are_one_line_with_the_tip_and_the_page_to_read() {
        let line = usage_line(
            "error: unexpected argument '--wai' found\n\n  tip: a similar argument exists: '--wait'\n\n\
             Usage: baton lock --wait <DUR> <PATH>\n\nFor more information, try '--help'.\n",
            " lock",
        );
        assert_eq!(
            line,
            "unexpected argument '--wai' found; tip: a similar argument exists: '--wait'; see baton lock --help"
        );
    }

    #[test]
    fn the_help_to_read_is_that_of_the_verb_in_use() {
        let verbs = |line: &str| verbs_of(line.split(' ').map(str::to_owned));
        assert_eq!(verbs("lock /lock --wait x"), " lock");
        assert_eq!(
            verbs("--json queue work /q --jobs x -- lock"),
            " queue work"
        );
        assert_eq!(verbs("frobnicate"), "");
    }

    #[test]
    fn only_a_verb_that_runs_commands_hints_at_the_two_dashes() {
        for line in ["sem /x --slots 2 echo", "--json queue work /q ./build"] {
            let verbs = verbs_of(line.split(' ').map(str::to_owned));
            assert!(runs_commands(&verbs), "{line}");
        }
        for line in ["queue work put /q a b", "sem resize /x 2 3", "get /x /y"] {
            let verbs = verbs_of(line.split(' ').map(str::to_owned));
            assert!(!runs_commands(&verbs), "{line}");
        }
    }

    #[test]
    fn a_failure_never_spans_lines() {
        assert_eq!(Failure::baton("a\n  b").text, "a b");
    }
}
