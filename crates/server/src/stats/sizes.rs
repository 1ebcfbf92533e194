//! Sizes of one kind of thing, as ZooKeeper shows them: the last, the smallest, the largest.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Sizes in bytes. Nothing before the first one.
#[derive(Debug)]
pub(crate) struct Sizes {
    last: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
}

/// Sizes recorded by [`Sizes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizesSeen {
    pub(crate) last: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl SizesSeen {
    /// Sizes of one thing.
    pub(crate) fn one(bytes: u64) -> Self {
        Self {
            last: bytes,
            min: bytes,
            max: bytes,
        }
    }

    /// With one more.
    pub(crate) fn and(self, bytes: u64) -> Self {
        Self {
            last: bytes,
            min: self.min.min(bytes),
            max: self.max.max(bytes),
        }
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            last: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        }
    }
}

impl Sizes {
    /// Adds sizes that were seen elsewhere.
    pub(crate) fn record(&self, seen: SizesSeen) {
        self.last.store(seen.last, Relaxed);
        if seen.min < self.min.load(Relaxed) {
            self.min.fetch_min(seen.min, Relaxed);
        }
        if seen.max > self.max.load(Relaxed) {
            self.max.fetch_max(seen.max, Relaxed);
        }
    }

    /// `None` before the first.
    pub(crate) fn seen(&self) -> Option<SizesSeen> {
        let min = self.min.load(Relaxed);
        (min != u64::MAX).then(|| SizesSeen {
            last: self.last.load(Relaxed),
            min,
            max: self.max.load(Relaxed),
        })
    }

    /// The last, the smallest and the largest; -1 each before the first.
    pub(crate) fn signed(&self) -> (i64, i64, i64) {
        let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        match self.seen() {
            Some(seen) => (signed(seen.last), signed(seen.min), signed(seen.max)),
            None => (-1, -1, -1),
        }
    }

    pub(crate) fn reset(&self) {
        self.last.store(0, Relaxed);
        self.min.store(u64::MAX, Relaxed);
        self.max.store(0, Relaxed);
    }
}
