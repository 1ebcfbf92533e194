//! The guard of a lock: proof of holding, until it ends or is released.
//!
//! - [`Guard`]: [`check`](Guard::check) says whether the lock is held, [`run`](Guard::run) stops
//!   the work when it no longer is, [`token`](Guard::token) is its fencing token.
//! - [`GuardStatus`]: the same answers for code that does not own the guard.
//! - [`Txn`]: changes of the tree that apply only while the guard holds.
//! - [`PendingRelease`]: a release under way. [`LostReason`]: why a guard has ended.

// Owns when a grant stops being true: at the first of lease end, own node gone, session lost,
// released. Its answer needs no event to have been delivered first (H25). It must never outlive
// its session, revive, be copied (H89), or panic on drop (H88).
//
// | module | owns |
// |---|---|
// | `liveness` | guards that end when their application no longer answers |
// | `releasing` | a release under way |
// | `txn` | transactions that apply only under the guard |
// | `status` | the status of a guard, for those who do not have it |
// | `claim_deadline` | the deadline after which others may take over a claimed item |
// | `state` | whether the guard has ended, and who deletes its nodes |

mod claim_deadline;
mod liveness;
mod releasing;
mod state;
mod status;
mod txn;

pub(crate) use self::state::GuardState;
use baton_client::{LeaseHold, Session};

use crate::spans;
use crate::wait_queue::{AcquireError, GrantedNode, NodeNotification, OwnNodeWatch, WaiterNode};
pub(crate) use claim_deadline::ClaimDeadline;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tracing::{Instrument, Span};

pub use crate::lost_reason::LostReason;
pub use releasing::{PendingRelease, ReleaseError};
pub use status::GuardStatus;
pub use txn::{CommittedTxn, Txn, TxnError};

/// RAII guard of a lock. [`Guard::check`] returns, at any instant and without waiting, whether the
/// lock is still held.
///
/// The lock is held as long as the guard exists and `check` succeeds. The guard belongs to one
/// session and one node in the tree, and cannot be cloned. What keeps it true runs on the client's
/// thread, whatever runtime it was acquired on. Dropping it releases the lock in the background,
/// from anywhere; [`Guard::release`] also waits for the server's answer. A program may end right
/// after it has dropped its guards and its [`Client`](crate::Client): the last drop waits a moment
/// for the server.
///
/// A guard that was lost stays lost. It has no claim on the lock any more, also while it is not
/// dropped yet: if its session lives, the lock node is deleted in the background as soon as there
/// is a connection, and the next in the wait queue gets the lock. [`Guard::keep_node`] puts that
/// off until the guard is dropped.
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
    state: Arc<GuardState>,
    /// Taken by `release`.
    nodes: Vec<WaiterNode>,
    lease: LeaseHold,
    /// Keeps the session open.
    session: Session,
}

impl Guard {
    /// Makes the guard of what was granted: one node or several, all of one session. It may have
    /// ended already: the caller checks. It ends with the first of its nodes that goes.
    ///
    /// `token` must grow with every later grant: the node's `czxid` in a queue that is served in
    /// order of creation, elsewhere what [`wait_queue::mint_token`](crate::wait_queue::mint_token)
    /// yields. The owner of the nodes is our session by construction: they were created on it, and
    /// found again only under it.
    pub(crate) fn new(
        granted: GrantedNode,
        more: Vec<GrantedNode>,
        token: i64,
        lease: LeaseHold,
    ) -> Self {
        let session = granted.waiter.session().clone();
        let (nodes, watches): (Vec<_>, Vec<_>) = std::iter::once(granted)
            .chain(more)
            .map(|granted| (granted.waiter, granted.own_node))
            .unzip();
        let removals = nodes.iter().map(WaiterNode::removal).collect();
        let token = u64::try_from(token).unwrap_or_default();
        let state = Arc::new(GuardState::new(&session, removals, token));
        for own_node in watches {
            session.runtime().spawn(watch(own_node, Arc::clone(&state)));
        }
        Self {
            state,
            nodes,
            lease,
            session,
        }
    }

    /// Notes that the acquire that `acquiring` describes has led to this guard.
    pub(crate) fn acquired(&self, acquiring: &Span) {
        spans::granted(acquiring, self.token());
        self.state.begin_hold(acquiring);
    }

    /// Checks that the lock is held at this instant, by this process's clock. Never waits, and does
    /// not depend on the delivery of an event.
    ///
    /// # Errors
    /// Why it is not; from then on for ever.
    pub fn check(&self) -> Result<(), LostReason> {
        self.state.check()
    }

    /// Returns the time for which the lock is known to be held if no server answers from now on.
    /// Zero once it is lost.
    ///
    /// Whatever must have stopped before anyone else can hold the lock has to stop within this
    /// time.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.state.remaining()
    }

    /// Resolves with the reason when the lock is no longer held; at the latest when the lease ends
    /// by this process's clock. The future does not borrow the guard, and may be dropped at any
    /// time.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let state = Arc::clone(&self.state);
        async move { state.ended().await }
    }

    /// Returns the fencing token, which grows with every later grant of this lock, across crashes
    /// and restarts. Send it with every side effect, and let the receiver refuse a smaller token
    /// than it has seen.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.state.token()
    }

    /// Returns whether another process has asked for the lock, by writing Curator's `__REVOKE__` to
    /// its node. The lock stays held until the holder releases it. Never waits.
    #[must_use]
    pub fn revoke_requested(&self) -> bool {
        self.state.is_asked_back()
    }

    /// Resolves when another process asks for the lock: see [`Guard::revoke_requested`]. The future
    /// does not borrow the guard, and may be dropped at any time.
    ///
    /// # Errors
    /// How the guard ended, if nobody asked before.
    pub fn on_revoke(&self) -> impl Future<Output = Result<(), LostReason>> + Send + 'static {
        let state = Arc::clone(&self.state);
        async move { state.asked_back().await }
    }

    /// Returns the way to ask for the lock back from within this process: see [`Guard::on_revoke`].
    pub(crate) fn asking_back(&self) -> impl Fn() + Send + Sync + 'static {
        let state = Arc::clone(&self.state);
        move || state.ask_back()
    }

    /// Leaves the lock node in place when the guard is lost, until the guard is released or
    /// dropped. For an owner whose work goes on for a while after the loss, a process that it has
    /// to stop first, say: nobody else is granted the lock before that, as long as the session
    /// lives.
    ///
    /// Without this call a guard that is lost while its session lives ([`LostReason::LeaseEnded`],
    /// or [`LostReason::NodeGone`] for one of several nodes) has its nodes deleted as soon as there
    /// is a connection: the program may hold on to a dead guard for as long as it likes, and the
    /// lock passes on. A guard that ends with [`LostReason::NotAlive`] gives its nodes away in any
    /// case.
    ///
    /// # Errors
    /// How the guard has ended, if it has by then; its nodes may be given away already.
    pub fn keep_node(&self) -> Result<(), LostReason> {
        self.state.keep_nodes();
        self.state.check()
    }

    /// Returns the status of the guard, for code that does not own it. It does not borrow the
    /// guard.
    #[must_use]
    pub fn status(&self) -> GuardStatus {
        GuardStatus::new(&self.state)
    }

    /// The status of a guard that also ends at a deadline.
    pub(crate) fn status_until(&self, until: &Arc<ClaimDeadline>) -> GuardStatus {
        GuardStatus::new(&self.state).until(until)
    }

    /// Full path of the lock node.
    #[must_use]
    pub fn node(&self) -> &str {
        self.state.path()
    }

    /// The zxid of the creation of [`Guard::node`].
    pub(crate) fn node_czxid(&self) -> Option<i64> {
        self.nodes.first().map(WaiterNode::czxid)
    }

    /// Returns the session of the guard.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Begins a transaction that the server applies only while the lock is held.
    pub fn txn(&self) -> Txn<'_> {
        Txn::new(&self.state)
    }

    /// Drives `work`, and drops it at once when the guard ends. The guard is checked before each
    /// poll of `work`, so that a process that was paused does nothing under a lock that it has
    /// lost. Tasks that `work` has spawned go on.
    ///
    /// # Errors
    /// Why the guard ended, if it did before the work was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostReason> {
        let span = spans::run(self.node(), self.token());
        drive(|| self.check(), self.lost(), work)
            .instrument(span)
            .await
    }

    /// Replaces the only node of the guard by one called `name` with `data`, in one change. The
    /// guard of the new node has the zxid of that change as its token; this one has ended, whatever
    /// the outcome.
    ///
    /// Cancel-safe: dropping the future leaves neither node.
    pub(crate) async fn exchange(self, name: &str, data: &[u8]) -> Result<Self, AcquireError> {
        let lease = self.lease.clone();
        let waiter = self
            .surrender()
            .map_err(|_| AcquireError::OwnNodeGone)?
            .ok_or(AcquireError::OwnNodeGone)?;
        let waiter = waiter.exchange(name, data).await?;
        let token = waiter.czxid();
        let own_node = OwnNodeWatch::watch(&waiter);
        let granted = GrantedNode { waiter, own_node };
        let guard = Self::new(granted, Vec::new(), token, lease);
        guard.state.begin_hold(&Span::none());
        Ok(guard)
    }

    /// Counts as released in this process from now on. Of its nodes one is the caller's to end;
    /// further ones are deleted.
    ///
    /// # Errors
    /// How the guard had ended before. What is left of it is deleted.
    pub(crate) fn surrender(mut self) -> Result<Option<WaiterNode>, LostReason> {
        self.retire()?;
        Ok(self.nodes.pop())
    }

    /// The hold on the session's lease.
    pub(crate) fn lease(&self) -> &LeaseHold {
        &self.lease
    }

    /// Releases the lock. The request is queued when this returns and is sent together with the
    /// next one, so that `let released = guard.release(); let next = mutex.acquire();`, awaited
    /// together, cost one round trip. Await the result for the server's answer.
    ///
    /// In this process the lock counts as released at once, before the server is asked. Dropping
    /// the result does not take the release back.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`] where the guard had ended before; [`ReleaseError::Unknown`] where no
    /// server has confirmed: the delete is then repeated in the background until one does or the
    /// session ends, which [`PendingRelease::confirmed`] awaits.
    pub fn release(mut self) -> PendingRelease {
        self.end()
    }

    /// Gives the lock up as after a failure: what it protects may be half done, so the next waiter
    /// first waits for its lock delay, if it has one
    /// ([`Mutex::lock_delay`](crate::Mutex::lock_delay)). Otherwise as [`Guard::release`].
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub fn abandon(mut self) -> PendingRelease {
        for node in &mut self.nodes {
            node.signal_nothing();
        }
        self.end()
    }

    fn end(&mut self) -> PendingRelease {
        let before = self.state.end_and_see(LostReason::Released);
        let nodes = std::mem::take(&mut self.nodes);
        PendingRelease::new(nodes, before, &self.state)
    }
}

impl Guard {
    /// Counts as released in this process from now on; the caller has the server end it.
    pub(crate) fn retire(&self) -> Result<(), LostReason> {
        self.state.end_and_see(LostReason::Released)
    }

    /// The server says that the only node is gone; how the guard has ended.
    pub(crate) fn node_gone(&self) -> LostReason {
        self.state.end(LostReason::NodeGone);
        self.state.check().err().unwrap_or(LostReason::NodeGone)
    }

    /// The node went in a change of the caller's: nothing is left to release.
    pub(crate) fn dissolve(mut self) {
        for mut node in std::mem::take(&mut self.nodes) {
            node.disown();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// Updates the guard with what becomes of its node, to the end.
pub(crate) async fn watch(mut own_node: OwnNodeWatch, state: Arc<GuardState>) {
    if own_node.is_asked_back() {
        state.ask_back();
    }
    loop {
        match own_node.next().await {
            NodeNotification::AskedBack => state.ask_back(),
            NodeNotification::Gone(reason) => return state.end(reason),
        }
    }
}

/// Drives `work` while `check` allows; it is asked before each step.
pub(crate) async fn drive<F: Future>(
    check: impl Fn() -> Result<(), LostReason>,
    lost: impl Future<Output = LostReason>,
    work: F,
) -> Result<F::Output, LostReason> {
    let mut work = std::pin::pin!(work);
    let mut lost = std::pin::pin!(lost);
    std::future::poll_fn(|cx| {
        if let Err(reason) = check() {
            return Poll::Ready(Err(reason));
        }
        if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
            return Poll::Ready(Err(reason));
        }
        work.as_mut().poll(cx).map(Ok)
    })
    .await
}
