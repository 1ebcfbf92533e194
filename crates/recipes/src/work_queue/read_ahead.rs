//! Claimable items that were read before they are needed.
//!
//! Owns which of them a consumer attempts to claim: the first, or, where other consumers have won
//! races, one of the first. Must never choose a less urgent item where a more urgent one was read.

use std::collections::VecDeque;
use std::time::Duration;

use baton_client::BootInstant;
use bytes::Bytes;

use super::envelope::Envelope;

/// Number of items that are read at once.
pub(super) const READ_AHEAD: usize = 32;

/// Time for which items that were read ahead are used. Within this time a more urgent item may be
/// passed over.
const AHEAD_FOR: Duration = Duration::from_millis(500);

/// Among how many of the first items to choose, at most.
const MAX_SPREAD: usize = 64;

/// An item that can be claimed.
#[derive(Debug)]
pub(super) struct ClaimableItem {
    /// Full path of the item.
    pub entry: String,
    pub version: i32,
    /// `None`: the bytes have another form.
    pub envelope: Option<Envelope>,
    pub payload: Bytes,
    pub since_ms: i64,
    /// Full path of a claim whose visibility timeout is over: the new claim deletes it.
    pub stale_claim: Option<String>,
}

impl ClaimableItem {
    fn priority(&self) -> Option<u16> {
        self.envelope.as_ref().map(|envelope| envelope.priority)
    }
}

/// Items read ahead, in the order of the queue.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    items: VecDeque<ClaimableItem>,
    since: Option<BootInstant>,
    /// The version of the queue's own node before they were read.
    terms_version: i32,
    /// Among how many of the first items to choose: more after a lost race.
    spread: usize,
}

impl ReadAhead {
    /// Keeps `items`, which were read after the queue's own node had this version.
    pub(super) fn fill(&mut self, items: Vec<ClaimableItem>, terms_version: i32, now: BootInstant) {
        self.items = items.into();
        self.terms_version = terms_version;
        self.since = Some(now);
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    /// Another consumer has won a race for an item.
    pub(super) fn lost_race(&mut self) {
        self.spread = (self.spread * 2 + 1).min(MAX_SPREAD);
    }

    /// All items were claimed that were picked.
    pub(super) fn won_all(&mut self) {
        self.spread /= 2;
    }

    /// Removes and returns up to `want` items: the first, or some of the first where other
    /// consumers compete. None where the items are too old, or where the queue's own node has
    /// changed since.
    pub(super) fn pick(
        &mut self,
        want: usize,
        terms_version: i32,
        now: BootInstant,
    ) -> Vec<ClaimableItem> {
        let old = self
            .since
            .is_none_or(|since| now.saturating_duration_since(since) > AHEAD_FOR);
        if old || self.terms_version != terms_version {
            self.items.clear();
            return Vec::new();
        }
        // Never past a more urgent item for a less urgent one.
        let first = self.items.front().map(ClaimableItem::priority);
        let equals = self
            .items
            .iter()
            .take_while(|item| Some(item.priority()) == first)
            .count();
        let spread = self.spread.min(equals.saturating_sub(want));
        let skip = if spread == 0 {
            0
        } else {
            // Any number serves that differs from consumer to consumer.
            fastrand::usize(0..=spread)
        };
        let end = self.items.len().min(skip + want);
        self.items.drain(skip..end).collect()
    }
}
