//! The read/write lock: many readers or one writer, in order of arrival.
//!
//! Owns the two kinds of acquire, and the changes between them. Must never let a reader wait to
//! become the writer: two that did so would wait for each other (H44).

use std::ops::Deref;
use std::time::Duration;

use baton_client::Client;

use crate::acquire::{AcquireMode, Acquisition, Grant, LockError, acquisition_options};
use crate::guard::{Guard, LostReason, PendingRelease};
use crate::naming::{LockMode, NamingScheme, RwDialect};
use crate::record::Record;
use crate::time_limit::at_most;
use crate::wait_queue::AcquireError;

/// A lock on a path of the tree, for any number of readers or one writer at a time, in order of
/// arrival: a reader that comes after a waiting writer waits behind it.
///
/// Otherwise as [`Mutex`](crate::Mutex): each acquire waits with a node of its own, nothing is
/// reentrant, cheap to clone. The fencing tokens of readers and writers are minted at the grant and
/// grow with it.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let lock = baton::RwLock::new(&client, "/config")?.name("loader");
/// let writer = lock.write().await?;
/// // Changed; from here on others may read, but nobody may write.
/// let reader = writer.downgrade().await?;
/// reader.check()?;
/// reader.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    acquisition: Acquisition,
    dialect: RwDialect,
}

impl RwLock {
    /// A lock at `path`, with Curator's names. Nothing is sent.
    ///
    /// # Errors
    /// [`LockError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, LockError> {
        let dialect = RwDialect::Curator;
        let naming = NamingScheme::ReadWrite(dialect);
        Ok(Self {
            acquisition: Acquisition::of(client, path, naming, LockMode::Exclusive)?,
            dialect,
        })
    }

    /// Uses the names of another library, to share the wait queue with its processes.
    #[must_use]
    pub fn dialect(mut self, dialect: RwDialect) -> Self {
        self.dialect = dialect;
        self.acquisition.naming = NamingScheme::ReadWrite(dialect);
        self
    }

    acquisition_options!(acquisition);

    /// Waits until no writer holds the lock, and no earlier writer waits for it.
    ///
    /// Survives lost connections and sessions, and is cancel-safe, like
    /// [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Errors
    /// [`LockError`]; no waiter node stays behind.
    pub async fn read(&self) -> Result<ReadGuard, LockError> {
        let guard = self.waiting(LockMode::Shared).await?;
        Ok(self.reader(guard))
    }

    /// Acquires shared access if that is possible now, else returns `None`. Waits for the server's
    /// answer, never for a holder.
    ///
    /// # Errors
    /// [`LockError`]; no waiter node stays behind.
    pub async fn try_read(&self) -> Result<Option<ReadGuard>, LockError> {
        let guard = self.at_once(LockMode::Shared).await?;
        Ok(guard.map(|guard| self.reader(guard)))
    }

    /// Like [`RwLock::read`], for at most `limit`: one deadline over all wake-ups, reconnects and
    /// sessions.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] when the time is up; else as `read`.
    pub async fn read_timeout(&self, limit: Duration) -> Result<ReadGuard, LockError> {
        let guard = self.limited(limit, LockMode::Shared).await?;
        Ok(self.reader(guard))
    }

    /// Waits until no earlier reader or writer holds the lock or waits for it.
    ///
    /// Survives lost connections and sessions, and is cancel-safe, like
    /// [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Errors
    /// [`LockError`]; no waiter node stays behind.
    pub async fn write(&self) -> Result<WriteGuard, LockError> {
        let guard = self.waiting(LockMode::Exclusive).await?;
        Ok(self.writer(guard))
    }

    /// Acquires exclusive access if nobody holds the lock now, else returns `None`. Waits for the
    /// server's answer, never for a holder.
    ///
    /// # Errors
    /// [`LockError`]; no waiter node stays behind.
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, LockError> {
        let guard = self.at_once(LockMode::Exclusive).await?;
        Ok(guard.map(|guard| self.writer(guard)))
    }

    /// Like [`RwLock::write`], for at most `limit`: one deadline over all wake-ups, reconnects and
    /// sessions.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] when the time is up; else as `write`.
    pub async fn write_timeout(&self, limit: Duration) -> Result<WriteGuard, LockError> {
        let guard = self.limited(limit, LockMode::Exclusive).await?;
        Ok(self.writer(guard))
    }

    fn reader(&self, guard: Guard) -> ReadGuard {
        ReadGuard {
            guard,
            lock: self.clone(),
        }
    }

    fn writer(&self, guard: Guard) -> WriteGuard {
        WriteGuard {
            guard,
            lock: self.clone(),
        }
    }

    fn acquisition(&self, mode: LockMode) -> Acquisition {
        Acquisition {
            lock_mode: mode,
            ..self.acquisition.clone()
        }
    }

    async fn waiting(&self, mode: LockMode) -> Result<Guard, LockError> {
        Ok(self.acquisition(mode).acquire(&mut |_| {}).await?.guard)
    }

    async fn at_once(&self, mode: LockMode) -> Result<Option<Guard>, LockError> {
        let acquisition = self.acquisition(mode);
        let grant = acquisition.run(AcquireMode::IfFree, &mut |_| {}).await?;
        Ok(grant.map(|grant| grant.guard))
    }

    async fn limited(&self, limit: Duration, mode: LockMode) -> Result<Guard, LockError> {
        let (acquisition, progress) = self.acquisition.observed();
        let observed = Self {
            acquisition,
            ..self.clone()
        };
        let timed_out = |waited_for| {
            LockError::timed_out(self.path(), limit, progress.waited_for(waited_for, limit))
        };
        let client = &self.acquisition.client;
        at_most(limit, client, observed.waiting(mode), timed_out).await
    }
}

/// RAII guard for shared access: this reader holds the lock as long as the guard exists and
/// [`Guard::check`] succeeds. See [`Guard`].
#[must_use = "dropping the guard releases the lock"]
#[derive(Debug)]
pub struct ReadGuard {
    guard: Guard,
    lock: RwLock,
}

/// RAII guard for exclusive access: the writer holds the lock as long as the guard exists and
/// [`Guard::check`] succeeds. See [`Guard`].
#[must_use = "dropping the guard releases the lock"]
#[derive(Debug)]
pub struct WriteGuard {
    guard: Guard,
    lock: RwLock,
}

/// Error of an upgrade: the reader did not become the writer. It still reads while its guard is
/// valid.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct UpgradeRefused {
    /// The guard, as it was.
    pub guard: ReadGuard,
    /// The reason: [`LockError::WouldDeadlock`] where others read or wait.
    pub r#source: LockError,
}

impl Deref for ReadGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl ReadGuard {
    /// Returns the plain [`Guard`], for code that takes a guard of any kind.
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    /// Releases the lock: see [`Guard::release`].
    pub fn release(self) -> PendingRelease {
        self.guard.release()
    }

    /// Becomes the writer if there is no other reader and no waiting writer; does not wait. The
    /// lock is held throughout.
    ///
    /// Two readers that waited to become the writer would wait for each other for ever, so this is
    /// refused instead. Cancel-safe: dropping the future releases the lock.
    ///
    /// # Errors
    /// [`UpgradeRefused`], which has the guard.
    pub async fn upgrade(self) -> Result<WriteGuard, Box<UpgradeRefused>> {
        let acquisition = self.lock.acquisition(LockMode::Exclusive);
        let source = match acquisition.try_beside(&self.guard).await {
            Ok(Some(Grant { guard, .. })) => {
                // Behind the new node in the session's order: the queue is never without a node of
                // ours.
                self.guard.release();
                let lock = self.lock;
                return Ok(WriteGuard { guard, lock });
            }
            Ok(None) => LockError::WouldDeadlock {
                path: self.lock.path().to_owned(),
            },
            Err(error) => error,
        };
        let guard = self;
        Err(Box::new(UpgradeRefused { guard, source }))
    }
}

impl WriteGuard {
    /// Returns the plain [`Guard`], for code that takes a guard of any kind.
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    /// Releases the lock: see [`Guard::release`].
    pub fn release(self) -> PendingRelease {
        self.guard.release()
    }

    /// Becomes a reader, in one step: the readers that wait behind may go, but no writer before
    /// this reader has released.
    ///
    /// What reports on the writer's guard ([`Guard::lost`], say) ends as released. Cancel-safe:
    /// dropping the future releases the lock.
    ///
    /// # Errors
    /// [`LockError::Lost`] where the writer had lost the lock, [`LockError::Client`] where the
    /// server refuses the change. The lock is then released.
    pub async fn downgrade(self) -> Result<ReadGuard, LockError> {
        let Self { guard, lock } = self;
        let path = || lock.path().to_owned();
        let lost = |reason| LockError::Lost {
            path: path(),
            reason,
        };
        guard.check().map_err(lost)?;
        let mut record = Record::of(lock.acquisition.name.as_deref(), lock.acquisition.pid);
        record.kept_position = guard.node_czxid();
        let session = guard.session().clone();
        let writer = baton_proto::path::name(guard.node()).to_owned();
        let Some(reader) = lock.dialect.downgraded(&writer, &record.id) else {
            return Err(lost(LostReason::NodeGone));
        };
        match guard.exchange(&reader, &record.to_bytes()).await {
            Ok(guard) => Ok(lock.reader(guard)),
            Err(_) if session.state().is_final() => Err(lost(LostReason::SessionLost)),
            Err(AcquireError::Client(source)) => Err(LockError::client(&path(), source)),
            Err(_) => Err(lost(LostReason::NodeGone)),
        }
    }
}
