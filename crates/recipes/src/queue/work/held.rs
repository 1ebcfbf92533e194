//! An item that is ours for now, without its queue.
//!
//! Owns when a claim stops being true: with its guard, or when its time is up, whichever comes first. The version that the item
//! had when it was claimed goes with it: every change under the claim is conditioned on it (H67).

use super::envelope::Envelope;
use super::settle::{Settled, read_word};
use crate::guard::{Guard, LostReason};
use crate::link;
use baton_client::{BootInstant, Session};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The clock-rate bound that a visibility timeout is shortened by: servers' clocks may run one percent faster than ours.
const RATE: u32 = 100;

#[derive(Debug)]
pub(super) struct Held {
    pub guard: Guard,
    /// Full path of the item.
    pub entry: String,
    /// The item's version, which each extension raises. Held while a change under the claim is under way.
    pub version: Arc<tokio::sync::Mutex<i32>>,
    pub envelope: Envelope,
    pub payload: Bytes,
    /// When the item was put.
    pub since_ms: i64,
    pub until: Arc<Until>,
    /// Where others write what they have made of the item, if anybody is to learn it.
    pub verdict: Option<Verdict>,
}

/// A node of ours beside the claim's, for the word of whoever settles the claim by its token. Goes with the claim.
#[derive(Debug)]
pub(super) struct Verdict {
    session: Session,
    path: String,
    czxid: i64,
}

impl Verdict {
    pub(super) fn new(session: &Session, path: String, czxid: i64) -> Self {
        Self {
            session: session.clone(),
            path,
            czxid,
        }
    }

    /// What was written; `None` where nothing was, or it cannot be read any more.
    pub(super) async fn read(&self) -> Option<Settled> {
        loop {
            match self.session.get_data(&self.path).await {
                Ok(read) => return read_word(&read.data),
                Err(error) => link::restored(&self.session, error).await.ok()?,
            }
        }
    }
}

impl Drop for Verdict {
    fn drop(&mut self) {
        drop(self.session.delete_eventually(&self.path, self.czxid));
    }
}

/// When others may take the item over, by our own clock.
#[derive(Debug)]
pub(super) struct Until {
    visibility: Option<Duration>,
    deadline: AtomicU64,
    moved: Notify,
}

impl Until {
    /// The server stamped the claim no earlier than it was `sent`.
    pub(super) fn new(sent: BootInstant, visibility: Option<Duration>) -> Self {
        let until = Self {
            visibility,
            deadline: AtomicU64::new(u64::MAX),
            moved: Notify::new(),
        };
        until.renew(sent);
        until
    }

    pub(super) fn renew(&self, sent: BootInstant) {
        if let Some(visibility) = self.visibility {
            let ours = sent + visibility.saturating_sub(visibility / RATE);
            self.deadline.store(ours.as_nanos(), Ordering::Release);
            self.moved.notify_waiters();
        }
    }

    fn remaining(&self, now: BootInstant) -> Option<Duration> {
        self.visibility?;
        let deadline = BootInstant::from_nanos(self.deadline.load(Ordering::Acquire));
        Some(deadline.saturating_duration_since(now))
    }

    fn deadline(&self) -> BootInstant {
        BootInstant::from_nanos(self.deadline.load(Ordering::Acquire))
    }
}

impl Held {
    pub(super) fn check(&self) -> Result<(), LostReason> {
        self.guard.check()?;
        let now = self.guard.session().clock().now();
        match self.until.remaining(now) {
            Some(left) if left.is_zero() => Err(LostReason::ClaimTimedOut),
            _ => Ok(()),
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        let lease = self.guard.remaining();
        let now = self.guard.session().clock().now();
        self.until
            .remaining(now)
            .map_or(lease, |left| left.min(lease))
    }

    pub(super) fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let guard = self.guard.lost();
        let until = Arc::clone(&self.until);
        let clock = self.guard.session().clock();
        async move {
            let timed_out = async {
                loop {
                    let mut moved = std::pin::pin!(until.moved.notified());
                    moved.as_mut().enable();
                    match until.remaining(clock.now()) {
                        None => moved.await,
                        Some(left) if left.is_zero() => return LostReason::ClaimTimedOut,
                        Some(_) => tokio::select! {
                            biased;
                            () = clock.sleep_until(until.deadline()) => {}
                            () = moved => {}
                        },
                    }
                }
            };
            tokio::select! {
                biased;
                reason = guard => reason,
                reason = timed_out => reason,
            }
        }
    }
}
