//! The end of a lease as a caller receives it. Owns the rule that it is never later than that of
//! the agent's own guard, whatever is paused between two readings.

use std::time::Duration;

use serde::Serialize;

use crate::boot_clock;

#[cfg(test)]
mod model;

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
