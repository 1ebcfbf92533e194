//! The deterministic simulator: seeds in, violations out.
//!
//! Recipes, client and server, the real code of all three, run on one thread and one virtual clock;
//! only sockets and disk are replaced. A [`Plan`] says what goes wrong: which frame of which
//! connection is cut, lost or late, and at which poll a future is dropped. The same plan gives the
//! same run, to the last byte of its transcript. [`explore()`] runs a
//! [`Scenario`](scenario::Scenario) under every such plan and judges each run: exclusion by token
//! and by time, nothing left behind, nothing lost or doubled, nobody stuck.
//! `docs/project/simulation.md` explains how to use it.
//!
//! [`servers`] plays one to seven of the same servers, with such clients, under crashes, cuts,
//! folders that are rolled back, wrong clocks, and changes of the members.
//!
//! This crate is for development only, and must never decide anything that production code decides.
//!
//! | module | owns |
//! |---|---|
//! | [`servers`] | an ensemble of whole servers, with whole clients, under faults drawn by a seed |
//! | `explore` | every plan for a scenario, one after the other; the first failure in full |
//! | `run` | one run: a scenario under a plan, and what is true of every scenario at its end |
//! | [`scenario`] | the scenarios: what programs do, and what must hold |
//! | `stage` | what a scenario uses: clients, actors, calls that may be cancelled |
//! | `occupancy` | who holds what, and whether too many do at once |
//! | `boundary` | rare outcomes that some plan must reach |
//! | `network/` | each frame between clients and server: counted, delayed, cut by the plan |
//! | `cluster/` | an ensemble: starts and stops of its servers, connections between them |
//! | `birth` | the folder that each first member of a cluster begins with |
//! | `standstill`, `cancel` | paused processes; futures dropped at a chosen poll |
//! | `fault` | what goes wrong in a run, as values that print and parse |
//! | `recorder` | what came of a run so far |
//! | `frames`, `transcript` | a frame in words; what happened in a run, line by line |
#![forbid(unsafe_code)]

mod birth;
mod boundary;
mod cancel;
mod cluster;
mod explore;
mod fault;
mod frames;
mod network;
mod occupancy;
mod recorder;
mod run;
pub mod scenario;
pub mod servers;
mod stage;
mod standstill;
mod transcript;

pub use explore::{Effort, Failure, Summary, explore, plans_that_reach, replay};
pub use fault::{CancelAt, Direction, Edge, Fault, FaultKind, Plan, PlanError};
pub use occupancy::Occupancy;
pub use run::{Report, run};
pub use stage::{FinalState, Stage};
