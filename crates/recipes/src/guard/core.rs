//! What a guard and its helpers share: whether it has ended, and how.
//!
//! Owns the one-way switch from held to ended. The lease is asked each time, never remembered.

use baton_client::Session;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Why a guard has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The session's lease ran out by our own clock: no server has answered for too long, or this process was paused.
    LeaseEnded,
    /// Somebody deleted the lock node.
    NodeGone,
    /// The session has expired or was closed.
    SessionLost,
    /// It was released, by us.
    Released,
}

impl std::fmt::Display for LostReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LeaseEnded => {
                "the lease ended (no server answered in time, or this process was paused)"
            }
            Self::NodeGone => "the lock node was deleted by somebody",
            Self::SessionLost => "the session was lost",
            Self::Released => "it was released",
        })
    }
}

impl std::error::Error for LostReason {}

impl LostReason {
    const HELD: u8 = 0;

    fn code(self) -> u8 {
        match self {
            Self::LeaseEnded => 1,
            Self::NodeGone => 2,
            Self::SessionLost => 3,
            Self::Released => 4,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::LeaseEnded),
            2 => Some(Self::NodeGone),
            3 => Some(Self::SessionLost),
            4 => Some(Self::Released),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Core {
    session: Session,
    path: String,
    czxid: i64,
    ended: AtomicU8,
    news: Notify,
}

impl Core {
    pub(super) fn new(session: Session, path: &str, czxid: i64) -> Self {
        Self {
            session,
            path: path.to_owned(),
            czxid,
            ended: AtomicU8::new(LostReason::HELD),
            news: Notify::new(),
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn token(&self) -> u64 {
        u64::try_from(self.czxid).unwrap_or_default()
    }

    /// Ends the guard for `reason`, unless it has ended already.
    pub(super) fn end(&self, reason: LostReason) {
        let _ = self.end_and_see(reason);
    }

    /// Ends the guard, and tells whether it was still held until now.
    pub(super) fn end_and_see(&self, reason: LostReason) -> Result<(), LostReason> {
        self.check()?;
        self.set(reason)
    }

    fn set(&self, reason: LostReason) -> Result<(), LostReason> {
        let switched = self.ended.compare_exchange(
            LostReason::HELD,
            reason.code(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match switched {
            Ok(_) => {
                self.news.notify_waiters();
                Ok(())
            }
            Err(before) => Err(LostReason::from_code(before).unwrap_or(LostReason::SessionLost)),
        }
    }

    pub(super) fn check(&self) -> Result<(), LostReason> {
        if let Some(reason) = LostReason::from_code(self.ended.load(Ordering::Acquire)) {
            return Err(reason);
        }
        if self.session.lease().remaining().is_zero() {
            let reason = if self.session.state().is_final() {
                LostReason::SessionLost
            } else {
                LostReason::LeaseEnded
            };
            return self.set(reason).and(Err(reason));
        }
        Ok(())
    }

    pub(super) fn remaining(&self) -> Duration {
        match self.check() {
            Ok(()) => self.session.lease().remaining(),
            Err(_) => Duration::ZERO,
        }
    }

    pub(super) async fn ended(&self) -> LostReason {
        loop {
            let mut news = std::pin::pin!(self.news.notified());
            news.as_mut().enable();
            if let Err(reason) = self.check() {
                return reason;
            }
            // The lease moves on while servers answer, so its end is looked at again, not waited for once.
            let lease = self.session.lease().remaining();
            let _ = tokio::time::timeout(lease, news).await;
        }
    }
}
