//! Since when the core has been at its present step. A disk that hangs keeps it at one sync, and
//! all writes with it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const IDLE: u64 = u64::MAX;

/// When the core's present step began. Times are milliseconds since the start.
#[derive(Debug)]
pub(crate) struct Progress {
    since_ms: AtomicU64,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            since_ms: AtomicU64::new(IDLE),
        }
    }
}

impl Progress {
    /// The core has begun its next step.
    pub(crate) fn step(&self, at_ms: u64) {
        self.since_ms.store(at_ms, Relaxed);
    }

    /// The core waits for something to do.
    pub(crate) fn idle(&self) {
        self.since_ms.store(IDLE, Relaxed);
    }

    /// Duration of the present step.
    pub(crate) fn busy(&self, now_ms: u64) -> Duration {
        match self.since_ms.load(Relaxed) {
            IDLE => Duration::ZERO,
            since_ms => Duration::from_millis(now_ms.saturating_sub(since_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_step_that_has_begun_takes_time() {
        let progress = Progress::default();
        assert_eq!(progress.busy(10_000), Duration::ZERO);
        progress.step(4_000);
        assert_eq!(progress.busy(10_000), Duration::from_secs(6));
        assert_eq!(progress.busy(3_999), Duration::ZERO);
        progress.idle();
        assert_eq!(progress.busy(10_000), Duration::ZERO);
    }
}
