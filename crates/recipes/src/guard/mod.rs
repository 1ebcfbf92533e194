//! The guard: proof of holding a lock, and the news of its end.
//!
//! Owns when a grant stops being true: at the first of lease end, own node gone, session lost, released. Its answer needs no
//! event to have been delivered first (H25). It must never outlive its session, revive, be copied (H89), or panic on drop (H88).

mod core;
mod txn;

use self::core::Core;
use crate::line::{Contender, Granted};
use baton_client::{Error, LeaseHold, Session};
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

pub use self::core::LostReason;
pub use txn::{Txn, TxnError};

/// The lock is held while this lives and [`Guard::check`] says so.
///
/// It belongs to one session and one node in the tree, and cannot be cloned. Dropping it releases the lock in the
/// background, from anywhere, without blocking; [`Guard::release`] also waits for the server's word.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let guard = baton::Mutex::new(&client, "/deploy")?.acquire().await?;
/// // Before each side effect of one's own:
/// guard.check()?;
/// // Or let the guard drive the work, and drop it when the lock is lost:
/// let sum = guard.run(async { 1 + 1 }).await?;
/// assert_eq!(sum, 2);
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the guard releases the lock"]
#[derive(Debug)]
pub struct Guard {
    core: Arc<Core>,
    /// Taken by `release`.
    node: Option<Contender>,
    _lease: LeaseHold,
}

/// The release could not be confirmed, or there was nothing left to release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The guard had ended before.
    #[error("{node}: not released: {reason} before; check what was done under it since")]
    Lost {
        /// Full path of the lock node.
        node: String,
        /// How the guard ended.
        reason: LostReason,
    },
    /// The delete was not answered.
    #[error(
        "{node}: release not confirmed: {source}; it is repeated in the background as long as the session lives"
    )]
    Unknown {
        /// Full path of the lock node.
        node: String,
        /// What the client knows.
        source: Error,
    },
}

impl Guard {
    /// Makes the guard of a node that is first in line. It may have ended already: the caller checks (H29).
    ///
    /// The owner of the node is our session by construction: it was created on it, and found again only under it.
    pub(crate) fn new(granted: Granted, lease: LeaseHold) -> Self {
        let Granted {
            contender,
            own_node,
        } = granted;
        let session = contender.session().clone();
        let core = Arc::new(Core::new(session, contender.path(), contender.czxid()));
        let watched = Arc::clone(&core);
        tokio::spawn(async move {
            let reason = own_node.await;
            watched.end(reason);
        });
        Self {
            core,
            node: Some(contender),
            _lease: lease,
        }
    }

    /// Whether the lock is held, at this instant, by our own clock. Never waits, and needs no event to have arrived.
    ///
    /// # Errors
    /// Why it is not; from then on for ever.
    pub fn check(&self) -> Result<(), LostReason> {
        self.core.check()
    }

    /// For how long the lock is known to be held if no server answers from now on. Zero once it is lost.
    ///
    /// Whatever must have stopped before anyone else can hold the lock has to stop within this time.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.core.remaining()
    }

    /// Resolves when the lock is no longer held, with the reason; at the latest when the lease ends by our own clock. It
    /// does not borrow the guard, can be made any number of times, and may be dropped freely.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let core = Arc::clone(&self.core);
        async move { core.ended().await }
    }

    /// The fencing token: grows with every later grant of this lock, across crashes and restarts. Pass it along with every
    /// side effect, and let the receiver refuse a smaller one than it has seen.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.core.token()
    }

    /// Full path of the lock node.
    #[must_use]
    pub fn node(&self) -> &str {
        self.core.path()
    }

    /// The session that the guard belongs to.
    #[must_use]
    pub fn session(&self) -> &Session {
        self.core.session()
    }

    /// Begins a set of changes to the tree that is applied whole, and only while the lock is held.
    pub fn txn(&self) -> Txn<'_> {
        Txn::new(&self.core)
    }

    /// Drives `work`, and drops it the moment the guard ends. The guard is asked before each step of the work, so that a
    /// process that was paused takes no step under a lock that has passed on (H25). What `work` has spawned elsewhere goes on.
    ///
    /// # Errors
    /// Why the guard ended, if it did before the work was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostReason> {
        let mut work = std::pin::pin!(work);
        let mut lost = std::pin::pin!(self.lost());
        std::future::poll_fn(|cx| {
            if let Err(reason) = self.check() {
                return Poll::Ready(Err(reason));
            }
            if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(reason));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Releases the lock and waits for the server's word.
    ///
    /// In this process the lock counts as released at once, before the server is asked (H59). Dropping the future does not
    /// take the release back.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`] where the guard had ended before; [`ReleaseError::Unknown`] where no server has confirmed
    /// (H07): the delete is then repeated in the background until one does or the session ends.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let before = self.core.end_and_see(LostReason::Released);
        let Some(mut contender) = self.node.take() else {
            return Ok(());
        };
        let node = contender.path().to_owned();
        match before {
            Err(reason) => {
                if reason == LostReason::NodeGone {
                    contender.disown();
                }
                Err(ReleaseError::Lost { node, reason })
            }
            Ok(()) => contender
                .withdraw()
                .await
                .map_err(|source| ReleaseError::Unknown { node, source }),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let before = self.core.end_and_see(LostReason::Released);
        if let (Err(LostReason::NodeGone), Some(node)) = (before, &mut self.node) {
            node.disown();
        }
    }
}
