//! The server's clocks: the monotonic one, the wall clock, and the server time by which sessions
//! expire. Server time leaves out what the process was stopped for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock of the whole server: tokio's, which a simulation can hold.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Time left out of server time at some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForgivenBefore(u64);

/// Milliseconds of the server's own running time. Time in which the process was stopped as a whole
/// is not counted, so that no client loses a session because the *server* slept.
#[derive(Debug)]
pub(crate) struct ServerTime {
    start: Instant,
    stalled_ms: AtomicU64,
    /// The wall clock at the start, where it is to follow the monotonic one.
    simulated_wall_ms: Option<i64>,
}

impl ServerTime {
    /// With `simulated_wall_ms`, the wall clock reads so at the start and follows the monotonic
    /// clock.
    pub(crate) fn new(simulated_wall_ms: Option<i64>) -> Self {
        Self {
            start: now(),
            stalled_ms: AtomicU64::new(0),
            simulated_wall_ms,
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.at_ms(now())
    }

    /// The wall clock, in milliseconds since 1970: what goes into entries as the leader's time.
    pub(crate) fn wall_ms(&self) -> i64 {
        let (from, since) = match self.simulated_wall_ms {
            Some(start_ms) => (start_ms, now().saturating_duration_since(self.start)),
            None => (
                0,
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default(),
            ),
        };
        from.saturating_add(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    pub(crate) fn at_ms(&self, instant: Instant) -> u64 {
        let elapsed = instant.saturating_duration_since(self.start).as_millis();
        u64::try_from(elapsed)
            .unwrap_or(u64::MAX)
            .saturating_sub(self.stalled_ms.load(Ordering::Relaxed))
    }

    /// Marks the beginning of a period of which some may be left out; see [`ServerTime::forgive`].
    pub(crate) fn mark(&self) -> ForgivenBefore {
        ForgivenBefore(self.stalled_ms.load(Ordering::Relaxed))
    }

    /// Leaves `stalled` out of server time: no client could be heard in that time since `mark`. A
    /// stall that several observers see is left out once, since each gives the time since its own
    /// mark.
    pub(crate) fn forgive(&self, mark: ForgivenBefore, stalled: Duration) {
        let stalled_ms = u64::try_from(stalled.as_millis()).unwrap_or(u64::MAX);
        self.stalled_ms
            .fetch_max(mark.0.saturating_add(stalled_ms), Ordering::Relaxed);
    }

    /// All that has been forgiven since the start.
    pub(crate) fn forgiven(&self) -> Duration {
        Duration::from_millis(self.stalled_ms.load(Ordering::Relaxed))
    }

    /// Milliseconds since the start, whatever was forgiven.
    pub(crate) fn uptime_ms(&self) -> u64 {
        self.uptime_ms_at(now())
    }

    pub(crate) fn uptime_ms_at(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.start);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Whole microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Whole microseconds since then, by the server's clock.
pub(crate) fn micros_since(start: Instant) -> u64 {
    micros(now().saturating_duration_since(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_that_two_have_seen_is_forgiven_once() {
        let time = ServerTime::new(Some(0));
        let (one, two) = (time.mark(), time.mark());
        time.forgive(one, Duration::from_millis(300));
        time.forgive(two, Duration::from_millis(200));
        assert_eq!(time.forgiven(), Duration::from_millis(300));
        let later = time.mark();
        time.forgive(two, Duration::from_millis(310));
        assert_eq!(time.forgiven(), Duration::from_millis(310));
        time.forgive(later, Duration::from_millis(50));
        assert_eq!(time.forgiven(), Duration::from_millis(350));
    }

    #[test]
    fn time_since_then_is_given_in_microseconds() {
        let start = now() - Duration::from_secs(3);
        let since = micros_since(start);
        assert!((3_000_000..3_000_000 + 60_000_000).contains(&since));
        assert_eq!(micros_since(now() + Duration::from_secs(60)), 0);
    }
}
