//! `baton completions SHELL`: a completion script on standard output.

use clap::Command;
use clap_complete::Shell;

use crate::context::Context;
use crate::exit::{self, Failure};

/// Print a completion script for a shell.
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
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "baton", &mut script);
    context.output.raw(&script);
    Ok(exit::OK)
}
