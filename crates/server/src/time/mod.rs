//! The server's clocks: the monotonic one, the wall clock, and the server time by which sessions
//! expire. Server time leaves out what the process was stopped for. A simulated server has clocks
//! of its own, which may run faster or slower than those of others.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) mod calendar;

/// Parts of [`Clock::with_rate`] in which a clock runs as fast as the runtime's.
const UNCHANGED_PPM: u32 = 1_000_000;

/// The monotonic clock of one server: tokio's, which a simulation can hold, or one that runs faster
/// or slower than that.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    /// Since when it runs at a rate of its own, and the rate in parts per million of tokio's.
    own_rate: Option<(Instant, u32)>,
}

impl Clock {
    /// A clock that from now on advances by `rate_ppm` microseconds in each second of tokio's
    /// clock, at least by one.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn with_rate(rate_ppm: u32) -> Self {
        let now = Self::default().now();
        Self {
            own_rate: (rate_ppm != UNCHANGED_PPM).then_some((now, rate_ppm.max(1))),
        }
    }

    fn now(self) -> Instant {
        let now = tokio::time::Instant::now().into_std();
        let Some((from, rate_ppm)) = self.own_rate else {
            return now;
        };
        let nanos = now.saturating_duration_since(from).as_nanos() * u128::from(rate_ppm);
        from + nanos_of(nanos / u128::from(UNCHANGED_PPM))
    }

    /// The first instant of tokio's clock at which this one reads `at` or later.
    fn to_tokio(self, at: Instant) -> tokio::time::Instant {
        let Some((from, rate_ppm)) = self.own_rate else {
            return at.into();
        };
        let nanos = at.saturating_duration_since(from).as_nanos() * u128::from(UNCHANGED_PPM);
        (from + nanos_of(nanos.div_ceil(u128::from(rate_ppm)))).into()
    }
}

fn nanos_of(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// A moment by the two clocks of this server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// The wall clock, in milliseconds since 1970.
    pub(crate) wall_ms: i64,
    /// Milliseconds since the start, by the monotonic clock, which nobody sets.
    pub(crate) uptime_ms: i64,
}

/// Time left out of server time at some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForgivenBefore(u64);

/// Milliseconds of the server's own running time. Time in which the process was stopped as a whole
/// is not counted, so that no client loses a session because the *server* slept.
#[derive(Debug)]
pub(crate) struct ServerTime {
    clock: Clock,
    start: Instant,
    stalled_ms: AtomicU64,
    /// The wall clock at the start, where it is to follow the monotonic one.
    simulated_wall_ms: Option<AtomicI64>,
}

impl ServerTime {
    /// The clocks of the system.
    pub(crate) fn new() -> Self {
        Self::begun(Clock::default(), None)
    }

    /// The clocks of a simulated server: the wall clock reads `wall_ms` now, in milliseconds since
    /// 1970, and follows `clock`.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn simulated(wall_ms: i64, clock: Clock) -> Self {
        Self::begun(clock, Some(wall_ms))
    }

    /// Has the wall clock of a simulated server jump.
    #[cfg(feature = "simulation")]
    pub(crate) fn step_wall(&self, by_ms: i64) {
        if let Some(start_ms) = &self.simulated_wall_ms {
            start_ms.fetch_add(by_ms, Ordering::Relaxed);
        }
    }

    /// Whether these are the clocks of a simulated server.
    #[cfg(feature = "simulation")]
    pub(crate) const fn is_simulated(&self) -> bool {
        self.simulated_wall_ms.is_some()
    }

    fn begun(clock: Clock, simulated_wall_ms: Option<i64>) -> Self {
        Self {
            clock,
            start: clock.now(),
            stalled_ms: AtomicU64::new(0),
            simulated_wall_ms: simulated_wall_ms.map(AtomicI64::new),
        }
    }

    /// The monotonic clock.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// When a timer of the runtime has to fire for the monotonic clock to read `at`.
    pub(crate) fn timer_at(&self, at: Instant) -> tokio::time::Instant {
        self.clock.to_tokio(at)
    }

    /// Whole microseconds since then, by the monotonic clock.
    pub(crate) fn micros_since(&self, start: Instant) -> u64 {
        micros(self.now().saturating_duration_since(start))
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.at_ms(self.now())
    }

    /// The wall clock, in milliseconds since 1970: what goes into entries as the leader's time.
    pub(crate) fn wall_ms(&self) -> i64 {
        let (from, since) = match &self.simulated_wall_ms {
            Some(start_ms) => {
                let since = self.now().saturating_duration_since(self.start);
                (start_ms.load(Ordering::Relaxed), since)
            }
            None => (
                0,
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default(),
            ),
        };
        from.saturating_add(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Both clocks, read at once.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            wall_ms: self.wall_ms(),
            uptime_ms: i64::try_from(self.uptime_ms()).unwrap_or(i64::MAX),
        }
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

    /// Forgives the time since `deadline`, when a task that was to wake then wakes now, if that is
    /// more than `tick`: the whole process stood still, and no session could be served.
    pub(crate) fn forgive_late(
        &self,
        mark: ForgivenBefore,
        deadline: Option<Instant>,
        tick: Duration,
    ) {
        let late = deadline.and_then(|deadline| self.now().checked_duration_since(deadline));
        if let Some(late) = late.filter(|late| *late > tick) {
            self.forgive(mark, late);
        }
    }

    /// All that has been forgiven since the start.
    pub(crate) fn forgiven(&self) -> Duration {
        Duration::from_millis(self.stalled_ms.load(Ordering::Relaxed))
    }

    /// Milliseconds since the start, whatever was forgiven.
    pub(crate) fn uptime_ms(&self) -> u64 {
        self.uptime_ms_at(self.now())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_that_two_have_seen_is_forgiven_once() {
        let time = ServerTime::new();
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
        let time = ServerTime::new();
        let since = time.micros_since(time.now() - Duration::from_secs(3));
        assert!((3_000_000..3_000_000 + 60_000_000).contains(&since));
        let ahead = time.now() + Duration::from_secs(60);
        assert_eq!(time.micros_since(ahead), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_with_a_rate_of_its_own_runs_at_it_and_its_timers_fire_in_time() {
        for (rate_ppm, passed_ms) in [(UNCHANGED_PPM, 1000), (980_000, 980), (1_020_000, 1020)] {
            let time = ServerTime::simulated(5_000, Clock::with_rate(rate_ppm));
            let begun = time.now();
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(time.now() - begun, Duration::from_millis(passed_ms));
            assert_eq!(time.now_ms(), passed_ms);
            assert_eq!(time.wall_ms(), 5_000 + passed_ms as i64);
            let due = time.now() + Duration::from_millis(777);
            tokio::time::sleep_until(time.timer_at(due)).await;
            let late = time.now().checked_duration_since(due).unwrap();
            assert!(late < Duration::from_millis(3), "{late:?}");
        }
    }
}
