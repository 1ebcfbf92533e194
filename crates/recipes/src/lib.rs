//! Locks, elections and queues for programs on many machines, over the ZooKeeper protocol.
//!
//! - [`Mutex`]: one holder at a time, in order of arrival; [`ReentrantMutex`]: who holds may take
//!   it again; [`SimpleMutex`]: the first lock of every tutorial, with its herd.
//! - [`RwLock`]: many readers or one writer, in order of arrival.
//! - [`MultiLock`]: several locks, all of them or none.
//! - [`Semaphore`]: a number of permits, several of them acquired at a time, all or none.
//! - [`LeaderElection`]: one leader at a time, numbered terms, reported stages.
//! - [`Barrier`], [`DoubleBarrier`], [`CountdownLatch`]: wait for one another.
//! - [`DistributedQueue`]: items in order, each to one consumer; [`PriorityQueue`], [`DelayQueue`],
//!   [`IdQueue`]: in another order, or by name; [`LockingQueue`]: locked until they are done.
//! - [`WorkQueue`]: items that are claimed, acknowledged, and come back if they are not.
//! - [`Membership`]: who is there, with [`PersistentNode`] to be there oneself; [`TreeCache`]: a
//!   subtree kept in memory.
//! - [`Counter`], [`SharedValue`]: one node that several processes write, each write once.
//! - [`Partitioner`]: items spread over members, each with a lock of its own.
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
//! [`session`] has the session below the recipes. [`Error`] is any error of this library, for
//! functions that use several recipes; each recipe's own error says more.
//!
//! # Features
//!
//! - `embedded`: a server in this process, for tests of programs and for trials. Off by default.

// The modules of this crate, highest first: a module uses only modules below it.
//
// | module | owns |
// |---|---|
// | `error` | one error type for all recipes |
// | `embedded` | a server in this process, with a client of it |
// | `partition` | items spread over the members of a group, each under a lock |
// | `work_queue` | work items: claimed, settled, returned when their consumer fails |
// | `election` | leader election: terms, stages, observers |
// | `semaphore` | permits: several holders at a time |
// | `lock` | the handles of mutexes and read/write locks, alone and several at once |
// | `queue` | distributed queues in the layouts of other libraries |
// | `barrier` | barrier, double barrier, countdown latch |
// | `value` | shared values and counters |
// | `member` | membership: who is there; nodes that outlive their session |
// | `cache` | a subtree kept in memory |
// | `acquire` | one lock acquisition, from its parameters to a guard; its errors and its progress |
// | `guard` | the proof of holding: when it ends, releases, transactions |
// | `wait_queue` | waiter nodes: created, ordered, waited for, deleted; the release marker |
// | `naming` | naming schemes: the names of lock nodes of every library |
// | `receipt` | the outcome of a change whose answer was lost |
// | `server_clock` | the server's wall clock |
// | `record` | the data of our nodes: who, where, since when |
// | `parents` | the directories above our nodes, made on demand |
// | `retry` | when an operation may be repeated, and the loops that repeat one |
// | `time_limit` | one deadline over a wait, and what the wait lacked |
// | `lost_reason` | why something that was held is held no longer |
// | `backoff` | growing pauses |
// | `fence` | the receiver's side of fencing tokens |
// | `session` | the names of the client's types, for users |

#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

mod acquire;
mod backoff;
mod barrier;
mod cache;
mod election;
#[cfg(feature = "embedded")]
pub mod embedded;
mod error;
mod fence;
mod guard;
mod lock;
mod lost_reason;
mod member;
mod naming;
mod parents;
mod partition;
mod queue;
mod receipt;
mod record;
mod retry;
mod semaphore;
mod server_clock;
mod time_limit;
mod value;
mod wait_queue;
mod work_queue;

pub use acquire::{LockError, QueuePosition, WaitProgress};
pub use barrier::{
    Barrier, BarrierError, BarrierLayout, CountdownLatch, DoubleBarrier, Entered, Left,
};
pub use baton_client::{
    Acl, Client, Config, ConfigError, ConnectError, CreateMode, LeaseError, LeaseMode,
    LeaseOptions, Session, Stat, State,
};
pub use cache::{
    CacheError, CacheEvent, CacheEvents, CacheStatus, CachedNode, Change, Snapshot, TreeCache,
    TreeCacheBuilder, Update,
};
pub use election::{
    Departure, ElectionError, Leader, LeaderElection, Leadership, Observer, Stage, StageStream,
    Term,
};
pub use error::Error;
pub use fence::{Fence, StaleToken};
pub use guard::{
    Committed, Guard, GuardStatus, LostReason, ReleaseError, Releasing, Txn, TxnError,
};
pub use lock::{
    MultiGuard, MultiLock, Mutex, OwnerId, ReadGuard, ReentrantGuard, ReentrantMutex, RwLock,
    SimpleMutex, UpgradeRefused, WriteGuard,
};
pub use member::{
    GroupLayout, GroupUpdate, GroupView, Member, MemberError, Membership, NodeState,
    PersistentNode, Registered, Registration,
};
pub use naming::{Dialect, Refusal, RwDialect, UnknownDialect};
pub use partition::{Partition, PartitionError, PartitionEvent, Partitioner};
pub use queue::{
    DelayQueue, DistributedQueue, IdItem, IdQueue, LockedItem, LockingQueue, PriorityQueue,
    QueueError, QueueLayout,
};
pub use record::Record;
pub use semaphore::{Semaphore, SemaphoreError};
pub use time_limit::WaitedFor;
pub use value::{Counter, CounterLayout, Numbers, SharedValue, ValueError, Values, Versioned};
pub use work_queue::{
    Claim, ClaimInfo, Claims, DeadLetter, Depth, Purged, RunSummary, Settled, Settlement,
    WorkError, WorkItem, WorkQueue,
};

/// The session below the recipes: connections, operations on the tree, the lease, watches.
///
/// Every type that a recipe takes or returns and that is not a recipe's own is here.
pub mod session {
    pub use baton_client::{
        Acl, AddWatchMode, Applied, BootInstant, BoxFuture, BoxStream, Children, Cleanup,
        CleanupError, Client, ClientInfo, Clock, CloseError, Config, ConfigError, ConnectError,
        CreateMode, Created, Data, DeleteOptions, Deletion, EndReason, Endpoint, Error, ErrorCode,
        EventKind, Host, Lease, LeaseError, LeaseHold, LeaseMode, LeaseOptions, Op, OpCode,
        OpResult, Pending, PendingApplied, Perms, PersistentEvent, PersistentWatch, Reason,
        Session, SessionExport, SessionLost, SocketTransport, Stat, State, StateStream, Stream,
        SystemClock, Transport, Watch, WatchEvent, path,
    };
}

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
