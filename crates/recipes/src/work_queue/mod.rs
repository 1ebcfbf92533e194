//! A queue of work: each item is claimed, worked on and acknowledged; what is not acknowledged
//! comes back.
//!
//! Owns the layout that is Baton's own, described in `docs/user/recipes.md`. An item leaves the
//! tree only by an acknowledgement under its claim, or as a dead letter by somebody's word: it must
//! never be lost, nor settled by a consumer that has lost it (`docs/internals/hazards.md` H67–H76).

mod capacity;
mod claim;
mod claim_attempt;
mod claims;
mod context;
mod dead_letter;
mod envelope;
mod error;
mod held_item;
mod item;
mod layout;
mod offer;
mod purge;
mod repair;
mod scan;
mod settle;
mod take;

pub use claim::Claim;
pub use claims::{ClaimInfo, Claims, Settlement};
pub use dead_letter::{DeadLetter, Depth};
pub use error::WorkError;
pub use item::WorkItem;
pub use purge::Purged;
pub use settle::Settled;

use baton_client::Client;
use claim::Backoff;
use claim_attempt::Manner;
use context::Inner;
use std::sync::Arc;
use std::time::Duration;

/// A queue of work at a path of the tree: items are claimed, acknowledged, and come back if they
/// are not.
///
/// At least once: an item is delivered until some consumer acknowledges it under a claim that was
/// still its own, or until its attempts are used up; then it is kept as a dead letter. Items of one
/// priority come out in the order in which one producer put them; a more urgent priority comes
/// first.
///
/// Cheap to clone; clones share what was read and claimed ahead.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use baton::{WorkItem, WorkQueue};
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
    inner: Arc<Inner>,
    capacity: Option<u64>,
    manner: Manner,
    backoff: Backoff,
    prefetch: usize,
}

impl WorkQueue {
    /// A queue at `path`. Nothing is sent; the first operation makes the queue if it does not
    /// exist.
    ///
    /// # Errors
    /// [`WorkError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, WorkError> {
        let bad = |why: String| WorkError::BadPath {
            path: path.to_owned(),
            why,
        };
        baton_proto::path::validate(path).map_err(|error| bad(error.to_string()))?;
        if path == "/" {
            return Err(bad(
                "the root cannot be a queue; name a node below it".to_owned()
            ));
        }
        Ok(Self {
            inner: Arc::new(Inner::new(client, path)),
            capacity: None,
            manner: Manner {
                visibility: None,
                max_attempts: 10,
                name: None,
                told: false,
            },
            backoff: Backoff {
                first: Duration::from_secs(1),
                most: Duration::from_secs(600),
            },
            prefetch: 1,
        })
    }

    /// The most items that the queue takes, claimed and delayed ones counted, dead letters not.
    /// Agreed in the tree when the queue is made; [`WorkError::CapacityDiffers`] tells whoever asks
    /// for another. Without this, what the tree says counts.
    ///
    /// No offer and no replay ever takes the queue over it, whoever else offers at the same time:
    /// each is one change conditioned on the count before it.
    #[must_use]
    pub fn capacity(mut self, items: u64) -> Self {
        self.capacity = Some(items);
        self
    }

    /// How long a claim that this handle makes lasts unless it is extended; then others may take
    /// the item over. Without it, as long as the session. By the servers' clocks, which should
    /// agree among themselves: should they not, an item may be worked on twice, but never settled
    /// twice.
    #[must_use]
    pub fn visibility(mut self, timeout: Duration) -> Self {
        self.manner.visibility = Some(timeout);
        self
    }

    /// How often an item may be claimed before it becomes a dead letter, unless the item says
    /// otherwise (10).
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.manner.max_attempts = attempts.max(1);
        self
    }

    /// How long an item waits after its first failed attempt (1 s), doubled with each further one
    /// up to `most` (10 min).
    #[must_use]
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        self.backoff = Backoff { first, most };
        self
    }

    /// How many items to claim at once (1, at most 64). What is claimed ahead waits in this
    /// process, its attempt and its visibility timeout begun, until it is taken;
    /// [`WorkQueue::give_back`] returns it.
    #[must_use]
    pub fn prefetch(mut self, items: usize) -> Self {
        self.prefetch = items.clamp(1, claim_attempt::MAX_CLAIMS);
        self
    }

    /// What others see as the name of who holds a claim.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.manner.name = Some(Arc::from(name));
        self
    }

    /// Claims that this handle makes learn what others have made of the item by the claim's token:
    /// see [`Claim::settled`] and [`WorkQueue::settle`]. Costs one more node for each claim, for as
    /// long as it stands.
    #[must_use]
    pub fn settled_elsewhere(mut self) -> Self {
        self.manner.told = true;
        self
    }

    /// The queue's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.inner.layout.root
    }
}
