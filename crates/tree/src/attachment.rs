//! Attachment of a session to the connection that writes for it, and the position up to which its
//! commands have been applied. Owns the rule by which a command is applied once, in order, and only
//! while its connection owns the session (hazards R27, R28, R29).

use std::num::NonZeroU64;

use crate::digest;

/// The attachment that a command comes from, and the command's number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Drawn for each opening and each re-attachment of a session, by the server that the client
    /// is connected to.
    pub nonce: NonZeroU64,
    /// Place among the commands of the attachment. The opening or re-attachment is 0.
    pub sequence: u64,
}

/// Reason why a command was not applied. It changed nothing, took no zxid, and is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unapplied {
    /// Another connection owns the session now.
    SessionMoved,
    /// The command has been applied before.
    Duplicate,
    /// A command before it is missing, here or earlier in its attachment.
    AfterGap,
}

/// The present attachment of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attachment {
    /// 0: the session has none.
    nonce: u64,
    /// Number of the last applied command.
    last_sequence: u64,
    is_broken: bool,
    /// Addition of each number of the sequence to the digest.
    digest_step: u64,
}

/// Treatment of a stamped command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is the next one.
    Next,
    /// Its connection attached before stamps were stored, and is the session's still.
    Unstamped,
    /// Commands before it are missing; the attachment is broken from here on.
    Gap,
    /// It is not to be applied.
    Refused(Unapplied),
}

impl Attachment {
    /// The attachment that `session` has after it was opened or re-attached under `nonce`.
    pub(crate) fn new(session: i64, nonce: Option<NonZeroU64>) -> Self {
        let nonce = nonce.map_or(0, NonZeroU64::get);
        Self {
            nonce,
            last_sequence: 0,
            is_broken: false,
            digest_step: match nonce {
                0 => 0,
                _ => digest::sequence_step(session, nonce),
            },
        }
    }

    /// Restores it from a snapshot. `None`: it contradicts itself.
    pub(crate) fn restored(
        session: i64,
        nonce: u64,
        last_sequence: u64,
        is_broken: bool,
    ) -> Option<Self> {
        let has_content = last_sequence != 0 || is_broken;
        (nonce != 0 || !has_content).then(|| Self {
            last_sequence,
            is_broken,
            ..Self::new(session, NonZeroU64::new(nonce))
        })
    }

    pub(crate) const fn nonce(&self) -> u64 {
        self.nonce
    }

    pub(crate) const fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    pub(crate) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns the sequence's part of the digest.
    pub(crate) const fn digest_steps(&self) -> u64 {
        self.digest_step.wrapping_mul(self.last_sequence)
    }

    /// Returns the treatment of a command with this stamp.
    pub(crate) fn admission(&self, stamp: Option<Stamp>) -> Admission {
        let Some(stamp) = stamp else {
            return match self.nonce {
                0 => Admission::Unstamped,
                _ => Admission::Refused(Unapplied::SessionMoved),
            };
        };
        let expected = self.last_sequence.checked_add(1);
        if stamp.nonce.get() != self.nonce {
            Admission::Refused(Unapplied::SessionMoved)
        } else if stamp.sequence <= self.last_sequence {
            Admission::Refused(Unapplied::Duplicate)
        } else if self.is_broken {
            Admission::Refused(Unapplied::AfterGap)
        } else if Some(stamp.sequence) == expected {
            Admission::Next
        } else {
            Admission::Gap
        }
    }

    /// Counts the next command as applied. Returns what that adds to the digest.
    pub(crate) const fn advance(&mut self) -> u64 {
        self.last_sequence += 1;
        self.digest_step
    }

    /// Refuses every later command of this attachment.
    pub(crate) const fn break_off(&mut self) {
        self.is_broken = true;
    }
}
