//! When the log of a server of an ensemble has synced its newest entries: for traces. Decides
//! nothing.

use std::collections::VecDeque;
use std::time::Instant;

use baton_consensus::PersistToken;

/// Writes to the log that are remembered.
const MOST: usize = 1024;

/// The newest entries on their way to the disk, and those that came there lately.
#[derive(Debug, Default)]
pub(crate) struct Synced {
    /// Writes that were handed to the log, each with its last index; oldest first.
    written: VecDeque<(PersistToken, u64)>,
    /// Up to which index entries were durable, and when; oldest first.
    durable: VecDeque<(u64, Instant)>,
}

impl Synced {
    /// Entries up to this index were handed to the log.
    pub(crate) fn written(&mut self, token: PersistToken, last: u64) {
        if self.written.len() == MOST {
            self.written.pop_front();
        }
        self.written.push_back((token, last));
    }

    /// Everything up to this token is durable.
    pub(crate) fn durable(&mut self, newest: PersistToken, now: Instant) {
        while let Some((token, last)) = self.written.front().copied()
            && token <= newest
        {
            self.written.pop_front();
            if self.durable.len() == MOST {
                self.durable.pop_front();
            }
            self.durable.push_back((last, now));
        }
    }

    /// When the entry of this index was durable, if that is remembered.
    pub(crate) fn at(&self, index: u64) -> Option<Instant> {
        let place = self.durable.partition_point(|(last, _)| *last < index);
        self.durable.get(place).map(|(_, at)| *at)
    }
}
