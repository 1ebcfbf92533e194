//! A distribution of times, in fixed buckets.

use std::time::Duration;

/// The upper bounds of the buckets, in milliseconds. Locks are held for milliseconds or for hours.
pub(super) const BOUNDS_MS: [u64; 9] = [
    1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000,
];

/// Times counted by how long they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram {
    /// Count of each bucket, without those of lower buckets.
    counts: [u64; BOUNDS_MS.len()],
    pub(super) count: u64,
    pub(super) sum_ms: u64,
}

impl Histogram {
    /// Counts the time from one moment to another; none if that was before.
    pub(super) fn record(&mut self, from_ms: i64, to_ms: i64) {
        let millis = u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or(0);
        let bucket = BOUNDS_MS.iter().position(|bound| millis <= *bound);
        if let Some(count) = bucket.and_then(|bucket| self.counts.get_mut(bucket)) {
            *count += 1;
        }
        self.count += 1;
        self.sum_ms = self.sum_ms.saturating_add(millis);
    }

    /// Each bound, and how many times were at most that long.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut below = 0;
        BOUNDS_MS
            .iter()
            .zip(self.counts)
            .map(move |(bound, count)| {
                below += count;
                (Duration::from_millis(*bound), below)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_in_its_bucket_and_all_above_and_one_backwards_is_none() {
        let mut times = Histogram::default();
        for millis in [0, 1, 2, 600_000, 90_000_000] {
            times.record(5, 5 + millis);
        }
        times.record(5, 3);
        let below: Vec<u64> = times.cumulative().map(|(_, below)| below).collect();
        assert_eq!(below, [3, 4, 4, 4, 4, 4, 5, 5, 5]);
        assert_eq!((times.count, times.sum_ms), (6, 90_600_003));
    }
}
