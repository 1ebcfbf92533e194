//! The wall clocks of the voters as this server reads them, and the time that a leader gives to log
//! entries. Owns the rule by which one wrong clock cannot set the time of the ensemble
//! (`docs/internals/replication.md`, "Time"); reads no clock itself.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::time::Moment;

/// Interval at which a server sends each other one a reading of its wall clock.
const INTERVAL: Duration = Duration::from_secs(2);
/// Readings of another server's clock that count. A reading that came late shows too little, so the
/// one that shows most is believed; one from before that clock was set is forgotten.
const READINGS: usize = 8;
/// Largest difference of a leader's own clock to a majority's at which it is used: more than a
/// reading is wrong by, and less than a person notices.
const TOLERANCE_MS: i64 = 1_000;

/// Readings of the other servers' wall clocks.
#[derive(Debug, Default)]
pub(crate) struct PeerClocks {
    /// When this server sends the next reading of its own; `None`: at once.
    next: Option<Instant>,
    /// For each server, what its wall clock showed when this server had started, by each of the
    /// newest readings. Against the monotonic clock, so that setting this server's own wall clock
    /// moves no other.
    readings: BTreeMap<u64, VecDeque<i64>>,
}

impl PeerClocks {
    /// Whether this server is to send a reading of its own clock now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.next.is_none_or(|next| now >= next);
        if is_due {
            self.next = Some(now + INTERVAL);
        }
        is_due
    }

    /// The clock of `server` has just shown `wall_ms`.
    pub(crate) fn heard(&mut self, server: u64, wall_ms: i64, uptime_ms: i64) {
        let readings = self.readings.entry(server).or_default();
        if readings.len() == READINGS {
            readings.pop_front();
        }
        readings.push_back(wall_ms.saturating_sub(uptime_ms));
    }

    /// Forgets the clocks of servers that are no longer members.
    pub(crate) fn retain(&mut self, is_member: impl Fn(u64) -> bool) {
        self.readings.retain(|server, _| is_member(*server));
    }

    fn now_ms(&self, server: u64, uptime_ms: i64) -> Option<i64> {
        let at_start = self.readings.get(&server)?.iter().max()?;
        Some(at_start.saturating_add(uptime_ms))
    }

    /// Returns the milliseconds by which each other server's clock is ahead of this one's.
    pub(crate) fn offsets_ms(&self, now: Moment) -> Vec<(u64, i64)> {
        let servers = self.readings.keys();
        let offset = |server: &u64| {
            let wall_ms = self.now_ms(*server, now.uptime_ms)?;
            Some((*server, wall_ms.saturating_sub(now.wall_ms)))
        };
        servers.filter_map(offset).collect()
    }

    /// The latest time that the clocks of a majority of `voters` have reached. A voter whose clock
    /// is not known has reached none; `None` if too few are known.
    pub(crate) fn majority_ms(&self, id: u64, voters: &[u64], now: Moment) -> Option<i64> {
        let clocks = voters.iter().filter_map(|voter| match *voter == id {
            true => Some(now.wall_ms),
            false => self.now_ms(*voter, now.uptime_ms),
        });
        let mut clocks: Vec<i64> = clocks.collect();
        clocks.sort_unstable_by_key(|wall_ms| std::cmp::Reverse(*wall_ms));
        clocks.get(voters.len() / 2).copied()
    }

    /// The time that this server gives to an entry as the leader: its own wall clock, within
    /// [`TOLERANCE_MS`] of what a majority's have reached. Its own alone while too few are known,
    /// which a leader can commit nothing with.
    pub(crate) fn entry_ms(&self, id: u64, voters: &[u64], now: Moment) -> i64 {
        match self.majority_ms(id, voters, now) {
            Some(majority_ms) => now.wall_ms.clamp(
                majority_ms.saturating_sub(TOLERANCE_MS),
                majority_ms.saturating_add(TOLERANCE_MS),
            ),
            None => now.wall_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_795_478_400_000;
    const TEN_YEARS_MS: i64 = 10 * 365 * 24 * 3_600_000;
    const VOTERS: [u64; 3] = [1, 2, 3];

    fn at(wall_ms: i64, uptime_ms: i64) -> Moment {
        Moment { wall_ms, uptime_ms }
    }

    /// Clocks of servers 2 and 3 that are off by these when server 1 has run for a minute.
    fn off_by(two: i64, three: i64) -> PeerClocks {
        let mut clocks = PeerClocks::default();
        clocks.heard(2, NOW_MS + two, 60_000);
        clocks.heard(3, NOW_MS + three, 60_000);
        clocks
    }

    #[test]
    fn a_reading_is_sent_at_once_and_then_every_two_seconds() {
        let now = Instant::now();
        let mut clocks = PeerClocks::default();
        assert!(clocks.is_due(now) && !clocks.is_due(now + INTERVAL / 2));
        assert!(clocks.is_due(now + INTERVAL));
    }

    #[test]
    fn a_leader_whose_clock_is_wrong_gives_the_time_of_the_others() {
        for (own, two, three, given) in [
            (0, 0, 0, 0),
            (7, -20, 30, 7),
            (TEN_YEARS_MS, 0, 5, 5 + TOLERANCE_MS),
            (-TEN_YEARS_MS, 0, 5, -TOLERANCE_MS),
            (0, TEN_YEARS_MS, 0, 0),
            (0, -TEN_YEARS_MS, 0, 0),
            // No majority has reached either of two wrong times.
            (0, TEN_YEARS_MS, -TEN_YEARS_MS, 0),
            (i64::MAX - NOW_MS, 0, 0, TOLERANCE_MS),
        ] {
            let clocks = off_by(two, three);
            let found = clocks.entry_ms(1, &VOTERS, at(NOW_MS + own, 60_000));
            assert_eq!(found - NOW_MS, given, "{own} {two} {three}");
        }
    }

    #[test]
    fn a_clock_that_nobody_knows_has_reached_no_time() {
        let mut clocks = PeerClocks::default();
        clocks.heard(2, NOW_MS, 0);
        let ahead = at(NOW_MS + TEN_YEARS_MS, 0);
        assert_eq!(clocks.majority_ms(1, &VOTERS, ahead), Some(NOW_MS));
        assert_eq!(
            clocks.majority_ms(1, &[1, 2], ahead),
            Some(NOW_MS),
            "both of two"
        );
        assert_eq!(clocks.majority_ms(1, &[1, 2, 3, 4, 5], ahead), None);
        // An observer's own clock is not a voter's.
        assert_eq!(clocks.majority_ms(9, &[2], ahead), Some(NOW_MS));
        assert_eq!(clocks.majority_ms(1, &[1], ahead), Some(ahead.wall_ms));
    }

    #[test]
    fn setting_the_own_clock_moves_no_other() {
        let clocks = off_by(0, 0);
        let later = at(NOW_MS + TEN_YEARS_MS, 90_000);
        assert_eq!(clocks.majority_ms(1, &VOTERS, later), Some(NOW_MS + 30_000));
        let offset = 30_000 - TEN_YEARS_MS;
        assert_eq!(clocks.offsets_ms(later), [(2, offset), (3, offset)]);
    }

    #[test]
    fn a_reading_that_comes_late_does_not_count_and_a_clock_that_was_set_does() {
        let mut clocks = off_by(TEN_YEARS_MS, 0);
        // It was sent five seconds before it came.
        clocks.heard(3, NOW_MS + 2_000, 67_000);
        assert_eq!(clocks.offsets_ms(at(NOW_MS, 60_000))[1], (3, 0));
        for seconds in 1..=READINGS as i64 {
            clocks.heard(2, NOW_MS + seconds * 1_000, 60_000 + seconds * 1_000);
        }
        assert_eq!(clocks.offsets_ms(at(NOW_MS, 60_000))[0], (2, 0));
        clocks.retain(|server| server == 3);
        assert_eq!(clocks.offsets_ms(at(NOW_MS, 60_000)), [(3, 0)]);
    }
}
