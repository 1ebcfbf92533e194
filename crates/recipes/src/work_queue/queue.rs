//! The queue as callers hold it: its path and its settings.
//!
//! Owns [`WorkQueue`] and the options of its claims. The operations are in the modules above.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use baton_client::{Acl, Client};

use super::context::QueueContext;
use super::error::WorkError;
use super::settlement::RetryBackoff;
use crate::recipe_path;

/// Limit on the items that one multi claims.
pub(super) const MAX_CLAIMS: usize = 64;

/// Options of the claims that one handle makes.
#[derive(Clone, Debug)]
pub(super) struct ClaimOptions {
    /// The visibility timeout; `None`: the claim lasts as long as its session.
    pub visibility: Option<Duration>,
    /// The limit for items that have none of their own.
    pub max_attempts: u32,
    /// The name of the consumer, as others see it.
    pub name: Option<Arc<str>>,
    /// The process that its claims show; `None`: this one.
    pub pid: Option<u32>,
    /// Whether each claim has a notice node, through which its owner is informed of a settlement by
    /// another process.
    pub notices: bool,
}

/// A queue at a path of the tree whose items are claimed, worked on and acknowledged.
///
/// Delivery is at least once. An item comes back until a consumer acknowledges it under a claim
/// that is still its own, or until its attempts are used up; it is then kept as a dead letter.
/// Items of one priority are delivered in the order in which one producer put them; a more urgent
/// priority is delivered first.
///
/// Cheap to clone; clones share the items that were read and claimed ahead.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use baton::work_queue::WorkItem;
/// use baton::WorkQueue;
///
/// let queue = WorkQueue::new(&client, "/jobs")?.max_attempts(5);
/// queue.offer("build 17").await?;
/// queue.offer(WorkItem::new("build 18").id("build-18").priority(100)).await?;
///
/// let claim = queue.take().await?;
/// assert_eq!(claim.payload(), "build 18");
/// claim.ack().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WorkQueue {
    pub(super) context: Arc<QueueContext>,
    pub(super) capacity: Option<u64>,
    pub(super) options: ClaimOptions,
    pub(super) backoff: RetryBackoff,
    pub(super) prefetch: usize,
}

/// Reason why a queue cannot have room for no item.
pub(super) const NO_CAPACITY: &str =
    "a queue without room takes no item; allow at least one, or leave the capacity out";

impl WorkQueue {
    /// A queue at `path`. Nothing is sent; the first operation makes the queue if it does not
    /// exist.
    ///
    /// # Errors
    /// [`WorkError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, WorkError> {
        recipe_path::check(path, "cannot be a queue")
            .map_err(|why| WorkError::bad_path(path, why))?;
        Ok(Self {
            context: Arc::new(QueueContext::new(client, path)),
            capacity: None,
            options: ClaimOptions {
                visibility: None,
                max_attempts: 10,
                name: None,
                pid: None,
                notices: false,
            },
            backoff: RetryBackoff {
                first: Duration::from_secs(1),
                most: Duration::from_secs(600),
            },
            prefetch: 1,
        })
    }

    /// Sets the most items that the queue holds. Claimed and delayed items count, dead letters do
    /// not.
    ///
    /// At least one: with 0, each operation is refused ([`WorkError::BadOption`]).
    ///
    /// The capacity is written to the tree when the queue is made. A handle that asks for another
    /// one gets [`WorkError::CapacityDiffers`]; a handle that does not call this uses the capacity
    /// in the tree. No offer and no replay takes the queue over its capacity, even where several
    /// processes offer at the same time: each is one change conditioned on the count before it.
    #[must_use]
    pub fn capacity(mut self, items: u64) -> Self {
        self.capacity = Some(items);
        self.checked("capacity", items, items > 0, NO_CAPACITY)
    }

    /// Sets the visibility timeout: the time that a claim of this handle lasts unless it is
    /// extended. Afterwards other consumers may claim the item. Default: as long as the session.
    ///
    /// It is measured by the servers' clocks, which should agree with each other. If they differ,
    /// two consumers may work on an item at the same time, but only one of them can settle it.
    ///
    /// Choose it many times longer than a write takes. A claim whose timeout is over when the
    /// server's answer comes is not handed out but given back, which uses no attempt; the next one
    /// comes after a growing pause of up to ten seconds. With none, each operation is refused
    /// ([`WorkError::BadOption`]).
    #[must_use]
    pub fn visibility(mut self, timeout: Duration) -> Self {
        self.options.visibility = Some(timeout);
        let why = "a claim would be over before it is handed out; leave it out, or give it time";
        self.checked("visibility", timeout, !timeout.is_zero(), why)
    }

    /// Sets the number of times that an item may be claimed before it becomes a dead letter.
    /// Default: 10. An item's own limit comes first. With 0, each operation is refused
    /// ([`WorkError::BadOption`]).
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.options.max_attempts = attempts;
        let why = "an item that nobody may claim is never worked on; allow at least one";
        self.checked("max_attempts", attempts, attempts > 0, why)
    }

    /// Sets the delay of an item after its first failed attempt, doubled with each further one up
    /// to `most`. Default: from 1 second to 10 minutes.
    #[must_use]
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        self.backoff = RetryBackoff { first, most };
        self
    }

    /// Sets the number of items to claim at once. Default: 1, at most 64. With 0 or more than 64,
    /// each operation is refused ([`WorkError::BadOption`]).
    ///
    /// Items that are claimed ahead wait in this process until they are taken; their attempt and
    /// their visibility timeout have begun. [`WorkQueue::give_back`] releases them.
    #[must_use]
    pub fn prefetch(mut self, items: usize) -> Self {
        self.prefetch = items;
        let fits = (1..=MAX_CLAIMS).contains(&items);
        self.checked("prefetch", items, fits, "use 1 to 64")
    }

    /// Sets the name of this consumer, as others see it in its claims.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.options.name = Some(Arc::from(name));
        self
    }

    /// Sets the process id to record in place of this program's, where it acts for another process
    /// of this machine.
    #[must_use]
    pub fn pid(mut self, pid: u32) -> Self {
        self.options.pid = Some(pid);
        self
    }

    /// The ACL of every node that this handle creates, missing parents included. Default: open to
    /// everybody. Give all who use the queue the same, and the permissions that they need: all but
    /// `ADMIN`. Nodes that exist already keep theirs.
    #[must_use]
    pub fn acl(mut self, acl: &[Acl<'_>]) -> Self {
        let client = self.context.client.with_acl(acl);
        let context = QueueContext::new(&client, &self.context.path());
        let bad_options = self.context.bad_options.clone();
        self.context = Arc::new(context.with_bad_options(bad_options));
        self
    }

    /// The same handle, which refuses its operations where an option does not fit.
    fn checked(
        mut self,
        option: &'static str,
        value: impl fmt::Debug,
        fits: bool,
        why: &'static str,
    ) -> Self {
        let context = &self.context;
        if fits && !context.bad_options.contains_key(option) {
            return self;
        }
        let mut bad_options = context.bad_options.clone();
        match fits {
            true => drop(bad_options.remove(option)),
            false => {
                let refusal = context.bad_option(option, value, why);
                bad_options.insert(option, refusal);
            }
        }
        let context = QueueContext::new(&context.client, &context.path());
        self.context = Arc::new(context.with_bad_options(bad_options));
        self
    }

    /// Notifies the claims of this handle of a settlement by another process: see
    /// [`Claim::settled`](super::Claim::settled) and [`WorkQueue::settle`]. Costs one more node for
    /// each claim, as long as the claim exists.
    #[must_use]
    pub fn settled_elsewhere(mut self) -> Self {
        self.options.notices = true;
        self
    }

    /// The queue's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.context.layout.root
    }
}
