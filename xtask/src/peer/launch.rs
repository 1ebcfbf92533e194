//! Start of a peer's process: Java's from Debian's jars or Maven's, kazoo's in an environment of
//! its own, Baton's is this program.

use std::path::PathBuf;
use std::process::Command;

use super::Spec;
use crate::{Result, command, java, root};

const KAZOO: &str = "kazoo==2.11.0";
/// Package that kazoo needs for SASL.
const SASL: &str = "pure-sasl==0.6.2";

/// Finds or installs what the peers need, or says what to install.
pub(crate) fn require() -> Result<()> {
    java::require()?;
    java::compile()?;
    python().map(|_| ())
}

/// The command that runs one; it speaks on its standard streams.
pub(super) fn command(spec: &Spec<'_>) -> Result<Command> {
    let mut command = match spec.recipe.split_once('-').map(|(library, _)| library) {
        Some("baton") => {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("member");
            command
        }
        Some("kazoo") => {
            let mut command = Command::new(python()?);
            command.arg(root().join("xtask/python/peer.py"));
            command
        }
        _ => java::peer("Peer")?,
    };
    command
        .args([spec.servers, spec.recipe, spec.path, spec.name])
        .arg(spec.timeout.as_millis().to_string());
    Ok(command)
}

/// A Python that has kazoo: the one that BATON_PYTHON names, or that of an environment in the
/// build's folder.
pub(crate) fn python() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("BATON_PYTHON") {
        return Ok(PathBuf::from(named));
    }
    let venv = command::target_dir()?.join("xtask-python");
    let python = venv.join("bin/python");
    let installed = venv.join("kazoo-and-sasl-installed");
    if installed.is_file() {
        return Ok(python);
    }
    let remedy = |step: &str, error: &dyn std::fmt::Display| {
        format!(
            "{step}: {error}; install: apt-get install python3-venv, or name a Python that has {KAZOO} and {SASL} in BATON_PYTHON"
        )
    };
    command::output(Command::new("python3").args(["-m", "venv"]).arg(&venv))
        .map_err(|error| remedy("no Python environment", &error))?;
    command::output(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", KAZOO, SASL])
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    )
    .map_err(|error| remedy("kazoo cannot be installed", &error))?;
    std::fs::write(installed, KAZOO)?;
    Ok(python)
}
