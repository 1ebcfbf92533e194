//! The time of the last packet of a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A touch that came after the core had decided to end the session.
pub(crate) const ENDING: u64 = u64::MAX;

/// Time of the last packet of a session. Shared by the session's socket, which touches, and the
/// core, which ends it.
#[derive(Debug)]
pub(crate) struct Touch(AtomicU64);

impl Touch {
    pub(crate) fn new(now_ms: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(now_ms)))
    }

    /// Counts a packet. `false` means that the session is being ended: the packet must not be
    /// answered, or a client would take the answer to a ping for a lease that is not there
    /// (hazards.md §2.8).
    pub(crate) fn touch(&self, now_ms: u64) -> bool {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            if seen == ENDING {
                return false;
            }
            if seen >= now_ms {
                return true;
            }
            match self
                .0
                .compare_exchange_weak(seen, now_ms, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(newer) => seen = newer,
            }
        }
    }

    pub(crate) fn last_ms(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Takes back that the session is being ended.
    pub(crate) fn revive(&self, now_ms: u64) {
        let _ = self
            .0
            .compare_exchange(ENDING, now_ms, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Ends the session unless a touch came since `seen_ms`.
    pub(crate) fn end(&self, seen_ms: u64) -> bool {
        self.0
            .compare_exchange(seen_ms, ENDING, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_is_counted_late_sets_no_session_back() {
        let touch = Touch::new(0);
        assert!(touch.touch(100) && touch.touch(50));
        assert_eq!(touch.last_ms(), 100);
    }

    #[test]
    fn a_session_that_was_to_end_goes_on_and_no_other_is_set_back() {
        let touch = Touch::new(0);
        touch.revive(50);
        assert_eq!(touch.last_ms(), 0);
        assert!(touch.end(0) && !touch.touch(60));
        touch.revive(70);
        assert!(touch.touch(60));
        assert_eq!(touch.last_ms(), 70);
    }
}
