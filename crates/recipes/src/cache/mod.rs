//! A cache of a subtree, kept up to date.
//!
//! [`TreeCache::builder`] sets the limits; [`TreeCache`] has an example. Reads of the cache send
//! nothing. What it shows was true a moment ago and proves nothing: hold a [`Guard`](crate::Guard)
//! where it matters that nobody else acts.

// Owns the cache's handle and its limits. The cache only reads: it must never change the tree, nor
// be taken for proof of anything: what it shows was true as of a zxid, which may be over.

mod draft;
mod error;
mod follower;
mod state;
mod view;

pub use error::CacheError;
pub use state::{CacheEvents, CacheStatus};
pub use view::{CacheEvent, CachedNode, Change, Snapshot, Update};

use std::sync::Arc;

use baton_client::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use state::{CacheState, Limits};

/// Number of callers of [`TreeCache::catch_up`] that queue before further ones wait to do so.
const ASKS: usize = 64;

/// A cached subtree, kept up to date by a single watch, across lost connections and lost sessions.
///
/// It is for reading often what changes seldom: settings, who is there, which locks exist. Each
/// state that it shows is the tree as it was at [`Snapshot::as_of`]. What happened while there was
/// no connection is found by comparing, deletions included. The root need not exist. Cheap to
/// clone; the cache stops when the last clone is dropped.
///
/// What it shows is never the newest for sure. Decide by it whom to ask, not who holds: that is
/// what a [`Guard`](crate::Guard) is for. [`TreeCache::catch_up`] waits until it shows everything
/// that was done before.
///
/// Needs a server with persistent watches (Baton, Apache ZooKeeper from 3.6 on).
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use baton::cache::CacheEvent;
/// use baton::TreeCache;
///
/// let settings = TreeCache::builder(&client, "/settings")?.max_nodes(1_000).start()?;
/// let mut events = settings.events();
/// while let Some(event) = events.next().await {
///     match event {
///         CacheEvent::Reset(snapshot) => println!("{} nodes", snapshot.len()),
///         CacheEvent::Update(update) => println!("{:?}", update.changes),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TreeCache {
    handle: Arc<CacheHandle>,
}

#[derive(Debug)]
struct CacheHandle {
    state: Arc<CacheState>,
    asks: mpsc::Sender<follower::CatchUp>,
    task: AbortHandle,
    /// Keeps the client open.
    _client: Client,
}

impl Drop for CacheHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Builder of a [`TreeCache`]: see [`TreeCache::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is read before start"]
pub struct TreeCacheBuilder {
    client: Client,
    path: Arc<str>,
    limits: Limits,
    backlog: usize,
}

/// The most steps that are kept for the slowest listener.
const MAX_BACKLOG: usize = 1 << 20;

impl TreeCacheBuilder {
    /// Limits the depth below the root: 0 for the root alone, 1 for its children too. Default: all.
    pub fn max_depth(mut self, levels: usize) -> Self {
        self.limits.depth = levels;
        self
    }

    /// Limits the number of nodes. Default: 100 000.
    pub fn max_nodes(mut self, nodes: usize) -> Self {
        self.limits.nodes = nodes;
        self
    }

    /// Limits the bytes of paths and data together. Default: 64 MiB. While the subtree is read
    /// again there are for a moment two of it.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// Skips nodes that this client may not read, and their descendants, instead of waiting until
    /// it may: [`Snapshot::unreadable`] lists them. The root of the subtree has to be readable in
    /// any case.
    pub fn pass_over_unreadable(mut self) -> Self {
        self.limits.passes_over = true;
        self
    }

    /// Sets the number of steps that are kept for slow listeners: a listener further behind gets
    /// the whole view instead. Default: 256; from 1 to 1,048,576.
    pub fn backlog(mut self, steps: usize) -> Self {
        self.backlog = steps;
        self
    }

    /// Starts the cache: it reads and watches the subtree in the background.
    ///
    /// # Errors
    /// [`CacheError::Connect`] where the client's thread cannot be started;
    /// [`CacheError::BadOption`].
    pub fn start(self) -> Result<TreeCache, CacheError> {
        if !(1..=MAX_BACKLOG).contains(&self.backlog) {
            return Err(CacheError::BadOption {
                path: self.path.to_string(),
                option: "backlog",
                value: self.backlog,
                most: MAX_BACKLOG,
            });
        }
        let runtime = self
            .client
            .runtime()
            .map_err(|source| CacheError::connect(&self.path, source))?;
        let state = Arc::new(CacheState::new(self.path, self.limits, self.backlog));
        let (asks, asked) = mpsc::channel(ASKS);
        let following = follower::run(Arc::clone(&state), self.client.detached(), asked);
        let task = runtime.spawn(following);
        let handle = CacheHandle {
            state,
            asks,
            task: task.abort_handle(),
            _client: self.client,
        };
        Ok(TreeCache {
            handle: Arc::new(handle),
        })
    }
}

impl TreeCache {
    /// A cache of the node at `path` and all below it, not started yet. Nothing is sent.
    ///
    /// # Errors
    /// [`CacheError::BadPath`].
    pub fn builder(client: &Client, path: &str) -> Result<TreeCacheBuilder, CacheError> {
        baton_proto::path::validate(path)
            .map_err(|error| CacheError::bad_path(path, error.to_string()))?;
        Ok(TreeCacheBuilder {
            client: client.clone(),
            path: Arc::from(path),
            limits: Limits {
                depth: usize::MAX,
                nodes: 100_000,
                bytes: 64 << 20,
                passes_over: false,
            },
            backlog: 256,
        })
    }

    /// The path of the subtree's root.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.handle.state.path
    }

    /// Returns the present view. Empty before the first reading has ended; see
    /// [`TreeCache::ready`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.handle.state.snapshot()
    }

    /// Returns the node at this full path from the view, if it is there.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<CachedNode> {
        self.snapshot().get(path).cloned()
    }

    /// Returns the state of the cache now.
    #[must_use]
    pub fn status(&self) -> CacheStatus {
        self.handle.state.status.borrow().clone()
    }

    /// Waits until the status differs from `seen`, and returns it. Statuses in between may be
    /// skipped. Cancel-safe.
    pub async fn status_other_than(&self, seen: &CacheStatus) -> CacheStatus {
        let mut status = self.handle.state.status.subscribe();
        match status.wait_for(|status| status != seen).await {
            Ok(status) => status.clone(),
            Err(_) => CacheStatus::Stopped,
        }
    }

    /// Waits until the tree has been read for the first time, through failed attempts too.
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`CacheError::Stopped`].
    pub async fn ready(&self) -> Result<Snapshot, CacheError> {
        let mut status = self.handle.state.status.subscribe();
        let settled =
            |status: &CacheStatus| *status == CacheStatus::Stopped || self.handle.state.is_read();
        let stopped = match status.wait_for(settled).await {
            Ok(status) => *status == CacheStatus::Stopped,
            Err(_) => true,
        };
        if stopped {
            Err(self.stopped())
        } else {
            Ok(self.snapshot())
        }
    }

    /// Waits until the view shows every change that was acknowledged to anybody before this call.
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`CacheError::Stopped`]. It waits as long as there is no connection, or the server refuses.
    pub async fn catch_up(&self) -> Result<Snapshot, CacheError> {
        let (ask, answer) = oneshot::channel();
        let asked = self.handle.asks.send(ask).await;
        asked.map_err(|_| self.stopped())?;
        answer.await.map_err(|_| self.stopped())?;
        Ok(self.snapshot())
    }

    /// Returns a stream of events: first the whole view, then each step.
    #[must_use]
    pub fn events(&self) -> CacheEvents {
        self.handle.state.listen()
    }

    fn stopped(&self) -> CacheError {
        CacheError::Stopped {
            path: self.path().to_owned(),
        }
    }
}
