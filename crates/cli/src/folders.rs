//! The folders of this user: where data and settings are kept unless a folder is named.

use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// The server's folder: the one given, else `baton` in the user's state folder.
pub(crate) fn data(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let chosen = match given {
        Some(folder) => folder.to_owned(),
        None => state_home()?.join("baton"),
    };
    std::path::absolute(&chosen).map_err(|error| {
        Failure::usage(format!(
            "{} is not a folder: {error}; give another --data-dir",
            chosen.display()
        ))
    })
}

/// The folder that this variable names, if it is an absolute path.
pub(crate) fn absolute_variable(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os(name).map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}

fn state_home() -> Result<PathBuf, Failure> {
    let home = || Some(absolute_variable("HOME")?.join(".local/state"));
    absolute_variable("XDG_STATE_HOME").or_else(home).ok_or_else(|| {
        Failure::baton("no folder for the local server: neither XDG_STATE_HOME nor HOME is set; give --data-dir or --servers")
    })
}
