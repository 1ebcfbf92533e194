//! Locks, elections and queues for programs on many machines, over the ZooKeeper protocol.
//!
//! | public module | for |
//! |---|---|
//! | [`lock`] | one holder at a time ([`Mutex`]), readers and writers ([`RwLock`]), several locks |
//! | [`semaphore`] | a number of permits, several holders at a time |
//! | [`election`] | one leader at a time, numbered terms, observers |
//! | [`work_queue`] | items that are claimed, acknowledged, and come back if they are not |
//! | [`queue`] | queues in the layouts of other libraries |
//! | [`barrier`] | processes that wait for one another |
//! | [`membership`] | which processes are there |
//! | [`partition`] | items spread over members, each under a lock of its own |
//! | [`value`] | counters and values that several processes write |
//! | [`cache`] | a subtree kept in memory |
//! | [`inspect`] | every recipe seen from outside: who holds, who waits, what a queue contains |
//! | [`blocking`] | every recipe without a runtime |
//! | [`guard`], [`fence`] | the proof of holding a lock; fencing tokens on the receiver's side |
//! | [`session`], [`tree`], [`lease`] | the session below the recipes, its operations, its lease |
//! | [`error`], [`naming`], [`record`] | what the recipes share: errors, names and data of nodes |
//!
//! A [`Guard`] ends *before* anyone else can hold the lock: [`Guard::check`] says whether it still
//! holds, [`Guard::run`] stops the work when it does not, and [`Guard::token`] is the fencing token
//! for systems that receive the work's requests.
//!
//! ```no_run
//! # async fn deploy() {}
//! # async fn program() -> Result<(), baton::Error> {
//! let client = baton::Client::connect(baton::Config::new("127.0.0.1:2181")?).await?;
//! let guard = baton::Mutex::new(&client, "/deploy")?.acquire().await?;
//! println!("holding with token {}", guard.token());
//! guard.run(deploy()).await?;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The main types are also at the root of this crate. [`Error`] is any error of this library, for
//! functions that use several recipes; each recipe's own error says more.
//!
//! # Features
//!
//! - `tls`, `sasl`: `Config::tls` and `tls://` in server lists, and `Config::sasl`. On by default;
//!   without them the library needs half as many crates.
//! - `embedded`: a server in this process, for tests of programs and for trials. Off by default. A
//!   test can expire sessions of it, pause it, and restart it: `baton::embedded`.
//!
//! # Guides
//!
//! [`guide`] begins with a first program. [`guide::recipes`] helps to choose a recipe,
//! [`guide::guarantees`] states what is promised, [`guide::hazards`] what can go wrong.

// The modules of this crate, highest first: a module uses only modules below it.
//
// | module | owns |
// |---|---|
// | `guide` | the users' pages, as documentation |
// | `error` | one error type for all recipes |
// | `embedded` | a server in this process, with a client of it |
// | `inspect` | recipes seen from outside: holders, waiters, claims; asking a holder to release |
// | `partition` | items spread over the members of a group, each under a lock |
// | `work_queue` | work items: claimed, settled, returned when their consumer fails |
// | `election` | leader election: terms, stages, observers |
// | `semaphore` | permits: several holders at a time |
// | `lock` | the handles of mutexes and read/write locks, alone and several at once |
// | `queue` | distributed queues in the layouts of other libraries |
// | `barrier` | barrier, double barrier, countdown latch |
// | `value` | shared values and counters |
// | `membership` | membership: who is there; nodes that outlive their session |
// | `cache` | a subtree kept in memory |
// | `acquire` | one lock acquisition, from its parameters to a guard; its errors and its progress |
// | `guard` | the proof of holding: when it ends, releases, transactions |
// | `wait_queue` | waiter nodes: created, ordered, waited for, deleted; the release marker |
// | `kind` | the recipe that a folder belongs to, where it is not the own one |
// | `naming` | naming schemes: the names of lock nodes of every library |
// | `receipt` | the outcome of a change whose answer was lost |
// | `server_clock` | the server's wall clock |
// | `record` | the data of our nodes: who, where, since when |
// | `rendering` | how ids, bytes and texts of others are shown: in JSON, on one line |
// | `parents` | the directories above our nodes, made on demand |
// | `retry` | when an operation may be repeated, and the loops that repeat one |
// | `common_error` | what the errors of all recipes have in common, declared once |
// | `time_limit` | one deadline over a wait, and what the wait lacked |
// | `spans` | names and fields of the spans for `tracing` |
// | `lost_reason` | why something that was held is held no longer |
// | `backoff` | growing pauses |
// | `blocking` | waiting for an operation without a runtime |
// | `background` | tasks and timers on the client's runtime |
// | `options` | options that handles of several recipes have, declared once |
// | `recipe_path` | which paths a recipe may have |
// | `fence` | the receiver's side of fencing tokens |
// | `session`, `tree`, `lease` | the client's types, for users |

#![forbid(unsafe_code)]
#![deny(missing_debug_implementations, unnameable_types)]

mod acquire;
mod background;
mod backoff;
pub mod barrier;
pub mod blocking;
pub mod cache;
mod common_error;
pub mod election;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod error;
pub mod fence;
pub mod guard;
pub mod guide;
pub mod inspect;
mod kind;
pub mod lease;
pub mod lock;
mod lost_reason;
pub mod membership;
pub mod naming;
mod options;
mod parents;
pub mod partition;
pub mod queue;
mod receipt;
mod recipe_path;
pub mod record;
mod rendering;
mod retry;
pub mod semaphore;
mod server_clock;
pub mod session;
mod spans;
mod time_limit;
pub mod tree;
pub mod value;
mod wait_queue;
pub mod work_queue;

pub use barrier::{Barrier, CountdownLatch, DoubleBarrier};
pub use cache::TreeCache;
pub use election::{LeaderElection, Leadership};
pub use error::Error;
pub use fence::Fence;
pub use guard::{Guard, LostReason};
pub use lock::{MultiLock, Mutex, ReentrantMutex, RwLock};
pub use membership::Membership;
pub use partition::Partitioner;
pub use queue::DistributedQueue;
pub use semaphore::Semaphore;
pub use session::{Client, Config, Session};
pub use value::{Counter, SharedValue};
pub use work_queue::WorkQueue;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
