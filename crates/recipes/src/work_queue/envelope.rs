//! An item's bytes on the tree: one line of JSON with the queue's notes, then the payload.
//!
//! Owns that form. Bytes in another form are never discarded: they are kept as they are (H72).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The number of the form, the first field of the line.
const FORM: u32 = 1;

/// The largest payload in bytes. The rest of a server's largest request is left for the line, whose
/// notes grow and must not make an item too large to be claimed.
pub(super) const MAX_PAYLOAD_BYTES: usize = 1_000_000;

/// The largest id in bytes.
pub(super) const MAX_ID_BYTES: usize = 200;

/// The largest noted reason in bytes; a longer one is cut.
const MAX_REASON_BYTES: usize = 400;

/// Notes of the queue about an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Envelope {
    work: u32,
    pub id: String,
    /// Whether a node under `ids` reserves the id.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unique: bool,
    pub priority: u16,
    /// Number of times that it was claimed.
    #[serde(default)]
    pub attempts: u32,
    /// Overrides the consumers' limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Time at which it was put, by the servers' clock. Noted when the item moves; until then it is
    /// the node's ctime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<i64>,
    /// The newest claim. It is valid only while the node of this name exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimMark>,
    /// Reason why the last attempt failed, or why the item is a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The claim that was made last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClaimMark {
    pub node: String,
    /// Time after the item's mtime at which others may claim the item: see `visibility`.
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

    /// The same with a reason noted.
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

    /// Reads a node's bytes; `None` where they have another form.
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
    fn h72_what_is_sealed_opens_again_and_foreign_bytes_are_recognized() {
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
