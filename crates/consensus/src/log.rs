//! The engine's view of the log, in memory: what was handed out to be stored and is not applied
//! yet.
//!
//! It never decides what may be dropped: the node says so, and keeps the index and term before the
//! first entry.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, StorageError};

use crate::snapshot::{SnapshotPoint, snapshot_of};

/// Entries after `(base_index, base_term)`.
pub(crate) struct MemoryLog {
    base_index: u64,
    base_term: u64,
    entries: VecDeque<Entry>,
    /// Bytes of the payloads.
    bytes: u64,
    hard_state: HardState,
    conf_state: ConfState,
    /// The newest snapshot that can be sent.
    snapshot: Option<SnapshotPoint>,
    /// Nodes that the engine wanted to send a snapshot to, and had none for.
    wanted: RefCell<BTreeSet<u64>>,
}

fn payload_bytes(entry: &Entry) -> u64 {
    (entry.data.len() + entry.context.len()) as u64
}

impl MemoryLog {
    /// A log that begins after `(base_index, base_term)`.
    pub(crate) fn new(
        base_index: u64,
        base_term: u64,
        entries: VecDeque<Entry>,
        hard_state: HardState,
        conf_state: ConfState,
    ) -> MemoryLog {
        MemoryLog {
            base_index,
            base_term,
            bytes: entries.iter().map(payload_bytes).sum(),
            entries,
            hard_state,
            conf_state,
            snapshot: None,
            wanted: RefCell::default(),
        }
    }

    /// Puts entries at their index; an index already there is replaced together with all after it.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        if let Some(first) = entries.first() {
            let keep = first.index.saturating_sub(self.base_index + 1);
            let keep = usize::try_from(keep).unwrap_or(usize::MAX);
            while self.entries.len() > keep {
                if let Some(replaced) = self.entries.pop_back() {
                    self.bytes -= payload_bytes(&replaced);
                }
            }
            for entry in entries {
                self.bytes += payload_bytes(entry);
                self.entries.push_back(entry.clone());
            }
        }
    }

    /// The state up to `point` has come as a snapshot: it takes the place of all entries.
    pub(crate) fn install(&mut self, point: &SnapshotPoint) {
        self.entries.clear();
        self.bytes = 0;
        self.base_index = point.index;
        self.base_term = point.term;
        self.conf_state = point.membership.to_engine();
        self.snapshot = Some(point.clone());
    }

    /// A snapshot that can be sent from now on.
    pub(crate) fn offer(&mut self, point: SnapshotPoint) {
        self.wanted
            .borrow_mut()
            .retain(|id| !point.membership.contains(*id));
        self.snapshot = Some(point);
    }

    /// Nodes that need a snapshot that is not there, each named once.
    pub(crate) fn take_wanted(&mut self) -> Vec<u64> {
        std::mem::take(self.wanted.get_mut()).into_iter().collect()
    }

    /// Drops entries up to and with `index`, which must be in the log.
    pub(crate) fn drop_up_to(&mut self, index: u64) {
        while self.entries.front().is_some_and(|e| e.index <= index) {
            if let Some(entry) = self.entries.pop_front() {
                self.bytes -= payload_bytes(&entry);
                self.base_index = entry.index;
                self.base_term = entry.term;
            }
        }
    }

    /// Drops the oldest entries up to `index` while the payloads are more than `bytes`.
    pub(crate) fn drop_down_to(&mut self, bytes: u64, index: u64) {
        while self.bytes > bytes && self.base_index < index {
            self.drop_up_to(self.base_index + 1);
        }
    }

    /// The index before the first entry.
    pub(crate) fn base(&self) -> u64 {
        self.base_index
    }

    fn last(&self) -> u64 {
        self.base_index + self.entries.len() as u64
    }
}

impl raft::Storage for MemoryLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState {
            hard_state: self.hard_state.clone(),
            conf_state: self.conf_state.clone(),
        })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.base_index {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last() + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let at = |index: u64| usize::try_from(index - self.base_index - 1).unwrap_or(usize::MAX);
        let mut found: Vec<Entry> = self.entries.range(at(low)..at(high)).cloned().collect();
        raft::util::limit_size(&mut found, max_size.into());
        Ok(found)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base_index {
            return Ok(self.base_term);
        }
        let Some(at) = index.checked_sub(self.base_index + 1) else {
            return Err(StorageError::Compacted.into());
        };
        match self.entries.get(usize::try_from(at).unwrap_or(usize::MAX)) {
            Some(entry) => Ok(entry.term),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base_index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// A snapshot that lacks its receiver would be refused there for ever (R21), and one from
    /// before the first entry here would leave a gap.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let fits = |point: &&SnapshotPoint| {
            point.index >= request_index.max(self.base_index) && point.membership.contains(to)
        };
        match self.snapshot.as_ref().filter(fits) {
            Some(point) => Ok(snapshot_of(point)),
            None => {
                self.wanted.borrow_mut().insert(to);
                Err(StorageError::SnapshotTemporarilyUnavailable.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use raft::{Error, Storage};

    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry {
            index,
            term,
            ..Entry::default()
        }
    }

    /// Entries 4, 5 and 6 of term 2, behind a snapshot of index 3 and term 1.
    fn log() -> MemoryLog {
        let entries = (4..=6).map(|index| entry(index, 2)).collect();
        MemoryLog::new(3, 1, entries, HardState::default(), ConfState::default())
    }

    fn read(log: &MemoryLog, low: u64, high: u64) -> raft::Result<Vec<(u64, u64)>> {
        let found = log.entries(low, high, None, GetEntriesContext::empty(false))?;
        Ok(found.iter().map(|e| (e.index, e.term)).collect())
    }

    #[test]
    fn an_index_already_there_is_replaced_together_with_all_after_it() {
        let mut log = log();
        log.append(&[entry(5, 3)]);
        assert_eq!(read(&log, 4, 6).unwrap(), [(4, 2), (5, 3)]);
        assert_eq!(log.last_index().unwrap(), 5);
    }

    #[test]
    fn what_was_dropped_or_is_not_there_yet_is_refused() {
        let log = log();
        assert_eq!(read(&log, 4, 7).unwrap(), [(4, 2), (5, 2), (6, 2)]);
        let compacted = |low| {
            matches!(
                read(&log, low, 5),
                Err(Error::Store(StorageError::Compacted))
            )
        };
        assert!(compacted(2) && compacted(3));
        let unavailable = read(&log, 4, 8);
        assert!(matches!(
            unavailable,
            Err(Error::Store(StorageError::Unavailable))
        ));
        assert_eq!((log.term(3).unwrap(), log.term(4).unwrap()), (1, 2));
        assert!(log.term(2).is_err() && log.term(7).is_err());
    }

    /// The state up to `index` of a cluster with these voters.
    fn point(index: u64, voters: &[u64]) -> SnapshotPoint {
        SnapshotPoint {
            index,
            term: 1,
            membership: crate::membership::Membership {
                voters: voters.to_vec(),
                ..Default::default()
            },
        }
    }

    #[test]
    fn r21_a_snapshot_reaches_the_log_has_its_receiver_and_is_asked_for_until_there_is_one() {
        let mut log = log();
        log.offer(point(3, &[1, 2]));
        assert!(log.snapshot(0, 2).is_ok(), "the log begins behind it");
        assert!(log.snapshot(3, 2).is_ok());
        assert_eq!(log.take_wanted(), [] as [u64; 0]);
        assert!(log.snapshot(4, 2).is_err(), "older than what is asked for");
        assert!(log.snapshot(0, 3).is_err(), "without its receiver");
        assert_eq!(log.take_wanted(), [2, 3]);
        assert_eq!(log.take_wanted(), [] as [u64; 0], "each is named once");

        assert!(log.snapshot(4, 2).is_err() && log.snapshot(0, 3).is_err());
        log.offer(point(4, &[1, 2]));
        assert_eq!(log.take_wanted(), [3], "there is one for 2 now");
        log.drop_up_to(5);
        assert!(log.snapshot(0, 2).is_err(), "an entry is between them");
    }
}
