//! Baton's recipes in which a limited number hold at a time.

use baton::election::ElectionError;
use baton::lock::{LockError, ReadGuard, WriteGuard};
use baton::{Client, Guard, LeaderElection, Leadership, LostReason, Mutex, RwLock, Semaphore};

use super::MemberFailure;
use crate::Result;

/// Thing that is acquired.
pub(super) enum TurnKind {
    Lock(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permit(Semaphore),
    Election(LeaderElection),
}

/// The proof of holding it.
pub(super) enum HeldTurn {
    Guard(Guard),
    Read(ReadGuard),
    Write(WriteGuard),
    Term(Leadership),
}

impl From<LockError> for MemberFailure {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Foreign { .. } => Self::Refused(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

impl From<ElectionError> for MemberFailure {
    fn from(error: ElectionError) -> Self {
        match error {
            ElectionError::Lock(error) => error.into(),
            _ => Self::Other(error.to_string()),
        }
    }
}

impl TurnKind {
    /// `baton-lock:kazoo` and the like; `None` for what is not a recipe of this kind.
    pub(super) fn open(
        client: &Client,
        recipe: &str,
        dialect: &str,
        path: &str,
        name: &str,
    ) -> Result<Option<Self>> {
        let read_write = || -> Result<RwLock> {
            let lock = RwLock::new(client, path)?.name(name);
            Ok(lock.dialect(dialect.parse()?))
        };
        Ok(Some(match recipe {
            "baton-lock" => Self::Lock(
                Mutex::new(client, path)?
                    .name(name)
                    .dialect(dialect.parse()?),
            ),
            "baton-read" => Self::Read(read_write()?),
            "baton-write" => Self::Write(read_write()?),
            "baton-semaphore" => Self::Permit(Semaphore::new(client, path, 2)?.name(name)),
            "baton-election" => {
                let election = LeaderElection::new(client, path)?.name(name);
                Self::Election(election.dialect(dialect.parse()?))
            }
            _ => return Ok(None),
        }))
    }

    pub(super) async fn acquire(&self) -> std::result::Result<HeldTurn, MemberFailure> {
        Ok(match self {
            Self::Lock(mutex) => HeldTurn::Guard(mutex.acquire().await?),
            Self::Read(lock) => HeldTurn::Read(lock.read().await?),
            Self::Write(lock) => HeldTurn::Write(lock.write().await?),
            Self::Permit(semaphore) => {
                let guard = semaphore.acquire(1).await;
                HeldTurn::Guard(guard.map_err(super::other)?)
            }
            Self::Election(election) => HeldTurn::Term(election.campaign().await?),
        })
    }
}

impl HeldTurn {
    pub(super) fn check(&self) -> std::result::Result<(), LostReason> {
        match self {
            Self::Guard(guard) => guard.check(),
            Self::Read(guard) => guard.check(),
            Self::Write(guard) => guard.check(),
            Self::Term(term) => term.check(),
        }
    }

    /// Returns whether the release was confirmed is nothing to the register: the turn has ended
    /// before.
    pub(super) async fn release(self) {
        let _ = match self {
            Self::Guard(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Term(term) => term.resign().await,
        };
    }
}
