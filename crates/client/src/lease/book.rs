//! The book of one session's lease: evidence in, deadline out.
//!
//! Owns the instants at which requests were answered, and the deadline that follows from them by
//! the rules of the parent module. Deadlines only grow, but for one case: a server that grants a
//! shorter timeout at a re-attach.

use std::collections::VecDeque;
use std::time::Duration;

use super::options::{LeaseMode, LeaseOptions};
use crate::clock::BootInstant;
use crate::error::LeaseError;

/// Evidence that a lease rests on here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Baton's server, standing alone: any answer.
    Answer,
    /// Baton's ensemble: answers to pings, writes and syncs.
    Confirmed,
    /// Answers, on an ensemble whose timing is stated.
    Ping,
    /// Acknowledged writes.
    Write,
}

/// Answers of a server that mean that the leader has counted the request, as the server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedAnswers {
    /// The server has said nothing of it.
    Unstated,
    /// Those to pings, writes and syncs.
    Confirmed,
    /// All.
    All,
}

/// Kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// A read, or a write that was refused.
    Read,
    /// A ping.
    Ping,
    /// A sync.
    Sync,
    /// A write that the quorum has applied, with what [`LeaseBook::write_sent`] gave.
    Write(WriteProof),
}

/// Proof of a write once it is acknowledged: taken when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct WriteProof {
    /// Our server has reported every request up to this send instant, ahead of whatever we send
    /// after the answer.
    pub(super) reported: Option<BootInstant>,
    /// The leader has counted a request sent at this instant.
    pub(super) counted: Option<BootInstant>,
}

/// The lease of one session.
#[derive(Clone, Debug)]
pub(crate) struct LeaseBook {
    options: LeaseOptions,
    timeout: Duration,
    /// Statement of the connected server about its answers.
    counted_answers: CountedAnswers,
    pub(super) deadline: BootInstant,
    /// This connection's answers: when one was read, and when its request was sent. Oldest first.
    pub(super) answered: VecDeque<(BootInstant, BootInstant)>,
    /// Send instant of the newest request that our server is known to have reported.
    pub(super) reported: Option<BootInstant>,
    /// Whether a write sent now would extend the lease by much.
    pub(super) write_wanted: bool,
}

impl LeaseBook {
    pub(crate) fn new(options: LeaseOptions, timeout: Duration) -> Self {
        Self {
            options,
            timeout,
            counted_answers: CountedAnswers::Unstated,
            deadline: BootInstant::ZERO,
            answered: VecDeque::new(),
            reported: None,
            write_wanted: false,
        }
    }

    pub(crate) fn deadline(&self) -> BootInstant {
        self.deadline
    }

    #[cfg(test)]
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn ppm(&self) -> f64 {
        f64::from(self.options.clock_rate_ppm.min(1_000_000)) / 1_000_000.0
    }

    /// `T` by the server's clock is at least this by ours.
    fn lease_span(&self) -> Duration {
        let timeout = self.timeout;
        timeout
            .saturating_sub(timeout.mul_f64(self.ppm()))
            .saturating_sub(self.options.epsilon.min(timeout / 20))
    }

    /// A span by a server's clock is at most this by ours.
    fn lengthened(&self, span: Duration) -> Duration {
        span.saturating_add(span.mul_f64(self.ppm()))
    }

    /// The ensemble's tick, or the most that it can be.
    fn tick(&self) -> Duration {
        self.options.tick.unwrap_or(self.timeout / 2)
    }

    /// The longest time between two reports of our server to its leader.
    fn report_interval(&self) -> Duration {
        self.lengthened(self.tick() / 2)
    }

    /// For how long our server may go on answering after its last report, where that is stated and
    /// asked for.
    fn cut_off(&self) -> Option<Duration> {
        let (tick, sync_limit) = (self.options.tick?, self.options.sync_limit?);
        let ticks = sync_limit.saturating_mul(3).saturating_add(1);
        (self.options.mode == LeaseMode::Ping).then(|| self.lengthened(tick.saturating_mul(ticks)))
    }

    /// A connection begins: its handshake was sent at `sent`. The handshake made the leader count
    /// the session: by the write that created it, or because a re-attach asks the leader.
    pub(crate) fn connected(&mut self, sent: BootInstant, timeout: Duration, created: bool) {
        let shorter = timeout < self.timeout;
        self.timeout = timeout;
        self.counted_answers = CountedAnswers::Unstated;
        self.answered.clear();
        self.write_wanted = false;
        // The leader that answered a re-attach may have been deposed: only the next write proves
        // that the leader still leads.
        self.reported = Some(sent);
        let end = sent + self.lease_span();
        if created {
            self.extend(end);
        } else if shorter {
            // The leader ends the session by the timeout that the new server granted.
            self.deadline = self.deadline.min(end);
        }
    }

    /// The connected server has said what its answers mean.
    pub(crate) fn set_counted_answers(&mut self, counted: CountedAnswers) {
        if self.options.mode != LeaseMode::Strict {
            self.counted_answers = counted;
        }
    }

    /// Returns whether the connected server's answer is a sign that the session lives: any answer,
    /// but for those that one server of Baton's ensemble gives by itself.
    pub(crate) fn is_sign_of_life(&self, answered: AnswerKind) -> bool {
        self.counted_answers != CountedAnswers::Confirmed || answered != AnswerKind::Read
    }

    /// Send instant of the newest request that the leader has certainly counted, or somewhat
    /// before.
    pub(crate) fn counted(&self) -> BootInstant {
        self.deadline - self.lease_span()
    }

    /// A write is sent at `now`: what its acknowledgement will prove. Pass it to
    /// [`LeaseBook::acknowledged`].
    pub(crate) fn write_sent(&mut self, now: BootInstant) -> WriteProof {
        self.write_wanted = false;
        WriteProof {
            reported: self.answered_by(now - self.report_interval()),
            counted: self.reported,
        }
    }

    /// The newest request whose answer had been read by `instant`: when it was sent.
    fn answered_by(&self, instant: BootInstant) -> Option<BootInstant> {
        let mut newest_first = self.answered.iter().rev();
        newest_first
            .find(|(read, _)| *read <= instant)
            .map(|(_, sent)| *sent)
    }

    /// A request sent at `sent` was answered, the answer read at `now`.
    pub(crate) fn acknowledged(
        &mut self,
        now: BootInstant,
        sent: BootInstant,
        answered: AnswerKind,
    ) {
        let span = self.lease_span();
        match self.counted_answers {
            CountedAnswers::Unstated => {}
            // One server of the ensemble answers reads by itself, also while it is cut off (R33).
            CountedAnswers::Confirmed if answered == AnswerKind::Read => return,
            CountedAnswers::Confirmed | CountedAnswers::All => {
                self.extend(sent + span);
                return;
            }
        }
        let cut_off = self.cut_off();
        if let Some(counted) = cut_off.and_then(|cut_off| self.answered_by(sent - cut_off)) {
            self.extend(counted + span);
        }
        if let AnswerKind::Write(proof) = answered {
            if let Some(counted) = proof.counted {
                self.extend(counted + span);
            }
            if proof.reported > self.reported {
                self.reported = proof.reported;
                self.write_wanted = proof.reported.is_some_and(|reported| {
                    reported + span >= self.deadline + self.timeout * 3 / 16
                });
            }
        }
        self.note_answer(now, sent);
    }

    /// Notes an answer for later evidence. One each 64th of the window is enough: to leave answers
    /// out only makes the next evidence older.
    fn note_answer(&mut self, now: BootInstant, sent: BootInstant) {
        let window = self
            .cut_off()
            .unwrap_or_default()
            .max(self.report_interval());
        let newest = self.answered.back();
        let step = (window / 64).max(self.timeout / 1024);
        if newest.is_some_and(|(read, _)| now < *read + step) {
            return;
        }
        // What a later answer outdoes for anyone who asks from now on. A request that is answered
        // was sent at `sent` at the earliest.
        let asked_from = sent - window;
        while self
            .answered
            .get(1)
            .is_some_and(|(read, _)| *read <= asked_from)
        {
            self.answered.pop_front();
        }
        self.answered.push_back((now, sent));
    }

    fn extend(&mut self, to: BootInstant) {
        self.deadline = self.deadline.max(to);
    }

    /// Returns the evidence that the lease rests on here.
    pub(crate) fn evidence(&self) -> Evidence {
        match self.counted_answers {
            CountedAnswers::All => return Evidence::Answer,
            CountedAnswers::Confirmed => return Evidence::Confirmed,
            CountedAnswers::Unstated => {}
        }
        if self.cut_off().is_some() {
            Evidence::Ping
        } else {
            Evidence::Write
        }
    }

    /// Time after the newest write at which the next one is due, while a lease is held that rests
    /// on writes. The write that this asks for shows what our server has reported, and the one
    /// behind it, [`LeaseBook::wants_write`], that the leader has counted it.
    pub(crate) fn write_interval(&self) -> Duration {
        self.timeout / 4
    }

    /// Returns whether a write sent at once would extend the lease by much: what a held lease asks
    /// for behind each acknowledged write.
    pub(crate) fn wants_write(&self) -> bool {
        self.write_wanted
    }

    /// Time after the newest request at which a ping is due while a lease is held: after the newest
    /// one that counts, where that is not every one.
    pub(crate) fn ping_interval(&self) -> Duration {
        match self.evidence() {
            Evidence::Answer | Evidence::Confirmed => self.timeout / 4,
            // The evidence is as old as the newest answer before an instant in the past: the closer
            // the answers, the better.
            Evidence::Ping | Evidence::Write => self.timeout / 16,
        }
    }

    /// Returns whether a lease can be kept with this timeout; else what would have to be different.
    ///
    /// By writes the lease has `T − T/4 − T/16 − tick/2` left just before the next write is
    /// answered: with `T = 2·tick`, the least that is accepted, 7/16 of `T`. By pings it has
    /// `T − (3·syncLimit + 1)·tick − T/8` left.
    pub(crate) fn check(&self) -> Result<(), LeaseError> {
        let (tick, smallest) = match (self.evidence(), self.cut_off()) {
            (Evidence::Answer | Evidence::Confirmed, _) => return Ok(()),
            (_, Some(cut_off)) => (self.tick(), cut_off.saturating_mul(2)),
            (_, None) if self.options.mode == LeaseMode::Ping => {
                return Err(LeaseError::TimingNotStated);
            }
            (_, None) => (self.tick(), self.tick().saturating_mul(2)),
        };
        if self.timeout >= smallest {
            return Ok(());
        }
        Err(LeaseError::TimeoutTooShort {
            timeout: self.timeout,
            tick,
            smallest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> BootInstant {
        BootInstant::from_nanos(ms * 1_000_000)
    }

    fn options() -> LeaseOptions {
        LeaseOptions {
            epsilon: Duration::ZERO,
            clock_rate_ppm: 0,
            ..LeaseOptions::default()
        }
    }

    fn book(options: LeaseOptions, timeout: Duration) -> LeaseBook {
        let mut book = LeaseBook::new(options, timeout);
        book.connected(at(10_000), timeout, false);
        book
    }

    /// Sends a write at `sent` and reads its answer at `read`.
    fn write(book: &mut LeaseBook, sent: u64, read: u64) {
        let proof = book.write_sent(at(sent));
        book.acknowledged(at(read), at(sent), AnswerKind::Write(proof));
    }

    #[test]
    fn h26_the_lease_is_shorter_than_the_timeout_by_the_clocks_rate_and_the_slack() {
        let mut book = LeaseBook::new(LeaseOptions::default(), Duration::from_secs(4));
        book.connected(at(1000), Duration::from_secs(4), true);
        // 4 s less 1 % less 50 ms.
        assert_eq!(book.deadline(), at(1000 + 4000 - 40 - 50));
    }

    #[test]
    fn h91_only_the_second_of_two_writes_proves_what_was_answered_before_the_first() {
        // With nothing stated the tick is half the timeout: reports come each second.
        let mut book = book(options(), Duration::from_secs(4));
        assert_eq!(
            book.deadline(),
            BootInstant::ZERO,
            "a re-attach may have met a deposed leader"
        );
        book.acknowledged(at(11_010), at(11_000), AnswerKind::Ping);
        assert_eq!(
            book.deadline(),
            BootInstant::ZERO,
            "a ping proves nothing by itself"
        );
        write(&mut book, 12_010, 12_020);
        assert_eq!(
            book.deadline(),
            at(14_000),
            "the leader still led when the client re-attached"
        );
        assert!(book.wants_write(), "the next one says much more");
        write(&mut book, 12_030, 12_040);
        assert_eq!(
            book.deadline(),
            at(15_000),
            "the ping, answered a second before the first write"
        );
        assert!(!book.wants_write());
    }

    #[test]
    fn h91_a_write_that_was_sent_before_the_answer_to_the_other_is_no_second_one() {
        let mut book = book(options(), Duration::from_secs(4));
        book.acknowledged(at(11_010), at(11_000), AnswerKind::Ping);
        let first = book.write_sent(at(12_010));
        let second = book.write_sent(at(12_011));
        book.acknowledged(at(12_020), at(12_010), AnswerKind::Write(first));
        book.acknowledged(at(12_021), at(12_011), AnswerKind::Write(second));
        assert_eq!(book.deadline(), at(14_000));
    }

    #[test]
    fn h91_a_refused_write_proves_nothing() {
        let mut book = book(options(), Duration::from_secs(4));
        for sent in [11_000, 13_000, 15_000] {
            let _refused = book.write_sent(at(sent));
            book.acknowledged(at(sent + 10), at(sent), AnswerKind::Read);
        }
        assert_eq!(book.deadline(), BootInstant::ZERO);
    }

    #[test]
    fn h91_on_a_foreign_server_pings_alone_keep_no_lease_however_long_the_timeout() {
        let stated = LeaseOptions {
            tick: Some(Duration::from_secs(2)),
            sync_limit: Some(5),
            ..options()
        };
        for options in [options(), stated] {
            let mut book = book(options, Duration::from_secs(60));
            for sent in 10..200 {
                book.acknowledged(at(sent * 1000 + 10), at(sent * 1000), AnswerKind::Ping);
            }
            assert_eq!(
                (book.evidence(), book.deadline()),
                (Evidence::Write, BootInstant::ZERO)
            );
        }
    }

    #[test]
    fn where_the_timing_is_stated_what_was_answered_before_a_cut_could_be_counts() {
        let options = LeaseOptions {
            tick: Some(Duration::from_secs(1)),
            sync_limit: Some(3),
            mode: LeaseMode::Ping,
            ..options()
        };
        let mut book = book(options, Duration::from_secs(40));
        for sent in 10..=30 {
            book.acknowledged(at(sent * 1000 + 10), at(sent * 1000), AnswerKind::Ping);
        }
        // 3 · 3 + 1 ticks before the newest answered request was sent: 20 s; what had been read by
        // then was sent at 19 s.
        assert_eq!(
            (book.evidence(), book.deadline()),
            (Evidence::Ping, at(59_000))
        );
    }

    #[test]
    fn on_batons_server_each_answer_counts() {
        let mut book = book(options(), Duration::from_secs(4));
        book.set_counted_answers(CountedAnswers::All);
        book.acknowledged(at(13_000), at(12_900), AnswerKind::Read);
        assert_eq!(
            (book.evidence(), book.deadline()),
            (Evidence::Answer, at(16_900))
        );
        let strict = LeaseOptions {
            mode: LeaseMode::Strict,
            ..options()
        };
        let mut book = self::book(strict, Duration::from_secs(4));
        book.set_counted_answers(CountedAnswers::All);
        book.acknowledged(at(13_000), at(12_900), AnswerKind::Read);
        assert_eq!(
            (book.evidence(), book.deadline()),
            (Evidence::Write, BootInstant::ZERO)
        );
    }

    #[test]
    fn r33_on_batons_ensemble_pings_writes_and_syncs_count_and_reads_do_not() {
        let timeout = Duration::from_secs(4);
        let mut book = book(options(), timeout);
        book.set_counted_answers(CountedAnswers::Confirmed);
        assert_eq!(
            (book.evidence(), book.check()),
            (Evidence::Confirmed, Ok(()))
        );
        assert_eq!(book.ping_interval(), timeout / 4);
        for sent in 100..200 {
            book.acknowledged(at(sent * 100 + 10), at(sent * 100), AnswerKind::Read);
        }
        assert_eq!(book.deadline(), BootInstant::ZERO);
        assert!(!book.is_sign_of_life(AnswerKind::Read));
        let proof = book.write_sent(at(22_000));
        let answers = [AnswerKind::Ping, AnswerKind::Sync, AnswerKind::Write(proof)];
        for (sent, answered) in (20_000..).step_by(1000).zip(answers) {
            assert!(book.is_sign_of_life(answered));
            book.acknowledged(at(sent + 10), at(sent), answered);
            assert_eq!(book.deadline(), at(sent) + timeout);
            assert_eq!(book.counted(), at(sent));
        }
        assert!(!book.wants_write());
    }

    #[test]
    fn r33_what_one_server_said_of_its_answers_does_not_hold_for_the_next() {
        for said in [CountedAnswers::Confirmed, CountedAnswers::All] {
            let mut book = book(options(), Duration::from_secs(4));
            book.set_counted_answers(said);
            book.connected(at(20_000), Duration::from_secs(4), false);
            book.acknowledged(at(21_010), at(21_000), AnswerKind::Ping);
            assert_eq!(
                (book.evidence(), book.deadline()),
                (Evidence::Write, BootInstant::ZERO)
            );
            assert!(book.is_sign_of_life(AnswerKind::Read));
        }
    }

    #[test]
    fn h91_a_shorter_timeout_granted_at_a_re_attach_shortens_the_lease() {
        let mut book = LeaseBook::new(options(), Duration::ZERO);
        book.connected(at(0), Duration::from_secs(40), true);
        assert_eq!(book.deadline(), at(40_000));
        book.connected(at(5_000), Duration::from_secs(10), false);
        assert_eq!(book.deadline(), at(15_000));
        book.connected(at(6_000), Duration::from_secs(40), false);
        assert_eq!(book.deadline(), at(15_000), "a longer one proves nothing");
    }

    #[test]
    fn timeouts_and_modes_that_no_rule_makes_sound_are_refused_with_what_would_do() {
        let with = |tick, sync_limit, mode, timeout| {
            let options = LeaseOptions {
                tick,
                sync_limit,
                mode,
                ..options()
            };
            LeaseBook::new(options, Duration::from_millis(timeout))
        };
        let tick = Some(Duration::from_secs(2));
        assert_eq!(
            with(None, None, LeaseMode::Auto, 100).check(),
            Ok(()),
            "two ticks by definition"
        );
        assert_eq!(with(tick, None, LeaseMode::Auto, 4000).check(), Ok(()));
        let smallest = |book: LeaseBook| match book.check() {
            Err(LeaseError::TimeoutTooShort { smallest, .. }) => smallest,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            smallest(with(tick, None, LeaseMode::Auto, 3999)),
            Duration::from_secs(4)
        );
        assert_eq!(
            smallest(with(tick, Some(5), LeaseMode::Ping, 63_999)),
            Duration::from_secs(64)
        );
        assert_eq!(with(tick, Some(5), LeaseMode::Ping, 64_000).check(), Ok(()));
        for (tick, sync_limit) in [(None, None), (tick, None), (None, Some(5))] {
            let mut unstated = with(tick, sync_limit, LeaseMode::Ping, 60_000);
            assert_eq!(unstated.check(), Err(LeaseError::TimingNotStated));
            for said in [CountedAnswers::Confirmed, CountedAnswers::All] {
                unstated.set_counted_answers(said);
                assert_eq!(
                    unstated.check(),
                    Ok(()),
                    "on Baton's server nothing need be stated"
                );
            }
        }
    }

    #[test]
    fn what_is_kept_of_answers_stays_bounded() {
        for (tick, mode) in [
            (None, LeaseMode::Auto),
            (Some(Duration::from_millis(1)), LeaseMode::Strict),
        ] {
            let options = LeaseOptions {
                tick,
                mode,
                ..options()
            };
            let mut book = book(options, Duration::from_secs(30));
            // Answers half a minute late.
            for ms in 10_000..200_000 {
                book.acknowledged(at(ms + 30_000), at(ms), AnswerKind::Ping);
            }
            assert!(book.answered.len() < 1_200, "{}", book.answered.len());
        }
    }
}
