//! Requests and answers of clients in one round, and what was there at its end.

use std::time::Duration;

/// A place in the order of all writes: the zxid that the server answered with.
pub(super) type Zxid = i64;

/// Outcome of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome<T> {
    /// It was acknowledged.
    Done(T),
    /// It was certainly not done.
    NotDone,
    /// Nobody knows: it was sent, and its connection ended before the answer.
    Unknown,
    /// The server refused it, which no operation of a round deserves.
    Refused(String),
}

impl<T> Outcome<T> {
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(value) => Outcome::Done(change(value)),
            Self::NotDone => Outcome::NotDone,
            Self::Unknown => Outcome::Unknown,
            Self::Refused(why) => Outcome::Refused(why),
        }
    }

    /// The other outcome, if this one is good.
    pub(super) fn and<U>(self, other: Outcome<U>) -> Outcome<U> {
        match self {
            Self::Done(_) => other,
            Self::NotDone => Outcome::NotDone,
            Self::Unknown => Outcome::Unknown,
            Self::Refused(why) => Outcome::Refused(why),
        }
    }

    pub(super) fn done(&self) -> Option<&T> {
        match self {
            Self::Done(value) => Some(value),
            Self::NotDone | Self::Unknown | Self::Refused(_) => None,
        }
    }
}

/// A sequential znode: its name, and the zxid of its creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Created {
    pub(super) name: String,
    pub(super) zxid: Zxid,
}

/// One state of a znode's data, and the zxid of the change to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) number: i32,
    pub(super) zxid: Zxid,
}

/// Request of a client, with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// A sequential znode with [`value`] in it.
    Create(Outcome<Created>),
    /// The data of a register is set to [`value`], whatever its version.
    Set {
        register: usize,
        outcome: Outcome<Version>,
    },
    /// A register is read, behind a `sync` or not.
    Read {
        register: usize,
        is_synced: bool,
        outcome: Outcome<Version>,
    },
}

impl Act {
    /// The zxid of an acknowledged write.
    pub(super) fn zxid(&self) -> Option<Zxid> {
        match self {
            Self::Create(outcome) => outcome.done().map(|created| created.zxid),
            Self::Set { outcome, .. } => outcome.done().map(|version| version.zxid),
            Self::Read { .. } => None,
        }
    }

    /// Returns whether it is a write whose fate the client does not know, or that was not sent.
    pub(super) fn is_lost_write(&self) -> bool {
        match self {
            Self::Create(outcome) => outcome.done().is_none(),
            Self::Set { outcome, .. } => outcome.done().is_none(),
            Self::Read { .. } => false,
        }
    }
}

/// One operation. Times count from the beginning of the run, on one clock for all clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) client: usize,
    /// Counts the operations of the client in this round.
    pub(super) number: u64,
    /// Not after it was sent.
    pub(super) begun: Duration,
    /// Not before its outcome was received.
    pub(super) ended: Duration,
    pub(super) act: Act,
}

impl Operation {
    pub(super) fn value(&self) -> String {
        value(self.client, self.number)
    }
}

/// The data that a client's operation writes: of no other operation of the round.
pub(super) fn value(client: usize, number: u64) -> String {
    format!("{client}-{number}")
}

/// State that one server shows when all operations of a round have ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EndState {
    /// The sequential znodes, with their data.
    pub(super) created: Vec<(Created, String)>,
    /// The data and the version of each register.
    pub(super) registers: Vec<(String, Version)>,
}
