//! Requests of one connection that the core has not answered: how many, of which kind, and how many
//! of their bytes wait in its queue. Pure.

use std::collections::VecDeque;

use crate::connections::conn::TakenOutput;

/// Reads that may wait behind a write: they are answered together.
pub(super) const READS_BEHIND: usize = 32;

/// Requests that a connection has handed to the core and has no answer to.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    requests: usize,
    /// Pings, those included that are about to be handed in: a server of an ensemble hands them to
    /// the core. Nothing waits for them.
    pings: usize,
    /// Reads among the requests, since there were none last.
    reads: usize,
    /// For each hand-in, requests without an answer and bytes, oldest first. Without pings.
    handed_in: VecDeque<(usize, usize)>,
    bytes: usize,
}

impl Unanswered {
    /// Requests, pings included.
    pub(super) const fn requests(&self) -> usize {
        self.requests
    }

    /// Their bytes in the core's queue.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether everything is answered that a reply must not overtake.
    pub(super) const fn is_pings_only(&self) -> bool {
        self.requests == self.pings
    }

    /// Whether as many reads wait behind a write as may.
    pub(super) const fn has_most_reads(&self) -> bool {
        self.reads >= READS_BEHIND
    }

    /// A ping is about to be handed in.
    pub(super) fn add_ping(&mut self) {
        self.pings += 1;
    }

    /// A read is about to be handed in.
    pub(super) fn add_read(&mut self) {
        self.reads += 1;
    }

    /// Requests were handed in, pings among them.
    pub(super) fn add(&mut self, requests: usize, pings: usize, bytes: usize) {
        self.requests += requests;
        let in_turn = requests.saturating_sub(pings);
        if in_turn > 0 {
            self.handed_in.push_back((in_turn, bytes));
            self.bytes += bytes;
        }
    }

    /// Gives memory back while nothing waits.
    pub(super) fn release(&mut self) {
        if self.handed_in.is_empty() {
            self.handed_in = VecDeque::new();
        }
    }

    /// The core has answered requests. A hand-in counts until the last of its requests is.
    pub(super) fn answered(&mut self, taken: TakenOutput) {
        let (answered, pongs) = (taken.answered as usize, taken.pongs as usize);
        self.requests = self.requests.saturating_sub(answered);
        self.pings = self.pings.saturating_sub(pongs);
        let mut in_turn = answered.saturating_sub(pongs);
        while in_turn > 0
            && let Some((left, bytes)) = self.handed_in.front_mut()
        {
            let now = in_turn.min(*left);
            in_turn -= now;
            *left -= now;
            if *left == 0 {
                self.bytes -= *bytes;
                self.handed_in.pop_front();
            }
        }
        if self.requests <= self.pings {
            self.reads = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(answered: u32, pongs: u32) -> TakenOutput {
        TakenOutput {
            answered,
            pongs,
            closing: None,
        }
    }

    #[test]
    fn bytes_count_until_their_last_request_is_answered() {
        let mut unanswered = Unanswered::default();
        unanswered.add(2, 0, 100);
        unanswered.add(2, 1, 10);
        unanswered.add(0, 0, 1000);
        assert_eq!(unanswered.bytes(), 110);
        unanswered.answered(taken(1, 0));
        assert_eq!(unanswered.bytes(), 110);
        unanswered.answered(taken(1, 0));
        assert_eq!(unanswered.bytes(), 10);
        unanswered.answered(taken(5, 1));
        assert_eq!((unanswered.bytes(), unanswered.requests()), (0, 0));
    }

    #[test]
    fn nothing_waits_for_pings() {
        let mut unanswered = Unanswered::default();
        unanswered.add_ping();
        unanswered.add(1, 1, 10);
        assert!(unanswered.is_pings_only() && unanswered.bytes() == 0);
        for _ in 0..READS_BEHIND {
            assert!(!unanswered.has_most_reads());
            unanswered.add_read();
        }
        unanswered.add(READS_BEHIND, 0, 0);
        assert!(!unanswered.is_pings_only() && unanswered.has_most_reads());
        unanswered.answered(taken(1, 1));
        assert!(unanswered.has_most_reads(), "the reads are not answered");
        unanswered.answered(taken(u32::try_from(READS_BEHIND).unwrap(), 0));
        assert!(unanswered.is_pings_only() && !unanswered.has_most_reads());
    }
}
