//! Staying awake for what an answer is likely to bring. Those who were answered by the last sync
//! are likely to write next: at a lock's hand-over the one that released comes back into the line
//! while the one that was told releases. So the core does not fall asleep at once after it has told
//! a few (being woken takes longer than their reaction), and it waits a moment for the second of
//! two small writes, so that they share one sync. Each of the two is a bet: it never lasts longer
//! than the sync took, is not made for large batches, and is made ever less often while it is lost.

use std::time::{Duration, Instant};

/// Requests, and connections, above which a batch is worth a sync and a wake-up of its own.
const SMALL: usize = 4;
/// The longest wait, whatever a sync takes.
const LIMIT: Duration = Duration::from_micros(200);
/// Chances let pass, at most, after waiting in vain.
const LONGEST_PAUSE: u32 = 255;

/// Entries after which it is tried again whether more write than did lately.
const FORGET: u32 = 100;

/// Whether a kind of waiting has paid lately.
#[derive(Debug, Default)]
struct Bet {
    /// Chances that were let pass after the last wait in vain, and how many are left of them.
    pause: u32,
    skip: u32,
}

impl Bet {
    /// Whether to take this chance.
    fn on(&mut self) -> bool {
        let open = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        open
    }

    fn learn(&mut self, paid: bool) {
        self.pause = if paid {
            0
        } else {
            (self.pause * 2 + 1).min(LONGEST_PAUSE)
        };
        self.skip = self.pause;
    }
}

/// What the last sync lets one expect.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// Connections that got something from the last entry.
    told: usize,
    /// When they got it, and how long the sync took.
    last: Option<(Instant, Duration)>,
    /// Whether the core may still decide to stay awake after that.
    fresh: bool,
    first: Bet,
    second: Bet,
    writers: Writers,
}

/// How many of those who are told write next: of a lock's line, the one that has released and the
/// one that holds now, but not the one that has just taken its place at the end.
#[derive(Debug, Default)]
struct Writers {
    /// As it was lately; `None` while everybody who is told is expected to write.
    usual: Option<usize>,
    /// Entries since that was found out.
    age: u32,
}

impl Writers {
    /// How many of `told` to expect.
    fn expected(&mut self, told: usize) -> usize {
        self.age += 1;
        if self.age > FORGET {
            *self = Self::default();
        }
        self.usual.map_or(told, |usual| usual.min(told))
    }

    /// Notes that `came` of `expected` did.
    fn learn(&mut self, came: usize, expected: usize) {
        if came < expected || self.usual.is_some_and(|usual| came > usual) {
            self.usual = Some(came);
            self.age = 0;
        }
    }
}

impl Gather {
    /// Notes that `told` connections were sent something after a sync of `sync`.
    pub(crate) fn told(&mut self, told: usize, sync: Duration, now: Instant) {
        self.told = told;
        self.last = Some((now, sync.min(LIMIT)));
        self.fresh = true;
    }

    /// Until when to stay awake for the first reaction, if at all.
    pub(crate) fn awake_until(&mut self) -> Option<Instant> {
        let (since, sync) = self.last?;
        let fresh = std::mem::take(&mut self.fresh);
        (fresh && (1..=SMALL).contains(&self.told) && !sync.is_zero() && self.first.on())
            .then_some(since + sync)
    }

    /// Notes whether something came while the core stayed awake.
    pub(crate) fn learn_awake(&mut self, paid: bool) {
        self.first.learn(paid);
    }

    /// How many connections to wait for and until when, if `requests` of `groups` connections
    /// should wait at all.
    pub(crate) fn worth(
        &mut self,
        groups: usize,
        requests: usize,
        now: Instant,
    ) -> Option<(usize, Instant)> {
        let (since, sync) = self.last.take()?;
        // What comes later than two syncs after the answer is no reaction to it.
        let late = now.saturating_duration_since(since) > 2 * sync;
        if groups == 0 || groups >= self.told || requests > SMALL || late {
            return None;
        }
        let expected = self.writers.expected(self.told);
        (groups < expected && self.second.on()).then(|| (expected, now + sync))
    }

    /// Notes that a wait which began with `before` connections ended with `came` of `expected`.
    pub(crate) fn learn(&mut self, before: usize, came: usize, expected: usize) {
        self.second.learn(came > before);
        self.writers.learn(came, expected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(100);

    #[test]
    fn waits_for_those_who_were_told_and_no_longer_than_a_sync() {
        let mut gather = Gather::default();
        let now = Instant::now();
        assert_eq!(gather.worth(1, 1, now), None, "nobody was told anything");
        gather.told(2, SYNC, now);
        assert_eq!(gather.worth(1, 1, now), Some((2, now + SYNC)));
        gather.told(2, Duration::from_secs(1), now);
        assert_eq!(gather.worth(1, 1, now), Some((2, now + LIMIT)));
        gather.told(2, SYNC, now);
        let last = now + 2 * SYNC;
        assert_eq!(gather.worth(1, 1, last), Some((2, last + SYNC)));
        gather.told(2, SYNC, now);
        let late = last + Duration::from_nanos(1);
        assert_eq!(gather.worth(1, 1, late), None, "no reaction");
    }

    #[test]
    fn does_not_wait_for_one_writer_for_large_batches_or_when_all_are_there() {
        let mut gather = Gather::default();
        for (told, groups, requests) in [(1, 1, 1), (2, 2, 2), (16, 1, 32), (2, 0, 0)] {
            let now = Instant::now();
            gather.told(told, SYNC, now);
            assert_eq!(gather.worth(groups, requests, now), None);
        }
    }

    #[test]
    fn a_wait_in_vain_makes_it_let_ever_more_chances_pass() {
        let mut gather = Gather::default();
        let mut waits = 0;
        let now = Instant::now();
        for _ in 0..1000 {
            gather.told(2, SYNC, now);
            if gather.worth(1, 1, now).is_some() {
                waits += 1;
                gather.learn(1, 1, 2);
            }
        }
        assert!((1..30).contains(&waits), "{waits} waits");
    }

    #[test]
    fn it_waits_for_as_many_as_usually_write() {
        let mut gather = Gather::default();
        let now = Instant::now();
        gather.told(3, SYNC, now);
        assert_eq!(gather.worth(1, 1, now), Some((3, now + SYNC)));
        gather.learn(1, 2, 3);
        for _ in 0..20 {
            gather.told(3, SYNC, now);
            assert_eq!(gather.worth(1, 1, now), Some((2, now + SYNC)));
            gather.learn(1, 2, 2);
            gather.told(3, SYNC, now);
            assert_eq!(gather.worth(2, 2, now), None, "they are there");
        }
        let all = (0..2 * FORGET).any(|_| {
            gather.told(3, SYNC, now);
            let worth = gather.worth(1, 1, now);
            gather.learn(1, 2, worth.map_or(2, |(expected, _)| expected));
            worth == Some((3, now + SYNC))
        });
        assert!(all, "now and then it looks whether more come");
    }

    #[test]
    fn stays_awake_for_the_reaction_of_a_few_while_that_pays() {
        let mut gather = Gather::default();
        let now = Instant::now();
        assert_eq!(gather.awake_until(), None, "nobody was told anything");
        gather.told(2, SYNC, now);
        assert_eq!(gather.awake_until(), Some(now + SYNC));
        assert_eq!(gather.awake_until(), None, "once for an answer");
        gather.learn_awake(false);
        gather.told(2, SYNC, now);
        assert_eq!(gather.awake_until(), None, "it was in vain the last time");
        gather.told(2, SYNC, now);
        assert_eq!(gather.awake_until(), Some(now + SYNC));
        for (told, sync) in [(0, SYNC), (5, SYNC), (2, Duration::ZERO)] {
            gather.told(told, sync, now);
            assert_eq!(gather.awake_until(), None);
        }
    }
}
