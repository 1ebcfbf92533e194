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
//! This crate is for development only, and must never decide anything that production code decides.
#![forbid(unsafe_code)]

mod cancel;
mod explore;
mod fault;
mod frames;
mod network;
mod occupancy;
mod pipe;
mod run;
pub mod scenario;
mod stage;
mod standstill;
mod transcript;

pub use cancel::CancelAt;
pub use explore::{Effort, Failure, Summary, explore, find, replay};
pub use fault::{Direction, Edge, Fault, FaultKind, Plan, PlanError};
pub use occupancy::Occupancy;
pub use run::{Report, run};
pub use stage::Stage;
