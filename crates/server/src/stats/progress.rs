//! Whether the core goes on: when it began the step that it is at. A disk that hangs keeps it at
//! one sync, and all writes with it. Told to those who ask whether the server is ready, and why a
//! session was not opened. Only reads and stores numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::state::Shared;

/// A step that takes longer makes the server not ready. A sync that takes a second is counted as
/// slow already.
const STUCK_AFTER: Duration = Duration::from_secs(2);

const IDLE: u64 = u64::MAX;

/// See the module's page. Times are milliseconds since the start.
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

    /// How long the present step has taken.
    fn busy(&self, now_ms: u64) -> Duration {
        match self.since_ms.load(Relaxed) {
            IDLE => Duration::ZERO,
            since_ms => Duration::from_millis(now_ms.saturating_sub(since_ms)),
        }
    }
}

impl Shared {
    /// How long the core has been at its present step; zero if it waits for work.
    pub(crate) fn core_busy(&self) -> Duration {
        self.progress.busy(self.time.uptime_ms())
    }

    /// How long the core has been stuck at one step, if it is.
    pub(crate) fn core_stuck(&self) -> Option<Duration> {
        Some(self.core_busy()).filter(|busy| *busy > STUCK_AFTER)
    }

    /// Why a write has not been done that came a while ago.
    pub(crate) fn why_writes_wait(&self) -> String {
        if self.stats.disk_full.load(Relaxed) {
            return "the disk is full; make room on it".to_owned();
        }
        match self.core_stuck() {
            Some(stuck) => format!(
                "the disk has not answered for {} s; look after the disk",
                stuck.as_secs()
            ),
            None => {
                let waiting = self.inbox.queued_requests();
                format!("{waiting} requests wait for the log; take load off the server")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::state::tests::shared;

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

    #[tokio::test(start_paused = true)]
    async fn why_writes_wait_is_told_with_what_to_do() {
        let shared = shared(Options::default());
        let load = "0 requests wait for the log; take load off the server";
        assert_eq!(shared.why_writes_wait(), load);
        shared.progress.step(shared.time.uptime_ms());
        tokio::time::advance(STUCK_AFTER).await;
        assert_eq!(shared.core_stuck(), None);
        assert_eq!(shared.why_writes_wait(), load);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(shared.core_stuck(), Some(Duration::from_secs(7)));
        assert_eq!(
            shared.why_writes_wait(),
            "the disk has not answered for 7 s; look after the disk"
        );
        shared.stats.disk_full.store(true, Relaxed);
        assert_eq!(
            shared.why_writes_wait(),
            "the disk is full; make room on it"
        );
    }
}
