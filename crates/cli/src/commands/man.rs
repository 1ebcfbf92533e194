//! `baton man DIR`: the manual pages, written from the same texts as `--help`.

use std::path::{Path, PathBuf};

use clap::Command;

use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::record::record;

/// Write the manual pages into a folder, one for each verb.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  baton man ~/.local/share/man/man1 && man baton-lock")]
pub(crate) struct Args {
    /// The folder to write into; made if it does not exist.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the pages and prints their paths.
pub(crate) fn run(args: &Args, cli: Command, context: &Context) -> Result<u8, Failure> {
    let folder = &args.folder;
    let failed = |error: std::io::Error| {
        Failure::baton(format!(
            "cannot write manual pages into {}: {error}; choose a folder you may write to",
            folder.display()
        ))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut cli = cli.disable_help_subcommand(true);
    cli.build();
    write(&cli, folder).map_err(failed)?;
    let mut pages: Vec<String> = std::fs::read_dir(folder)
        .map_err(failed)?
        .filter_map(|entry| Some(entry.ok()?.path().display().to_string()))
        .filter(|page| page.ends_with(".1"))
        .collect();
    pages.sort();
    for page in pages {
        context
            .output
            .result(&record! { page: page.clone() }, &page);
    }
    Ok(exit::OK)
}

/// Writes the page of a verb, and those of the verbs below it.
fn write(verb: &Command, folder: &Path) -> std::io::Result<()> {
    for below in verb.get_subcommands().filter(|it| !it.is_hide_set()) {
        write(below, folder)?;
    }
    let release = concat!("baton ", env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(verb.clone()).source(release);
    page.generate_to(folder).map(drop)
}
