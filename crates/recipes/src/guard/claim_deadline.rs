//! The deadline after which others may take over a claimed item, although its node and session
//! live.
//!
//! Owns the deadline by our own clock. It must never be later than the server's
//! (`docs/internals/hazards.md` §6.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baton_client::{BootInstant, Clock};

/// The clock-rate bound that such a time is shortened by: servers' clocks may run one percent
/// faster than ours.
const RATE: u32 = 100;

/// When others may take over what is held, by our own clock.
#[derive(Debug)]
pub(crate) struct ClaimDeadline {
    visibility: Option<Duration>,
    deadline: AtomicU64,
}

impl ClaimDeadline {
    /// The server stamped the claim no earlier than it was `sent`.
    pub(crate) fn new(sent: BootInstant, visibility: Option<Duration>) -> Self {
        let until = Self {
            visibility,
            deadline: AtomicU64::new(u64::MAX),
        };
        until.renew(sent);
        until
    }

    pub(crate) fn renew(&self, sent: BootInstant) {
        if let Some(visibility) = self.visibility {
            let ours = sent + visibility.saturating_sub(visibility / RATE);
            self.deadline.store(ours.as_nanos(), Ordering::Release);
        }
    }

    /// Returns the time left from `now` on; `None` where the deadline never comes.
    pub(super) fn remaining(&self, now: BootInstant) -> Option<Duration> {
        self.visibility?;
        Some(self.deadline().saturating_duration_since(now))
    }

    fn deadline(&self) -> BootInstant {
        BootInstant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Resolves at the deadline.
    pub(crate) async fn passed(&self, clock: &Arc<dyn Clock>) {
        while let Some(left) = self.remaining(clock.now()) {
            if left.is_zero() {
                return;
            }
            // Moved meanwhile, it is later than that, and is waited for again.
            clock.sleep_until(self.deadline()).await;
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use baton_client::BoxFuture;

    use super::*;

    /// A clock that does not move, and wakes nobody.
    #[derive(Debug)]
    struct FrozenClock(BootInstant);

    impl Clock for FrozenClock {
        fn now(&self) -> BootInstant {
            self.0
        }

        fn sleep_until(&self, _: BootInstant) -> BoxFuture<()> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn h67_the_time_of_a_claim_has_passed_at_its_end_and_not_a_nanosecond_before() {
        let until = ClaimDeadline::new(BootInstant::from_nanos(5), Some(Duration::from_nanos(100)));
        let has_passed = |at| {
            let clock: Arc<dyn Clock> = Arc::new(FrozenClock(BootInstant::from_nanos(at)));
            let passed = pin!(until.passed(&clock));
            let mut context = Context::from_waker(Waker::noop());
            passed.poll(&mut context).is_ready()
        };
        assert_eq!((has_passed(103), has_passed(104)), (false, true));
    }

    #[test]
    fn h67_the_time_of_a_claim_is_shorter_by_the_clocks_rate_and_counts_from_the_newest_request() {
        let second = |nth: u64| BootInstant::from_nanos(nth * 1_000_000_000);
        let left =
            |until: &ClaimDeadline, nth| until.remaining(second(nth)).map(|left| left.as_secs());
        let until = ClaimDeadline::new(second(1000), Some(Duration::from_secs(100)));
        assert_eq!(left(&until, 1000), Some(99));
        assert_eq!(left(&until, 1098), Some(1));
        assert_eq!(left(&until, 1099), Some(0));
        until.renew(second(1050));
        assert_eq!(left(&until, 1099), Some(50));
        assert_eq!(left(&until, 1149), Some(0));
        let endless = ClaimDeadline::new(second(1000), None);
        assert_eq!(left(&endless, 1_000_000), None);
    }
}
