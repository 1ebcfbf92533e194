//! An item that is ours for now, without its queue.
//!
//! Owns when a claim stops being true: with its guard, or when its time is up, whichever comes
//! first. The version that the item had when it was claimed goes with it: every change under the
//! claim is conditioned on it (H67).

use super::envelope::Envelope;
use super::settle::{Settled, read_word};
use crate::guard::{ClaimDeadline, Guard, GuardStatus, LostReason};
use crate::retry;
use baton_client::Session;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Held {
    pub guard: Guard,
    /// Full path of the item.
    pub entry: String,
    /// The item's version, which each extension raises. Held while a change under the claim is
    /// under way.
    pub version: Arc<tokio::sync::Mutex<i32>>,
    pub envelope: Envelope,
    pub payload: Bytes,
    /// When the item was put.
    pub since_ms: i64,
    pub until: Arc<ClaimDeadline>,
    /// Where others write what they have made of the item, if anybody is to learn it.
    pub verdict: Option<Verdict>,
}

/// A node of ours beside the claim's, for the word of whoever settles the claim by its token. Goes
/// with the claim.
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
                Err(error) => retry::until_retryable(&self.session, error).await.ok()?,
            }
        }
    }
}

impl Drop for Verdict {
    fn drop(&mut self) {
        drop(self.session.delete_eventually(&self.path, self.czxid));
    }
}

impl Held {
    pub(super) fn status(&self) -> GuardStatus {
        self.guard.status_until(&self.until)
    }

    pub(super) fn check(&self) -> Result<(), LostReason> {
        self.status().check()
    }

    pub(super) fn remaining(&self) -> Duration {
        self.status().remaining()
    }

    pub(super) fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let (guard, until) = (self.guard.lost(), Arc::clone(&self.until));
        let clock = self.guard.session().clock();
        async move {
            tokio::select! {
                biased;
                reason = guard => reason,
                () = until.passed(&clock) => LostReason::ClaimTimedOut,
            }
        }
    }
}
