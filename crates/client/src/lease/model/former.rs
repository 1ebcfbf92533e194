//! Rules that Baton had or might have had, each wrong in its way. The model must find each of them
//! wrong.

use std::time::Duration;

use super::Rules;
use crate::clock::BootInstant;
use crate::lease::{AnswerKind, LeaseBook, WriteProof};

/// Former rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormerRule {
    /// An answer to anything: `S + T − tick/2 − syncLimit·tick`. Wrong where the leader's newest
    /// report is a ping interval old.
    ByPing,
    /// [`LeaseMode::Ping`](crate::LeaseMode::Ping) with room for one timeout of `syncLimit` ticks
    /// and not for two. Wrong where the two directions of a link fail one after the other.
    OneTimeout,
    /// One acknowledged write instead of two. Wrong where the leader's pings were held up on the
    /// way, and the next report is lost.
    OneWrite,
    /// Two writes, the second sent before the first was acknowledged.
    PipelinedWrites,
    /// Two writes, and all counts that had been answered when the first was sent: without the
    /// `tick/2` before it.
    NoReportInterval,
}

/// A former rule. It uses the book for what the rules have in common.
#[derive(Clone, Debug)]
pub(super) struct FormerRuleBook {
    pub(super) rule: FormerRule,
    pub(super) book: LeaseBook,
    pub(super) timeout: Duration,
    pub(super) tick: Duration,
    pub(super) sync_limit: u32,
}

impl FormerRuleBook {
    fn answered_by(&self, instant: BootInstant) -> Option<BootInstant> {
        let mut newest_first = self.book.answered.iter().rev();
        newest_first
            .find(|(read, _)| *read <= instant)
            .map(|(_, sent)| *sent)
    }

    fn extend(&mut self, to: Option<BootInstant>) {
        if let Some(to) = to {
            self.book.deadline = self.book.deadline.max(to);
        }
    }
}

impl Rules for FormerRuleBook {
    fn connected(&mut self, sent: BootInstant, timeout: Duration, created: bool) {
        self.book.connected(sent, timeout, created);
    }

    fn write_sent(&mut self, now: BootInstant) -> WriteProof {
        let mut proof = self.book.write_sent(now);
        match self.rule {
            FormerRule::ByPing | FormerRule::OneTimeout => proof.counted = None,
            FormerRule::OneWrite => proof.counted = proof.counted.max(proof.reported),
            // The report that the first write would have proved counts as soon as that is on its
            // way.
            FormerRule::PipelinedWrites => {
                self.book.reported = self.book.reported.max(proof.reported)
            }
            FormerRule::NoReportInterval => proof.reported = self.answered_by(now),
        }
        proof
    }

    fn acknowledged(&mut self, now: BootInstant, sent: BootInstant, answered: AnswerKind) {
        let cut_off = self.tick * self.sync_limit;
        match self.rule {
            FormerRule::ByPing => {
                let span = self.timeout.checked_sub(self.tick / 2 + cut_off);
                self.extend(span.map(|span| sent + span));
            }
            FormerRule::OneTimeout => {
                let counted = self.answered_by(sent - (cut_off + self.tick));
                self.extend(counted.map(|counted| counted + self.timeout));
            }
            FormerRule::OneWrite | FormerRule::PipelinedWrites | FormerRule::NoReportInterval => {}
        }
        self.book.acknowledged(now, sent, answered);
    }

    fn deadline(&self) -> BootInstant {
        self.book.deadline
    }

    fn book(&mut self) -> &mut LeaseBook {
        &mut self.book
    }
}
