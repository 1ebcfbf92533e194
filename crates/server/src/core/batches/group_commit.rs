//! Adaptive group commit. The clients that the last sync answered often write next: at a lock's
//! hand-over, the client that released re-enters the wait queue while the notified waiter goes on.
//! So the core does two things after it has answered a few clients:
//!
//! - it spins briefly instead of going to sleep, because a wake-up takes longer than the reaction
//!   of such a client;
//! - when a small write arrives, it waits for a second one, the batching window, so that both share
//!   one sync.
//!
//! Neither lasts longer than the last sync took, neither is done for large batches, and each is
//! tried less often the more often it was in vain.

use std::time::{Duration, Instant};

/// The most requests, and connections, of a batch that is worth waiting for more.
const SMALL: usize = 4;
/// The longest wait, whatever a sync takes.
const LIMIT: Duration = Duration::from_micros(200);
/// Most opportunities skipped after a wait in vain.
const MOST_SKIPPED: u32 = 255;

/// Entries after which the expected number of writers is measured again.
const FORGET: u32 = 100;

/// Backs off from a kind of waiting while it is in vain.
#[derive(Debug, Default)]
struct Backoff {
    /// Opportunities skipped after the last wait in vain, and how many of them are left.
    pause: u32,
    skip: u32,
}

impl Backoff {
    /// Whether to wait at this opportunity.
    fn permits(&mut self) -> bool {
        let open = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        open
    }

    /// Records whether the wait was worthwhile.
    fn record(&mut self, was_worthwhile: bool) {
        self.pause = if was_worthwhile {
            0
        } else {
            (self.pause * 2 + 1).min(MOST_SKIPPED)
        };
        self.skip = self.pause;
    }
}

/// Decides when the core spins, and how long it waits for a second small write.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    /// Connections that the last entry answered or notified.
    notified: usize,
    /// When that was, and how long the sync took.
    last: Option<(Instant, Duration)>,
    /// Whether the core may still spin for that entry.
    may_spin: bool,
    spin: Backoff,
    window: Backoff,
    writers: Writers,
}

/// Share of the notified connections that write next: of a lock's wait queue, the client that
/// released and the one that holds now, but not the one that has just joined the queue.
#[derive(Debug, Default)]
struct Writers {
    /// The recent number; `None` while every notified connection is expected to write.
    usual: Option<usize>,
    /// Entries since that was measured.
    age: u32,
}

impl Writers {
    /// Returns the number of `notified` connections to expect.
    fn expected(&mut self, notified: usize) -> usize {
        self.age += 1;
        if self.age > FORGET {
            *self = Self::default();
        }
        self.usual.map_or(notified, |usual| usual.min(notified))
    }

    /// Records that `came` of `expected` connections wrote.
    fn record(&mut self, came: usize, expected: usize) {
        if came < expected || self.usual.is_some_and(|usual| came > usual) {
            self.usual = Some(came);
            self.age = 0;
        }
    }
}

impl GroupCommit {
    /// Records that an entry whose sync took `sync` answered or notified this many connections.
    pub(crate) fn entry_applied(&mut self, notified: usize, sync: Duration, now: Instant) {
        self.notified = notified;
        self.last = Some((now, sync.min(LIMIT)));
        self.may_spin = true;
    }

    /// Returns the end of the spin for the first reaction, if there is one.
    pub(crate) fn spin_until(&mut self) -> Option<Instant> {
        let (since, sync) = self.last?;
        let may_spin = std::mem::take(&mut self.may_spin);
        (may_spin && (1..=SMALL).contains(&self.notified) && !sync.is_zero() && self.spin.permits())
            .then_some(since + sync)
    }

    /// Records whether a request came while the core spun.
    pub(crate) fn record_spin(&mut self, was_worthwhile: bool) {
        self.spin.record(was_worthwhile);
    }

    /// The batching window for `requests` requests of `groups` connections: for how many
    /// connections to wait, and until when. `None`: commit at once.
    pub(crate) fn window(
        &mut self,
        groups: usize,
        requests: usize,
        now: Instant,
    ) -> Option<(usize, Instant)> {
        let (since, sync) = self.last.take()?;
        // What comes later than two syncs after the answer is no reaction to it.
        let late = now.saturating_duration_since(since) > 2 * sync;
        if groups == 0 || groups >= self.notified || requests > SMALL || late {
            return None;
        }
        let expected = self.writers.expected(self.notified);
        (groups < expected && self.window.permits()).then(|| (expected, now + sync))
    }

    /// Records that a window which began with `before` connections ended with `came` of `expected`.
    pub(crate) fn record_window(&mut self, before: usize, came: usize, expected: usize) {
        self.window.record(came > before);
        self.writers.record(came, expected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(100);

    #[test]
    fn waits_for_notified_connections_and_no_longer_than_a_sync() {
        let mut group = GroupCommit::default();
        let now = Instant::now();
        assert_eq!(group.window(1, 1, now), None, "nobody was notified");
        group.entry_applied(2, SYNC, now);
        assert_eq!(group.window(1, 1, now), Some((2, now + SYNC)));
        group.entry_applied(2, Duration::from_secs(1), now);
        assert_eq!(group.window(1, 1, now), Some((2, now + LIMIT)));
        group.entry_applied(2, SYNC, now);
        let last = now + 2 * SYNC;
        assert_eq!(group.window(1, 1, last), Some((2, last + SYNC)));
        group.entry_applied(2, SYNC, now);
        let late = last + Duration::from_nanos(1);
        assert_eq!(group.window(1, 1, late), None, "no reaction");
    }

    #[test]
    fn does_not_wait_for_one_writer_for_large_batches_or_when_all_are_there() {
        let mut group = GroupCommit::default();
        for (notified, groups, requests) in [(1, 1, 1), (2, 2, 2), (16, 1, 32), (2, 0, 0)] {
            let now = Instant::now();
            group.entry_applied(notified, SYNC, now);
            assert_eq!(group.window(groups, requests, now), None);
        }
    }

    #[test]
    fn each_wait_in_vain_makes_it_skip_more_opportunities() {
        let mut group = GroupCommit::default();
        let mut waits = 0;
        let now = Instant::now();
        for _ in 0..1000 {
            group.entry_applied(2, SYNC, now);
            if group.window(1, 1, now).is_some() {
                waits += 1;
                group.record_window(1, 1, 2);
            }
        }
        assert!((1..30).contains(&waits), "{waits} waits");
    }

    #[test]
    fn it_waits_for_as_many_as_usually_write() {
        let mut group = GroupCommit::default();
        let now = Instant::now();
        group.entry_applied(3, SYNC, now);
        assert_eq!(group.window(1, 1, now), Some((3, now + SYNC)));
        group.record_window(1, 2, 3);
        for _ in 0..20 {
            group.entry_applied(3, SYNC, now);
            assert_eq!(group.window(1, 1, now), Some((2, now + SYNC)));
            group.record_window(1, 2, 2);
            group.entry_applied(3, SYNC, now);
            assert_eq!(group.window(2, 2, now), None, "they are there");
        }
        let all = (0..2 * FORGET).any(|_| {
            group.entry_applied(3, SYNC, now);
            let window = group.window(1, 1, now);
            group.record_window(1, 2, window.map_or(2, |(expected, _)| expected));
            window == Some((3, now + SYNC))
        });
        assert!(all, "now and then it looks whether more come");
    }

    #[test]
    fn spins_for_the_reaction_of_a_few_while_that_is_worthwhile() {
        let mut group = GroupCommit::default();
        let now = Instant::now();
        assert_eq!(group.spin_until(), None, "nobody was notified");
        group.entry_applied(2, SYNC, now);
        assert_eq!(group.spin_until(), Some(now + SYNC));
        assert_eq!(group.spin_until(), None, "once for an answer");
        group.record_spin(false);
        group.entry_applied(2, SYNC, now);
        assert_eq!(group.spin_until(), None, "it was in vain the last time");
        group.entry_applied(2, SYNC, now);
        assert_eq!(group.spin_until(), Some(now + SYNC));
        for (notified, sync) in [(0, SYNC), (5, SYNC), (2, Duration::ZERO)] {
            group.entry_applied(notified, sync, now);
            assert_eq!(group.spin_until(), None);
        }
    }
}
