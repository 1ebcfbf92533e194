//! The leader, as this server knows it. Owns its role and terms, its ticks, when it campaigns or
//! hands leadership over, and since when no leader is known. Reads no clock and sends nothing: the
//! core says what the time is, and does what follows.

pub(crate) mod lateness;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use baton_consensus::{Role, RoleChange};

use self::lateness::{Caution, Lateness};
use crate::options::stretched;

/// Most ticks that are made up for after the core was late. Further ones are dropped, so that the
/// messages that have arrived meanwhile are handled first (R10).
const MOST_TICKS: u32 = 2;
/// Ticks after which an election counts as one without a winner.
const ELECTION_TICKS: u32 = 60;
/// Number of its own terms that a server remembers: more than can have entries in flight.
const TERMS_KEPT: usize = 16;
/// Delay before a server campaigns once the leader is known to be gone, by its place
/// among those that are left.
const CAMPAIGN_DELAY: Duration = Duration::from_millis(5);
const CAMPAIGN_STEP: Duration = Duration::from_millis(25);
/// Time without a known leader after which client connections close, and interval of the check for
/// silent clients of read-only mode. It grows with the tick.
const LEADERLESS_LIMIT: Duration = Duration::from_secs(2);
/// Time for which a leader's disk may make nothing durable before leadership moves; the bytes it
/// has to write in a second besides.
const SLOW_DISK: Duration = Duration::from_millis(500);
const SLOW_DISK_BYTES: u64 = 2 << 20;
/// Pause between two hand-overs of leadership.
const HAND_OVER_PAUSE: Duration = Duration::from_secs(10);

/// The part of a server in its ensemble.
#[derive(Debug)]
pub(crate) struct Leadership {
    id: u64,
    tick: Duration,
    /// When the next tick is due; `None` where there is no other server.
    next_tick: Option<Instant>,
    lateness: Lateness,
    role: RoleChange,
    /// The newest terms in which this server led, the last one last.
    led_terms: VecDeque<u64>,
    /// The term of the newest applied entry. Once it is the present term, a command without an
    /// answer is in no earlier leader's log.
    applied_term: u64,
    /// When the leader was last known; `None` while one is.
    leaderless_since: Option<Instant>,
    /// When this server campaigns because the leader is gone.
    campaign_at: Option<Instant>,
    /// When leadership may be handed over again because the disk hangs.
    may_hand_over_at: Option<Instant>,
    /// The entry that was proposed because this leader is to hand over: a server that has stored it
    /// has room on its disk.
    hand_over_entry: Option<u64>,
}

/// Ticks of the consensus that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DueTicks {
    pub(crate) late: Duration,
    pub(crate) count: u32,
    pub(crate) caution: Option<Caution>,
}

impl Leadership {
    /// State of a server that starts at `now` and knows no leader. `tick`: time between two ticks,
    /// `None` where there is no other server.
    pub(crate) fn new(
        id: u64,
        role: RoleChange,
        applied_term: u64,
        tick: Option<Duration>,
        now: Instant,
    ) -> Self {
        Self {
            id,
            tick: tick.unwrap_or(Duration::from_millis(25)),
            next_tick: tick.map(|tick| now + tick),
            lateness: Lateness::default(),
            role,
            led_terms: VecDeque::new(),
            applied_term,
            leaderless_since: Some(now),
            campaign_at: None,
            may_hand_over_at: None,
            hand_over_entry: None,
        }
    }

    /// Whether there is no other server: elections take no time, and nothing is lost on the way to
    /// the log.
    pub(crate) const fn is_alone(&self) -> bool {
        self.next_tick.is_none()
    }

    /// The time between two ticks.
    pub(crate) const fn tick(&self) -> Duration {
        self.tick
    }

    pub(crate) const fn role(&self) -> RoleChange {
        self.role
    }

    pub(crate) const fn term(&self) -> u64 {
        self.role.term
    }

    pub(crate) const fn leader(&self) -> Option<u64> {
        self.role.leader
    }

    /// Whether this server has been elected.
    pub(crate) fn leads(&self) -> bool {
        self.role.role == Role::Leader
    }

    /// Whether this server leads and has applied an entry of its own term: it knows everything that
    /// was committed before.
    pub(crate) fn acts_as_leader(&self) -> bool {
        self.leads() && self.applied_term == self.role.term
    }

    /// Whether this server led in this term, and so has proposed its entries.
    pub(crate) fn has_led(&self, term: u64) -> bool {
        self.led_terms.contains(&term)
    }

    /// The leader, once everything that earlier leaders have committed is applied here.
    pub(crate) fn settled_leader(&self) -> Option<u64> {
        let is_settled = self.applied_term == self.role.term;
        self.role.leader.filter(|_| is_settled)
    }

    /// An entry of this term is applied; whether it is the first one of that term.
    pub(crate) fn entry_applied(&mut self, term: u64) -> bool {
        std::mem::replace(&mut self.applied_term, term) != term
    }

    /// Another role, term or leader. Returns those before where term or leader are others.
    pub(crate) fn change(&mut self, role: RoleChange, now: Instant) -> Option<RoleChange> {
        let before = std::mem::replace(&mut self.role, role);
        self.leaderless_since = match role.leader {
            Some(_) => None,
            None => self.leaderless_since.or(Some(now)),
        };
        if (before.leader, before.term) == (role.leader, role.term) {
            return None;
        }
        if role.leader.is_some() {
            self.campaign_at = None;
        }
        if role.role == Role::Leader {
            if self.led_terms.len() == TERMS_KEPT {
                self.led_terms.pop_front();
            }
            self.led_terms.push_back(role.term);
        }
        Some(before)
    }

    /// The process of the leader has certainly ended: of the voters that are left, the first one
    /// campaigns soon, and each other one somewhat later.
    pub(crate) fn leader_is_gone(&mut self, voters: &[u64], now: Instant) {
        let left = voters.iter().filter(|id| Some(**id) != self.role.leader);
        let place = left.take_while(|id| **id != self.id).count();
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        let step = self.stretched(CAMPAIGN_STEP);
        self.campaign_at = Some(now + CAMPAIGN_DELAY + step * place);
    }

    /// Whether this server is to campaign now because the leader is gone.
    pub(crate) fn takes_campaign(&mut self, now: Instant) -> bool {
        let is_due = self.campaign_at.take_if(|at| now >= *at).is_some();
        is_due && self.role.leader.is_none()
    }

    /// The ticks that are due.
    pub(crate) fn due_ticks(&mut self, now: Instant) -> Option<DueTicks> {
        let next_tick = self.next_tick?;
        let late = now.checked_duration_since(next_tick)?;
        let caution = self.lateness.note(late, self.tick, now);
        let missed = late.as_nanos() / self.tick.as_nanos().max(1);
        let due = u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1);
        self.next_tick = Some(match due <= MOST_TICKS {
            true => next_tick + self.tick * due,
            false => now + self.tick,
        });
        Some(DueTicks {
            late,
            count: due.min(MOST_TICKS),
            caution,
        })
    }

    /// Whether a leader hands over because its disk hangs or is full: it goes on with its
    /// heartbeats, so nobody else would lead and no write would proceed (R04). `standstill`: for
    /// how long the disk has made nothing durable, and the bytes that wait for it.
    /// `others_are_ahead`: whether the disks of a majority have more than its own. Where leadership
    /// stays, the next leader has to store another entry than the last that was proposed for that.
    pub(crate) fn must_hand_over(
        &mut self,
        standstill: Option<(Duration, usize)>,
        is_full: bool,
        others_are_ahead: impl FnOnce() -> bool,
        now: Instant,
    ) -> bool {
        let may = self.may_hand_over_at.is_none_or(|at| now >= at);
        let hangs = |(stands, bytes): (Duration, usize)| {
            let millis = (bytes as u64).saturating_mul(1000) / SLOW_DISK_BYTES;
            stands > self.stretched(SLOW_DISK + Duration::from_millis(millis))
        };
        let is_stuck = is_full || standstill.is_some_and(hangs);
        let must = self.leads() && may && is_stuck && others_are_ahead();
        if !must {
            self.hand_over_entry = None;
        }
        must
    }

    /// The entry that the next leader has to store first, once it is proposed.
    pub(crate) const fn hand_over_entry(&self) -> Option<u64> {
        self.hand_over_entry
    }

    /// The next leader has to store this entry first.
    pub(crate) const fn set_hand_over_entry(&mut self, entry: u64) {
        self.hand_over_entry = Some(entry);
    }

    /// Leadership is handed over because the disk hangs.
    pub(crate) fn handed_over(&mut self, now: Instant) {
        self.hand_over_entry = None;
        self.may_hand_over_at = Some(now + HAND_OVER_PAUSE);
    }

    /// Whether no leader has been known for so long that clients look for another server. The time
    /// counts from then on again.
    pub(crate) fn is_leaderless(&mut self, now: Instant) -> bool {
        let limit = self.stretched(LEADERLESS_LIMIT);
        let since = self.leaderless_since.take_if(|since| now >= *since + limit);
        if since.is_some() {
            self.leaderless_since = Some(now);
        }
        since.is_some()
    }

    /// Since when no leader has been known, and whether that is longer than an election takes. It
    /// stays so until one is known if it `was` so: the time counts from the start again whenever
    /// clients are disconnected.
    pub(crate) fn is_long_without_leader(&self, was: bool, now: Instant) -> bool {
        let limit = self.tick * ELECTION_TICKS;
        self.leaderless_since
            .is_some_and(|since| was || now.saturating_duration_since(since) > limit)
    }

    /// Makes up for ticks that have passed of the `idle` ones that the core may sleep through, and
    /// returns their number.
    pub(crate) fn slept_through(&mut self, idle: u32, now: Instant) -> u32 {
        let Some(next_tick) = self.next_tick else {
            return 0;
        };
        let passed = (0..idle).take_while(|number| now >= next_tick + self.tick * *number);
        let passed = u32::try_from(passed.count()).unwrap_or(idle);
        self.next_tick = Some(next_tick + self.tick * passed);
        passed
    }

    /// Whether this server campaigns soon because the leader is gone.
    pub(crate) const fn is_about_to_campaign(&self) -> bool {
        self.campaign_at.is_some()
    }

    /// When there is something to do though nothing happens, and `idle` ticks may pass.
    pub(crate) fn deadline(&self, idle: u32) -> Option<Instant> {
        let next_tick = self.next_tick.map(|at| at + self.tick * idle);
        [next_tick, self.campaign_at].into_iter().flatten().min()
    }

    /// A time between servers, longer where the steps of elections are.
    fn stretched(&self, time: Duration) -> Duration {
        stretched(time, self.tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(25);

    const fn role(role: Role, term: u64, leader: Option<u64>) -> RoleChange {
        RoleChange { role, term, leader }
    }

    /// Server 2, which follows nobody.
    fn of_three(now: Instant) -> Leadership {
        Leadership::new(2, role(Role::Follower, 4, None), 4, Some(TICK), now)
    }

    #[test]
    fn a_leader_acts_once_it_has_applied_an_entry_of_its_term() {
        let now = Instant::now();
        let mut it = of_three(now);
        assert!(it.change(role(Role::Leader, 5, Some(2)), now).is_some());
        assert!(it.leads() && it.has_led(5) && !it.has_led(4));
        assert!(!it.acts_as_leader() && it.settled_leader().is_none());
        assert!(!it.entry_applied(4));
        assert!(!it.acts_as_leader());
        assert!(it.entry_applied(5) && !it.entry_applied(5));
        assert!(it.acts_as_leader());
        assert_eq!(it.settled_leader(), Some(2));
        let same = role(Role::Leader, 5, Some(2));
        assert_eq!(it.change(same, now), None);
        let before = it.change(role(Role::Follower, 6, None), now);
        assert_eq!(before, Some(same));
        assert!(it.has_led(5) && !it.leads());
        for term in 7..7 + TERMS_KEPT as u64 {
            it.change(role(Role::Leader, term, Some(2)), now);
        }
        assert!(!it.has_led(5) && it.has_led(7));
    }

    #[test]
    fn r10_no_more_than_two_ticks_are_made_up_for() {
        let now = Instant::now();
        let mut it = of_three(now);
        let mut counts = |at: u64| {
            let ticks = it.due_ticks(now + Duration::from_millis(at));
            ticks.map(|ticks| (ticks.count, ticks.late.as_millis()))
        };
        assert_eq!(counts(24), None);
        assert_eq!(counts(25), Some((1, 0)));
        assert_eq!(counts(49), None);
        assert_eq!(counts(80), Some((2, 30)));
        assert_eq!(counts(100), Some((1, 0)));
        assert_eq!(counts(1000), Some((2, 875)));
        assert_eq!(counts(1024), None);
        assert_eq!(counts(1025), Some((1, 0)));
        let mut alone = Leadership::new(1, role(Role::Follower, 0, None), 0, None, now);
        assert!(alone.is_alone() && alone.deadline(0).is_none());
        assert_eq!(alone.due_ticks(now + TICK * 9), None);
    }

    #[test]
    fn an_idle_core_makes_up_for_the_ticks_that_it_slept_through() {
        let now = Instant::now();
        let at = |millis| now + Duration::from_millis(millis);
        let mut it = of_three(now);
        assert_eq!(it.deadline(6), Some(at(175)));
        assert_eq!(it.slept_through(0, at(170)), 0);
        assert_eq!(it.slept_through(6, at(24)), 0);
        assert_eq!(it.slept_through(6, at(50)), 2);
        assert_eq!(it.deadline(0), Some(at(75)));
        assert_eq!(it.slept_through(2, at(500)), 2);
        assert_eq!(it.deadline(0), Some(at(125)));
    }

    #[test]
    fn the_servers_that_are_left_campaign_one_after_the_other() {
        let now = Instant::now();
        let at = |millis| now + Duration::from_millis(millis);
        let campaigns = |id, millis| {
            let mut it = Leadership::new(id, role(Role::Follower, 4, Some(1)), 4, Some(TICK), now);
            it.leader_is_gone(&[1, 2, 3], now);
            it.change(role(Role::Follower, 4, None), now);
            it.takes_campaign(at(millis))
        };
        assert!(campaigns(2, 5) && !campaigns(2, 4));
        assert!(campaigns(3, 30) && !campaigns(3, 29));
        let mut it = of_three(now);
        it.leader_is_gone(&[1, 2, 3], now);
        assert_eq!(it.deadline(0), Some(at(25)));
        it.change(role(Role::Follower, 5, Some(3)), now);
        assert!(!it.takes_campaign(at(1000)));
        it.leader_is_gone(&[1, 2, 3], now);
        assert!(!it.takes_campaign(at(1000)), "a leader is known");
    }

    #[test]
    fn clients_are_sent_away_each_two_seconds_while_no_leader_is_known() {
        let now = Instant::now();
        let at = |millis| now + Duration::from_millis(millis);
        let mut it = of_three(now);
        assert!(!it.is_leaderless(at(1999)) && it.is_leaderless(at(2000)));
        assert!(!it.is_long_without_leader(false, at(2000)));
        assert!(it.is_long_without_leader(true, at(2000)));
        assert!(!it.is_long_without_leader(false, at(3500)));
        assert!(it.is_long_without_leader(false, at(3501)));
        assert!(!it.is_leaderless(at(3999)) && it.is_leaderless(at(4000)));
        it.change(role(Role::Follower, 5, Some(1)), at(4000));
        assert!(!it.is_leaderless(at(9000)) && !it.is_long_without_leader(true, at(9000)));
        it.change(role(Role::Follower, 5, None), at(9000));
        it.change(role(Role::Candidate, 6, None), at(10_000));
        assert!(!it.is_leaderless(at(10_999)) && it.is_leaderless(at(11_000)));
    }

    #[test]
    fn a_disk_that_is_busy_with_much_does_not_hang() {
        let now = Instant::now();
        let mut it = of_three(now);
        let hangs = |it: &mut Leadership, millis, bytes| {
            let standstill = Some((Duration::from_millis(millis), bytes));
            it.must_hand_over(standstill, false, || true, now)
        };
        assert!(!hangs(&mut it, 9000, 0), "it does not lead");
        it.change(role(Role::Leader, 5, Some(2)), now);
        assert!(hangs(&mut it, 501, 0) && !hangs(&mut it, 500, 0));
        assert!(!hangs(&mut it, 1500, 2 << 20) && hangs(&mut it, 1501, 2 << 20));
        let is_full = |it: &mut Leadership, now| it.must_hand_over(None, true, || true, now);
        assert!(is_full(&mut it, now) && !it.must_hand_over(None, false, || true, now));
        it.handed_over(now);
        let later = now + HAND_OVER_PAUSE;
        assert!(!is_full(&mut it, later - TICK) && is_full(&mut it, later));
    }

    /// The others' disks may have filled up since it was proposed.
    #[test]
    fn an_entry_that_the_next_leader_has_to_store_is_forgotten_where_leadership_stays() {
        let now = Instant::now();
        let mut it = of_three(now);
        it.change(role(Role::Leader, 5, Some(2)), now);
        let full = |it: &mut Leadership| it.must_hand_over(None, true, || true, now);
        type Happening = fn(&mut Leadership, Instant);
        let reasons: [(&str, Happening); 4] = [
            ("there is room again", |it, now| {
                assert!(!it.must_hand_over(None, false, || true, now));
            }),
            ("the others are behind", |it, now| {
                assert!(!it.must_hand_over(None, true, || false, now));
            }),
            ("it does not lead", |it, now| {
                it.change(role(Role::Follower, 6, Some(3)), now);
                assert!(!it.must_hand_over(None, true, || true, now));
                it.change(role(Role::Leader, 7, Some(2)), now);
            }),
            ("leadership was handed over", |it, now| it.handed_over(now)),
        ];
        for (reason, happens) in reasons {
            it.set_hand_over_entry(9);
            assert!(full(&mut it), "{reason}");
            assert_eq!(it.hand_over_entry(), Some(9), "{reason}");
            happens(&mut it, now);
            assert_eq!(it.hand_over_entry(), None, "{reason}");
        }
    }
}
