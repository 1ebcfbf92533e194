//! A mutex: FIFO, without a herd of waiters, cancel-safe.
//!
//! Owns the handle: its options, and the errors of its callers. The acquisition itself is in
//! `acquire`.

use std::time::Duration;

use baton_client::Client;

use crate::acquire::{AcquireMode, Acquisition, LockError, WaitProgress, acquisition_options};
use crate::guard::Guard;
use crate::naming::{Dialect, NamingScheme};
use crate::record::LONGEST_LOCK_DELAY;
use crate::time_limit::at_most;

/// A lock on a path of the tree, for one holder at a time, in order of arrival.
///
/// Any number of these may exist for a path, in any number of processes; each acquire waits with a
/// node of its own, so two acquires of one process exclude each other like those of two machines.
/// It is not reentrant. Cheap to clone.
///
/// The path is the directory of the wait queue. It and what is missing above it are made as
/// containers, which the server removes some time after they are empty.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// let mutex = baton::Mutex::new(&client, "/deploy")?.name("deployer");
/// if let Some(guard) = mutex.try_acquire().await? {
///     guard.release().await?;
/// }
/// let guard = mutex.acquire_timeout(Duration::from_secs(30)).await?;
/// println!("held, with fencing token {}", guard.token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    pub(super) acquisition: Acquisition,
}

impl Mutex {
    /// The longest delay of [`Mutex::lock_delay`], so that one faulty program cannot block a wait
    /// queue for longer.
    pub const LONGEST_LOCK_DELAY: Duration = LONGEST_LOCK_DELAY;

    /// A lock at `path`, with Curator's names. Nothing is sent.
    ///
    /// # Errors
    /// [`LockError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, LockError> {
        Ok(Self {
            acquisition: Acquisition::new(client, path, Dialect::Curator)?,
        })
    }

    /// Uses the names of another library, to share the wait queue with its processes.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.acquisition.naming = NamingScheme::Exclusive(dialect);
        self
    }

    acquisition_options!(acquisition);

    /// Sets the time that the next waiter waits longer if this program fails while it holds the
    /// lock: time for the failed holder's last requests to reach systems that check no fencing
    /// token. A release costs the next nothing. At most a minute; zero, as it is unless set, for
    /// none. Where the naming scheme is [`Dialect::ElectionSupport`], nodes have no room for it.
    ///
    /// It binds those who use this library and were waiting when the holder failed, each counting
    /// from when it saw that. Who joins later, or with another library, does not wait. Give all who
    /// use a lock the same delay: only then does it outlast a first waiter that fails too.
    ///
    /// ```no_run
    /// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let mutex = baton::Mutex::new(&client, "/deploy")?.lock_delay(Duration::from_secs(15));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// For more than a minute each acquire is refused: [`LockError::LockDelay`].
    #[must_use]
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.acquisition.lock_delay = delay;
        self
    }

    /// Waits until this process holds the lock.
    ///
    /// Survives lost connections, and lost sessions too, at the price of a new position in the wait
    /// queue. Cancel-safe at every point: dropping the future leaves the wait queue, in the
    /// background where need be.
    ///
    /// # Errors
    /// [`LockError`]; no waiter node stays behind.
    pub async fn acquire(&self) -> Result<Guard, LockError> {
        Ok(self.acquisition.acquire(&mut |_| {}).await?.guard)
    }

    /// Releases `guard` and acquires the lock again, behind all present waiters: for a holder that
    /// has more to do, but lets the others go first. Without a waiter, the lock is held again at
    /// once, with a new token.
    ///
    /// Release and new waiter node are one change of the tree, half of what [`Guard::release`] and
    /// [`Mutex::acquire`] need. In this process the lock counts as released when the future is
    /// first polled. Else it does as `acquire`; dropping the future releases `guard` as well. A
    /// guard of another lock is released, and this one acquired.
    ///
    /// ```no_run
    /// # async fn example(mutex: baton::Mutex) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut guard = mutex.acquire().await?;
    /// for part in 0..10 {
    ///     println!("part {part} under token {}", guard.token());
    ///     guard = mutex.requeue(guard).await?;
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LockError::Lost`] where `guard` had ended before, so that what was done under it needs to
    /// be checked; else as `acquire`. No waiter node stays behind.
    pub async fn requeue(&self, guard: Guard) -> Result<Guard, LockError> {
        Ok(self
            .acquisition
            .acquire_again(guard, &mut |_| {})
            .await?
            .guard)
    }

    /// Acquires the lock if it is free now, else returns `None`. Waits for the server's answer,
    /// never for a holder.
    ///
    /// # Errors
    /// [`LockError`]; no waiter node stays behind.
    pub async fn try_acquire(&self) -> Result<Option<Guard>, LockError> {
        let mode = AcquireMode::IfFree;
        let grant = self.acquisition.run(mode, &mut |_| {}).await?;
        Ok(grant.map(|grant| grant.guard))
    }

    /// Like [`Mutex::acquire`], for at most `limit`: one deadline over all wake-ups, reconnects and
    /// sessions.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] when the time is up; else as `acquire`.
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<Guard, LockError> {
        let (mutex, progress) = self.observed();
        let timed_out = |waited_for| {
            LockError::timed_out(self.path(), limit, progress.waited_for(waited_for, limit))
        };
        at_most(limit, &self.acquisition.client, mutex.acquire(), timed_out).await
    }

    pub(crate) fn client(&self) -> &Client {
        &self.acquisition.client
    }

    /// The same acquisition, with a place to read the position from.
    pub(super) fn observed(&self) -> (Self, WaitProgress) {
        let (acquisition, progress) = self.acquisition.observed();
        (Self { acquisition }, progress)
    }
}
