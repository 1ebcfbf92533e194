//! Quotas (protocol.md §1.12): how many znodes and bytes of data may be at and below a path. Owns
//! where a quota is stored, what its text says, and the usage.
//!
//! A quota of `/a` is two znodes under `/zookeeper/quota/a`, in ZooKeeper's own form:
//! `zookeeper_limits`, which people write, and `zookeeper_stats`, which is kept up to date here.
//! There is no other state, so a snapshot has it all, and a `multi` takes it back with everything
//! else. Of several quotas above a path the one nearest to it counts. What is at or below
//! `/zookeeper` is free.

use baton_proto::{ErrorCode, path};

use crate::arena::{NodeId, Total};
use crate::effects::{OverQuota, QuotaOf};
use crate::level::FormatLevel;
use crate::recorder::Recorder;
use crate::tree::Tree;

/// The znode above all quotas.
pub(crate) const QUOTA_PATH: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";

/// A longer text of a quota says nothing, from level 7 on: it is read at each write below.
const MOST_TEXT_BYTES: usize = 1 << 10;

/// Znodes below [`QUOTA_PATH`] that a list of all quotas looks at, and bytes of their paths.
const MOST_LISTED: usize = 4096;
const MOST_LISTED_BYTES: usize = 256 << 10;

/// Values in the text of a quota's znode; -1 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct QuotaText {
    count: i64,
    bytes: i64,
    count_hard: i64,
    bytes_hard: i64,
}

impl QuotaText {
    /// Reads `count=2,bytes=-1=;byteHardLimit=9`. What is not to be understood says nothing.
    fn read(text: Option<&[u8]>) -> Self {
        let mut values = Self {
            count: -1,
            bytes: -1,
            count_hard: -1,
            bytes_hard: -1,
        };
        let text = std::str::from_utf8(text.unwrap_or_default()).unwrap_or_default();
        for pair in text.split([',', ';']) {
            let mut sides = pair.split('=');
            let (key, value) = (sides.next(), sides.next());
            let place = match key {
                Some("count") => &mut values.count,
                Some("bytes") => &mut values.bytes,
                Some("countHardLimit") => &mut values.count_hard,
                Some("byteHardLimit") => &mut values.bytes_hard,
                _ => continue,
            };
            *place = value.and_then(|value| value.parse().ok()).unwrap_or(-1);
        }
        values
    }
}

fn stats_text(count: i64, bytes: i64) -> String {
    format!("count={count},bytes={bytes}")
}

/// A quota and what is used of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaState {
    /// Path that the quota limits.
    pub path: String,
    /// Znodes allowed, by the hard limit if there is one, else by the soft one; -1 for none.
    pub count_limit: i64,
    /// Bytes of data allowed; -1 for none.
    pub bytes_limit: i64,
    /// Znodes there are.
    pub count: i64,
    /// Bytes of their data.
    pub bytes: i64,
}

/// The quota that a path is under.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quota<'p> {
    /// Path that the quota limits.
    path: &'p str,
    limits: NodeId,
    stats: NodeId,
}

/// Growth of the usage by a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) count: i64,
    pub(crate) bytes: i64,
}

impl Tree {
    /// The quotas, in no order. Where very many znodes are below `/zookeeper/quota`, some are left
    /// out.
    #[must_use]
    pub fn quota_states(&self) -> Vec<QuotaState> {
        let limit = |hard: i64, soft| if hard > -1 { hard } else { soft };
        let shown = self.quota_nodes(MOST_LISTED, MOST_LISTED_BYTES).into_iter();
        shown
            .map(|(path, limits, stats)| {
                let limits = self.quota_text(limits);
                let used = self.quota_text(stats);
                QuotaState {
                    path,
                    count_limit: limit(limits.count_hard, limits.count),
                    bytes_limit: limit(limits.bytes_hard, limits.bytes),
                    count: used.count,
                    bytes: used.bytes,
                }
            })
            .collect()
    }

    fn quota_text(&self, id: NodeId) -> QuotaText {
        let is_bounded = self.level >= FormatLevel::BoundedMultis;
        let data = self.arena.node(id).data();
        QuotaText::read(data.filter(|text| !is_bounded || text.len() <= MOST_TEXT_BYTES))
    }

    /// The paths of quotas, and the two znodes that each of them is. Looks at `most` znodes at
    /// most, and at no more once the paths have `most_bytes`.
    fn quota_nodes(&self, most: usize, most_bytes: usize) -> Vec<(String, NodeId, NodeId)> {
        let mut found = Vec::new();
        let (mut left, mut bytes) = (most, 0);
        let mut pending = vec![self.quotas];
        while let Some(id) = pending.pop().filter(|_| bytes < most_bytes) {
            for (child, _) in self.arena.children(self.arena.node(id)).take(left) {
                pending.push(child);
                left -= 1;
            }
            let part = |name: &str| self.arena.child(id, name.as_bytes());
            if let (Some(limits), Some(stats)) = (part(LIMITS), part(STATS)) {
                let path = self.arena.path_of(id);
                bytes += path.len();
                let of = path.strip_prefix(QUOTA_PATH).unwrap_or_default();
                found.push((of.to_owned(), limits, stats));
            }
        }
        found
    }

    /// Counts the usage of all quotas again, in a tree that has no digest yet: ZooKeeper does not
    /// log them.
    pub(crate) fn recount_quotas(&mut self) {
        for (path, _, stats) in self.quota_nodes(usize::MAX, usize::MAX) {
            let (count, bytes) = self.weigh(&path);
            let text = stats_text(count, bytes);
            self.arena.set_data(stats, Some(text.as_bytes()));
        }
    }

    /// The nearest quota at or above this path. Takes no time while there is none at all.
    pub(crate) fn quota_over<'p>(&self, path: &'p str) -> Option<Quota<'p>> {
        let top = self.arena.node(self.quotas);
        if self.arena.family(top).num_children == 0 || path::is_at_or_below(path, "/zookeeper") {
            return None;
        }
        let (mut at, mut end, mut nearest) = (self.quotas, 0, None);
        for name in path.strip_prefix('/')?.split('/') {
            let Some(below) = self.arena.child(at, name.as_bytes()) else {
                break;
            };
            at = below;
            end += 1 + name.len();
            let part = |name: &str| self.arena.child(at, name.as_bytes());
            if let Some(limits) = part(LIMITS) {
                // Without a usage znode there is nothing to compare or to keep.
                nearest = part(STATS).map(|stats| (end, limits, stats));
            }
        }
        let (end, limits, stats) = nearest?;
        Some(Quota {
            path: path.get(..end)?,
            limits,
            stats,
        })
    }

    /// Returns whether a write that grows by `growth` stays within the quota. A write over a soft
    /// limit is reported; one that would go over a hard limit is reported and refused.
    pub(crate) fn within_quota(
        &self,
        quota: Option<&Quota<'_>>,
        growth: Growth,
        recorder: &mut impl Recorder,
    ) -> Result<(), ErrorCode> {
        let Some(quota) = quota else {
            return Ok(());
        };
        let limits = self.quota_text(quota.limits);
        let used = self.quota_text(quota.stats);
        for (of, grows, used, hard, soft) in [
            (
                QuotaOf::Count,
                growth.count,
                used.count,
                limits.count_hard,
                limits.count,
            ),
            (
                QuotaOf::Bytes,
                growth.bytes,
                used.bytes,
                limits.bytes_hard,
                limits.bytes,
            ),
        ] {
            let amount = used.saturating_add(grows);
            for (limit, is_hard) in [(hard, true), (soft, false)] {
                if grows == 0 || limit < 0 || amount <= limit {
                    continue;
                }
                recorder.over_quota(OverQuota {
                    path: quota.path,
                    of,
                    amount,
                    limit,
                    is_hard,
                });
                if is_hard {
                    return Err(ErrorCode::QuotaExceeded);
                }
            }
        }
        Ok(())
    }

    /// Adds a write's growth to the quota's usage.
    pub(crate) fn charge(
        &mut self,
        quota: Option<&Quota<'_>>,
        growth: Growth,
        recorder: &mut impl Recorder,
    ) {
        let Some(quota) = quota else {
            return;
        };
        let used = self.quota_text(quota.stats);
        let text = stats_text(
            used.count.saturating_add(growth.count),
            used.bytes.saturating_add(growth.bytes),
        );
        if self.arena.node(quota.stats).data() == Some(text.as_bytes()) {
            return;
        }
        let path = format!("{QUOTA_PATH}{}/{STATS}", quota.path);
        self.put_stats(&path, quota.stats, &text, recorder);
    }

    /// After a znode has been created: if it holds a quota's usage, that is counted now.
    pub(crate) fn begin_stats(&mut self, path: &str, id: NodeId, recorder: &mut impl Recorder) {
        let of = path
            .strip_prefix(QUOTA_PATH)
            .and_then(|rest| rest.strip_suffix(STATS))
            .and_then(|rest| rest.strip_suffix('/'));
        if let Some(of) = of.filter(|of| !of.is_empty()) {
            let (count, bytes) = self.weigh(of);
            self.put_stats(path, id, &stats_text(count, bytes), recorder);
        }
    }

    /// Znodes at and below a path, and the bytes of their data.
    fn weigh(&self, path: &str) -> (i64, i64) {
        let found = self.arena.lookup(path);
        let total = found.map_or_else(Total::default, |id| self.arena.total(id));
        (total.nodes as i64, total.bytes as i64)
    }

    /// Writes the usage, as no client did: no version, no zxid and no event goes with it.
    fn put_stats(&mut self, path: &str, id: NodeId, text: &str, recorder: &mut impl Recorder) {
        let unchanged = self.arena.node(id).last_write();
        self.replace_data(path, id, Some(text.as_bytes()), recorder, unchanged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_zookeepers_command_line_are_read() {
        let read = |text: &str| {
            let QuotaText {
                count,
                bytes,
                count_hard,
                bytes_hard,
            } = QuotaText::read(Some(text.as_bytes()));
            [count, bytes, count_hard, bytes_hard]
        };
        assert_eq!(read("count=4,bytes=5"), [4, 5, -1, -1]);
        assert_eq!(
            read("count=4,bytes=-1=;byteHardLimit=6;countHardLimit=7"),
            [4, -1, 7, 6]
        );
        assert_eq!(read("bytes=,count=x,other=3,count"), [-1, -1, -1, -1]);
        assert_eq!(read(""), [-1, -1, -1, -1]);
        assert_eq!(QuotaText::read(Some(&[0xff])).count, -1);
    }
}
