//! Rate limit of a snapshot's bytes, so that it starves neither small frames nor the disk.

use std::time::{Duration, Instant};

/// Time that a caller who comes late may make up for.
const CATCH_UP: Duration = Duration::from_millis(20);

/// A limit on bytes per second. The caller says what the time is.
#[derive(Debug)]
pub(crate) struct Pace {
    /// 0 is no limit.
    bytes_per_second: u64,
    /// When the bytes that were spent so far are paid for.
    paid_at: Option<Instant>,
}

impl Pace {
    /// A limit of which nothing is spent.
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second,
            paid_at: None,
        }
    }

    /// When the next bytes may leave; `None`: now.
    pub(crate) fn wait_until(&self, now: Instant) -> Option<Instant> {
        self.paid_at.filter(|at| *at > now)
    }

    /// These bytes leave now.
    pub(crate) fn spend(&mut self, now: Instant, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let nanos = (u128::from(bytes) * 1_000_000_000).checked_div(self.bytes_per_second.into());
        let Some(nanos) = nanos else {
            return;
        };
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        let from = self.paid_at.map_or(now, |at| at.max(earliest));
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.paid_at = Some(from.checked_add(cost).unwrap_or(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_megabyte_at_four_megabytes_per_second_takes_a_quarter_of_a_second() {
        let mut pace = Pace::new(4 << 20);
        let mut now = Instant::now();
        let begun = now;
        for _ in 0..8 {
            assert_eq!(pace.wait_until(now), None);
            pace.spend(now, 1 << 20);
            now = pace.wait_until(now).unwrap();
        }
        assert_eq!(now - begun, Duration::from_secs(2));
    }

    #[test]
    fn who_comes_late_makes_up_for_a_moment_only() {
        let mut pace = Pace::new(1000);
        let now = Instant::now();
        pace.spend(now, 1);
        let late = now + Duration::from_secs(60);
        for _ in 0..20 {
            assert_eq!(pace.wait_until(late), None);
            pace.spend(late, 1);
        }
        pace.spend(late, 1);
        assert_eq!(pace.wait_until(late), Some(late + Duration::from_millis(1)));
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut pace = Pace::new(0);
        let now = Instant::now();
        pace.spend(now, usize::MAX);
        assert_eq!(pace.wait_until(now), None);
    }
}
