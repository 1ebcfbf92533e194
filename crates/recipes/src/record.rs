//! The record that our node carries as data: who stands in line, from where, since when.
//!
//! Owns its JSON form. Other dialects ignore the data, so it must never decide anything about ownership except together
//! with the session that owns the node (H06).

use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// Who a node in line belongs to, as its data says. For people and consoles; never proof of ownership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Unique to one attempt; also in the node's name where the dialect allows.
    pub id: Uuid,
    /// Host name of the process.
    #[serde(default)]
    pub host: String,
    /// Process id.
    #[serde(default)]
    pub pid: u32,
    /// What the program calls itself, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it joined the line: milliseconds since 1970 by the process's own wall clock.
    #[serde(default, rename = "since_ms")]
    pub since_ms: u64,
    /// Of a reader that was a writer: the `czxid` of the writer's node, whose place in the line it has kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<i64>,
}

impl Record {
    /// A record for a new attempt of this process.
    pub(crate) fn new(name: Option<&str>) -> Self {
        Self {
            id: Uuid::new_v4(),
            host: host_name().to_owned(),
            pid: std::process::id(),
            name: name.map(str::to_owned),
            since_ms: now_ms(),
            place: None,
        }
    }

    /// The bytes to store.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Strings, numbers and a UUID always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a node's data; `None` for another dialect's.
    #[must_use]
    pub fn from_bytes(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
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
}
