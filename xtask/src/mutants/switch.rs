//! The active mutant of this process: copied into each mutated crate as its module `__mutant`.
//!
//! `BATON_MUTANT` names the active one. Where `BATON_MUTANT_REACHED` names a file instead, none is
//! active, and the number of each that is reached is appended to it once.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const UNREAD: u32 = u32::MAX;
const RECORDING: u32 = u32::MAX - 1;

static ACTIVE: AtomicU32 = AtomicU32::new(UNREAD);
static REACHED: [AtomicBool; 1 << 16] = [const { AtomicBool::new(false) }; 1 << 16];

/// Returns whether this mutant is active.
#[inline]
pub(crate) fn on(id: u32) -> bool {
    let active = ACTIVE.load(Ordering::Relaxed);
    active == id || active >= RECORDING && begin_or_record(id)
}

#[cold]
fn begin_or_record(id: u32) -> bool {
    if ACTIVE.load(Ordering::Relaxed) == UNREAD {
        let named = std::env::var("BATON_MUTANT").ok();
        let active = match named.and_then(|id| id.parse().ok()) {
            Some(active) => active,
            None if std::env::var_os("BATON_MUTANT_REACHED").is_some() => RECORDING,
            None => 0,
        };
        ACTIVE.store(active, Ordering::Relaxed);
        return on(id);
    }
    let seen = REACHED.get(id as usize);
    if seen.is_some_and(|seen| !seen.swap(true, Ordering::Relaxed)) {
        let path = std::env::var_os("BATON_MUTANT_REACHED").unwrap_or_default();
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(path);
        let _ = file.and_then(|mut file| file.write_all(format!("{id}\n").as_bytes()));
    }
    false
}

/// Value that can be later than it should be.
pub(crate) trait Delayable {
    /// The same, later by a second; a span becomes twice as long.
    fn later(self) -> Self;
}

/// An instant that is later than it should be.
pub(crate) fn later<T: Delayable>(instant: T) -> T {
    instant.later()
}

impl Delayable for Duration {
    fn later(self) -> Self {
        self.saturating_mul(2)
    }
}

impl Delayable for i64 {
    fn later(self) -> Self {
        self.saturating_add(1000)
    }
}

impl Delayable for u64 {
    fn later(self) -> Self {
        self.saturating_add(1000)
    }
}

impl Delayable for std::time::Instant {
    fn later(self) -> Self {
        self + Duration::from_secs(1)
    }
}

impl<T: Delayable> Delayable for Option<T> {
    fn later(self) -> Self {
        self.map(Delayable::later)
    }
}
