//! Answer to a command line that is not run: the help that it asks for, or one line that names the
//! mistake and the help page to read.

use std::process::ExitCode;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::{self, Failure};
use crate::help;
use crate::output::{Level, Output};

/// Reports what the argument parser has to say: help and version on standard output, anything else
/// in one line.
pub(crate) fn report(error: &clap::Error, cli: &Command) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // A reader that went away wants no more. `baton` alone asks for its help.
        let _ = match verbs_of(cli, arguments().skip(1)).as_str() {
            "" if error.exit_code() != 0 => help::arranged(cli.clone(), false).print_long_help(),
            _ => error.print(),
        };
        let is_asked_for = error.exit_code() == 0 || arguments().nth(1).is_none();
        return match is_asked_for {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(exit::USAGE),
        };
    }
    let mut line = usage_line(
        &error.render().to_string(),
        &verbs_of(cli, arguments().skip(1)),
    );
    // The parser does not say which word it is.
    if let Some(odd) = odd_word().filter(|_| error.kind() == ErrorKind::InvalidUtf8) {
        line = format!("{odd} is not UTF-8; correct it");
    }
    if let Some(tip) = forgotten_dashes(error, cli) {
        line = format!("{tip}; {line}");
    }
    refuse(&Failure::usage(line))
}

/// Reports why the command line is not run.
pub(crate) fn refuse(failure: &Failure) -> ExitCode {
    let json = arguments()
        .take_while(|argument| argument != "--")
        .any(|argument| argument == "--json");
    Output::new(json, Level::Usual).failure(failure);
    ExitCode::from(failure.exit_code)
}

/// The arguments of this process, as they are shown: they may be any bytes.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned())
}

/// The first argument, or variable of `baton`, that is not text.
fn odd_word() -> Option<String> {
    let mut arguments = std::env::args_os().take_while(|argument| argument != "--");
    let argument = arguments.find(|argument| argument.to_str().is_none());
    let mut variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        (name.starts_with("BATON_") && value.to_str().is_none()).then_some(name)
    });
    let of_variable = |name| format!("{name} in the environment");
    let shown = argument.map(|argument| format!("the argument {argument:?}"));
    shown.or_else(|| variables.next().map(of_variable))
}

/// The hint for a command line like `baton lock /x echo hi`.
fn forgotten_dashes(error: &clap::Error, cli: &Command) -> Option<String> {
    let word = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(word) if !word.starts_with('-') => word,
        _ => return None,
    };
    let verbs = verbs_of(cli, arguments().skip(1));
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
fn verbs_of(cli: &Command, arguments: impl Iterator<Item = String>) -> String {
    let mut known = cli;
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

    /// The verbs that these tests name, as the command has them.
    fn root() -> Command {
        let queue = Command::new("queue").subcommand(work());
        let sem = Command::new("sem").subcommand(Command::new("resize"));
        let plain = ["lock", "get"].map(Command::new);
        Command::new("baton")
            .subcommands(plain)
            .subcommands([queue, sem])
    }

    fn work() -> Command {
        Command::new("work").subcommand(Command::new("put"))
    }

    #[test]
    fn the_help_to_read_is_that_of_the_verb_in_use() {
        let verbs = |line: &str| verbs_of(&root(), line.split(' ').map(str::to_owned));
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
            let verbs = verbs_of(&root(), line.split(' ').map(str::to_owned));
            assert!(runs_commands(&verbs), "{line}");
        }
        for line in ["queue work put /q a b", "sem resize /x 2 3", "get /x /y"] {
            let verbs = verbs_of(&root(), line.split(' ').map(str::to_owned));
            assert!(!runs_commands(&verbs), "{line}");
        }
    }
}
