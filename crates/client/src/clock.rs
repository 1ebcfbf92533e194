//! The client's clock: an injectable source of time that keeps counting while the machine sleeps.
//!
//! Owns the only reading of time in this crate. It must never read the wall clock: a lease that
//! moves when an operator sets the date is not a lease (`H28`).

use std::fmt;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::time::Duration;

/// A boxed future, as returned by the injectable traits.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// An instant on a clock that runs through system suspend (`CLOCK_BOOTTIME` on Linux), with
/// nanosecond resolution.
///
/// Its zero has no meaning across processes or reboots; only differences count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// The earliest instant; every lease that was never granted ends here.
    pub const ZERO: Self = Self(0);

    /// An instant from nanoseconds since the clock's zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, or zero when `earlier` is later.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl Sub<Duration> for BootInstant {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(rhs)))
    }
}

impl fmt::Debug for BootInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:?}", Duration::from_nanos(self.0))
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// A source of [`BootInstant`]s and of timers on them.
pub trait Clock: Send + Sync + 'static {
    /// The present instant. Never goes backwards.
    fn now(&self) -> BootInstant;

    /// Resolves once [`Clock::now`] has reached `deadline`. Dropping the future cancels the timer.
    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<()>;
}

/// The machine's own clock: `CLOCK_BOOTTIME` on Linux and Android, the monotonic clock elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// Timers run on a clock that stops during suspend, so a long sleep is cut into slices: after a
/// resume it is late by at most one.
const SLEEP_SLICE: Duration = Duration::from_secs(1);

impl Clock for SystemClock {
    fn now(&self) -> BootInstant {
        boot_now()
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<()> {
        Box::pin(async move {
            loop {
                let left = deadline.saturating_duration_since(boot_now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(SLEEP_SLICE)).await;
            }
        })
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_now() -> BootInstant {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
    let sub = u64::try_from(t.tv_nsec).unwrap_or(0);
    BootInstant(secs.saturating_mul(1_000_000_000).saturating_add(sub))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_now() -> BootInstant {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    BootInstant(nanos(START.elapsed()).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_saturate_instead_of_wrapping() {
        let t = BootInstant::from_nanos(5);
        assert_eq!(t - Duration::from_secs(1), BootInstant::ZERO);
        assert_eq!(
            BootInstant::ZERO.saturating_duration_since(t),
            Duration::ZERO
        );
        assert_eq!((t + Duration::from_nanos(2)).as_nanos(), 7);
    }

    #[test]
    fn h28_system_clock_is_not_the_wall_clock_and_never_goes_back() {
        let clock = SystemClock;
        let mut last = clock.now();
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let since_epoch = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        assert!(
            Duration::from_nanos(last.as_nanos()) < since_epoch / 2,
            "boot time is far from the epoch"
        );
    }
}
