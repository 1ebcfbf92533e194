//! Credit for forwarded requests: how much a follower may have on its way to the leader. Sans-I/O.
//!
//! Both sides count the bytes of all bodies of one run of the stream. The leader announces what it
//! has taken in all, so an announcement that is lost or repeated does no harm.

use crate::codec::Credit;

/// Bytes that may be on their way, where nothing else is configured.
pub const CREDIT_BYTES: u64 = 8 << 20;

/// The follower's side of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendCredit {
    run: u64,
    limit: u64,
    sent: u64,
    taken: u64,
}

/// The leader announces more than was sent, or for another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("credit for {taken} bytes of run {run}, of which {sent} bytes were sent: it is ignored")]
pub struct CreditError {
    /// The run of the announcement.
    pub run: u64,
    /// The bytes that it says were taken.
    pub taken: u64,
    /// The bytes that were sent in that run.
    pub sent: u64,
}

impl SendCredit {
    /// A run that begins.
    pub fn new(run: u64, limit: u64) -> SendCredit {
        SendCredit {
            run,
            limit,
            sent: 0,
            taken: 0,
        }
    }

    /// Returns whether a body of this size may be sent now. One that exceeds the limit may be sent
    /// when nothing else is on its way.
    pub fn admits(&self, bytes: u64) -> bool {
        let waiting = self.waiting();
        waiting == 0 || waiting.saturating_add(bytes) <= self.limit
    }

    /// A body of this size was sent.
    pub fn sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// The leader has announced credit.
    ///
    /// # Errors
    /// [`CreditError`] when the announcement cannot be true; it changes nothing.
    pub fn announced(&mut self, credit: Credit) -> Result<(), CreditError> {
        let sent = if credit.run == self.run { self.sent } else { 0 };
        if credit.run != self.run || credit.taken_bytes > sent {
            return Err(CreditError {
                run: credit.run,
                taken: credit.taken_bytes,
                sent,
            });
        }
        self.taken = self.taken.max(credit.taken_bytes);
        Ok(())
    }

    /// Bytes on their way.
    pub fn waiting(&self) -> u64 {
        self.sent.saturating_sub(self.taken)
    }
}

/// The leader's side of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderCredit {
    run: u64,
    /// Bytes after which an announcement is due.
    step: u64,
    taken: u64,
    announced: u64,
}

impl LeaderCredit {
    /// A run that begins; `limit` is that of the sender.
    pub fn new(run: u64, limit: u64) -> LeaderCredit {
        LeaderCredit {
            run,
            step: limit / 4,
            taken: 0,
            announced: 0,
        }
    }

    /// A body of this size was taken. Returns the announcement that is due: after each quarter of
    /// the limit, and whenever nothing `is_waiting` any more.
    pub fn took(&mut self, bytes: u64, is_waiting: bool) -> Option<Credit> {
        self.taken = self.taken.saturating_add(bytes);
        let since = self.taken - self.announced;
        if since == 0 || (is_waiting && since < self.step) {
            return None;
        }
        self.announced = self.taken;
        Some(Credit {
            run: self.run,
            taken_bytes: self.taken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_on_its_way() {
        let mut send = SendCredit::new(3, 100);
        let mut take = LeaderCredit::new(3, 100);
        for _ in 0..10 {
            assert!(send.admits(10));
            send.sent(10);
        }
        assert!(!send.admits(1));
        assert!(send.admits(0));
        assert_eq!(take.took(10, true), None);
        assert_eq!(take.took(10, true), None);
        let credit = take.took(10, true).unwrap();
        assert_eq!(credit.taken_bytes, 30);
        send.announced(credit).unwrap();
        assert_eq!(send.waiting(), 70);
        assert!(send.admits(30) && !send.admits(31));
        let credit = take.took(70, false).unwrap();
        send.announced(credit).unwrap();
        assert_eq!(send.waiting(), 0);
        assert!(send.admits(1000), "alone, it may exceed the limit");
        assert_eq!(take.took(0, false), None);
        assert!(take.took(1, false).is_some(), "the last one of all");
    }

    #[test]
    fn announcements_that_cannot_be_true_change_nothing() {
        let mut send = SendCredit::new(3, 100);
        send.sent(50);
        let credit = |run, taken_bytes| Credit { run, taken_bytes };
        for wrong in [credit(2, 10), credit(4, 0), credit(3, 51)] {
            send.announced(wrong).unwrap_err();
            assert_eq!(send.waiting(), 50);
        }
        send.announced(credit(3, 50)).unwrap();
        // An older one comes late.
        send.announced(credit(3, 20)).unwrap();
        assert_eq!(send.waiting(), 0);
    }
}
