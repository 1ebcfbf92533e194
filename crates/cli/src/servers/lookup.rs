//! Which servers a command uses: the order in which they are searched for. It starts none, and
//! connects to none, except that it checks whether a server answers at the machine's socket.

use std::io;
use std::path::{Path, PathBuf};

use crate::access::AccessFiles;
use crate::context::Globals;
use crate::exit::Failure;
use crate::folders;
use crate::servers::config_file::{self, NamedServers};
use crate::servers::local;
use crate::servers::machine::Machine;

/// The servers that were found.
#[derive(Debug)]
pub(crate) enum Found {
    /// Servers that somebody has named, or the machine's own.
    Named(NamedServers),
    /// Nothing but the user's own local server.
    Local {
        /// Why it is that one, for people.
        origin: String,
        /// The machine's socket and why it cannot be used, where it is there.
        silent: Option<(PathBuf, io::Error)>,
    },
}

/// Searches for the servers, in the order that `docs/user/command.md` has, and for the files with
/// which they are reached. The first servers that are named count, whether they answer or not; only
/// the machine's socket, which nobody has named, counts if a server answers there.
///
/// What flags and variables name counts first. The files that a `config.toml` names are for the
/// servers that it names, or that a file behind it names: credentials never go to servers that
/// somebody else has named before.
///
/// # Errors
/// A file that is wrong, with its line.
pub(crate) fn servers(
    globals: &Globals,
    machine: &Machine,
) -> Result<(Found, AccessFiles), Failure> {
    let named = |list: String, origin: &str| {
        let origin = origin.to_owned();
        Found::Named(NamedServers { list, origin })
    };
    let mut access = AccessFiles::of(globals);
    if let Some(list) = &globals.servers {
        return Ok((named(list.clone(), globals.servers_origin), access));
    }
    if globals.data_dir.is_some() {
        let found = Found::Local {
            origin: "--data-dir or BATON_DATA_DIR names it".to_owned(),
            silent: None,
        };
        return Ok((found, access));
    }
    let files = [user_file(), Some(machine.config_file())];
    for file in files.into_iter().flatten() {
        let read = config_file::read(&file)?;
        access = access.or(read.access);
        if let Some(found) = read.servers {
            return Ok((Found::Named(found), access));
        }
    }
    let socket = machine.socket();
    let silent = match local::try_connect(&socket) {
        Ok(()) => {
            let found = named(format!("unix:{}", socket.display()), "the machine's socket");
            return Ok((found, access));
        }
        Err(error) => is_there(&socket).then(|| (socket.clone(), error)),
    };
    let found = Found::Local {
        origin: format!(
            "no servers are named, and none answers at {}",
            socket.display()
        ),
        silent,
    };
    Ok((found, access))
}

/// Whether something is at the path, as far as this user can see.
fn is_there(path: &Path) -> bool {
    let absent = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
    };
    std::fs::symlink_metadata(path).map_or_else(|error| !absent(&error), |_| true)
}

/// The user's `config.toml`, unless the environment names no home.
fn user_file() -> Option<PathBuf> {
    let folder = folders::absolute_variable("XDG_CONFIG_HOME")
        .or_else(|| Some(folders::absolute_variable("HOME")?.join(".config")))?;
    Some(folder.join(Path::new("baton/config.toml")))
}
