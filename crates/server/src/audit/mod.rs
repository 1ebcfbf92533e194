//! The audit record: who did what, one line each, under ZooKeeper's names of fields.
//!
//! Every server records what its own clients have changed, when that is applied. Recording is never
//! in the way of a write: lines go into a bounded buffer, from which a thread of its own writes
//! them. Lines that find no room, or that cannot be written, are lost and counted, and a line says
//! how many. Nothing is recorded twice, and nothing that a client sends makes a line or a field of
//! its own.
//!
//! | module | owns |
//! |---|---|
//! | `changes` | what a committed entry changed, as lines |
//! | `record` | the record of a server: opened, added to, ended |
//! | `writer` | the thread that writes the lines, and what it says when it cannot |
//! | `file` | the file: who may read it, when the next one begins |
//! | `queue` | lines that wait to be written, and how many may |
//! | `line` | the form of one line: fields and how their values are escaped |

pub(crate) mod changes;
mod file;
pub(crate) mod line;
mod queue;
pub(crate) mod record;
mod writer;
