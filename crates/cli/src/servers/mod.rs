//! Servers of a command, the local server that is started where none is named, and a server's
//! report of itself.
//!
//! | module | owns |
//! |---|---|
//! | `lookup` | the order in which servers are searched for |
//! | `config_file` | `config.toml`, which names servers and contexts |
//! | `http_port` | the commands of a server's HTTP port |
//! | `words` | all servers asked about themselves and their connections |
//! | `probe` | one server asked what it is, by a four-letter word |
//! | `local` | the local server of this user, and its start |
//! | `detached` | a server or an agent that a command has started, and that outlives it |
//! | `unshared_locks` | the notice that other users of the machine use other servers |
//! | `marker` | marks by which users see each other's local servers |
//! | `machine` | the paths that all users of a machine share |

pub(crate) mod config_file;
pub(crate) mod detached;
pub(crate) mod http_port;
pub(crate) mod local;
pub(crate) mod lookup;
pub(crate) mod machine;
pub(crate) mod marker;
pub(crate) mod probe;
pub(crate) mod unshared_locks;
pub(crate) mod words;
