//! `baton completions SHELL`: a completion script on standard output; and the hidden verb that the
//! scripts of bash, zsh and fish ask at each Tab.
//!
//! | module | owns |
//! |---|---|
//! | `place` | what stands at the cursor: a verb, an option, a value of a kind |
//! | `znodes` | names that running servers have |
//! | `words` | the words of a command line as a shell understands them; a value written there |
//!
//! A failure yields no candidates and no message; no server is started.

mod place;
mod words;
mod znodes;

use std::io::Read;
use std::sync::mpsc;
use std::time::Duration;

use baton_proto::OneLine;
use clap::{Arg, Command};
use clap_complete::Shell;

use self::place::{Expected, Kind, Value};
use self::words::{Word, Words};
use crate::context::{Context, Globals};
use crate::exit::{self, Failure};
use crate::servers::lookup::Files;
use crate::servers::machine::Machine;

/// Longest time for an answer, even if a file system or a name server hangs.
const LIMIT: Duration = Duration::from_secs(1);
/// Longest command line, in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// Most candidates of one answer.
const MOST: usize = 1000;

/// Print a completion script for a shell.
///
/// In bash, zsh and fish Tab also completes the paths of znodes, and names of contexts: the script
/// asks the servers that the command line names, or that a verb without names would use. It never
/// starts a server, and gives up after a second.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  baton completions bash > ~/.local/share/bash-completion/completions/baton\n  \
                        baton completions zsh  > ~/.zfunc/_baton\n  \
                        baton completions fish > ~/.config/fish/completions/baton.fish"
)]
pub(crate) struct Args {
    /// The shell that will read it.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Writes the script.
pub(crate) fn run(args: &Args, mut cli: Command, context: &Context) -> Result<u8, Failure> {
    let script = match args.shell {
        Shell::Bash => include_bytes!("baton.bash").to_vec(),
        Shell::Zsh => include_bytes!("baton.zsh").to_vec(),
        Shell::Fish => include_bytes!("baton.fish").to_vec(),
        shell => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut cli, "baton", &mut script);
            script
        }
    };
    context.output.raw(&script);
    Ok(exit::OK)
}

/// Answer a shell that completes the command line on standard input: a line that says what the
/// candidates are, then a line for each.
#[derive(Debug, clap::Args)]
pub(crate) struct Line {
    /// The shell.
    #[arg(value_enum)]
    shell: Asking,
    /// The characters at which bash begins a new word.
    #[arg(value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    breaks: String,
}

/// Shells whose scripts run the hidden verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Asking {
    /// The line up to the cursor.
    Bash,
    /// The words up to the cursor, a zero byte between two of them.
    Zsh,
    /// The words, in the form of zsh.
    Fish,
}

/// Instruction to the shell: the first line of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Offer the candidates. With `Open`, no space follows one that is chosen: more may come.
    Names,
    Open,
    /// Leave the candidates to the shell: files, folders or commands.
    Files,
    Folders,
    Commands,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    action: Action,
    /// Values, and what they mean where that is not clear.
    candidates: Vec<(String, Option<String>)>,
}

impl Reply {
    const fn shells_own(action: Action) -> Self {
        Self {
            action,
            candidates: Vec::new(),
        }
    }

    /// Those candidates that begin as the word does, and that can be shown.
    fn of(current: &str, candidates: impl IntoIterator<Item = (String, Option<String>)>) -> Self {
        let fits = |(value, _): &(String, _)| value.starts_with(current) && is_printable(value);
        Self {
            action: Action::Names,
            candidates: candidates.into_iter().filter(fits).collect(),
        }
    }
}

/// Whether a terminal shows a text as it is, and the answer's lines can hold it.
fn is_printable(text: &str) -> bool {
    !text.contains('\t') && OneLine(text).to_string() == text
}

/// Answers. `globals` reads the options of every verb from arguments.
pub(crate) fn complete(
    args: &Line,
    cli: Command,
    globals: impl Fn(Vec<String>) -> Option<Globals> + Send + 'static,
    context: &Context,
) -> Result<u8, Failure> {
    let mut bytes = Vec::new();
    let _ = std::io::stdin().take(MOST_BYTES).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let words = match args.shell {
        Asking::Bash => words::of_bash(&text, &args.breaks),
        Asking::Zsh | Asking::Fish => {
            words::of_split(text.strip_suffix('\0').unwrap_or(&text).split('\0'))
        }
    };
    let place = words.place;
    // A file on a network, a name server: what hangs is left behind.
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || answer.send(reply(cli, &words, globals)));
    let nothing = Reply::shells_own(Action::Names);
    let reply = answered.recv_timeout(LIMIT).unwrap_or(nothing);
    let mut text = match reply.action {
        Action::Names => "names\n",
        Action::Open => "open\n",
        Action::Files => "files\n",
        Action::Folders => "folders\n",
        Action::Commands => "commands\n",
    }
    .to_owned();
    for (value, help) in &reply.candidates {
        match (args.shell, help) {
            (Asking::Bash, _) => match place.write(value) {
                Some(value) => text.push_str(&value),
                None => continue,
            },
            (_, Some(help)) => text.extend([value, "\t", help]),
            (_, None) => text.push_str(value),
        }
        text.push('\n');
    }
    context.output.raw(text.as_bytes());
    Ok(exit::OK)
}

fn reply(
    mut cli: Command,
    words: &Words,
    globals: impl Fn(Vec<String>) -> Option<Globals>,
) -> Reply {
    cli.build();
    let Some(current) = words.current.as_deref().filter(|_| !words.is_redirection) else {
        return Reply::shells_own(Action::Files);
    };
    match place::at_cursor(&cli, &words.before, current) {
        Expected::CommandToRun => Reply::shells_own(Action::Commands),
        Expected::Nothing => Reply::shells_own(Action::Names),
        Expected::Option(command) => Reply::of(current, options(command, current)),
        Expected::Value(head, value) => {
            let typed = current.get(head.len()..).unwrap_or_default();
            let mut reply = of_value(&value, typed, &words.before, globals);
            for (candidate, _) in &mut reply.candidates {
                candidate.insert_str(0, head);
            }
            reply
        }
        Expected::Verb(command, value) => {
            let verbs = Reply::of(current, verbs(command));
            match value {
                Some(value) if verbs.candidates.is_empty() => {
                    of_value(&value, current, &words.before, globals)
                }
                _ => verbs,
            }
        }
    }
}

fn of_value(
    value: &Value<'_>,
    typed: &str,
    before: &[Word],
    globals: impl Fn(Vec<String>) -> Option<Globals>,
) -> Reply {
    let asked = || globals(options_for_servers(before)?);
    let found = match value.kind() {
        Kind::File => return Reply::shells_own(Action::Files),
        Kind::Folder => return Reply::shells_own(Action::Folders),
        Kind::Free => None,
        Kind::Listed => Some(Reply::of(typed, listed(value.arg))),
        Kind::Context => contexts().map(|names| Reply::of(typed, names)),
        Kind::Server => asked().and_then(|globals| znodes::server_ids(&globals, typed, before)),
        Kind::Znode => asked().and_then(|globals| znodes::paths(&globals, typed, false)),
        Kind::Recipe => asked().and_then(|globals| znodes::paths(&globals, typed, true)),
    };
    found.unwrap_or_else(|| Reply::shells_own(Action::Names))
}

/// The arguments of a command that would use the same servers in the same way; `None`: only the
/// shell knows which they are.
fn options_for_servers(before: &[Word]) -> Option<Vec<String>> {
    let names = [
        "servers",
        "context",
        "data-dir",
        "tls-ca",
        "tls-cert",
        "tls-key",
        "auth-file",
    ];
    let mut arguments = vec!["baton".to_owned()];
    let mut words = before.iter().skip(1);
    while let Some(word) = words.next() {
        let Some(word) = word else {
            // The shell has yet to expand this word, so its value is unknown: it is skipped.
            continue;
        };
        if word == "--" {
            break;
        }
        let Some(option) = word.strip_prefix("--") else {
            continue;
        };
        let name = option.split_once('=').map_or(option, |(name, _)| name);
        if !names.contains(&name) {
            continue;
        }
        arguments.push(word.clone());
        if name == option {
            arguments.push(words.next()?.clone()?);
        }
    }
    arguments.push("ls".to_owned());
    Some(arguments)
}

fn first_line(text: Option<&clap::builder::StyledStr>) -> Option<String> {
    let text = text?.to_string();
    let line = text.lines().next()?;
    Some(OneLine(line).to_string().replace('\t', " "))
}

fn verbs(command: &Command) -> impl Iterator<Item = (String, Option<String>)> {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    verbs.map(|verb| (verb.get_name().to_owned(), first_line(verb.get_about())))
}

fn options(command: &Command, current: &str) -> Vec<(String, Option<String>)> {
    let shown = |arg: &&Arg| !arg.is_hide_set() && !arg.is_positional();
    let mut options = Vec::new();
    for arg in command.get_arguments().filter(shown) {
        let help = first_line(arg.get_help());
        if let Some(long) = arg.get_long() {
            options.push((format!("--{long}"), help.clone()));
        }
        if let Some(short) = arg.get_short().filter(|_| !current.starts_with("--")) {
            options.push((format!("-{short}"), help));
        }
    }
    options
}

fn listed(arg: &Arg) -> Vec<(String, Option<String>)> {
    let values = arg.get_possible_values();
    let shown = values.iter().filter(|value| !value.is_hide_set());
    let listed = shown.map(|value| (value.get_name().to_owned(), first_line(value.get_help())));
    listed.collect()
}

fn contexts() -> Option<Vec<(String, Option<String>)>> {
    let files = Files::of(&Machine::this().ok()?).ok()?.read().ok()?;
    let contexts = files.iter().flat_map(|file| &file.contexts);
    let shown = contexts.map(|context| {
        let servers = OneLine(&context.servers.list).to_string();
        (context.name.clone(), Some(servers.replace('\t', " ")))
    });
    Some(shown.filter(|(name, _)| !name.starts_with('-')).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[Option<&str>]) -> Option<Vec<String>> {
        let words: Vec<Word> = words.iter().map(|word| word.map(str::to_owned)).collect();
        options_for_servers(&words)
    }

    #[test]
    fn the_options_that_select_servers_are_found_wherever_they_stand() {
        let words = [
            "baton",
            "lock",
            "--wait",
            "3s",
            "--servers",
            "h:1",
            "/x",
            "--tls-ca=ca",
            "-n",
            "--",
            "--context",
            "c",
        ];
        let found = arguments(&words.map(Some)).unwrap();
        assert_eq!(found, ["baton", "--servers", "h:1", "--tls-ca=ca", "ls"]);
        let unknown = arguments(&[Some("baton"), Some("--servers"), None, Some("get")]);
        assert_eq!(unknown, None);
        let other = arguments(&[Some("baton"), Some("set"), Some("/x"), None]);
        assert_eq!(other.unwrap(), ["baton", "ls"]);
    }

    #[test]
    fn what_a_terminal_would_obey_is_no_candidate() {
        let names = [
            "/a",
            "/b\u{1b}[2J",
            "/c\n",
            "/d\t",
            "/e\u{202e}",
            "/f g$(h)",
        ];
        let names = names.map(|name| (name.to_owned(), None));
        let shown: Vec<_> = Reply::of("/", names).candidates;
        let shown: Vec<_> = shown.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(shown, ["/a", "/f g$(h)"]);
    }
}
