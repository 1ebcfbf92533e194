//! The holds of the last hour that have ended: who held which lock, from when to when, and why it
//! ended.
//!
//! Owns their bounds: number, bytes and age. The oldest go first.

use std::collections::VecDeque;

use baton::record::Record;
use serde::Serialize;

/// Holds that are kept, at most.
const MOST: usize = 8_192;
/// Bytes of paths and data that are kept, at most.
const MOST_BYTES: usize = 4 << 20;
/// Time for which a hold is kept after its end.
const KEPT_MS: i64 = 3_600_000;

/// A hold of a lock, an election or a semaphore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) path: Box<str>,
    pub(super) kind: &'static str,
    pub(super) session: i64,
    /// The change that created its node.
    pub(super) czxid: i64,
    /// The data of its node, where everybody may read that.
    pub(super) data: Option<Box<[u8]>>,
    pub(super) created_ms: i64,
    pub(super) granted_ms: i64,
    /// Time and cause; `None`: it goes on.
    pub(super) end: Option<(i64, &'static str)>,
}

/// A hold as a page shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PastHold {
    /// The lock's path.
    pub path: String,
    /// `lock`, `read_write`, `election`, `semaphore` or `simple`.
    pub kind: &'static str,
    /// The holder's session.
    pub session: String,
    /// The holder's process, where everybody may read its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// The change that created its node: its fencing token, unless that was minted.
    pub czxid: i64,
    /// Time that it waited, in milliseconds.
    pub waited_ms: i64,
    /// When it began to hold, in milliseconds since 1970.
    pub from_ms: i64,
    /// When it ended; `None`: it holds.
    pub until_ms: Option<i64>,
    /// Cause of the end: `released`, `session_closed`, `session_expired`, `broken`.
    pub end: Option<&'static str>,
}

impl Hold {
    fn shown(&self) -> PastHold {
        let record = self.data.as_deref().and_then(Record::from_bytes);
        PastHold {
            path: self.path.to_string(),
            kind: self.kind,
            session: format!("0x{:x}", self.session),
            process: record.map(|record| record.to_string()),
            czxid: self.czxid,
            waited_ms: self.granted_ms.saturating_sub(self.created_ms).max(0),
            from_ms: self.granted_ms,
            until_ms: self.end.map(|(until_ms, _)| until_ms),
            end: self.end.map(|(_, cause)| cause),
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.path.len() + self.data.as_ref().map_or(0, |data| data.len())
    }
}

/// Selection of holds.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct HoldQuery<'a> {
    /// Only of this lock.
    pub path: Option<&'a str>,
    /// Only those that held at this moment, in milliseconds since 1970.
    pub at_ms: Option<i64>,
}

/// Holds that have ended, the newest last.
#[derive(Debug, Default)]
pub(super) struct PastHolds {
    holds: VecDeque<Hold>,
    bytes: usize,
}

impl PastHolds {
    /// Adds a hold that ends now.
    pub(super) fn add(&mut self, hold: Hold, now_ms: i64) {
        self.bytes += hold.bytes();
        self.holds.push_back(hold);
        while self.holds.len() > MOST || self.bytes > MOST_BYTES || self.begins_before(now_ms) {
            let Some(oldest) = self.holds.pop_front() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
        }
    }

    fn begins_before(&self, now_ms: i64) -> bool {
        let oldest = self.holds.front().and_then(|hold| hold.end);
        oldest.is_some_and(|(until_ms, _)| until_ms < now_ms.saturating_sub(KEPT_MS))
    }

    /// Returns at most `most` of these and the present holds, of locks that are visible, the latest
    /// first. `is_visible` is given the lock's path, and whether everybody may read the holder's
    /// node.
    pub(super) fn select(
        &self,
        present: impl Iterator<Item = Hold>,
        query: HoldQuery<'_>,
        now_ms: i64,
        most: usize,
        is_visible: impl Fn(&str, bool) -> bool,
    ) -> Vec<PastHold> {
        let fits = |hold: &&Hold| {
            let until = hold.end.map_or(i64::MAX, |(until_ms, _)| until_ms);
            let is_held = |at_ms| hold.granted_ms <= at_ms && at_ms <= until;
            query.path.is_none_or(|path| path == &*hold.path)
                && query.at_ms.is_none_or(is_held)
                && until >= now_ms.saturating_sub(KEPT_MS)
                && is_visible(&hold.path, hold.data.is_some())
        };
        let mut present: Vec<Hold> = present.filter(|hold| fits(&hold)).collect();
        present.sort_unstable_by_key(|hold| std::cmp::Reverse(hold.granted_ms));
        let past = self.holds.iter().rev().filter(fits);
        let all = present.iter().chain(past).take(most);
        all.map(Hold::shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(path: &str, from_ms: i64, until_ms: i64) -> Hold {
        Hold {
            path: path.into(),
            kind: "lock",
            session: 0x1a,
            czxid: from_ms,
            data: Some(Box::default()),
            created_ms: from_ms - 5,
            granted_ms: from_ms,
            end: Some((until_ms, "released")),
        }
    }

    fn times(past: &PastHolds, query: HoldQuery<'_>, now_ms: i64) -> Vec<i64> {
        let found = past.select(std::iter::empty(), query, now_ms, 100, |_, _| true);
        found.iter().map(|hold| hold.from_ms).collect()
    }

    #[test]
    fn who_held_at_a_moment_is_found_for_an_hour() {
        let mut past = PastHolds::default();
        past.add(hold("/a", 1_000, 2_000), 2_000);
        past.add(hold("/b", 1_500, 3_000), 3_000);
        past.add(hold("/a", 2_000, 4_000), 4_000);
        let at = |path, at_ms| HoldQuery { path, at_ms };
        assert_eq!(times(&past, at(None, None), 4_000), [2_000, 1_500, 1_000]);
        assert_eq!(times(&past, at(Some("/a"), Some(1_700)), 4_000), [1_000]);
        assert_eq!(times(&past, at(None, Some(1_700)), 4_000), [1_500, 1_000]);
        assert_eq!(times(&past, at(Some("/a"), Some(999)), 4_000), [0; 0]);
        // An hour after its end it is not shown, and goes when another one comes.
        assert_eq!(times(&past, at(None, None), 3_602_500), [2_000, 1_500]);
        past.add(hold("/c", 5_000, 3_603_500), 3_603_500);
        assert_eq!(past.holds.len(), 2);
    }

    #[test]
    fn a_lock_that_is_not_visible_is_left_out_and_a_process_that_not_everybody_may_read() {
        let mut past = PastHolds::default();
        let record = br#"{"id":"6f9619ff-8b86-4d01-b42d-00cf4fc964ff","host":"h","pid":7}"#;
        let (closed, open) = (None, Some(record.as_slice().into()));
        for (path, data) in [("/open", open), ("/closed", closed)] {
            past.add(
                Hold {
                    data,
                    ..hold(path, 1, 2)
                },
                2,
            );
        }
        past.add(hold("/secret", 1, 2), 2);
        let query = HoldQuery::default();
        let visible = |path: &str, is_open| path != "/secret" && is_open == (path == "/open");
        let found = past.select(std::iter::empty(), query, 3, 100, visible);
        let process = |hold: &PastHold| (hold.path.clone(), hold.process.clone());
        let found: Vec<_> = found.iter().map(process).collect();
        let expected = [("/closed", None), ("/open", Some("h:7"))];
        let expected =
            expected.map(|(path, process)| (path.to_owned(), process.map(str::to_owned)));
        assert_eq!(found, expected);
    }

    #[test]
    fn number_and_bytes_are_bounded() {
        let mut past = PastHolds::default();
        for at in 0..20_000 {
            past.add(hold("/a", at, at), at);
        }
        assert_eq!(past.holds.len(), MOST);
        assert_eq!(past.holds.back().unwrap().granted_ms, 19_999);
        let long = "x".repeat(1 << 20);
        for at in 20_000..20_010 {
            past.add(hold(&long, at, at), at);
        }
        assert!(
            past.bytes <= MOST_BYTES && past.holds.len() <= 4,
            "{}",
            past.holds.len()
        );
        let sum: usize = past.holds.iter().map(Hold::bytes).sum();
        assert_eq!(past.bytes, sum);
    }
}
