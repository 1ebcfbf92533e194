//! Pauses between attempts to connect: they double up to a limit, each shortened by chance from a
//! seed, so that servers that start together do not go on together.

use std::time::Duration;

use crate::net::options::Timing;

#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    rng: fastrand::Rng,
}

impl Backoff {
    pub(crate) fn new(timing: &Timing, seed: u64) -> Backoff {
        Backoff {
            first: timing.first_pause,
            longest: timing.longest_pause,
            next: timing.first_pause,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// The pause before the next attempt: between a half and the whole of a limit that doubles.
    pub(crate) fn pause(&mut self) -> Duration {
        let whole = self.next.min(self.longest);
        self.next = (whole * 2).min(self.longest);
        whole.mul_f64(0.5 + self.rng.f64() / 2.0)
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit_and_begin_again() {
        let timing = Timing::default();
        let mut backoff = Backoff::new(&timing, 1);
        let limits = [20, 40, 80, 160, 320, 640, 1000, 1000];
        for whole in limits.map(Duration::from_millis) {
            let pause = backoff.pause();
            assert!(
                pause >= whole / 2 && pause <= whole,
                "{pause:?} of {whole:?}"
            );
        }
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_millis(20));
    }

    #[test]
    fn a_seed_decides_the_pauses() {
        let pauses = |seed| {
            let mut backoff = Backoff::new(&Timing::default(), seed);
            (0..9).map(|_| backoff.pause()).collect::<Vec<_>>()
        };
        assert_eq!(pauses(7), pauses(7));
        assert_ne!(pauses(7), pauses(8));
    }
}
