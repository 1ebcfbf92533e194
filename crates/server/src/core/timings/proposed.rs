//! When a leader has proposed its newest entries, and how far the others have acknowledged them:
//! for metrics. Decides nothing.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use crate::stats::replication::ReplicationStats;
use crate::time::micros;

/// Entries that are remembered; of older ones no time is measured any more.
const MOST: usize = 4096;

/// The entries that this leader has proposed in its term.
#[derive(Debug, Default)]
pub(crate) struct Proposed {
    /// Index, and when; oldest first.
    entries: VecDeque<(u64, Instant)>,
    /// Up to which index they are committed.
    committed: u64,
    /// Up to which index each other server has acknowledged them.
    acknowledged: BTreeMap<u64, u64>,
}

impl Proposed {
    pub(crate) fn push(&mut self, index: u64, now: Instant) {
        if self.entries.len() == MOST {
            self.entries.pop_front();
        }
        self.entries.push_back((index, now));
    }

    /// Everything up to `commit` is committed.
    pub(crate) fn committed(&mut self, commit: u64, now: Instant, stats: &ReplicationStats) {
        let before = self.committed;
        self.committed = commit.max(before);
        for took in self.times(before, commit, now) {
            stats.quorum_ack_latency.record(took);
        }
    }

    /// Another server says that it has everything up to `index`.
    pub(crate) fn acknowledged(
        &mut self,
        server: u64,
        index: u64,
        now: Instant,
        stats: &ReplicationStats,
    ) {
        let before = self.acknowledged.get(&server).copied().unwrap_or(0);
        if index <= before || self.entries.back().is_none_or(|(last, _)| *last <= before) {
            return;
        }
        self.acknowledged.insert(server, index);
        stats.acknowledged(server, self.times(before, index, now));
    }

    /// Returns the ages of the entries after `before` up to `last`, in microseconds since their
    /// proposal.
    fn times(&self, before: u64, last: u64, now: Instant) -> impl Iterator<Item = u64> {
        let first = self.entries.partition_point(|(index, _)| *index <= before);
        let entries = self.entries.range(first..);
        let entries = entries.take_while(move |(index, _)| *index <= last);
        entries.map(move |(_, at)| micros(now.saturating_duration_since(*at)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_entry_is_measured_once_for_the_majority_and_once_for_each_server() {
        let stats = ReplicationStats::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut proposed = Proposed::default();
        for index in 11..=13 {
            proposed.push(index, at(index));
        }
        proposed.committed(12, at(20), &stats);
        proposed.committed(12, at(30), &stats);
        proposed.committed(20, at(30), &stats);
        let quorum = stats.quorum_ack_latency.spread();
        assert_eq!((quorum.count, quorum.sum), (3, (9 + 8 + 17) * 1000));
        proposed.acknowledged(2, 9, at(15), &stats);
        proposed.acknowledged(2, 13, at(23), &stats);
        proposed.acknowledged(2, 13, at(99), &stats);
        proposed.acknowledged(2, 11, at(99), &stats);
        proposed.acknowledged(3, 11, at(12), &stats);
        let counts: Vec<_> = stats
            .ack_latency()
            .into_iter()
            .map(|(server, spread)| (server, spread.count, spread.sum))
            .collect();
        assert_eq!(counts, [(2, 3, (12 + 11 + 10) * 1000), (3, 1, 1000)]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut proposed = Proposed::default();
        let now = Instant::now();
        for index in 0..10_000 {
            proposed.push(index, now);
        }
        assert_eq!(proposed.entries.len(), MOST);
        assert_eq!(proposed.times(0, u64::MAX, now).count(), MOST);
    }
}
