//! Completion of PowerShell, which takes candidates as they are.

use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

use clap::Command;
use clap_complete::{engine, env};

use super::adapter::{Adapter, Script};
use super::is_word;

/// The adapter of PowerShell.
pub(super) const POWERSHELL: Adapter = Adapter {
    clap: &env::Powershell,
    script: Script::Claps,
    candidates: Some(write_candidates),
};

fn write_candidates(
    cmd: &mut Command,
    args: Vec<OsString>,
    current_dir: Option<&Path>,
    buf: &mut dyn Write,
) -> Result<(), Error> {
    let last = args.len().saturating_sub(1);
    for candidate in engine::complete(cmd, args, last, current_dir)? {
        let value = candidate.get_value().to_str();
        if let Some(value) = value.filter(|value| is_word(value)) {
            let help = candidate.get_help().map(ToString::to_string);
            let help = help.as_deref().and_then(|help| help.lines().next());
            writeln!(buf, "{value}\t{}", help.unwrap_or(value))?;
        }
    }
    Ok(())
}
