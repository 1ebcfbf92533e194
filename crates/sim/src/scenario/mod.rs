//! Scenarios, one file per recipe. A scenario is a few clients that use a recipe, and the promises
//! that must hold however they were disturbed.
//!
//! | module | owns |
//! |---|---|
//! | `mutex`, `reentrant`, `rw_lock`, `multi_lock`, `semaphore`, `partition` | locks and permits |
//! | `election`, `barrier`, `member`, `queue`, `value`, `txn` | the other recipes, one each |
//! | `work_queue` | the work queue: consumers that fail |
//! | `work_fates` | every way in which a claim ends |
//! | `work_visibility` | visibility time-outs |
//! | `history` | plain operations, for an ensemble |
//! | `writes` | writes, for runs that strike logs, elections and members |
//! | `records` | what must be true of such a history |
//! | `hold` | a lock that is held for a while, and checked |
//! | `ledger` | which items were put, taken and settled |

use baton_client::BoxFuture;

use crate::stage::{FinalState, Stage};

mod barrier;
mod election;
mod history;
mod hold;
mod ledger;
mod member;
mod multi_lock;
mod mutex;
mod partition;
mod queue;
mod records;
mod reentrant;
mod rw_lock;
mod semaphore;
mod txn;
mod value;
mod work_fates;
mod work_queue;
mod work_visibility;
mod writes;

pub use self::history::history;
pub use self::writes::writes;
pub use crate::boundary::Boundary;

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// Number of clients.
    pub clients: usize,
    /// Session timeouts on several servers: each run draws one.
    pub timeouts_ms: &'static [u64],
    /// Whether its promises hold only where the clocks of several servers agree.
    pub clocks_agree: bool,
    /// Whether what strikes logs, elections and members comes on several servers, in place of what
    /// is aimed at clients.
    pub strikes_logs: bool,
    /// Plays it, to the end of all its actors.
    pub play: fn(Stage) -> BoxFuture<()>,
    /// Whether a node may stay while the sessions live and nobody does anything.
    pub keeps: fn(&str) -> bool,
    /// Whether a watch may stay so.
    pub watches: fn(&str) -> bool,
    /// Judges what is there then.
    pub afterwards: Option<fn(&Stage, &FinalState)>,
    /// Creates that a run may send beyond twice what the undisturbed run sends.
    pub more_creates: usize,
}

impl Scenario {
    /// With nothing that may stay, and the usual bound on creates.
    const fn new(name: &'static str, clients: usize, play: fn(Stage) -> BoxFuture<()>) -> Self {
        Self {
            name,
            clients,
            timeouts_ms: &[4_000],
            clocks_agree: false,
            strikes_logs: false,
            play,
            keeps: nothing,
            watches: nothing,
            afterwards: None,
            more_creates: 8,
        }
    }

    /// Moments at which its promises are at stake.
    pub fn boundaries(&self) -> impl Iterator<Item = &'static Boundary> {
        crate::boundary::of(self.name)
    }

    const fn keeps(self, keeps: fn(&str) -> bool) -> Self {
        Self { keeps, ..self }
    }

    const fn with_check(self, check: fn(&Stage, &FinalState)) -> Self {
        Self {
            afterwards: Some(check),
            ..self
        }
    }
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Scenario").field(&self.name).finish()
    }
}

fn nothing(_: &str) -> bool {
    false
}

/// Every scenario.
#[must_use]
pub fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(mutex::scenarios());
    all.extend(reentrant::scenarios());
    all.extend(election::scenarios());
    all.extend(rw_lock::scenarios());
    all.extend(semaphore::scenarios());
    all.extend(multi_lock::scenarios());
    all.extend(queue::scenarios());
    all.extend(work_queue::scenarios());
    all.extend(work_fates::scenarios());
    all.extend(work_visibility::scenarios());
    all.extend(txn::scenarios());
    all.extend(barrier::scenarios());
    all.extend(value::scenarios());
    all.extend(member::scenarios());
    all.extend(partition::scenarios());
    all
}

/// The scenario with this name.
#[must_use]
pub fn find(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}
