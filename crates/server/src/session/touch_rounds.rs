//! Touches of sessions on their way to the leader, and the pings that wait until a quorum stands
//! behind the answer (hazards.md §2.8, R33).
//!
//! Owns the rule that a ping is answered only after a round of the quorum that the leader asked for
//! when it had the ping's touch. Each server has one [`TouchRounds`]: it collects the touches of
//! its own clients, and answers those of all servers while it leads. Pure: no clock, no socket.
//!
//! Why the client may rely on the answer to a ping that it sent at `S`: in the round a majority
//! was still in the leader's term, after `S`. So every later leader was elected after `S`, and
//! gives each session its full timeout from then on (R35). The leader itself has counted the touch,
//! and had not decided to end the session (R36). `model` checks that.
//!
//! The order of calls, for each server:
//! 1. [`TouchRounds::ping`] and [`TouchRounds::touched`] as requests come in;
//! 2. [`TouchRounds::next`] in each turn; its batch goes to the leader, or into
//!    [`TouchRounds::received`] where this server leads;
//! 3. [`TouchRounds::counted`] with the leader's answer.
//!
//! For a leader besides:
//! 1. [`TouchRounds::received`] with each batch;
//! 2. in each turn, behind that, while [`TouchRounds::wants_round`]: a read index, and
//!    [`TouchRounds::asked`] with its id. Where the read index is refused, again in the next turn;
//! 3. [`TouchRounds::confirmed`] when the read index is there;
//! 4. in each turn [`TouchRounds::answers`]: to their servers, or into [`TouchRounds::counted`].
//!
//! [`TouchRounds::role_changed`] comes before anything else of a new term or leader.

#[cfg(test)]
mod model;

use std::collections::{BTreeMap, BTreeSet};

use baton_consensus::ReadId;
use baton_peers::codec::{Counted, MAX_SESSIONS, Touch};

/// Milliseconds after which an unanswered batch is sent again: it or its answer was lost with a
/// connection.
const RESEND_MS: u64 = 1_000;

/// Pings that wait: how many of each session and connection.
type Pings = BTreeMap<(i64, u32), u32>;

/// Touches on their way to the leader, and the leader's part for all servers. `R` names a read
/// index.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(crate) struct TouchRounds<R = ReadId> {
    /// Sessions for the next batch.
    touched: BTreeSet<i64>,
    /// Pings for the next batch.
    pings: Pings,
    outstanding: Option<Outstanding>,
    next_batch: u64,
    /// On the leader: the batch of each server, until it is answered.
    received: BTreeMap<u64, Received<R>>,
}

/// The batch that the leader has not answered.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
struct Outstanding {
    to: u64,
    batch: u64,
    /// In order.
    sessions: Vec<i64>,
    pings: Pings,
    sent_ms: u64,
}

/// A batch that this leader has not answered.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
struct Received<R> {
    batch: u64,
    sessions: Vec<i64>,
    at_ms: u64,
    stage: Stage<R>,
}

/// Progress of a received batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
enum Stage<R> {
    Waits,
    /// This read index was asked for when the batch was here.
    Asked(R),
    /// It is answered once this index is applied: what its server had applied when it sent the
    /// batch, such as the openings of its sessions, this one has applied then too.
    Confirmed(u64),
}

/// Pings of one connection that may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnsweredPings {
    pub(crate) session: i64,
    /// The connection's id.
    pub(crate) conn: u32,
    pub(crate) count: u32,
}

/// Outcome of [`TouchRounds::counted`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) pings: Vec<AnsweredPings>,
    /// Sessions that are over, end, or are another server's now. Their connections are to be
    /// closed, with what waits on them.
    pub(crate) refused: Vec<i64>,
}

impl<R: Copy + Eq> TouchRounds<R> {
    /// `run` differs from that of every earlier process of this server: an answer to a batch of an
    /// earlier one must not be taken for an answer to one of these.
    pub(crate) fn new(run: u64) -> Self {
        Self {
            touched: BTreeSet::new(),
            pings: Pings::new(),
            outstanding: None,
            next_batch: run,
            received: BTreeMap::new(),
        }
    }

    /// Notes that a client of this server has sent something.
    pub(crate) fn touched(&mut self, session: i64) {
        self.touched.insert(session);
    }

    /// Notes a ping on connection `conn`. What is kept is a count for each connection.
    pub(crate) fn ping(&mut self, session: i64, conn: u32) {
        add(&mut self.pings, (session, conn), 1);
    }

    /// The batch to be sent now, and to whom. One is on its way at a time; what comes meanwhile is
    /// in the next one.
    pub(crate) fn next(&mut self, leader: Option<u64>, now_ms: u64) -> Option<(u64, Touch)> {
        let leader = leader?;
        if let Some(sent) = &mut self.outstanding
            && sent.to == leader
        {
            if now_ms.saturating_sub(sent.sent_ms) < RESEND_MS {
                return None;
            }
            // Under the same number: of the same pings, so that an answer to either may count.
            sent.sent_ms = now_ms;
            return Some((leader, sent.touch()));
        }
        self.put_back();
        if self.pings.is_empty() && self.touched.is_empty() {
            return None;
        }
        let (sessions, pings) = self.take_waiting();
        let batch = self.next_batch;
        self.next_batch = batch.wrapping_add(1);
        let sent = Outstanding {
            to: leader,
            batch,
            sessions,
            pings,
            sent_ms: now_ms,
        };
        let touch = sent.touch();
        self.outstanding = Some(sent);
        Some((leader, touch))
    }

    /// Takes what goes into one batch: those who wait for an answer first.
    fn take_waiting(&mut self) -> (Vec<i64>, Pings) {
        let mut sessions: Vec<i64> = Vec::new();
        let mut later = None;
        for key in self.pings.keys() {
            if sessions.last() != Some(&key.0) {
                if sessions.len() == MAX_SESSIONS {
                    later = Some(*key);
                    break;
                }
                sessions.push(key.0);
            }
        }
        let later = later.map(|key| self.pings.split_off(&key));
        let pings = std::mem::replace(&mut self.pings, later.unwrap_or_default());
        for session in &sessions {
            self.touched.remove(session);
        }
        while sessions.len() < MAX_SESSIONS
            && let Some(session) = self.touched.pop_first()
        {
            sessions.push(session);
        }
        sessions.sort_unstable();
        (sessions, pings)
    }

    /// Takes the answer of `from` to the batch on its way. An answer to any other batch says
    /// nothing of the pings that wait now.
    pub(crate) fn counted(&mut self, from: u64, counted: &Counted) -> Answered {
        let is_awaited = |sent: &mut Outstanding| sent.to == from && sent.batch == counted.batch;
        let Some(sent) = self.outstanding.take_if(is_awaited) else {
            return Answered::default();
        };
        let is_of_batch = |session: &i64| sent.sessions.binary_search(session).is_ok();
        let mut refused: Vec<i64> = counted
            .refused
            .iter()
            .copied()
            .filter(is_of_batch)
            .collect();
        refused.sort_unstable();
        refused.dedup();
        let pings = sent.pings.into_iter();
        let pings = pings.map(|((session, conn), count)| AnsweredPings {
            session,
            conn,
            count,
        });
        Answered {
            pings: pings
                .filter(|pings| refused.binary_search(&pings.session).is_err())
                .collect(),
            refused,
        }
    }

    /// Takes a batch from `from`, as the leader. `count` is [`SessionClocks::touch`] with the
    /// server, the session and the time; it is called now, so that no session ends while the round
    /// takes long, and again when the round is there.
    ///
    /// [`SessionClocks::touch`]: crate::session::clocks::SessionClocks::touch
    pub(crate) fn received(
        &mut self,
        from: u64,
        touch: Touch,
        now_ms: u64,
        mut count: impl FnMut(u64, i64, u64) -> bool,
    ) {
        for session in &touch.sessions {
            // What is refused here may be a session that this server has not applied yet.
            count(from, *session, now_ms);
        }
        let before = self.received.get(&from);
        if before.is_some_and(|before| before.batch == touch.batch) {
            // Sent again, while its round is on its way.
            return;
        }
        let received = Received {
            batch: touch.batch,
            sessions: touch.sessions,
            at_ms: now_ms,
            stage: Stage::Waits,
        };
        // A server has one batch on its way: it has given up the one before.
        self.received.insert(from, received);
    }

    /// Whether batches wait for which no round was asked.
    pub(crate) fn wants_round(&self) -> bool {
        let mut received = self.received.values();
        received.any(|received| received.stage == Stage::Waits)
    }

    /// A read index was asked for, for every batch that waits.
    pub(crate) fn asked(&mut self, round: R) {
        for received in self.received.values_mut() {
            if received.stage == Stage::Waits {
                received.stage = Stage::Asked(round);
            }
        }
    }

    /// A majority has confirmed the read index `round`: it is `index`.
    pub(crate) fn confirmed(&mut self, round: R, index: u64) {
        for received in self.received.values_mut() {
            if received.stage == Stage::Asked(round) {
                received.stage = Stage::Confirmed(index);
            }
        }
    }

    /// The answer to each batch whose read index is confirmed and not above `applied`, with the
    /// server to which it goes. `count` as in [`TouchRounds::received`].
    pub(crate) fn answers(
        &mut self,
        applied: u64,
        mut count: impl FnMut(u64, i64, u64) -> bool,
    ) -> Vec<(u64, Counted)> {
        let mut answers = Vec::new();
        self.received.retain(|from, received| {
            if !matches!(received.stage, Stage::Confirmed(index) if index <= applied) {
                return true;
            }
            let sessions = received.sessions.iter().copied();
            let refused = sessions
                .filter(|session| !count(*from, *session, received.at_ms))
                .collect();
            let batch = received.batch;
            answers.push((*from, Counted { batch, refused }));
            false
        });
        answers
    }

    /// The term, the leader or this server's role has changed. What a leader has received is
    /// forgotten; what was on its way goes into the next batch, under a new number: an answer that
    /// still comes from the leader before answers nothing.
    pub(crate) fn role_changed(&mut self) {
        self.put_back();
        self.received.clear();
    }

    /// Returns the number of pings that the leader has not answered.
    #[cfg(feature = "simulation")]
    pub(crate) fn pings_on_their_way(&self) -> u64 {
        let sent = self.outstanding.iter();
        sent.flat_map(|sent| sent.pings.values())
            .map(|count| u64::from(*count))
            .sum()
    }

    fn put_back(&mut self) {
        let Some(sent) = self.outstanding.take() else {
            return;
        };
        let mut only_touched: BTreeSet<i64> = sent.sessions.into_iter().collect();
        for (key, count) in sent.pings {
            only_touched.remove(&key.0);
            add(&mut self.pings, key, count);
        }
        self.touched.append(&mut only_touched);
    }
}

impl Outstanding {
    fn touch(&self) -> Touch {
        Touch {
            batch: self.batch,
            sessions: self.sessions.clone(),
        }
    }
}

fn add(pings: &mut Pings, key: (i64, u32), count: u32) {
    let waiting = pings.entry(key).or_default();
    *waiting = waiting.saturating_add(count);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: u64 = 1;
    const ORIGIN: u64 = 2;

    /// A clock that knows every session.
    fn alive(_: u64, _: i64, _: u64) -> bool {
        true
    }

    fn pings(session: i64, conn: u32, count: u32) -> AnsweredPings {
        AnsweredPings {
            session,
            conn,
            count,
        }
    }

    fn sent(origin: &mut TouchRounds<u8>) -> Touch {
        let (to, touch) = origin.next(Some(LEADER), 0).unwrap();
        assert_eq!(to, LEADER);
        touch
    }

    fn all_of(touch: &Touch) -> Counted {
        Counted {
            batch: touch.batch,
            refused: Vec::new(),
        }
    }

    #[test]
    fn r33_a_ping_is_answered_by_a_round_that_was_asked_for_behind_it_and_by_no_earlier_one() {
        let mut origin = TouchRounds::new(7);
        let mut leader = TouchRounds::new(100);
        leader.ping(70, 9);
        let own = sent(&mut leader);
        leader.received(LEADER, own, 0, alive);
        assert!(leader.wants_round());
        leader.asked(1);
        assert!(!leader.wants_round());
        origin.ping(5, 3);
        origin.ping(5, 3);
        leader.received(ORIGIN, sent(&mut origin), 10, alive);
        assert!(leader.wants_round(), "the round on its way began before");
        leader.asked(2);
        leader.confirmed(1, 50);
        let answers = leader.answers(50, alive);
        assert_eq!(answers.len(), 1, "that of the leader's own client");
        let answered = leader.counted(LEADER, &answers[0].1);
        assert_eq!(answered.pings, [pings(70, 9, 1)]);
        leader.confirmed(2, 50);
        let answers = leader.answers(50, alive);
        assert_eq!(answers[0].0, ORIGIN);
        let answered = origin.counted(LEADER, &answers[0].1);
        assert_eq!(answered.pings, [pings(5, 3, 2)]);
        assert!(leader.answers(50, alive).is_empty());
    }

    #[test]
    fn r33_what_comes_while_a_batch_is_on_its_way_waits_for_the_next_one() {
        let mut origin = TouchRounds::<u8>::new(7);
        assert_eq!(origin.next(Some(LEADER), 0), None);
        origin.touched(4);
        origin.ping(5, 3);
        assert_eq!(origin.next(None, 0), None, "there is no leader");
        let first = sent(&mut origin);
        assert_eq!(first.sessions, [4, 5]);
        origin.ping(5, 3);
        origin.touched(6);
        assert_eq!(origin.next(Some(LEADER), RESEND_MS - 1), None);
        let answered = origin.counted(LEADER, &all_of(&first));
        assert_eq!(answered.pings, [pings(5, 3, 1)], "the one that was sent");
        let second = sent(&mut origin);
        assert_ne!(second.batch, first.batch);
        assert_eq!(second.sessions, [5, 6]);
        let again = origin.counted(LEADER, &all_of(&first));
        assert_eq!(again, Answered::default(), "it is answered already");
    }

    #[test]
    fn r33_no_batch_from_before_a_change_of_leader_answers_a_ping() {
        let mut origin = TouchRounds::<u8>::new(7);
        origin.ping(5, 3);
        let first = sent(&mut origin);
        origin.role_changed();
        assert_eq!(origin.counted(LEADER, &all_of(&first)), Answered::default());
        origin.ping(5, 3);
        let second = sent(&mut origin);
        assert_eq!(origin.counted(3, &all_of(&second)), Answered::default());
        assert_eq!(origin.counted(LEADER, &all_of(&first)), Answered::default());
        let answered = origin.counted(LEADER, &all_of(&second));
        assert_eq!(
            answered.pings,
            [pings(5, 3, 2)],
            "both go with the next one"
        );
    }

    #[test]
    fn r33_another_leader_gets_a_batch_of_its_own() {
        let mut origin = TouchRounds::<u8>::new(7);
        origin.ping(5, 3);
        let first = sent(&mut origin);
        let (to, second) = origin.next(Some(3), 0).unwrap();
        assert_eq!((to, &second.sessions), (3, &first.sessions));
        assert_ne!(second.batch, first.batch);
    }

    #[test]
    fn r33_a_deposed_leader_answers_nothing_of_what_it_received() {
        let mut origin = TouchRounds::<u8>::new(7);
        let mut leader = TouchRounds::new(100);
        origin.ping(5, 3);
        leader.received(ORIGIN, sent(&mut origin), 0, alive);
        leader.asked(1);
        leader.role_changed();
        leader.confirmed(1, 50);
        assert!(leader.answers(50, alive).is_empty());
        assert!(!leader.wants_round());
    }

    #[test]
    fn a_batch_that_was_lost_is_sent_again_and_a_repeated_one_begins_no_other_round() {
        let mut origin = TouchRounds::<u8>::new(7);
        let mut leader = TouchRounds::new(100);
        origin.ping(5, 3);
        let first = sent(&mut origin);
        origin.ping(5, 3);
        let (_, again) = origin.next(Some(LEADER), RESEND_MS).unwrap();
        assert_eq!(again, first);
        assert_eq!(origin.next(Some(LEADER), 2 * RESEND_MS - 1), None);
        leader.received(ORIGIN, first, 0, alive);
        leader.asked(1);
        leader.received(ORIGIN, again, 0, alive);
        assert!(!leader.wants_round());
        leader.confirmed(1, 50);
        let answers = leader.answers(50, alive);
        let answered = origin.counted(LEADER, &answers[0].1);
        assert_eq!(answered.pings, [pings(5, 3, 1)]);
    }

    #[test]
    fn r33_a_leader_that_lags_behind_its_followers_refuses_no_session_that_it_has_not_applied() {
        let mut leader = TouchRounds::new(100);
        let touch = Touch {
            batch: 7,
            sessions: vec![5],
        };
        // The session's opening is committed, and applied at the server of its client.
        leader.received(ORIGIN, touch, 0, |_, _, _| false);
        leader.asked(1_u8);
        leader.confirmed(1, 50);
        assert!(leader.answers(49, |_, _, _| false).is_empty());
        let answers = leader.answers(50, alive);
        let refused = Vec::new();
        assert_eq!(answers, [(ORIGIN, Counted { batch: 7, refused })]);
    }

    #[test]
    fn r36_a_session_that_ends_meanwhile_is_refused_with_its_pings() {
        let mut origin = TouchRounds::<u8>::new(7);
        let mut leader = TouchRounds::new(100);
        for session in [4, 5, 6] {
            origin.ping(session, 3);
        }
        let mut counted = Vec::new();
        leader.received(ORIGIN, sent(&mut origin), 40, |from, session, at_ms| {
            counted.push((from, session, at_ms));
            true
        });
        assert_eq!(counted, [(ORIGIN, 4, 40), (ORIGIN, 5, 40), (ORIGIN, 6, 40)]);
        leader.asked(1);
        leader.confirmed(1, 50);
        let answers = leader.answers(50, |from, session, at_ms| {
            assert_eq!((from, at_ms), (ORIGIN, 40), "the time of the receipt");
            session != 5
        });
        let answered = origin.counted(LEADER, &answers[0].1);
        assert_eq!(answered.refused, [5]);
        assert_eq!(answered.pings, [pings(4, 3, 1), pings(6, 3, 1)]);
    }

    #[test]
    fn what_a_leader_refuses_beyond_its_batch_is_ignored() {
        let mut origin = TouchRounds::<u8>::new(7);
        origin.ping(5, 3);
        let batch = sent(&mut origin).batch;
        let refused = vec![9, 5, 5];
        let answered = origin.counted(LEADER, &Counted { batch, refused });
        assert_eq!((answered.refused, answered.pings), (vec![5], vec![]));
    }

    #[test]
    fn r37_a_batch_is_bounded_and_has_those_first_who_wait_for_an_answer() {
        let mut origin = TouchRounds::<u8>::new(7);
        let most = i64::try_from(MAX_SESSIONS).unwrap();
        for session in 0..most {
            origin.touched(session);
        }
        for session in most..most + 2 {
            origin.ping(session, 3);
            origin.ping(session, 4);
        }
        let first = sent(&mut origin);
        assert_eq!(first.sessions.len(), MAX_SESSIONS);
        assert_eq!(first.sessions.last(), Some(&(most + 1)));
        assert_eq!(origin.counted(LEADER, &all_of(&first)).pings.len(), 4);
        assert_eq!(sent(&mut origin).sessions, [most - 2, most - 1]);
        let mut origin = TouchRounds::<u8>::new(7);
        for session in 0..=most {
            origin.ping(session, 3);
            origin.ping(session, 4);
        }
        let first = sent(&mut origin);
        assert_eq!(first.sessions.len(), MAX_SESSIONS);
        let answered = origin.counted(LEADER, &all_of(&first));
        assert_eq!(answered.pings.len(), 2 * MAX_SESSIONS);
        assert_eq!(sent(&mut origin).sessions, [most]);
    }

    #[test]
    fn a_leader_keeps_one_batch_of_each_server() {
        let mut leader = TouchRounds::new(100);
        for batch in 0..10 {
            for from in 2..5 {
                let sessions = vec![5];
                leader.received(from, Touch { batch, sessions }, 0, alive);
            }
            leader.asked(0_u8);
        }
        leader.confirmed(0, 50);
        let answers = leader.answers(50, alive);
        let batches: Vec<u64> = answers.iter().map(|(_, counted)| counted.batch).collect();
        assert_eq!(batches, [9, 9, 9]);
    }
}
