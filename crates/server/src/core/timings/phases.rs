//! Since when a member looks for a leader, catches up with one, or serves no writes: for metrics.
//! Decides nothing.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use baton_consensus::RoleChange;

use crate::stats::replication::ReplicationStats;
use crate::time::micros;

/// Phases that a member is in, each with the time since when.
#[derive(Debug)]
pub(crate) struct Phases {
    looking: Option<Instant>,
    catching_up: Option<Instant>,
    unavailable: Option<Instant>,
}

/// The part that a server plays once it has caught up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Leader,
    Follower,
    Observer,
}

impl Phases {
    /// Phases of a member that starts at `now` and knows no leader.
    pub(crate) fn new(now: Instant, stats: &ReplicationStats) -> Self {
        stats.looking.fetch_add(1, Relaxed);
        Self {
            looking: Some(now),
            catching_up: None,
            unavailable: Some(now),
        }
    }

    /// Another leader, or another term.
    pub(crate) fn role_changed(
        &mut self,
        role: RoleChange,
        now: Instant,
        stats: &ReplicationStats,
    ) {
        self.unavailable.get_or_insert(now);
        if role.leader.is_some() {
            if let Some(since) = self.looking.take() {
                let took = now.saturating_duration_since(since);
                stats.election_time.record(micros(took));
            }
            self.catching_up = Some(now);
        } else {
            if self.looking.is_none() {
                stats.looking.fetch_add(1, Relaxed);
                self.looking = Some(now);
            }
            self.catching_up = None;
        }
    }

    /// Everything that was committed before the present leader is applied.
    pub(crate) fn caught_up(&mut self, part: Part, now: Instant, stats: &ReplicationStats) {
        let since = |phase: &mut Option<Instant>| {
            let since = phase.take()?;
            Some(micros(now.saturating_duration_since(since)))
        };
        if let Some(took) = since(&mut self.catching_up) {
            match part {
                Part::Leader => {}
                Part::Follower => stats.follower_sync_time.record(took),
                Part::Observer => stats.observer_sync_time.record(took),
            }
        }
        if let Some(took) = since(&mut self.unavailable) {
            stats.unavailable_time.record(took);
            if part == Part::Leader {
                stats.leader_unavailable_time.record(took);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use baton_consensus::Role;

    use super::*;

    fn role(term: u64, leader: Option<u64>) -> RoleChange {
        RoleChange {
            role: Role::Follower,
            term,
            leader,
        }
    }

    #[test]
    fn an_election_lasts_until_a_leader_is_known_and_an_outage_until_its_entry_is_applied() {
        let stats = ReplicationStats::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut phases = Phases::new(start, &stats);
        phases.role_changed(role(1, None), at(10), &stats);
        phases.role_changed(role(1, Some(2)), at(40), &stats);
        phases.caught_up(Part::Follower, at(50), &stats);
        phases.caught_up(Part::Follower, at(60), &stats);
        phases.role_changed(role(2, None), at(100), &stats);
        phases.role_changed(role(3, None), at(105), &stats);
        phases.role_changed(role(3, Some(1)), at(120), &stats);
        phases.caught_up(Part::Leader, at(150), &stats);
        assert_eq!(stats.looking.load(Relaxed), 2);
        let sum = |spread: crate::stats::distribution::Spread| (spread.count, spread.sum);
        assert_eq!(sum(stats.election_time.spread()), (2, 60_000));
        assert_eq!(sum(stats.follower_sync_time.spread()), (1, 10_000));
        assert_eq!(sum(stats.observer_sync_time.spread()), (0, 0));
        assert_eq!(sum(stats.unavailable_time.spread()), (2, 100_000));
        assert_eq!(sum(stats.leader_unavailable_time.spread()), (1, 50_000));
    }
}
