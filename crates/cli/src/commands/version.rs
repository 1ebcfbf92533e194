//! `baton version`: what this command was built from and for.

use crate::build::BUILD;
use crate::context::Context;
use crate::exit::{self, Failure};

/// Print the version, the commit and the target of this build.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton version
  baton version --json | jq -r .commit
  baton --version                      one line

The commit ends in -dirty if the source that was built differed from it. It is
missing where the build could not read it, as from an archive without git; then
set BATON_COMMIT in the environment of the build.")]
pub(crate) struct Args {}

/// Prints it.
pub(crate) fn run(_: &Args, context: &Context) -> Result<u8, Failure> {
    let build = &*BUILD;
    let [oldest, newest] = build.format_levels;
    let features = match build.features {
        [] => "none".to_owned(),
        features => features.join(" "),
    };
    let lines = [
        ("baton", build.version.to_owned()),
        ("commit", build.commit.unwrap_or("unknown").to_owned()),
        ("target", build.target.to_owned()),
        ("profile", build.profile.to_owned()),
        ("compiler", build.rustc.to_owned()),
        ("features", features),
        ("format levels", format!("{oldest} to {newest}")),
        ("protocol", build.protocol.to_owned()),
    ];
    let lines = lines.map(|(name, value)| format!("{name:<15}{value}"));
    context.output.paragraph(build, lines.join("\n"));
    Ok(exit::OK)
}
