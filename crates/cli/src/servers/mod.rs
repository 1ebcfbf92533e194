//! Which servers a command uses, and the local server that is started where none is named.

pub(crate) mod config_file;
pub(crate) mod local;
pub(crate) mod lookup;
pub(crate) mod machine;
pub(crate) mod marker;
pub(crate) mod unshared_locks;
