//! The clock of leases as a caller reads it: nanoseconds of CLOCK_BOOTTIME, which runs on while the
//! machine sleeps, and the id of this boot. Two readings can be compared only where both are the
//! same machine's of the same boot.

use rustix::time::{ClockId, clock_gettime};

/// Reads the clock.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    seconds * 1_000_000_000 + nanos
}

/// The id of this boot; empty where the system has none, which equals no caller's.
pub(crate) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}
