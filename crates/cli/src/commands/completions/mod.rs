//! `baton completions SHELL`: a completion script on standard output. At each Tab the script starts
//! `baton` with [`VARIABLE`], and [`answer`] prints the candidates.
//!
//! | module | owns |
//! |---|---|
//! | `znodes` | names that running servers have |
//! | `bash` | bash's words, which end at colons and equals signs |
//! | `fish`, `zsh` | the scripts of these shells |
//! | `powershell` | candidates for PowerShell |
//! | `adapter` | what a shell has of its own beside clap's adapter |
//!
//! Whatever goes wrong there are no candidates. Bash and PowerShell write candidates into a command
//! line as they are, so no name with a character that a shell interprets is one there; the others
//! quote the names of files.

mod adapter;
mod bash;
mod fish;
mod powershell;
mod znodes;
mod zsh;

use std::ffi::OsStr;

use clap::{Arg, Command, ValueHint};
use clap_complete::env::{Elvish, EnvCompleter, Shells};
use clap_complete::{ArgValueCandidates, ArgValueCompleter, CompleteEnv, CompletionCandidate};

use crate::context::{Context, Globals};
use crate::exit::{self, Failure};
use crate::servers::lookup::Files;
use crate::servers::machine::Machine;

/// The variable by which a script asks for candidates; its value is the shell.
const VARIABLE: &str = "BATON_COMPLETE";

const SHELLS: [&dyn EnvCompleter; 5] = [
    &bash::BASH,
    &Elvish,
    &fish::FISH,
    &powershell::POWERSHELL,
    &zsh::ZSH,
];

/// The verbs whose paths are those of recipes.
const RECIPES: [&str; 7] = [
    "lock", "sem", "elect", "barrier", "queue", "member", "counter",
];

/// Reads the options of every verb from arguments.
pub(crate) type GlobalsReader = fn(Vec<String>) -> Option<Globals>;

/// Print a completion script for a shell.
///
/// Tab also completes paths of znodes and names of contexts. The script reads paths from the
/// servers that the command line names, or else from the default ones. It never starts a server,
/// and gives up after a second.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  baton completions bash > ~/.local/share/bash-completion/completions/baton\n  \
                        baton completions zsh  > ~/.zfunc/_baton\n  \
                        baton completions fish > ~/.config/fish/completions/baton.fish"
)]
pub(crate) struct Args {
    /// The shell that will read it.
    #[arg(value_name = "SHELL", value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    shell: String,
}

/// Writes the script.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let mut script = Vec::new();
    if let Some(shell) = Shells(&SHELLS).completer(&args.shell) {
        shell
            .write_registration(VARIABLE, "baton", "baton", "baton", &mut script)
            .map_err(|error| Failure::usage(format!("the script cannot be written: {error}")))?;
    }
    context.output.raw(&script);
    Ok(exit::OK)
}

/// Prints the candidates, if a script has asked for them; `false` for every other start.
pub(crate) fn answer(cli: fn() -> Command, globals: GlobalsReader) -> Result<bool, Failure> {
    let shell = std::env::var_os(VARIABLE).unwrap_or_default();
    let shell = shell.to_string_lossy();
    if !matches!(&*shell, "" | "0") && Shells(&SHELLS).completer(&shell).is_none() {
        let text =
            format!("{VARIABLE} is {shell:?}, which is not a shell that baton knows; unset it");
        return Err(Failure::usage(text));
    }
    let complete = CompleteEnv::with_factory(move || with_candidates(cli(), globals, false));
    let complete = complete.var(VARIABLE).shells(Shells(&SHELLS));
    let folder = std::env::current_dir().ok();
    Ok(complete
        .try_complete(std::env::args_os(), folder.as_deref())
        .unwrap_or(true))
}

/// Gives each argument of a command and its verbs the source of its candidates.
fn with_candidates(command: Command, globals: GlobalsReader, of_recipe: bool) -> Command {
    let verb = command.get_name().to_owned();
    command
        .mut_args(|arg| with_source(arg, &verb, globals, of_recipe))
        .mut_subcommands(|below| {
            let of_recipe = of_recipe || RECIPES.contains(&below.get_name());
            with_candidates(below, globals, of_recipe)
        })
}

/// Gives an argument its source by the name that the help has for its values, which is the same
/// for all values of a kind.
fn with_source(arg: Arg, verb: &str, globals: GlobalsReader, of_recipe: bool) -> Arg {
    let names = arg.get_value_names().unwrap_or_default();
    match names.first().map_or("", |name| name.as_str()) {
        "PATH" | "PREFIX" => arg.add(ArgValueCompleter::new(move |typed: &OsStr| {
            plain(znodes::paths(globals, typed.to_str(), of_recipe))
        })),
        "CONTEXT" => arg.add(ArgValueCandidates::new(|| plain(contexts()))),
        "NAME" if arg.get_id() == "context" => {
            arg.add(ArgValueCandidates::new(|| plain(contexts())))
        }
        "ID" if verb == "remove" => arg.add(ArgValueCandidates::new(move || {
            plain(znodes::server_ids(globals))
        })),
        "FILE" | "CMD" => arg.value_hint(ValueHint::AnyPath),
        "DIR" => arg.value_hint(ValueHint::DirPath),
        _ => arg,
    }
}

/// The names that every shell reads as one word that means itself.
fn plain(names: Option<Vec<String>>) -> Vec<CompletionCandidate> {
    let is_plain = |name: &String| !name.starts_with('-') && is_word(name);
    let names = names.into_iter().flatten().filter(is_plain);
    names.map(CompletionCandidate::new).collect()
}

/// Whether every shell reads these characters as one word that means itself.
fn is_word(name: &str) -> bool {
    let mut chars = name.chars();
    chars.all(|char| char.is_alphanumeric() || "/._-:@%+=,".contains(char))
}

fn contexts() -> Option<Vec<String>> {
    let files = Files::of(&Machine::this().ok()?).ok()?.read().ok()?;
    let contexts = files.into_iter().flat_map(|file| file.contexts);
    Some(contexts.map(|context| context.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else it would be a command as soon as the user presses Enter.
    #[test]
    fn a_name_with_a_character_that_a_shell_interprets_is_no_candidate() {
        let names = "/$(id) /`id` /a;b /a&b /a|c /a'b /a\"b /a\\b /# /~ /{a} /* /a! /a<b /(a) -rf /[a] /a^ /?";
        let mut names: Vec<String> = names.split(' ').map(str::to_owned).collect();
        names.extend(["/a b", "/b\u{1b}[2J", "/c\n", "/d\t", "/e\u{202e}"].map(str::to_owned));
        assert_eq!(plain(Some(names)), []);
        let names = ["/ü日/a.b-c_d:e@f%g+h=i,j", "dev"].map(str::to_owned);
        assert_eq!(plain(Some(names.to_vec())).len(), 2);
    }
}
