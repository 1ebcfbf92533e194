//! The server as one of several.
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `start` | from a data folder to a member of a cluster: what is stored before it is said |
//! | `transfer` | snapshots between servers: sent, received, verified |
//! | `peer_log` | what the log says of other servers, and how many lines they may cause |
//! | `events` | events of the connections to other servers, on their way to the core |

#[allow(dead_code, reason = "the core takes them once it has peers")]
pub(crate) mod events;
#[allow(dead_code, reason = "the core uses it once it has peers")]
pub(crate) mod peer_log;
#[allow(
    dead_code,
    reason = "the core's thread calls it once the core has peers"
)]
pub(crate) mod start;
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        unused_imports,
        reason = "the core drives it once it has peers"
    )
)]
pub(crate) mod transfer;
