//! Test executables, as cargo names them when it builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Result, root};

/// A test executable.
#[derive(Debug, Clone)]
pub(crate) struct Executable {
    pub(crate) package: String,
    /// The package and the target: `baton-client/lifetime`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Where cargo would run it.
    pub(crate) folder: PathBuf,
}

impl Executable {
    /// What a line of `--message-format=json` says was built, if that is a test executable.
    pub(crate) fn of_message(message: &Value) -> Option<Self> {
        if message["profile"]["test"] != true {
            return None;
        }
        let path = PathBuf::from(message["executable"].as_str()?);
        let manifest = Path::new(message["manifest_path"].as_str()?);
        let folder = manifest.parent()?.to_owned();
        let text = fs::read_to_string(manifest).ok()?;
        let package = text
            .lines()
            .find_map(|line| line.strip_prefix("name = "))?
            .trim_matches('"')
            .to_owned();
        let target = message["target"]["name"].as_str()?;
        let unit = message["target"]["kind"][0] != "test";
        Some(Self {
            name: match unit {
                true => format!("{package}/unit tests"),
                false => format!("{package}/{target}"),
            },
            package,
            path,
            folder,
        })
    }

    /// Builds the tests of these packages, or of all, and lists them.
    pub(crate) fn build(packages: &[String]) -> Result<Vec<Self>> {
        let mut command = Command::new(env!("CARGO"));
        command.args([
            "test",
            "--no-run",
            "--locked",
            "--quiet",
            "--message-format=json",
        ]);
        match packages {
            [] => command.arg("--workspace"),
            some => command.args(some.iter().flat_map(|package| ["--package", package])),
        };
        let output = command
            .current_dir(root())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot start {command:?}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{command:?} ended with {}", output.status).into());
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let messages = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        Ok(messages
            .filter_map(|message: Value| Self::of_message(&message))
            .collect())
    }
}
