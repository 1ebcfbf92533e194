//! The start of a server, up to a tree, a log to append to and a consensus node that may run.
//!
//! | module | owns |
//! |---|---|
//! | `join` | the start of a server of several: what is stored before it is sent |
//! | `recover` | from a data folder to a tree and a log |
//! | `starting` | progress of the start, for operators that ask before the server serves |

pub(crate) mod join;
pub(crate) mod recover;
pub(crate) mod starting;
