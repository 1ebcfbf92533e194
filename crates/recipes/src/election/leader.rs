//! The leader of an election.
//!
//! Owns what an observer receives about a leader. It does not prove that the leader still leads.

use crate::record::Record;

/// The first candidate of an election: it leads, or is about to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Leader {
    /// Full path of its offer.
    pub node: String,
    /// Its fencing token.
    pub token: u64,
    /// The session that owns the offer.
    #[serde(serialize_with = "crate::rendering::session_id")]
    pub session_id: i64,
    /// Since when it has stood for election: milliseconds since 1970, by the server's clock.
    pub since_ms: i64,
    /// Record of the leader, where the offer is Baton's.
    pub record: Option<Record>,
    /// The offer's data as it is: from other libraries, what they put there (a host name, an
    /// identifier).
    #[serde(serialize_with = "crate::rendering::lossy")]
    pub data: Vec<u8>,
}

impl std::fmt::Display for Leader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.record {
            Some(record) => record.fmt(f)?,
            None => write!(f, "session 0x{:x}", self.session_id)?,
        }
        write!(f, ", fencing token {}", self.token)
    }
}
