//! Holders, waiters and reasons: one survey of all locks, elections and queues of a ZooKeeper-like
//! tree, and a page that shows it.
//!
//! - [`Surveyor`]: keeps a survey of a tree, and reads only what has changed. Its parts are
//!   [`Recipe`]s, [`SessionUse`]s and [`Deadlock`]s; all of them implement `serde::Serialize`.
//! - [`Console`] and [`http`]: the survey on a page in the browser, live.
//! - [`servers`]: what servers say of themselves and of their connections.
//! - [`waits`]: the wait-for graph, its cycles, and the proof that a cycle stood.
//! - [`metrics`]: what a server counts of each lock and queue, for Prometheus.
//!
//! ```no_run
//! # async fn example(client: baton_client::Client) -> Result<(), baton_console::SurveyError> {
//! use baton_console::{Limits, SessionReader, Surveyor};
//!
//! let reader = SessionReader::of(&client).await?;
//! let mut surveyor = Surveyor::new(Limits::default());
//! surveyor.update(&reader).await?;
//! for (path, recipe) in surveyor.recipes() {
//!     println!("{path}: {} wait", recipe.waiters().len());
//! }
//! for deadlock in surveyor.deadlocks() {
//!     println!("{} sessions wait for each other", deadlock.steps.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The survey makes no node and sets no watch. It sees what its session may read.

// The modules of this crate, highest first: a module uses only modules below it.
//
// | module | owns |
// |---|---|
// | `http` | the page and what it asks for: routes, headers, who gets what |
// | `actions` | what an operator may do, said before it is done |
// | `consoles` | one console for each identity, and how many there may be |
// | `detail` | what is asked for by path: one recipe, the graph, a node |
// | `console` | the survey that viewers look at, and its pace |
// | `servers` | what servers say of themselves and of their connections |
// | `scene` | the survey as rows, and what has changed between two of them |
// | `survey` | the survey as a whole: one round after the other, and what it adds to the recipes |
// | `history` | what only an observer over time knows: hand-overs, leaders, rates |
// | `sessions` | what each session holds and waits for |
// | `waits` | the wait-for graph, its cycles, and the proof that a cycle stood |
// | `recipes` | which nodes are which recipe's |
// | `tree` | what is known of the tree, and when it is read again; every bound of the survey |
// | `reader` | reads in batches |
// | `error` | why a survey failed |
// | `metrics` | metrics of each lock and queue, counted from what a server applies |

#![forbid(unsafe_code)]
#![deny(missing_debug_implementations, unnameable_types)]

mod actions;
mod console;
mod consoles;
mod detail;
mod error;
mod history;
pub mod http;
pub mod metrics;
mod reader;
mod recipes;
mod scene;
pub mod servers;
mod sessions;
mod survey;
mod tree;
pub mod waits;

pub use console::Console;
pub use consoles::Consoles;
pub use error::SurveyError;
pub use history::{Changed, PastHolder, Rates};
pub use reader::{Ask, Reply, SessionReader, TreeReader};
pub use recipes::{Barrier, Claim, Election, Letter, Queue, Recipe, process};
pub use servers::{Answers, Words};
pub use sessions::{SessionUse, Use};
pub use survey::{Surveyor, Updated, pause_after};
pub use tree::{KnownNode, KnownTree, Limits, Round};
pub use waits::{Deadlock, Step, WaitNode};
