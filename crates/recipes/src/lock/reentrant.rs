//! A reentrant mutex: its holder may acquire it again.
//!
//! Owns the table of who holds, by logical owner, and the count of each. Must never take the table
//! for the lock: a re-entry succeeds only while the guard that it joins holds (H33).

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use baton_client::{Acl, Client};
use uuid::Uuid;

use super::Mutex;
use crate::acquire::LockError;
use crate::guard::{Guard, PendingRelease};
use crate::naming::Dialect;
use crate::time_limit::{WaitReason, at_most};

/// Owner of a [`ReentrantMutex`]: a request, a job or a thread of control, as the program decides.
/// Clones are the same owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// Creates an owner that differs from every other.
    #[must_use]
    pub fn unique() -> Self {
        Self(Arc::from(Uuid::new_v4().simple().to_string()))
    }
}

impl From<&str> for OwnerId {
    /// The owner of this name: the same for everybody in this process who gives it.
    fn from(name: &str) -> Self {
        Self(Arc::from(name))
    }
}

impl std::fmt::Display for OwnerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A [`Mutex`] that its holder may acquire again, without waiting; it is released with the
/// last of the guards.
///
/// The holder is a logical owner ([`OwnerId`]), not a thread or a task, so a guard may be released
/// anywhere. Owners are known to this object and its clones only; two objects for one path exclude
/// each other like those of two machines.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let lock = baton::ReentrantMutex::new(&client, "/account/7")?;
/// let me = baton::lock::OwnerId::unique();
/// let outer = lock.acquire(&me).await?;
/// let inner = lock.acquire(&me).await?; // at once, and without a request to the server
/// assert_eq!(inner.token(), outer.token());
/// inner.release().await?; // still held
/// outer.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantMutex {
    mutex: Mutex,
    owners: Arc<OwnerTable>,
}

#[derive(Debug, Default)]
struct OwnerTable(StdMutex<HashMap<OwnerId, Arc<OwnerSlot>>>);

/// Hold of an owner. Locked while it acquires, so that its acquires come one after the other.
type OwnerSlot = tokio::sync::Mutex<Weak<OwnerHold>>;

#[derive(Debug)]
struct OwnerHold {
    guard: Guard,
    _entry: Entry,
}

/// Takes the owner out of the table when it holds no more.
#[derive(Debug)]
struct Entry {
    owners: Arc<OwnerTable>,
    owner: OwnerId,
}

impl OwnerTable {
    fn table(&self) -> MutexGuard<'_, HashMap<OwnerId, Arc<OwnerSlot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lend(self: &Arc<Self>, owner: &OwnerId) -> ReentrantSlot {
        ReentrantSlot {
            slot: Arc::clone(self.table().entry(owner.clone()).or_default()),
            owners: Arc::clone(self),
            owner: owner.clone(),
        }
    }

    /// Takes the owner out of the table if it holds nothing, and no others than `in_hand` have its
    /// slot in hand.
    fn tidy(&self, owner: &OwnerId, in_hand: usize) {
        let mut table = self.table();
        let idle = table.get(owner).is_some_and(|slot| {
            Arc::strong_count(slot) == 1 + in_hand
                && slot.try_lock().is_ok_and(|held| held.strong_count() == 0)
        });
        if idle {
            table.remove(owner);
        }
    }
}

/// An owner's slot, in hand to acquire.
struct ReentrantSlot {
    slot: Arc<OwnerSlot>,
    owners: Arc<OwnerTable>,
    owner: OwnerId,
}

impl Drop for ReentrantSlot {
    fn drop(&mut self) {
        self.owners.tidy(&self.owner, 1);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.owners.tidy(&self.owner, 0);
    }
}

impl ReentrantMutex {
    /// A lock at `path`, with Curator's names. Nothing is sent.
    ///
    /// # Errors
    /// [`LockError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, LockError> {
        Ok(Self {
            mutex: Mutex::new(client, path)?,
            owners: Arc::default(),
        })
    }

    /// Uses the names of another library: see [`Mutex::dialect`].
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.mutex = self.mutex.dialect(dialect);
        self
    }

    /// Sets the name of this program in the lock node's data, which `baton lock show` and the
    /// console print.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.mutex = self.mutex.name(name);
        self
    }

    /// The ACL of every node that this handle creates, missing parents included. Default: open to
    /// everybody. Give all who use the lock the same, and the permissions that they need: all but
    /// `ADMIN`. Nodes that exist already keep theirs.
    #[must_use]
    pub fn acl(mut self, acl: &[Acl<'_>]) -> Self {
        self.mutex = self.mutex.acl(acl);
        self
    }

    /// The lock's path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.mutex.path()
    }

    /// Waits until `owner` holds the lock; returns at once where it does already. Of two concurrent
    /// acquires of one owner, the second waits for the first and joins it. Cancel-safe at every
    /// point.
    ///
    /// # Errors
    /// [`LockError::Lost`] where the owner has guards of a lock that is lost: they must go before
    /// it may acquire again, so that work which trusts them is not taken for protected. Else as
    /// [`Mutex::acquire`].
    pub async fn acquire(&self, owner: &OwnerId) -> Result<ReentrantGuard, LockError> {
        let lent = self.owners.lend(owner);
        let mut slot = lent.slot.lock().await;
        if let Some(held) = self.again(&slot)? {
            return Ok(held);
        }
        let guard = self.mutex.acquire().await?;
        Ok(self.first(owner, &mut slot, guard))
    }

    /// Acquires the lock if `owner` holds it already or it is free now, else returns `None`.
    ///
    /// # Errors
    /// As [`ReentrantMutex::acquire`].
    pub async fn try_acquire(&self, owner: &OwnerId) -> Result<Option<ReentrantGuard>, LockError> {
        let lent = self.owners.lend(owner);
        // The owner waits for the lock already: so it is not free.
        let Ok(mut slot) = lent.slot.try_lock() else {
            return Ok(None);
        };
        if let Some(held) = self.again(&slot)? {
            return Ok(Some(held));
        }
        let guard = self.mutex.try_acquire().await?;
        Ok(guard.map(|guard| self.first(owner, &mut slot, guard)))
    }

    /// Like [`ReentrantMutex::acquire`], for at most `limit`: one deadline over all that it waits
    /// for.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] when the time is up; else as `acquire`.
    pub async fn acquire_timeout(
        &self,
        owner: &OwnerId,
        limit: Duration,
    ) -> Result<ReentrantGuard, LockError> {
        let (mutex, progress) = self.mutex.observed();
        let observed = Self {
            mutex,
            owners: Arc::clone(&self.owners),
        };
        let timed_out = |waited_for: WaitReason| {
            let holder = progress.position().and_then(|position| position.head);
            LockError::timed_out(self.path(), limit, waited_for.held_by(holder))
        };
        at_most(
            limit,
            &self.mutex.acquisition.client,
            observed.acquire(owner),
            timed_out,
        )
        .await
    }

    fn again(&self, slot: &Weak<OwnerHold>) -> Result<Option<ReentrantGuard>, LockError> {
        let Some(held) = slot.upgrade() else {
            return Ok(None);
        };
        held.guard.check().map_err(|reason| LockError::Lost {
            path: self.path().to_owned(),
            reason,
        })?;
        Ok(Some(ReentrantGuard { held }))
    }

    fn first(&self, owner: &OwnerId, slot: &mut Weak<OwnerHold>, guard: Guard) -> ReentrantGuard {
        let held = Arc::new(OwnerHold {
            guard,
            _entry: Entry {
                owners: Arc::clone(&self.owners),
                owner: owner.clone(),
            },
        });
        *slot = Arc::downgrade(&held);
        ReentrantGuard { held }
    }
}

/// RAII guard of one of an owner's holds on a [`ReentrantMutex`]. The lock is released with the
/// last of them. See [`Guard`].
#[must_use = "dropping the owner's last guard releases the lock"]
#[derive(Debug)]
pub struct ReentrantGuard {
    held: Arc<OwnerHold>,
}

impl Deref for ReentrantGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.held.guard
    }
}

impl ReentrantGuard {
    /// Number of guards of the owner, this one included.
    #[must_use]
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.held)
    }

    /// Gives this hold up; the lock is released with the last. See [`Guard::release`].
    ///
    /// # Errors
    /// Those of [`Guard::release`]; where other holds remain, only
    /// [`ReleaseError::Lost`](crate::guard::ReleaseError::Lost).
    pub fn release(self) -> PendingRelease {
        let before = self.held.guard.check();
        let node = self.held.guard.node().to_owned();
        match Arc::into_inner(self.held) {
            Some(last) => last.guard.release(),
            None => PendingRelease::of_none(node, before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_holds_nothing_is_forgotten() {
        let owners = Arc::new(OwnerTable::default());
        let owner = OwnerId::from("request-7");
        let lent = owners.lend(&owner);
        let again = owners.lend(&owner);
        drop(lent);
        assert_eq!(owners.table().len(), 1, "still in hand");
        drop(again);
        assert_eq!(owners.table().len(), 0);
    }
}
