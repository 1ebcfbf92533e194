//! Recognition of what stands at the cursor of a command line: a verb, an option, or a value, and
//! of what kind.

use clap::{Arg, ArgAction, Command};

use super::words::Word;

/// Words that can stand at the cursor.
#[derive(Debug)]
pub(super) enum Expected<'a> {
    /// An option of this command.
    Option(&'a Command),
    /// A verb of this command if it has some, or else the value.
    Verb(&'a Command, Option<Value<'a>>),
    /// A value, after this text of the word.
    Value(&'a str, Value<'a>),
    /// A word of the command to run.
    CommandToRun,
    /// Nothing that is known.
    Nothing,
}

/// A value: of which argument, and of which verbs.
#[derive(Debug)]
pub(super) struct Value<'a> {
    pub(super) arg: &'a Arg,
    verbs: Vec<&'a str>,
}

/// The kinds of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One of those that the argument lists.
    Listed,
    Znode,
    /// The path of a lock, a queue or another recipe, whose own nodes are no such paths.
    Recipe,
    Context,
    /// The id of a server of the ensemble.
    Server,
    File,
    Folder,
    /// Anything.
    Free,
}

/// The verbs whose paths are those of recipes.
const RECIPES: [&str; 7] = [
    "lock", "sem", "elect", "barrier", "queue", "member", "counter",
];

impl Value<'_> {
    /// Returns the kind by the name that the help has for it, which is the same for all values of a
    /// kind.
    pub(super) fn kind(&self) -> Kind {
        if !self.arg.get_possible_values().is_empty() {
            return Kind::Listed;
        }
        let names = self.arg.get_value_names().unwrap_or_default();
        let name = names.first().map_or("", |name| name.as_str());
        let verbs = self.verbs.as_slice();
        match (verbs, name) {
            ([verb, ..], "PATH") if RECIPES.contains(verb) => Kind::Recipe,
            (_, "PATH" | "PREFIX") => Kind::Znode,
            (_, "CONTEXT") => Kind::Context,
            (_, "NAME") if self.arg.get_id() == "context" => Kind::Context,
            (["server", ..], "ID" | "ID[=ADDRESS]") => Kind::Server,
            (_, "FILE") => Kind::File,
            (_, "DIR") => Kind::Folder,
            _ => Kind::Free,
        }
    }
}

/// Follows the words of a command line through the verbs and options of `root`, which is built, to
/// the word `current`.
pub(super) fn at_cursor<'a>(root: &'a Command, before: &[Word], current: &'a str) -> Expected<'a> {
    let mut command = root;
    let mut verbs = Vec::new();
    let mut positionals = 0;
    let mut pending: Option<&Arg> = None;
    let mut is_escaped = false;
    for word in before.iter().skip(1) {
        // A word that the shell expands is most likely a value.
        let word = word.as_deref().unwrap_or("");
        if pending.take().is_some() {
            continue;
        }
        if is_escaped {
            positionals += 1;
        } else if word == "--" {
            is_escaped = true;
        } else if let Some(option) = word.strip_prefix("--") {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            pending = long(command, name).filter(|arg| value.is_none() && takes_value(arg));
        } else if let Some(options) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            let mut options = options.char_indices();
            while let Some((at, option)) = options.next() {
                match short(command, option) {
                    Some(arg) if takes_value(arg) => {
                        let is_last = options.next().is_none();
                        pending = is_last.then_some(arg);
                        break;
                    }
                    Some(_) => {}
                    // A negative number.
                    None if at == 0 => {
                        positionals += 1;
                        break;
                    }
                    None => break,
                }
            }
        } else if let Some(verb) = verb(command, word).filter(|_| positionals == 0) {
            command = verb;
            verbs.push(verb.get_name());
        } else {
            positionals += 1;
        }
    }
    let value = |arg| Value {
        arg,
        verbs: verbs.clone(),
    };
    if let Some(arg) = pending {
        return Expected::Value("", value(arg));
    }
    if is_escaped && command.get_positionals().any(Arg::is_last_set) {
        return Expected::CommandToRun;
    }
    if current.starts_with('-') && !is_escaped {
        let option = current
            .strip_prefix("--")
            .and_then(|option| option.split_once('='));
        let Some((name, _)) = option else {
            return Expected::Option(command);
        };
        let head = current.get(.."--=".len() + name.len()).unwrap_or_default();
        return match long(command, name) {
            Some(arg) if takes_value(arg) => Expected::Value(head, value(arg)),
            _ => Expected::Nothing,
        };
    }
    let positional = positional(command, positionals).map(value);
    if positionals == 0 && command.has_subcommands() && !is_escaped {
        return Expected::Verb(command, positional);
    }
    match positional {
        Some(positional) => Expected::Value("", positional),
        None => Expected::Nothing,
    }
}

fn verb<'a>(command: &'a Command, name: &str) -> Option<&'a Command> {
    let mut verbs = command.get_subcommands();
    verbs.find(|verb| verb.get_name() == name || verb.get_all_aliases().any(|alias| alias == name))
}

fn long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let mut args = command.get_arguments();
    args.find(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(name) || aliases.contains(&name)
    })
}

fn short(command: &Command, name: char) -> Option<&Arg> {
    let mut args = command.get_arguments();
    args.find(|arg| arg.get_short() == Some(name))
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// The positional argument after `after` others; the last one may be repeated.
fn positional(command: &Command, after: usize) -> Option<&Arg> {
    let positionals: Vec<_> = command.get_positionals().collect();
    let before_dashes = || positionals.iter().copied().filter(|arg| !arg.is_last_set());
    let repeated = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Append);
    before_dashes()
        .nth(after)
        .or_else(|| before_dashes().next_back().filter(repeated))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn kind_at(line: &str) -> Option<Kind> {
        let mut root = Cli::command();
        root.build();
        let words: Vec<&str> = line.split(' ').collect();
        let (current, before) = words.split_last().unwrap();
        let before: Vec<Word> = before.iter().map(|word| Some((*word).to_owned())).collect();
        match at_cursor(&root, &before, current) {
            Expected::Value(_, value) | Expected::Verb(_, Some(value)) => Some(value.kind()),
            _ => None,
        }
    }

    #[test]
    fn the_kind_of_a_value_follows_from_the_words_before_it() {
        for (line, kind) in [
            ("baton lock /x", Kind::Recipe),
            ("baton lock -w 3s -n /x", Kind::Recipe),
            ("baton lock -nw 3s /x", Kind::Recipe),
            ("baton lock show /x", Kind::Recipe),
            ("baton lock ls /x", Kind::Znode),
            ("baton queue work put /x", Kind::Recipe),
            ("baton --json get /x", Kind::Znode),
            ("baton rm /x", Kind::Znode),
            ("baton set -- /x", Kind::Znode),
            ("baton set /x y", Kind::Free),
            ("baton counter add /x", Kind::Recipe),
            ("baton --context d", Kind::Context),
            ("baton --context=d", Kind::Context),
            ("baton get /x --context d", Kind::Context),
            ("baton context use d", Kind::Context),
            ("baton server remove 1 2", Kind::Server),
            ("baton restore --server-id 1", Kind::Free),
            ("baton restore x", Kind::File),
            ("baton --data-dir x", Kind::Folder),
            ("baton get --auth-file x", Kind::File),
            ("baton completions f", Kind::Listed),
            ("baton --color=a", Kind::Listed),
        ] {
            assert_eq!(kind_at(line), Some(kind), "{line}");
        }
    }

    #[test]
    fn words_of_the_command_to_run_are_no_verbs_and_options() {
        let mut root = Cli::command();
        root.build();
        let words = ["baton", "lock", "/x", "--", "get"].map(|word| Some(word.to_owned()));
        for current in ["", "-", "/x"] {
            let expected = at_cursor(&root, &words, current);
            assert!(matches!(expected, Expected::CommandToRun), "{expected:?}");
        }
        let expected = at_cursor(&root, &[Some("baton".to_owned())], "--js");
        assert!(matches!(expected, Expected::Option(_)), "{expected:?}");
    }
}
