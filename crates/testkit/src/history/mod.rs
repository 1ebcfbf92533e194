//! Requests and answers of clients, what was there at the end, and the rules that such a history
//! must keep.

mod checker;

use std::time::Duration;

pub use checker::check;

/// A place in the order of all writes: the zxid that the server answered with.
pub type Zxid = i64;

/// Outcome of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It was acknowledged.
    Done(T),
    /// It was certainly not done.
    NotDone,
    /// Nobody knows: it was sent, and its connection ended before the answer.
    Unknown,
    /// The server refused it, which no operation deserves.
    Refused(String),
}

impl<T> Outcome<T> {
    /// The same outcome with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(value) => Outcome::Done(change(value)),
            Self::NotDone => Outcome::NotDone,
            Self::Unknown => Outcome::Unknown,
            Self::Refused(why) => Outcome::Refused(why),
        }
    }

    /// The other outcome, if this one is good.
    pub fn and<U>(self, other: Outcome<U>) -> Outcome<U> {
        match self {
            Self::Done(_) => other,
            Self::NotDone => Outcome::NotDone,
            Self::Unknown => Outcome::Unknown,
            Self::Refused(why) => Outcome::Refused(why),
        }
    }

    /// The value of an acknowledged operation.
    pub fn done(&self) -> Option<&T> {
        match self {
            Self::Done(value) => Some(value),
            Self::NotDone | Self::Unknown | Self::Refused(_) => None,
        }
    }
}

/// A sequential znode: its name, and the zxid of its creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedZnode {
    /// Its name, which ends in its number.
    pub name: String,
    /// The zxid of its creation.
    pub zxid: Zxid,
}

/// One state of a znode's data, and the zxid of the change to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Its number: of sets so far.
    pub number: i32,
    /// The zxid of the set.
    pub zxid: Zxid,
}

/// Request of a client, with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A sequential znode with the operation's value in it.
    Create(Outcome<CreatedZnode>),
    /// The data of a register is set to the operation's value.
    Set {
        /// Its number.
        register: usize,
        /// The new version.
        outcome: Outcome<Version>,
    },
    /// A register is read.
    Read {
        /// Its number.
        register: usize,
        /// Whether a `sync` went before.
        is_synced: bool,
        /// The version, and the value.
        outcome: Outcome<(Version, String)>,
    },
}

impl Act {
    /// The zxid of an acknowledged write.
    #[must_use]
    pub fn zxid(&self) -> Option<Zxid> {
        match self {
            Self::Create(outcome) => outcome.done().map(|created| created.zxid),
            Self::Set { outcome, .. } => outcome.done().map(|version| version.zxid),
            Self::Read { .. } => None,
        }
    }

    /// Returns whether it is a write whose fate the client does not know, or that was not sent.
    #[must_use]
    pub fn is_lost_write(&self) -> bool {
        match self {
            Self::Create(outcome) => outcome.done().is_none(),
            Self::Set { outcome, .. } => outcome.done().is_none(),
            Self::Read { .. } => false,
        }
    }
}

/// One operation. Times count from the beginning of the run, on one clock for all clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Number of the client, or of its session: requests of one have an order.
    pub client: usize,
    /// Counts the operations of the client.
    pub number: u64,
    /// The data that it writes: of no other operation.
    pub value: String,
    /// Not after it was sent.
    pub begun: Duration,
    /// Not before its outcome was received.
    pub ended: Duration,
    /// Request and outcome.
    pub act: Act,
}

/// State that one server shows when all operations have ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndState {
    /// The sequential znodes, with their data.
    pub created: Vec<(CreatedZnode, String)>,
    /// The data and the version of each register.
    pub registers: Vec<(String, Version)>,
}
