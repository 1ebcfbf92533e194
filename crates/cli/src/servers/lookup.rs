//! Lookup of a command's servers: the order in which they are searched for. It starts none, and
//! connects to none, except that it checks whether a server answers at the machine's socket.

use std::io;
use std::path::{Path, PathBuf};

use crate::access::AccessFiles;
use crate::context::{Globals, SERVERS_FLAG};
use crate::exit::Failure;
use crate::folders;
use crate::servers::config_file::{self, ConfigFile, NamedContext, NamedServers, SelectedContext};
use crate::servers::local;
use crate::servers::machine::Machine;

/// The variable that names another file in place of the user's.
const CONFIG_VARIABLE: &str = "BATON_CONFIG";

/// The servers that were found.
#[derive(Debug)]
pub(crate) enum Found {
    /// Servers that somebody has named, or the machine's own.
    Named(NamedServers),
    /// Nothing but the user's own local server.
    Local {
        /// Setting or default that names it, for people.
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
/// servers that it names, or that a file behind it names, and those of a context for its servers
/// alone: credentials never go to servers that somebody else has named before.
///
/// # Errors
/// A file that is wrong, with its line; a context that no file has.
pub(crate) fn servers(
    globals: &Globals,
    machine: &Machine,
) -> Result<(Found, AccessFiles), Failure> {
    let named = |list: String, origin: &str| {
        let origin = origin.to_owned();
        Found::Named(NamedServers { list, origin })
    };
    let is_variable = |name| globals.from_variables.contains(&name);
    let mut access = AccessFiles::of(globals);
    let asked = globals.context.as_ref().map(|name| SelectedContext {
        name: name.clone(),
        origin: match is_variable("context") {
            true => "BATON_CONTEXT in the environment".to_owned(),
            false => "--context".to_owned(),
        },
    });
    let (by_flag, by_variable) = match is_variable("context") {
        true => (None, asked),
        false => (asked, None),
    };
    if let Some(selected) = by_flag {
        if globals.servers.is_some() && globals.servers_origin == SERVERS_FLAG {
            return Err(Failure::usage(
                "--servers and --context both name servers; give one of them",
            ));
        }
        return in_context(&selected, &Files::of(machine)?.read()?, access);
    }
    if let Some(list) = &globals.servers {
        return Ok((named(list.clone(), globals.servers_origin), access));
    }
    let by_folder = || Found::Local {
        origin: "--data-dir or BATON_DATA_DIR names it".to_owned(),
        silent: None,
    };
    if globals.data_dir.is_some() && !is_variable("data_dir") {
        return Ok((by_folder(), access));
    }
    if let Some(selected) = by_variable {
        return in_context(&selected, &Files::of(machine)?.read()?, access);
    }
    if globals.data_dir.is_some() {
        return Ok((by_folder(), access));
    }
    let files = Files::of(machine)?;
    let paths: Vec<_> = files.paths().collect();
    for (at, path) in paths.iter().enumerate() {
        let read = files.read_one(path)?;
        if let Some(selected) = &read.current {
            let behind = paths.iter().skip(at + 1);
            let behind: Result<Vec<_>, _> = behind.map(|path| files.read_one(path)).collect();
            let mut all = vec![read.clone()];
            all.extend(behind?);
            return in_context(selected, &all, access);
        }
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

/// The servers of the context that was asked for.
fn in_context(
    selected: &SelectedContext,
    files: &[ConfigFile],
    access: AccessFiles,
) -> Result<(Found, AccessFiles), Failure> {
    let context = context_of(&selected.name, files).ok_or_else(|| unknown(selected, files))?;
    let found = Found::Named(context.servers.clone());
    Ok((found, access.or(context.access.clone())))
}

/// The context of this name; the first file that has it counts.
pub(crate) fn context_of<'a>(name: &str, files: &'a [ConfigFile]) -> Option<&'a NamedContext> {
    let mut contexts = files.iter().flat_map(|file| &file.contexts);
    contexts.find(|context| context.name == name)
}

/// The refusal of a context that no file has.
pub(crate) fn unknown(selected: &SelectedContext, files: &[ConfigFile]) -> Failure {
    let names = files.iter().flat_map(|file| &file.contexts);
    let names: Vec<_> = names.map(|context| context.name.as_str()).collect();
    let SelectedContext { name, origin } = selected;
    let remedy = if names.is_empty() {
        format!(
            "there are none; write [context.NAME] and servers = \"LIST\" in {}",
            Files::SHOWN
        )
    } else {
        format!("there are {}", names.join(", "))
    };
    Failure::usage(format!("{origin}: no context {name:?}; {remedy}"))
}

/// The files in which commands look for servers.
pub(crate) struct Files {
    user: Option<PathBuf>,
    /// Whether somebody has named the user's file, which has to be there then.
    is_named: bool,
    /// The context of `baton dev`, while that runs.
    dev: Option<PathBuf>,
    machine: PathBuf,
}

impl Files {
    /// The user's file, for people who have none.
    const SHOWN: &'static str = "~/.config/baton/config.toml";

    /// The files of this user on this machine.
    pub(crate) fn of(machine: &Machine) -> Result<Self, Failure> {
        let named = std::env::var_os(CONFIG_VARIABLE).filter(|path| !path.is_empty());
        let is_named = named.is_some();
        let user = match named.map(PathBuf::from) {
            Some(path) => Some(std::path::absolute(&path).map_err(|error| {
                let path = path.display();
                Failure::usage(format!(
                    "{CONFIG_VARIABLE} in the environment: {path}: {error}; name a file"
                ))
            })?),
            None => user_file(),
        };
        Ok(Self {
            user,
            is_named,
            dev: dev_file(),
            machine: machine.config_file(),
        })
    }

    /// The user's file; `None`: the environment names no home.
    pub(crate) fn user(&self) -> Option<&Path> {
        self.user.as_deref()
    }

    /// The user's file, if there is one, that of `baton dev`, then the machine's.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let users = self.user().into_iter().chain(self.dev.as_deref());
        users.chain([self.machine.as_path()])
    }

    /// Reads all files, in the order in which they count.
    pub(crate) fn read(&self) -> Result<Vec<ConfigFile>, Failure> {
        self.paths().map(|path| self.read_one(path)).collect()
    }

    fn read_one(&self, path: &Path) -> Result<ConfigFile, Failure> {
        let read = config_file::read_existing(path)?;
        if read.is_none() && self.is_named && self.user() == Some(path) {
            return Err(Failure::usage(format!(
                "{CONFIG_VARIABLE} in the environment: there is no file {}; correct it, or unset it",
                path.display()
            )));
        }
        Ok(read.map(|(_, config)| config).unwrap_or_default())
    }
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

/// The file of the context that `baton dev` makes, unless the user has no home.
pub(crate) fn dev_file() -> Option<PathBuf> {
    Some(folders::config_home()?.join("baton/dev.toml"))
}

/// The user's `config.toml`, unless the user has no home.
fn user_file() -> Option<PathBuf> {
    Some(folders::config_home()?.join("baton/config.toml"))
}
