//! Image of a log: terms and contents of its entries, its term and vote. Kept twice for each
//! server: as it is on the disk, and as it will be once all that waits is synced.

use baton_consensus::Effects;
use baton_wal::Entry;

/// A checksum of an entry's kind and payload.
pub(super) fn content_of(kind: u8, payload: &[u8]) -> u32 {
    // FNV-1a: a few lines; nothing here is an adversary.
    payload
        .iter()
        .chain([&kind])
        .fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        })
}

/// One change of a log.
#[derive(Clone, Debug)]
pub(super) enum Written {
    /// An entry, which replaces the one at its index and all after it.
    Entry { index: u64, term: u64, content: u32 },
    /// An entry and all after it go.
    Truncated { from: u64 },
    /// Term and vote.
    HardState { term: u64, vote: u64 },
    /// A snapshot takes the place of everything.
    Installed { index: u64, term: u64 },
}

/// A log, as far as it has to be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogImage {
    pub(super) base: u64,
    pub(super) base_term: u64,
    /// Term and content of each entry after `base`.
    entries: Vec<(u64, u32)>,
    pub(super) term: u64,
    pub(super) vote: u64,
}

impl LogImage {
    /// The steps in which a log that is like this one stores what the consensus hands out.
    pub(super) fn steps(&self, effects: &Effects) -> Vec<Written> {
        let mut steps = Vec::new();
        if let Some(state) = effects.hard_state {
            let (term, vote) = (state.term, state.vote);
            steps.push(Written::HardState { term, vote });
        }
        let mut last = self.last();
        if let Some(point) = &effects.snapshot {
            let (index, term) = (point.index, point.term);
            if last >= index {
                steps.push(Written::Truncated { from: index });
            }
            steps.push(Written::Installed { index, term });
            last = index;
        }
        for entry in &effects.append {
            let (index, term) = (entry.index, entry.term);
            if index <= last {
                steps.push(Written::Truncated { from: index });
            }
            last = index;
            let content = content_of(entry.kind.as_byte(), &entry.payload);
            steps.push(Written::Entry {
                index,
                term,
                content,
            });
        }
        steps
    }

    pub(super) fn write(&mut self, written: &Written) {
        match *written {
            Written::Entry {
                index,
                term,
                content,
            } => {
                self.truncate(index);
                self.entries.push((term, content));
            }
            Written::Truncated { from } => self.truncate(from),
            Written::HardState { term, vote } => (self.term, self.vote) = (term, vote),
            Written::Installed { index, term } => {
                self.entries.clear();
                (self.base, self.base_term) = (index, term);
            }
        }
    }

    fn truncate(&mut self, from: u64) {
        let keep = from.saturating_sub(self.base + 1);
        self.entries.truncate(usize::try_from(keep).unwrap_or(0));
    }

    pub(super) fn last(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// Term and index of the last entry.
    pub(super) fn position(&self) -> (u64, u64) {
        (self.term_at(self.last()).unwrap_or(0), self.last())
    }

    /// Term and content of an entry that is held as one.
    pub(super) fn entry(&self, index: u64) -> Option<(u64, u32)> {
        let at = index.checked_sub(self.base + 1)?;
        self.entries.get(usize::try_from(at).ok()?).copied()
    }

    pub(super) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.base {
            return Some(self.base_term);
        }
        self.entry(index).map(|(term, _)| term)
    }

    /// Whether an entry is here, as one or as part of a snapshot.
    pub(super) fn has(&self, index: u64, term: u64) -> bool {
        index <= self.base || self.term_at(index) == Some(term)
    }

    /// Whether a start that found `found` after a snapshot at `base`, an index and its term, has
    /// found this log. By the index alone a log before a snapshot was installed can be mistaken for
    /// the one after it.
    pub(super) fn is_found(
        &self,
        (base, base_term): (u64, u64),
        found: &[Entry],
        (term, vote): (u64, u64),
    ) -> bool {
        let last = base + found.len() as u64;
        (term, vote) == (self.term, self.vote)
            && base >= self.base
            && self.term_at(base) == Some(base_term)
            && last == self.last()
            && found.iter().all(|entry| {
                let content = content_of(entry.kind, &entry.payload);
                self.entry(entry.index) == Some((entry.term, content))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_replaces_all_after_it_and_a_snapshot_everything() {
        let mut image = LogImage::default();
        let entry = |index, term| Written::Entry {
            index,
            term,
            content: 7,
        };
        for index in 1..=4 {
            image.write(&entry(index, 1));
        }
        image.write(&entry(3, 2));
        assert_eq!((image.last(), image.position()), (3, (2, 3)));
        assert!(image.has(2, 1) && image.has(3, 2) && !image.has(3, 1) && !image.has(4, 1));
        image.write(&Written::Truncated { from: 2 });
        assert_eq!(image.last(), 1);
        image.write(&Written::Installed { index: 9, term: 4 });
        assert_eq!(
            (image.last(), image.term_at(9), image.term_at(3)),
            (9, Some(4), None)
        );
        assert!(image.has(3, 8));
    }

    #[test]
    fn a_log_that_a_snapshot_has_replaced_is_not_found_though_both_end_at_one_index() {
        let mut before = LogImage::default();
        for index in 1..=3 {
            let term = 2;
            let content = 7;
            before.write(&Written::Entry {
                index,
                term,
                content,
            });
        }
        let mut after = before.clone();
        after.write(&Written::Installed { index: 3, term: 3 });
        assert!(after.is_found((3, 3), &[], (0, 0)));
        assert!(!before.is_found((3, 3), &[], (0, 0)));
        assert!(before.is_found((3, 2), &[], (0, 0)));
    }
}
