//! Locks on several paths: all of them or none.
//!
//! Owns the order in which they are taken, and that nothing is kept once one of them cannot be had
//! (H49). Where all are free it is one multi. Must never wait for one lock while it waits in the
//! queue of a later one: two callers could then wait for each other.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use baton_client::{Acl, Client, Session};
use tracing::Instrument;
use uuid::Uuid;

use crate::acquire::{AcquireMode, Acquisition, AttemptError, LockError};
use crate::guard::{Guard, GuardStatus, LostReason, PendingRelease, Txn};
use crate::naming::{Dialect, NamingScheme};
use crate::record::Record;
use crate::spans;
use crate::time_limit::{WaitReason, at_most};
use crate::wait_queue::{
    self, DelayedUntil, GrantedNode, NewNode, OwnNodeWatch, Position, WaiterNode,
};

/// The most locks that are tried for in one multi; more are taken one after the other.
const MOST_IN_ONE_MULTI: usize = 64;

/// Locks on several paths of the tree, held together by one holder.
///
/// The paths are taken in one order whatever order they are given in, so callers that share some of
/// them cannot wait for each other in a circle. The wait queues are those of
/// [`Mutex`](crate::Mutex): both may be used on one path, and other libraries' locks too. Cheap to
/// clone.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// let transfer = baton::MultiLock::new(&client, ["/accounts/7", "/accounts/3"])?;
/// let guard = transfer.acquire_timeout(Duration::from_secs(30)).await?;
/// for (path, token) in guard.tokens() {
///     println!("{path} is held, with fencing token {token}");
/// }
/// // Applied by the server only if both are still held at that point.
/// let txn = guard.txn().set("/accounts/3/sum", b"10", None);
/// txn.set("/accounts/7/sum", b"20", None).commit().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    /// In the order of taking; at least one.
    locks: Arc<[Acquisition]>,
}

impl MultiLock {
    /// Locks at all of `paths`, with Curator's names. A path that is given twice counts once.
    /// Nothing is sent.
    ///
    /// # Errors
    /// [`LockError::BadPath`], also where there is no path at all.
    pub fn new<P: AsRef<str>>(
        client: &Client,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Self, LockError> {
        let mut locks = paths
            .into_iter()
            .map(|path| Acquisition::new(client, path.as_ref(), Dialect::Curator))
            .collect::<Result<Vec<_>, _>>()?;
        if locks.is_empty() {
            return Err(LockError::bad_path(
                "",
                "a multi-lock needs at least one path".to_owned(),
            ));
        }
        locks.sort_by(|a, b| a.path.cmp(&b.path));
        locks.dedup_by(|a, b| a.path == b.path);
        Ok(Self {
            locks: locks.into(),
        })
    }

    /// Uses the names of another library on all paths, to share the wait queue with its processes.
    #[must_use]
    pub fn dialect(self, dialect: Dialect) -> Self {
        self.with(|lock| lock.naming = NamingScheme::Exclusive(dialect))
    }

    /// Sets the name of this program in the data of the lock nodes, for people who want to see who
    /// holds and who waits.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        let name: Arc<str> = Arc::from(name);
        self.with(|lock| lock.name = Some(Arc::clone(&name)))
    }

    /// The ACL of every node that this handle creates, missing parents included. Default: open to
    /// everybody. Give all who use the locks the same, and the permissions that they need: all but
    /// `ADMIN`. Nodes that exist already keep theirs.
    #[must_use]
    pub fn acl(self, acl: &[Acl<'_>]) -> Self {
        self.with(|lock| lock.client = lock.client.with_acl(acl))
    }

    fn with(self, change: impl Fn(&mut Acquisition)) -> Self {
        let locks = self.locks.iter().cloned().map(|mut lock| {
            change(&mut lock);
            lock
        });
        Self {
            locks: locks.collect(),
        }
    }

    /// The paths, in the order in which they are taken.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(|lock| &*lock.path)
    }

    /// Waits until this process holds all the locks.
    ///
    /// Survives lost connections, and lost sessions and deleted nodes too, at the price of starting
    /// from the first lock again. Cancel-safe at every point: dropping the future gives back what
    /// was taken, in the background where need be.
    ///
    /// # Errors
    /// [`LockError`] with the path of the lock that could not be had; no waiter node stays behind.
    pub async fn acquire(&self) -> Result<MultiGuard, LockError> {
        let at = AtomicUsize::new(0);
        self.run(AcquireMode::Wait, &at).await?.ok_or_else(|| {
            LockError::timed_out(
                &self.path_at(&at),
                Duration::ZERO,
                WaitReason::Others { holder: None },
            )
        })
    }

    /// Acquires all locks if they are free now, else returns `None`. Waits for the server's
    /// answers, never for a holder.
    ///
    /// # Errors
    /// As [`MultiLock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, LockError> {
        self.run(AcquireMode::IfFree, &AtomicUsize::new(0)).await
    }

    /// Like [`MultiLock::acquire`], for at most `limit`: one deadline over all locks, wake-ups,
    /// reconnects and sessions.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] with the path that it waited for when the time was up; else as
    /// `acquire`.
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<MultiGuard, LockError> {
        let at = AtomicUsize::new(0);
        let timed_out = |waited_for| LockError::timed_out(&self.path_at(&at), limit, waited_for);
        let Some(first) = self.locks.first() else {
            return Err(timed_out(WaitReason::Others { holder: None }));
        };
        let acquired = at_most(
            limit,
            &first.client,
            self.run(AcquireMode::Wait, &at),
            timed_out,
        )
        .await?;
        acquired.ok_or_else(|| timed_out(WaitReason::Others { holder: None }))
    }

    fn path_at(&self, at: &AtomicUsize) -> String {
        let lock = self.locks.get(at.load(Ordering::Relaxed));
        lock.map_or_else(String::new, |lock| lock.path.to_string())
    }

    /// `at` is kept at the index of the lock that is being waited for.
    async fn run(
        &self,
        mode: AcquireMode,
        at: &AtomicUsize,
    ) -> Result<Option<MultiGuard>, LockError> {
        let span = spans::acquire(&self.path_at(at));
        let outcome = self.attempts(mode, at).instrument(span.clone()).await;
        if let Ok(Some(guard)) = &outcome {
            guard.guard.acquired(&span);
        }
        outcome
    }

    async fn attempts(
        &self,
        mode: AcquireMode,
        at: &AtomicUsize,
    ) -> Result<Option<MultiGuard>, LockError> {
        // One for each lock.
        let mut held_off = vec![DelayedUntil::default(); self.locks.len()];
        loop {
            match self.attempt(mode, &mut held_off, at).await {
                Ok(outcome) => return Ok(outcome),
                Err(AttemptError::Again) => {}
                Err(AttemptError::Failed(error)) => return Err(error),
            }
        }
    }

    async fn attempt(
        &self,
        mode: AcquireMode,
        held_off: &mut [DelayedUntil],
        at: &AtomicUsize,
    ) -> Result<Option<MultiGuard>, AttemptError> {
        at.store(0, Ordering::Relaxed);
        let Some(first) = self.locks.first() else {
            return Ok(None);
        };
        let (session, lease) = first.enter().await?;
        let mut taken = Vec::with_capacity(self.locks.len());
        let all = self.take_all(&session, mode, held_off, at, &mut taken);
        let all = match all.await {
            Ok(all) => all,
            Err(stop) => {
                let taken = taken.into_iter().map(|granted| granted.waiter);
                return Err(stop.leaving(taken).await);
            }
        };
        if !all {
            return Ok(None);
        }
        let tokens = self.locks.iter().zip(&taken).map(|(lock, granted)| {
            let token = u64::try_from(granted.waiter.czxid()).unwrap_or_default();
            (Arc::clone(&lock.path), token)
        });
        let tokens: Vec<_> = tokens.collect();
        let greatest = taken.iter().map(|granted| granted.waiter.czxid()).max();
        let guard = first
            .hold(taken, greatest.unwrap_or_default(), lease)
            .await?;
        Ok(Some(MultiGuard { guard, tokens }))
    }

    /// Acquires one lock after the other; `false` where one is not free and `mode` is not to wait.
    async fn take_all(
        &self,
        session: &Session,
        mode: AcquireMode,
        held_off: &mut [DelayedUntil],
        at: &AtomicUsize,
        taken: &mut Vec<GrantedNode>,
    ) -> Result<bool, AttemptError> {
        let mut queued = None;
        if mode == AcquireMode::IfFree || self.locks.len() <= MOST_IN_ONE_MULTI {
            queued = self.take_free(session, held_off, at, taken).await?;
            if mode == AcquireMode::IfFree && queued.is_some() {
                return Ok(false);
            }
        }
        for (lock, held_off) in self.locks.iter().zip(held_off).skip(taken.len()) {
            at.store(taken.len(), Ordering::Relaxed);
            let waiting = wait_for_lock(lock, session, queued.take(), held_off);
            let granted = tokio::select! {
                biased;
                () = one_gone(taken) => return Err(AttemptError::Again),
                granted = waiting => granted?,
            };
            taken.push(granted);
        }
        Ok(true)
    }

    /// Joins all wait queues in one multi, and keeps the locks up to the first that is not free.
    /// Its waiter node there is returned; those of the later locks are withdrawn.
    async fn take_free(
        &self,
        session: &Session,
        held_off: &[DelayedUntil],
        at: &AtomicUsize,
        taken: &mut Vec<GrantedNode>,
    ) -> Result<Option<WaiterNode>, AttemptError> {
        let failed = |error: baton_client::Error| self.failed(session, error);
        let dirs: Vec<&str> = self.paths().collect();
        let name = self.locks.first().and_then(|lock| lock.name.as_deref());
        let record = Record::new(name);
        let nodes = || self.new_nodes(session);
        let group = wait_queue::join_all(session, &[], &nodes, &record.to_bytes(), &dirs)
            .await
            .map_err(failed)?;
        let mut queued = None;
        let locks = self.locks.iter().zip(held_off);
        let mut joined = locks.zip(group.waiters).zip(group.listings);
        while let Some((((lock, held_off), waiter), listing)) = joined.next() {
            if queued.is_some() {
                // GuardStatus there any longer, it could be waited for by the one that we are going
                // to wait for.
                drop(waiter.withdraw());
                continue;
            }
            at.store(taken.len(), Ordering::Relaxed);
            let listing = listing.ok().map(|listing| listing.names);
            match wait_queue::position_or_withdraw(waiter, listing, lock.contention()).await {
                Ok((waiter, Position::First)) if held_off.has_passed() => taken.push(GrantedNode {
                    own_node: OwnNodeWatch::watch(&waiter),
                    waiter,
                }),
                Ok((waiter, _)) => queued = Some(waiter),
                Err(error) => {
                    let later = joined.map(|((_, waiter), _)| waiter);
                    return Err(lock.attempt_error(session, error).leaving(later).await);
                }
            }
        }
        Ok(queued)
    }

    /// One node for each lock, under a marker of its own.
    fn new_nodes(&self, session: &Session) -> Vec<NewNode> {
        let nodes = self.locks.iter().map(|lock| NewNode {
            dir: Arc::clone(&lock.path),
            prefix: lock.own_prefix(&Uuid::new_v4(), session),
        });
        nodes.collect()
    }

    /// The lock that `error` is about.
    fn failed(&self, session: &Session, error: baton_client::Error) -> AttemptError {
        let about = error.path().to_owned();
        let of = |lock: &&Acquisition| {
            let below = about.strip_prefix(&*lock.path);
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let lock = self.locks.iter().rev().find(of);
        let lock = lock.or_else(|| self.locks.first());
        match lock {
            Some(lock) => lock.attempt_error(session, error.into()),
            None => AttemptError::Again,
        }
    }
}

/// Waits for one lock: with `waiter`, or else with a new node.
async fn wait_for_lock(
    lock: &Acquisition,
    session: &Session,
    queued: Option<WaiterNode>,
    held_off: &mut DelayedUntil,
) -> Result<GrantedNode, AttemptError> {
    let attempt_error = |error| lock.attempt_error(session, error);
    let (waiter, listing) = match queued {
        Some(waiter) => (waiter, None),
        None => {
            let record = Record::new(lock.name.as_deref());
            let prefix = lock.own_prefix(&record.id, session);
            wait_queue::join(session, &lock.path, &prefix, &record.to_bytes())
                .await
                .map_err(|error| attempt_error(error.into()))?
        }
    };
    wait_queue::wait_for_turn_delayed(waiter, listing, lock.contention(), held_off, |_| {})
        .await
        .map_err(attempt_error)
}

/// Resolves when one of the nodes is gone, or the session of all. Cancel-safe.
async fn one_gone(taken: &mut [GrantedNode]) {
    let mut watches: Vec<_> = taken
        .iter_mut()
        .map(|granted| Box::pin(granted.own_node.gone()))
        .collect();
    std::future::poll_fn(|cx| {
        let gone = watches
            .iter_mut()
            .any(|watch| watch.as_mut().poll(cx).is_ready());
        if gone { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// RAII guard of several locks: they are held while it exists and [`MultiGuard::check`] succeeds.
/// When the first is lost, all count as lost.
///
/// Dropping it releases them all in the background, without blocking; [`MultiGuard::release`] also
/// waits for the server's answer. It offers what a [`Guard`] offers, but has a fencing token for
/// each lock.
#[must_use = "dropping the guard releases the locks"]
#[derive(Debug)]
pub struct MultiGuard {
    guard: Guard,
    tokens: Vec<(Arc<str>, u64)>,
}

impl MultiGuard {
    /// Checks that all locks are held at this instant, by this process's clock. Never waits.
    ///
    /// # Errors
    /// Why they are not; from then on for ever.
    pub fn check(&self) -> Result<(), LostReason> {
        self.guard.check()
    }

    /// Resolves when the first of the locks is lost: see [`Guard::lost`].
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.guard.lost()
    }

    /// Returns the time for which the locks are known to be held if no server answers from now on:
    /// see [`Guard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Returns the path and the fencing token of each lock, sorted by path. Each lock has its own
    /// order of tokens: send with a side effect the token of the lock that protects it.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, u64)> {
        self.tokens.iter().map(|(path, token)| (&**path, *token))
    }

    /// The fencing token of the lock at `path`; `None` for a path that is not among them.
    #[must_use]
    pub fn token(&self, path: &str) -> Option<u64> {
        let mut tokens = self.tokens();
        tokens.find(|(of, _)| *of == path).map(|(_, token)| token)
    }

    /// Begins a transaction that the server applies only while all the locks are held.
    pub fn txn(&self) -> Txn<'_> {
        self.guard.txn()
    }

    /// Drives `work`, and drops it at once when the first of the locks is lost: see [`Guard::run`].
    ///
    /// # Errors
    /// Why the locks were lost, if they were before the work was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostReason> {
        self.guard.run(work).await
    }

    /// Returns whether another process has asked for one of the locks: see
    /// [`Guard::revoke_requested`].
    #[must_use]
    pub fn revoke_requested(&self) -> bool {
        self.guard.revoke_requested()
    }

    /// Resolves when another process asks for one of the locks: see [`Guard::on_revoke`].
    ///
    /// # Errors
    /// How the locks were lost, if nobody asked before.
    pub fn on_revoke(&self) -> impl Future<Output = Result<(), LostReason>> + Send + 'static {
        self.guard.on_revoke()
    }

    /// Returns the status of all locks together, for code that does not own the guard: see
    /// [`Guard::status`].
    #[must_use]
    pub fn status(&self) -> GuardStatus {
        self.guard.status()
    }

    /// The session that the locks belong to.
    #[must_use]
    pub fn session(&self) -> &Session {
        self.guard.session()
    }

    /// Returns all locks as one [`Guard`]. Its token is the greatest of [`MultiGuard::tokens`],
    /// which need not grow from one holder of a lock to the next.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Releases all locks. The requests are queued when this returns; await the result for the
    /// server's answer.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub fn release(self) -> PendingRelease {
        self.guard.release()
    }
}
