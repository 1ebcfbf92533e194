//! Requests of clients, from the inbox to an entry of the log.
//!
//! | module | owns |
//! |---|---|
//! | `outstanding` | batches of this server's clients that are not applied yet |
//! | `proposals` | what a leader is about to propose, and whose turn it is |
//! | `backlog` | requests that wait for an entry, and whose turn it is |
//! | `in_flight` | the requests of a batch, and the steps that they become |
//! | `group_commit` | adaptive group commit: when the core spins, when it waits for more writes |

pub(crate) mod backlog;
pub(crate) mod group_commit;
pub(crate) mod in_flight;
pub(crate) mod outstanding;
pub(crate) mod proposals;
