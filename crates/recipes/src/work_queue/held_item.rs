//! An item under a claim of this process, without its queue.
//!
//! Owns when a claim stops being valid: with its guard, or when its visibility timeout is over,
//! whichever comes first. Keeps the version that the item had when it was claimed: every change
//! under the claim is conditioned on it (H67).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::envelope::Envelope;
use super::notice::SettlementNotice;
use crate::guard::{ClaimDeadline, Guard, GuardStatus, LostReason};

/// An item that this process has claimed.
#[derive(Debug)]
pub(super) struct HeldItem {
    pub guard: Guard,
    /// Full path of the item.
    pub entry: String,
    /// The item's version, which each extension raises. Locked while a change under the claim is
    /// under way.
    pub version: Arc<tokio::sync::Mutex<i32>>,
    pub envelope: Envelope,
    pub payload: Bytes,
    /// Time at which the item was put.
    pub since_ms: i64,
    /// Time at which the visibility timeout is over, by our own clock.
    pub until: Arc<ClaimDeadline>,
    /// Place where other processes write how they have settled the item, if the claim has such a
    /// node.
    pub notice: Option<SettlementNotice>,
}

impl HeldItem {
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
