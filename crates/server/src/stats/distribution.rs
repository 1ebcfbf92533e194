//! Distribution of a measured quantity: count, sum, extremes and quantiles, collected without a
//! lock. One measurement costs two relaxed additions; what is read while others measure may be a
//! measurement apart.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Values below this have a bucket each; above, every power of two has this many.
const STEPS: u64 = 4;
/// Enough for values up to 2^42: 50 days in microseconds, or 4 TiB.
const BUCKETS: usize = 164;

/// The distribution of one measurement.
#[derive(Debug)]
pub(crate) struct Distribution {
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Distribution {
    fn default() -> Self {
        Self {
            sum: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Distribution {
    /// Counts one value.
    pub(crate) fn record(&self, value: u64) {
        self.record_all(1, value);
    }

    /// Counts the same value `times` times.
    pub(crate) fn record_all(&self, times: u64, value: u64) {
        if times == 0 {
            return;
        }
        self.sum.fetch_add(times.saturating_mul(value), Relaxed);
        if let Some(bucket) = self.buckets.get(bucket_of(value)) {
            bucket.fetch_add(times, Relaxed);
        }
        if value > self.max.load(Relaxed) {
            self.max.fetch_max(value, Relaxed);
        }
        if value < self.min.load(Relaxed) {
            self.min.fetch_min(value, Relaxed);
        }
    }

    /// The measurements so far.
    pub(crate) fn spread(&self) -> Spread {
        let buckets: Vec<u64> = self.buckets.iter().map(|b| b.load(Relaxed)).collect();
        let count = buckets.iter().sum();
        Spread {
            count,
            sum: self.sum.load(Relaxed),
            min: if count == 0 {
                0
            } else {
                self.min.load(Relaxed)
            },
            max: self.max.load(Relaxed),
            buckets,
        }
    }

    /// Forgets what was measured.
    pub(crate) fn reset(&self) {
        for bucket in &self.buckets {
            bucket.store(0, Relaxed);
        }
        self.sum.store(0, Relaxed);
        self.max.store(0, Relaxed);
        self.min.store(u64::MAX, Relaxed);
    }
}

/// A [`Distribution`] at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spread {
    pub(crate) count: u64,
    pub(crate) sum: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    buckets: Vec<u64>,
}

impl Spread {
    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        self.sum as f64 / self.count as f64
    }

    /// The value that `share` (0 to 1) of the measurements do not exceed, at most a quarter too
    /// high.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil().max(1.0);
        let mut seen = 0;
        for (place, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen as f64 >= wanted {
                return bucket_end(place).clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// Number of measurements below `limit`; exact where `limit` is a power of two.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.buckets
            .iter()
            .enumerate()
            .take_while(|(place, _)| bucket_end(*place) < limit)
            .map(|(_, count)| count)
            .sum()
    }

    /// Both together: the extremes of both, the mean of all.
    pub(crate) fn and(&self, other: &Spread) -> Spread {
        if self.count == 0 {
            return other.clone();
        }
        if other.count == 0 {
            return self.clone();
        }
        Spread {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            buckets: self
                .buckets
                .iter()
                .zip(&other.buckets)
                .map(|(a, b)| a + b)
                .collect(),
        }
    }
}

fn bucket_of(value: u64) -> usize {
    let place = if value < STEPS {
        value
    } else {
        let power = u64::from(value.ilog2());
        let step = (value >> (power - 2)) & (STEPS - 1);
        (power - 1) * STEPS + step
    };
    usize::try_from(place).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The highest value that belongs to the bucket.
fn bucket_end(place: usize) -> u64 {
    let place = place as u64;
    if place < STEPS {
        return place;
    }
    let power = place / STEPS + 1;
    ((STEPS + place % STEPS + 1) << (power - 2)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_the_bucket_that_ends_at_or_above_it() {
        for value in (0..5000).chain([1 << 20, (1 << 20) - 1, (1 << 30) + 7, 1 << 41]) {
            let place = bucket_of(value);
            assert!(value <= bucket_end(place), "{value}");
            assert!(place == 0 || value > bucket_end(place - 1), "{value}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn what_is_measured_is_shown() {
        let distribution = Distribution::default();
        assert_eq!(distribution.spread().quantile(0.5), 0);
        for value in 1..=100 {
            distribution.record(value);
        }
        distribution.record_all(100, 200);
        let spread = distribution.spread();
        assert_eq!((spread.count, spread.sum), (200, 5050 + 20_000));
        assert_eq!((spread.min, spread.max), (1, 200));
        assert!((spread.mean() - 125.25).abs() < 1e-9);
        assert!((90..=112).contains(&spread.quantile(0.5)));
        assert_eq!(spread.quantile(0.99), 200);
        assert_eq!(spread.below(64), 63);
        distribution.reset();
        let empty = distribution.spread();
        assert_eq!((empty.count, empty.min, empty.max), (0, 0, 0));
        assert_eq!(empty.and(&spread).count, 200);
        assert_eq!(spread.and(&spread).sum, 2 * spread.sum);
    }
}
