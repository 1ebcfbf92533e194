//! An item as it lies in the tree: one line of JSON that the queue keeps, then the caller's bytes.
//!
//! Owns that form. Bytes that do not have it are never thrown away: they are handed back as they
//! are (H72).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The form's number, the first thing in the line.
const FORM: u32 = 1;

/// Bytes of a payload at most. The rest of what a server takes in one request is left for the line,
/// which grows by what is noted in it, and must not make an item too large to be claimed.
pub(super) const MAX_PAYLOAD_BYTES: usize = 1_000_000;

/// Bytes of an id at most.
pub(super) const MAX_ID_BYTES: usize = 200;

/// Bytes of a noted reason at most; what is longer is cut.
const MAX_REASON_BYTES: usize = 400;

/// What the queue notes about an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Envelope {
    work: u32,
    pub id: String,
    /// Whether a node under `ids` stands for the id.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unique: bool,
    pub priority: u16,
    /// How often it was claimed.
    #[serde(default)]
    pub attempts: u32,
    /// Overrides the consumers' limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// When it was put, by the servers' clock; noted when it moves, until then the node's own ctime
    /// says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<i64>,
    /// Whose it is: the name of the claim node, which alone makes it true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimMark>,
    /// Why it came back the last time, or died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The claim that was made last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClaimMark {
    pub node: String,
    /// So long after the node's mtime others may take the item over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility_ms: Option<i64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Envelope {
    pub(super) fn new(id: String, priority: u16) -> Self {
        Self {
            work: FORM,
            id,
            unique: false,
            priority,
            attempts: 0,
            max_attempts: None,
            since_ms: None,
            claim: None,
            reason: None,
        }
    }

    pub(super) fn noting(mut self, reason: &str) -> Self {
        let mut end = reason.len().min(MAX_REASON_BYTES);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        self.reason = reason
            .get(..end)
            .filter(|text| !text.is_empty())
            .map(str::to_owned);
        self
    }

    /// The bytes to store.
    pub(super) fn seal(&self, payload: &[u8]) -> Bytes {
        // Strings and numbers always have a JSON form.
        let mut data = serde_json::to_vec(self).unwrap_or_default();
        data.push(b'\n');
        data.extend_from_slice(payload);
        Bytes::from(data)
    }

    /// What a node holds; `None` where it has another form.
    pub(super) fn open(data: &Bytes) -> Option<(Self, Bytes)> {
        let end = data.iter().position(|byte| *byte == b'\n')?;
        let envelope: Self = serde_json::from_slice(data.get(..end)?).ok()?;
        let known = envelope.work == FORM && envelope.priority <= super::layout::MAX_PRIORITY;
        known.then(|| (envelope, data.slice(end + 1..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_is_too_long_is_cut_between_two_characters() {
        let noted = |reason: &str| Envelope::new("a".to_owned(), 500).noting(reason).reason;
        assert_eq!(noted(&"x".repeat(401)), Some("x".repeat(400)));
        // Of three bytes each, which do not come out even.
        assert_eq!(noted(&"€".repeat(200)), Some("€".repeat(133)));
        assert_eq!(noted("why"), Some("why".to_owned()));
        assert_eq!(noted(""), None);
    }

    #[test]
    fn h72_what_is_sealed_opens_again_and_foreign_bytes_are_told_apart() {
        let envelope = Envelope::new("a\nb".to_owned(), 500).noting(&"ü".repeat(500));
        let payload = b"one\ntwo\0";
        let (again, bytes) = Envelope::open(&envelope.seal(payload)).unwrap();
        assert_eq!((again, &bytes[..]), (envelope.clone(), &payload[..]));
        assert!(envelope.reason.unwrap().len() <= MAX_REASON_BYTES);
        for foreign in [
            &b""[..],
            b"\n",
            b"{}\n",
            b"{\"work\":2,\"id\":\"x\",\"priority\":1}\n",
            b"hello",
        ] {
            assert_eq!(Envelope::open(&Bytes::from_static(foreign)), None);
        }
    }
}
