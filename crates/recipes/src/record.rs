//! The record in a waiter node's data: who waits, from where, since when.

// Owns its JSON form. Other libraries ignore the data, so it must never decide anything about
// ownership except together with the session that owns the node (H06).

use std::fmt::{self, Display};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::rendering::OneLine;

/// The id of an attempt or of an instance.
pub use uuid::Uuid;

/// The owner of a waiter node, as its data states it. For people and consoles; never proof of
/// ownership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Unique to one attempt; also in the node's name where the naming scheme allows.
    pub id: Uuid,
    /// Host name of the process.
    #[serde(default)]
    pub host: String,
    /// Process id.
    #[serde(default)]
    pub pid: u32,
    /// Name of the program, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Time at which it joined the wait queue: milliseconds since 1970 by the process's own wall
    /// clock.
    #[serde(default, rename = "since_ms")]
    pub since_ms: u64,
    /// Position of a reader that was a writer: the `czxid` of the writer's node, whose position in
    /// the wait queue it has kept.
    #[serde(default, rename = "place", skip_serializing_if = "Option::is_none")]
    pub kept_position: Option<i64>,
    /// For how many milliseconds the next waiter leaves the lock alone if this node goes without a
    /// release: see [`Mutex::lock_delay`](crate::Mutex::lock_delay).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_delay_ms: Option<u64>,
    /// Whether its holder signals its release, so that a node that went without a signal was not
    /// released: see [`Departure`](crate::election::Departure).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub announces: bool,
}

/// The process on one line: host, process id, and what the program calls itself.
impl Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", OneLine(&self.host), self.pid)?;
        match &self.name {
            Some(name) => write!(f, " ({})", OneLine(name)),
            None => Ok(()),
        }
    }
}

/// The longest delay that anybody may ask of others: one faulty program must not block a wait queue
/// for longer.
pub(crate) const LONGEST_LOCK_DELAY: Duration = Duration::from_secs(60);

impl Record {
    /// A record for a new attempt of this process.
    pub(crate) fn new(name: Option<&str>) -> Self {
        Self {
            id: Uuid::new_v4(),
            host: host_name().to_owned(),
            pid: std::process::id(),
            name: name.map(str::to_owned),
            since_ms: now_ms(),
            kept_position: None,
            lock_delay_ms: None,
            announces: false,
        }
    }

    /// A record for a new attempt of another process of this machine, if `pid` names one.
    pub(crate) fn of(name: Option<&str>, pid: Option<u32>) -> Self {
        let own = Self::new(name);
        Self {
            pid: pid.unwrap_or(own.pid),
            ..own
        }
    }

    /// The bytes to store.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Strings, numbers and a UUID always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a node's data; `None` for another library's.
    #[must_use]
    pub fn from_bytes(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    /// The lock delay that a node's data asks for; zero for data that asks for none.
    pub(crate) fn lock_delay_in(data: &[u8]) -> Duration {
        const FIELD: &[u8] = b"\"lock_delay_ms\"";
        // Nearly all data asks for none, and a hand-over is not to pay for reading it.
        if !data.windows(FIELD.len()).any(|part| part == FIELD) {
            return Duration::ZERO;
        }
        let asked = Self::from_bytes(data).and_then(|record| record.lock_delay_ms);
        Duration::from_millis(asked.unwrap_or_default()).min(LONGEST_LOCK_DELAY)
    }
}

/// Milliseconds since 1970 by this machine's wall clock.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}

/// This machine's name, or `unknown`.
pub(crate) fn host_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .or_else(|| std::env::var("HOSTNAME").ok())
            .or_else(|| std::env::var("COMPUTERNAME").ok())
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "unknown".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_tree_and_other_data_is_no_record() {
        let record = Record::new(Some("deploy"));
        assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
        assert_eq!(Record::from_bytes(b"10.0.0.1"), None);
        assert_eq!(Record::from_bytes(&[0x12, 0x34]), None);
    }

    #[test]
    fn a_lock_delay_is_read_where_a_record_asks_for_it_and_never_longer_than_a_minute() {
        let mut record = Record::new(None);
        let asked = |record: &Record| Record::lock_delay_in(&record.to_bytes());
        assert!(!String::from_utf8(record.to_bytes()).is_ok_and(|json| json.contains("delay")));
        assert_eq!(asked(&record), Duration::ZERO);
        record.lock_delay_ms = Some(1_500);
        assert_eq!(asked(&record), Duration::from_millis(1_500));
        record.lock_delay_ms = Some(u64::MAX);
        assert_eq!(asked(&record), LONGEST_LOCK_DELAY);
        assert_eq!(
            Record::lock_delay_in(b"\"lock_delay_ms\":9"),
            Duration::ZERO
        );
    }
}
