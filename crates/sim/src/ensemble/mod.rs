//! Several nodes of one cluster, each its consensus, its log on a disk that loses what was not
//! synced, and its tree, in virtual time and without clients.
//!
//! One loop takes the next event, lets one node act on it, and holds what the node then is against
//! what is known of the whole cluster. All chance comes from the seed of the run, so the same seed
//! gives the same run, to the last line of its transcript. `docs/project/simulation.md` explains
//! how to use it.
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `explore` | many seeds, the first failure in full |
//! | `run` | one seed, from the first event to the result |
//! | `ending` | the end of a run: a majority is healed, and must come to rest |
//! | `faults` | what goes wrong, when a fault is due |
//! | `figure_eight` | figure 8 of the Raft paper, on purpose |
//! | `operator` | who adds, removes and replaces members while the run goes on |
//! | `events` | which event lets whom do what |
//! | `wire` | messages and connections between nodes: hello, delay, cuts, late bytes |
//! | `drive` | one node acts on what its consensus hands out |
//! | `early` | seeded bugs that go around the engine |
//! | `rollback` | handshakes that show which folder was rolled back; who such folders elect |
//! | `life` | a node starts, stops, crashes |
//! | `world` | the state of a run, and what every part of it uses |
//! | `scene` | how far the steps of `figure_eight` are |
//! | `node` | one node: its disk, and the process while it runs |
//! | `proofs` | what a node knows of entries that others have committed and acknowledged |
//! | `folder` | what a folder holds besides the log; how every log here is kept |
//! | `truth` | what must hold of all nodes after each event |
//! | `network` | connections, their generations, cuts |
//! | `image` | what a log must give back |
//! | `members` | the effect of a change, computed beside the engine |
//! | `swarm` | which faults a seed draws, and how often they come |
//! | `mark` | rare situations that runs must come to |
//! | `bug` | seeded bugs |
//! | `timeline` | events in virtual time |

mod bug;
mod drive;
mod early;
mod ending;
mod events;
mod explore;
mod faults;
mod figure_eight;
mod folder;
mod image;
mod life;
mod mark;
mod members;
mod network;
mod node;
mod operator;
mod proofs;
mod rollback;
mod run;
mod scene;
mod swarm;
mod timeline;
mod truth;
mod wire;
mod world;

pub use bug::SeededBug;
pub use explore::{EnsembleFailure, EnsembleSummary, explore};
pub use mark::Mark;
pub use run::{EnsembleReport, Settings, run};
