//! The end of a lease as a caller receives it, and when it receives the next one. Owns the rule
//! that it is never later than that of the agent's own guard, whatever is paused between two
//! readings.

use std::time::Duration;

use serde::Serialize;

use crate::boot_clock;

#[cfg(test)]
mod model;

/// The shortest pause between two events of a lease.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// Longer pauses end at multiples of this, so that many guards wake the agent once.
const PAUSE_STEP: Duration = Duration::from_millis(100);

/// Waits until the caller is to receive the end of its lease again, of which it knows that so much
/// remains: half of that is left for an event that is late.
pub(crate) async fn pause(remaining: Duration) {
    tokio::time::sleep(pause_at(boot_clock::now_ns(), remaining)).await;
}

fn pause_at(now_ns: u64, remaining: Duration) -> Duration {
    let half = remaining / 2;
    let end = Duration::from_nanos(now_ns) + half;
    let beyond = Duration::from_nanos((end.as_nanos() % PAUSE_STEP.as_nanos()) as u64);
    half.saturating_sub(beyond).max(SHORTEST_PAUSE)
}

/// End of a lease, for a caller of the same machine (`lease_until_ns` on the clock
/// of `boot_id`) and for one that counts from its own request (`lease_ms`).
#[derive(Debug, Serialize)]
pub(crate) struct Lease<'a> {
    lease_until_ns: u64,
    now_ns: u64,
    boot_id: &'a str,
    lease_ms: u64,
}

impl<'a> Lease<'a> {
    pub(crate) fn of(boot_id: &'a str, remaining: impl Fn() -> Duration) -> Self {
        Self::read(boot_id, boot_clock::now_ns, remaining)
    }

    /// [`Lease::of`] with any clock. Each reading of the clock comes before that of what
    /// remains: a pause in between makes the lease shorter, never longer.
    pub(crate) fn read(
        boot_id: &'a str,
        clock: impl Fn() -> u64,
        remaining: impl Fn() -> Duration,
    ) -> Self {
        let now_ns = clock();
        let left = u64::try_from(remaining().as_nanos()).unwrap_or(u64::MAX);
        Self {
            lease_until_ns: now_ns.saturating_add(left),
            now_ns,
            boot_id,
            lease_ms: u64::try_from(remaining().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_hears_of_its_lease_with_half_of_it_left_or_more() {
        let millis = Duration::from_millis;
        for now in [0, 1, 99_999_999, 123_456_789_012] {
            for remaining in [0, 1, 99, 100, 101, 250, 10_000, 30_000, 86_400_000] {
                let pause = pause_at(now, millis(remaining));
                assert!(pause <= millis(remaining / 2).max(SHORTEST_PAUSE) + millis(1));
                assert!(pause >= SHORTEST_PAUSE);
                assert!(
                    pause + PAUSE_STEP >= millis(remaining / 2),
                    "{now}, {remaining}"
                );
            }
        }
        let end = |now| now + u64::try_from(pause_at(now, millis(10_000)).as_nanos()).unwrap();
        assert_eq!(
            end(1_000_000_000),
            end(1_099_999_999),
            "they wake it together"
        );
    }
}
