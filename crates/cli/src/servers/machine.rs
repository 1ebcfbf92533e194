//! The paths that all users of a machine share: configuration, socket, folders for marks. It opens
//! none of them.

use std::path::PathBuf;

use crate::exit::Failure;

/// The variable that names another root, for tests and packagers.
const ROOT_VARIABLE: &str = "BATON_SYSTEM_DIR";

/// The shared paths of one machine.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    root: PathBuf,
}

impl Machine {
    /// This machine; below the folder that BATON_SYSTEM_DIR names, if it is set.
    pub(crate) fn this() -> Result<Self, Failure> {
        let given = std::env::var_os(ROOT_VARIABLE).filter(|value| !value.is_empty());
        let root = given.map_or_else(|| PathBuf::from("/"), PathBuf::from);
        // A comma would end the socket's path in a list of servers.
        if !root.is_absolute() || root.to_str().is_none_or(|path| path.contains(',')) {
            return Err(Failure::usage(format!(
                "{ROOT_VARIABLE} in the environment: {} is not an absolute path without commas; \
                 correct it, or unset it",
                root.display()
            )));
        }
        Ok(Self { root })
    }

    /// The file that names the servers which all users of the machine use.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.root.join("etc/baton/config.toml")
    }

    /// The socket of the machine's own server.
    pub(crate) fn socket(&self) -> PathBuf {
        self.root.join("run/baton/baton.sock")
    }

    /// Folders in which every user may make files, the first choice first.
    pub(crate) fn shared_folders(&self) -> [PathBuf; 2] {
        [self.root.join("run/lock"), self.root.join("tmp")]
    }
}
