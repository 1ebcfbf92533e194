//! Growing pauses between attempts that the server refuses.
//!
//! Owns the length of the pause only. Must never be used for a lost connection: the client knows
//! when that is back (H83).

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);

/// Pauses from a tenth of a second to ten seconds, each up to twice the one before, with jitter.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// The longest pause.
    pub(crate) const LONGEST: Duration = Duration::from_secs(10);

    /// The next attempt starts with a short pause again.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }

    /// Time to wait now: between half and all of the present limit, so that many who failed at once
    /// spread out.
    pub(crate) fn pause(&mut self) -> Duration {
        let limit = FIRST
            .saturating_mul(1_u32.checked_shl(self.attempts).unwrap_or(u32::MAX))
            .min(Self::LONGEST);
        self.attempts = self.attempts.saturating_add(1);
        limit / 2 + (limit / 2).mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h83_pauses_grow_to_a_limit_and_start_again_after_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..60).map(|_| backoff.pause()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST);
        assert!(pauses[4] > pauses[0] * 4);
        assert!(
            pauses[10..]
                .iter()
                .all(|pause| (Backoff::LONGEST / 2..=Backoff::LONGEST).contains(pause))
        );
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }
}
