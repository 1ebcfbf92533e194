//! An ensemble of whole servers, with whole clients, in virtual time: each server with its core,
//! log, sessions and watches, on a disk that loses what was not synced; a scenario of the recipes,
//! or plain operations whose history is judged.
//!
//! Each seed draws which faults come, and how often. At the end everything is whole again, and the
//! servers must come to rest: one leader, one state, a write and a sync through each of them.
//!
//! | module | owns |
//! |---|---|
//! | `explore` | many seeds, and the first failure in full |
//! | `run` | one seed, from the first start to the result |
//! | `faults` | what goes wrong, and when |
//! | `figure_eight` | figure 8 of the Raft paper, on purpose |
//! | `operator` | who changes the members |
//! | `reader` | a client that reads in read-only mode |
//! | `swarm` | what a seed draws |
//! | `mark` | rare situations that runs must come to |

mod explore;
mod faults;
mod figure_eight;
mod mark;
mod operator;
mod reader;
mod run;
mod swarm;

pub use crate::cluster::bug::SeededBug;
pub use explore::{ServersFailure, ServersSummary, explore};
pub use mark::MARKS;
pub use run::{ServersReport, ServersSettings, run};
