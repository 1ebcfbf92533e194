//! Events in virtual time, in microseconds. Of those due at one instant, the one planned first
//! comes first.

use std::collections::BTreeMap;

/// One second.
pub(crate) const SECOND_US: u64 = 1_000_000;
/// One millisecond.
pub(crate) const MS_US: u64 = 1_000;

/// What is planned, and the time.
#[derive(Debug)]
pub(crate) struct Timeline<E> {
    now_us: u64,
    planned: u64,
    events: BTreeMap<(u64, u64), E>,
}

impl<E> Timeline<E> {
    pub(crate) fn new() -> Timeline<E> {
        Timeline {
            now_us: 0,
            planned: 0,
            events: BTreeMap::new(),
        }
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Plans an event; one in the past is due at once.
    pub(crate) fn at(&mut self, at_us: u64, event: E) {
        self.planned += 1;
        let at_us = at_us.max(self.now_us);
        self.events.insert((at_us, self.planned), event);
    }

    pub(crate) fn after(&mut self, delay_us: u64, event: E) {
        self.at(self.now_us + delay_us, event);
    }

    /// The next event, if it is due before `end_us`; the time moves on to it.
    pub(crate) fn next(&mut self, end_us: u64) -> Option<E> {
        let (&(at_us, _), _) = self.events.first_key_value()?;
        if at_us > end_us {
            self.now_us = end_us;
            return None;
        }
        self.now_us = at_us;
        self.events.pop_first().map(|(_, event)| event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_their_time_and_then_of_their_planning() {
        let mut timeline = Timeline::new();
        timeline.at(5, "b");
        timeline.at(2, "a");
        timeline.at(5, "c");
        timeline.at(9, "d");
        assert_eq!(timeline.next(6), Some("a"));
        assert_eq!(timeline.now_us(), 2);
        timeline.at(1, "late");
        assert_eq!(timeline.next(6), Some("late"));
        assert_eq!((timeline.next(6), timeline.next(6)), (Some("b"), Some("c")));
        assert_eq!((timeline.next(6), timeline.now_us()), (None, 6));
    }
}
