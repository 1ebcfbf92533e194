//! The client's real schedule against real timing, cut at every phase of its ping interval.
//!
//! One run is a session that holds a lock on a follower: it pings and writes when `LeaseBook` wants
//! it, and may read or write besides. At one instant the streams between follower and leader begin
//! to fail in one of several ways. A run is sound where no deadline is ever later than the instant
//! at which the leader may end the session. All instants are microseconds.

use std::collections::VecDeque;
use std::time::Duration;

use super::former::{FormerRule, FormerRuleBook};
use super::{Rules, whole};
use crate::clock::BootInstant;
use crate::lease::{AnswerKind, Evidence, LeaseBook, LeaseMode, LeaseOptions};

const MS: u64 = 1_000;
const S: u64 = 1_000 * MS;
/// One way, over any stream.
const DELAY: u64 = MS;
/// Never.
const END: u64 = u64::MAX;

fn at(micros: u64) -> BootInstant {
    BootInstant::from_nanos(micros * 1_000)
}

/// Load of the application besides holding the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Idle,
    Reading,
    Writing,
}

/// Failure between follower and leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    BothWays,
    ToLeader,
    FromLeader,
    /// From the leader for nine tenths of `syncLimit` ticks; when that heals, to the leader.
    FromThenTo,
    /// To the leader; just before that gives the follower up, from the leader.
    ToThenFrom,
    /// From the leader for nine tenths of `syncLimit` ticks, then to the leader, then from the
    /// leader again.
    FromThenToThenFrom,
}

const FAILURES: [Failure; 6] = [
    Failure::BothWays,
    Failure::ToLeader,
    Failure::FromLeader,
    Failure::FromThenTo,
    Failure::ToThenFrom,
    Failure::FromThenToThenFrom,
];

#[derive(Clone, Copy, Debug)]
struct Run {
    timeout: u64,
    tick: u64,
    sync_limit: u64,
    /// Error of the clocks, the leader's fast and the follower's slow, in thousandths.
    fast: i64,
    load: Load,
    failure: Failure,
    /// Time at which the failure begins.
    cut: u64,
}

impl Run {
    /// A span of the leader's clock by ours.
    fn by_leader(&self, span: u64) -> u64 {
        span * 1000 / u64::try_from(1000 + self.fast).unwrap()
    }

    /// A span of the follower's clock by ours: as slow as the leader's is fast.
    fn by_follower(&self, span: u64) -> u64 {
        span * 1000 / u64::try_from(1000 - self.fast).unwrap()
    }

    fn patience(&self) -> u64 {
        self.tick * self.sync_limit
    }

    /// Returns when nothing passes to the leader, and from it.
    fn outages(&self) -> (Outages, Outages) {
        let (cut, most) = (self.cut, self.patience() * 9 / 10);
        match self.failure {
            Failure::BothWays => (vec![(cut, END)], vec![(cut, END)]),
            Failure::ToLeader => (vec![(cut, END)], Vec::new()),
            Failure::FromLeader => (Vec::new(), vec![(cut, END)]),
            Failure::FromThenTo => (vec![(cut + most, END)], vec![(cut, cut + most)]),
            Failure::ToThenFrom => (vec![(cut, END)], vec![(cut + most, END)]),
            Failure::FromThenToThenFrom => (
                vec![(cut + most, END)],
                vec![(cut, cut + most), (cut + 2 * most, END)],
            ),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Ping,
    Read,
    Write,
    Pong,
    Written,
    LeaderPing,
    Report(bool),
    End,
}

/// Spans in which nothing passes: first and last instant.
type Outages = Vec<(u64, u64)>;

/// A stream: what is in flight on it, in order, each with its arrival; and when nothing passes.
#[derive(Default)]
struct Stream {
    in_flight: VecDeque<(u64, Message)>,
    outages: Outages,
}

impl Stream {
    fn send(&mut self, now: u64, message: Message) {
        let behind = self.in_flight.back().map_or(0, |(arrival, _)| *arrival);
        self.in_flight.push_back((behind.max(now + DELAY), message));
    }

    /// Returns when the next message arrives.
    fn due(&self) -> u64 {
        self.in_flight.front().map_or(END, |(arrival, _)| {
            let mut due = *arrival;
            for (from, to) in &self.outages {
                if (*from..*to).contains(&due) {
                    due = *to;
                }
            }
            due
        })
    }

    fn take(&mut self, now: u64) -> Option<Message> {
        (self.due() <= now)
            .then(|| self.in_flight.pop_front())?
            .map(|(_, message)| message)
    }
}

/// Outcome of a run.
struct Outcome {
    /// Milliseconds by which the lease may outlive the session.
    outlives: Option<u64>,
    /// The least that was left of the lease before the cut, once the schedule had settled.
    least_left: Duration,
}

fn broken_by<R: Rules>(rules: R, run: &Run) -> Option<u64> {
    outcome(rules, run).outlives
}

fn outcome<R: Rules>(mut rules: R, run: &Run) -> Outcome {
    let mut least_left = Duration::MAX;
    let begin = S;
    let timeout = Duration::from_micros(run.timeout);
    rules.connected(at(begin), timeout, true);
    let (mut to_server, mut to_client) = (Stream::default(), Stream::default());
    let (mut to_leader, mut from_leader) = (Stream::default(), Stream::default());
    (to_leader.outages, from_leader.outages) = run.outages();
    let mut pings = VecDeque::new();
    let mut requests: VecDeque<(u64, AnswerKind)> = VecDeque::new();
    let (mut last_sent, mut last_write) = (begin, begin);
    let mut next_of_application = begin;
    let (mut heard, mut serves) = (false, true);
    let (mut server_read, mut leader_read) = (begin, begin);
    let mut next_leader_ping = begin;
    let mut leader_has_given_up = false;
    let mut counted = begin;
    let mut clock = begin;
    let patience = (
        run.by_follower(run.patience()),
        run.by_leader(run.patience()),
    );
    let last = run.cut + run.timeout + 4 * run.patience();
    loop {
        let book = rules.book();
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap();
        let ping_due = last_sent + micros(book.ping_interval()).min(10 * S);
        let write_due = if book.evidence() != Evidence::Write {
            END
        } else if book.wants_write() {
            0
        } else {
            last_write + micros(book.write_interval())
        };
        let streams = [
            to_server.due(),
            to_client.due(),
            to_leader.due(),
            from_leader.due(),
        ];
        let mut now = streams.into_iter().fold(END, u64::min);
        now = now.min(ping_due).min(write_due).min(next_leader_ping);
        if run.load != Load::Idle {
            now = now.min(next_of_application);
        }
        now = now.max(clock);
        clock = now;
        if now > last {
            return Outcome {
                outlives: None,
                least_left,
            };
        }
        if (begin + run.timeout..run.cut).contains(&now) {
            let left = rules.deadline().saturating_duration_since(at(now));
            least_left = least_left.min(left);
        }
        let ended = now >= counted + run.by_leader(run.timeout);
        // The client.
        while let Some(message) = to_client.take(now) {
            let (sent, answered) = match message {
                Message::Pong => (pings.pop_front().unwrap(), AnswerKind::Ping),
                _ => requests.pop_front().unwrap(),
            };
            rules.acknowledged(at(now), at(sent), answered);
            let ends = at(counted + run.by_leader(run.timeout));
            let too_long = rules.deadline().saturating_duration_since(ends);
            if !too_long.is_zero() {
                let outlives = u64::try_from(too_long.as_millis()).unwrap();
                return Outcome {
                    outlives: Some(outlives),
                    least_left,
                };
            }
        }
        let of_application = run.load != Load::Idle && next_of_application <= now;
        if of_application {
            next_of_application = now + S / 2;
        }
        // A write is sent once the one before is answered: what the session does, too, for its own.
        let writes = write_due <= now || (of_application && run.load == Load::Writing);
        if writes {
            let proof = rules.write_sent(at(now));
            requests.push_back((now, AnswerKind::Write(proof)));
            to_server.send(now, Message::Write);
            (last_sent, last_write) = (now, now);
        } else if of_application && requests.is_empty() {
            requests.push_back((now, AnswerKind::Read));
            to_server.send(now, Message::Read);
            last_sent = now;
        } else if ping_due <= now {
            pings.push_back(now);
            to_server.send(now, Message::Ping);
            last_sent = now;
        }
        // The follower.
        serves &= now < server_read + patience.0;
        while let Some(message) = from_leader.take(now) {
            server_read = now;
            match message {
                Message::LeaderPing if serves => {
                    to_leader.send(now, Message::Report(std::mem::take(&mut heard)));
                }
                Message::Written if serves => to_client.send(now, Message::Written),
                Message::End => serves = false,
                _ => {}
            }
        }
        while let Some(message) = to_server.take(now) {
            if !serves {
                continue;
            }
            heard = true;
            match message {
                Message::Ping => to_client.send(now, Message::Pong),
                Message::Write => to_leader.send(now, Message::Write),
                read => to_client.send(now, read),
            }
        }
        // The leader.
        while let Some(message) = to_leader.take(now) {
            leader_read = now;
            match message {
                Message::Report(true) if !ended && !leader_has_given_up => counted = now,
                Message::Write if !ended && !leader_has_given_up => {
                    from_leader.send(now, Message::Written);
                }
                _ => {}
            }
        }
        if !leader_has_given_up && now >= leader_read + patience.1 {
            leader_has_given_up = true;
            from_leader.send(now, Message::End);
        }
        if next_leader_ping <= now {
            next_leader_ping = now + run.by_leader(run.tick / 2);
            if !leader_has_given_up {
                from_leader.send(now, Message::LeaderPing);
            }
        }
    }
}

fn book(run: &Run, mode: LeaseMode, stated: bool) -> LeaseBook {
    let options = LeaseOptions {
        tick: stated.then(|| Duration::from_micros(run.tick)),
        sync_limit: stated.then(|| u32::try_from(run.sync_limit).unwrap()),
        epsilon: Duration::ZERO,
        mode,
        ..LeaseOptions::default()
    };
    LeaseBook::new(options, Duration::ZERO)
}

fn former(rule: FormerRule, run: &Run) -> FormerRuleBook {
    FormerRuleBook {
        rule,
        // Its own rule is the only one by which it takes answers: the book asks for writes where it
        // would.
        book: book(run, LeaseMode::Strict, true),
        timeout: Duration::from_micros(run.timeout),
        tick: Duration::from_micros(run.tick),
        sync_limit: u32::try_from(run.sync_limit).unwrap(),
    }
}

/// All runs with these ticks and session timeouts, in seconds, and cuts at this number of phases of
/// the heartbeat.
fn runs(ticks: &[u64], timeouts: &[u64], phases: u64) -> impl Iterator<Item = Run> {
    let mut all = Vec::new();
    for tick in ticks.iter().map(|tick| tick * S) {
        for timeout in timeouts.iter().map(|timeout| timeout * S) {
            for sync_limit in [2, 5, 20] {
                for failure in FAILURES {
                    for load in [Load::Idle, Load::Reading, Load::Writing] {
                        for fast in [-10, 0, 10] {
                            for phase in 0..phases {
                                // Behind one timeout, so that the schedule has settled; then over
                                // one and a half of its periods.
                                let cut = S
                                    + timeout
                                    + tick * sync_limit
                                    + timeout * 3 * phase / (8 * phases)
                                    + 7 * MS;
                                all.push(Run {
                                    timeout,
                                    tick,
                                    sync_limit,
                                    fast,
                                    load,
                                    failure,
                                    cut,
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    all.into_iter().filter(|run| run.timeout >= 2 * run.tick)
}

fn all_sound(mode: LeaseMode, stated: bool, ticks: &[u64], timeouts: &[u64], phases: u64) {
    let (mut count, mut refused) = (0, 0);
    for run in runs(ticks, timeouts, phases) {
        let mut rules = book(&run, mode, stated);
        rules.connected(at(0), Duration::from_micros(run.timeout), false);
        if rules.check().is_err() {
            refused += 1;
            continue;
        }
        count += 1;
        if let Some(millis) = broken_by(book(&run, mode, stated), &run) {
            panic!("{mode:?}: the lease outlives the session by {millis} ms: {run:?}");
        }
    }
    assert!(count > 0);
    eprintln!("{mode:?}, stated: {stated}: {count} runs, all sound; {refused} refused");
}

#[test]
fn h91_by_writes_no_cut_at_any_phase_leaves_a_lease_that_outlives_the_session() {
    for stated in [false, true] {
        if whole() {
            all_sound(
                LeaseMode::Auto,
                stated,
                &[1, 2, 3, 10],
                &[2, 4, 6, 12, 20, 30, 40, 60],
                48,
            );
        } else {
            all_sound(LeaseMode::Auto, stated, &[2], &[4, 12, 30, 40], 4);
        }
    }
}

#[test]
fn h91_by_pings_no_cut_at_any_phase_leaves_a_lease_that_outlives_the_session() {
    let phases = if whole() { 64 } else { 3 };
    all_sound(LeaseMode::Ping, true, &[1, 2], &[30, 40, 60], phases);
}

#[test]
fn while_nothing_fails_a_lease_by_writes_has_seven_sixteenths_of_the_timeout_left() {
    for run in runs(&[2], &[4, 10, 30, 60], 2) {
        let left = outcome(book(&run, LeaseMode::Auto, false), &run).least_left;
        // Less what clocks and ways take: 1 % of the timeout, and of the span between reports, and
        // some milliseconds.
        let promised = run.timeout * 7 / 16 - run.timeout / 50 - 10 * MS;
        assert!(
            left >= Duration::from_micros(promised),
            "{left:?} left: {run:?}"
        );
    }
}

#[test]
fn the_grid_finds_former_rules_wrong() {
    let broken = |rule: FormerRule, timeouts: &[u64], failures: &[Failure]| {
        runs(&[2], timeouts, 6)
            .filter(|run| failures.contains(&run.failure))
            .filter_map(|run| broken_by(former(rule, &run), &run))
            .max()
    };
    let plain = [Failure::BothWays];
    let by_ping =
        broken(FormerRule::ByPing, &[30, 40], &plain).expect("the rule that let two hold");
    eprintln!("ByPing: by up to {by_ping} ms");
    let one_write = broken(FormerRule::OneWrite, &[12, 40], &[Failure::FromThenTo]);
    eprintln!("OneWrite: by up to {} ms", one_write.expect("found wrong"));
    let one_timeout = broken(FormerRule::OneTimeout, &[60], &FAILURES);
    eprintln!(
        "OneTimeout: by up to {} ms",
        one_timeout.expect("found wrong")
    );
}
