//! One command run to its end, and the folder of the build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// Runs a command to its end and returns what it printed; its failure is an error that quotes its
/// standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    Ok(run(command)?.0)
}

/// Runs a command to its end and returns what it printed on standard output, then on standard
/// error; its failure is an error that quotes its standard error.
pub(crate) fn output_and_errors(command: &mut Command) -> Result<String> {
    let (out, err) = run(command)?;
    Ok(out + &err)
}

fn run(command: &mut Command) -> Result<(String, String)> {
    let output = command
        .output()
        .map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        return Ok((stdout, stderr));
    }
    Err(format!(
        "{command:?} ended with {}: {}",
        output.status,
        stderr.trim()
    )
    .into())
}

/// The build's folder: this program lies in `target/debug` or beside it.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let dir = exe
        .parent()
        .and_then(Path::parent)
        .ok_or("xtask must be run by cargo")?;
    Ok(dir.to_owned())
}
