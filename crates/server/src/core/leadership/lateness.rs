//! Lateness of the core's ticks. Where it was late several times, messages of the leader wait for
//! the core as well, so this server would take a leader for silent that is not: for a while it
//! waits longer before it campaigns. Pure: the caller passes the time.
//!
//! Nothing rests on the longer wait but when this server campaigns. How long it votes for nobody
//! while it hears of a leader, and how soon it steps down as a leader whom no majority answers,
//! stay as they are (`docs/internals/replication.md`, *Late ticks*).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A tick that comes this many ticks after its time is late: 100 ms, for ticks of 25 ms.
const LATE: u32 = 4;
/// One that comes later than this does not count: it is the longest wait of a cautious server, so
/// waiting that long would not have helped. The process was stopped, or the machine asleep.
const BEYOND_HELP: u32 = 60;
/// This many late ticks within this time have consequences, for as long after the last of them.
const TIMES: usize = 3;
pub(crate) const CAUTION: Duration = Duration::from_secs(60);

/// The late ticks of this server.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    /// When the newest of them came, oldest first.
    late_at: VecDeque<Instant>,
    cautious_until: Option<Instant>,
}

/// Effect of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caution {
    Begins,
    Ends,
}

impl Lateness {
    /// A tick comes `late` after its time; ticks are `tick` apart.
    pub(crate) fn note(&mut self, late: Duration, tick: Duration, now: Instant) -> Option<Caution> {
        if (tick * LATE..tick * BEYOND_HELP).contains(&late) {
            self.late_at.push_back(now);
            if self.late_at.len() > TIMES {
                self.late_at.pop_front();
            }
            let oldest = self.late_at.front();
            let is_recent = oldest.is_some_and(|at| now.saturating_duration_since(*at) <= CAUTION);
            if self.late_at.len() == TIMES && is_recent {
                let is_new = self.cautious_until.replace(now + CAUTION).is_none();
                return is_new.then_some(Caution::Begins);
            }
        }
        let is_over = self.cautious_until.is_some_and(|until| now >= until);
        is_over.then(|| {
            self.cautious_until = None;
            Caution::Ends
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(25);
    const ON_TIME: Duration = Duration::from_millis(99);
    const LATE_BY: Duration = Duration::from_millis(100);

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn three_late_ticks_within_a_minute_have_consequences_for_a_minute_after_the_last() {
        let start = Instant::now();
        let mut lateness = Lateness::default();
        let mut note = |late, at| lateness.note(late, TICK, start + seconds(at));
        assert_eq!(note(LATE_BY, 0), None);
        assert_eq!(note(LATE_BY, 30), None);
        assert_eq!(note(ON_TIME, 31), None);
        assert_eq!(note(LATE_BY, 60), Some(Caution::Begins));
        // The minute begins again, and is announced once.
        assert_eq!(note(LATE_BY, 80), None);
        assert_eq!(note(ON_TIME, 139), None);
        assert_eq!(note(ON_TIME, 140), Some(Caution::Ends));
        assert_eq!(note(ON_TIME, 141), None);
    }

    #[test]
    fn late_ticks_far_from_each_other_have_none() {
        let start = Instant::now();
        let mut lateness = Lateness::default();
        for at in (0..10).map(|number| number * 31) {
            assert_eq!(lateness.note(LATE_BY, TICK, start + seconds(at)), None);
        }
        // Of longer ticks, a longer delay is late.
        for at in 400..410 {
            let now = start + seconds(at);
            assert_eq!(lateness.note(LATE_BY, 2 * TICK, now), None);
        }
    }

    #[test]
    fn a_process_that_was_stopped_for_long_is_not_called_late() {
        let start = Instant::now();
        let stopped = TICK * BEYOND_HELP;
        let mut lateness = Lateness::default();
        for at in 0..10 {
            assert_eq!(lateness.note(stopped, TICK, start + seconds(at)), None);
        }
        let almost = stopped - Duration::from_millis(1);
        let mut note = |at| lateness.note(almost, TICK, start + seconds(at));
        assert_eq!((note(20), note(21)), (None, None));
        assert_eq!(note(22), Some(Caution::Begins));
    }

    #[test]
    fn a_late_tick_behind_the_minute_does_not_go_on_with_it() {
        let start = Instant::now();
        let mut lateness = Lateness::default();
        for at in [0, 1] {
            assert_eq!(lateness.note(LATE_BY, TICK, start + seconds(at)), None);
        }
        let mut note = |late, at| lateness.note(late, TICK, start + seconds(at));
        assert_eq!(note(LATE_BY, 2), Some(Caution::Begins));
        assert_eq!(note(LATE_BY, 70), Some(Caution::Ends));
    }
}
