//! Which containers and TTL znodes have become due (protocol.md §1.11). Owns the rule by which the
//! leader looks for them; the decision is made again when the deletion is applied, as the znode may
//! have been used since.

use crate::kind::Kind;
use crate::tree::Tree;

/// A znode for [`crate::Command::DeleteContainer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReapCandidate {
    /// Its path.
    pub path: String,
    /// The zxid of its creation.
    pub czxid: i64,
}

impl Tree {
    /// At most `limit` znodes that are due at `now_ms`, milliseconds since the Unix epoch by the
    /// leader's clock: TTL znodes without children that were not written for longer than their time
    /// to live; containers without children that have had some, or that were never used for longer
    /// than `max_never_used_ms` (0: those stay).
    #[must_use]
    pub fn reap_candidates(
        &self,
        now_ms: i64,
        max_never_used_ms: i64,
        limit: usize,
    ) -> Vec<ReapCandidate> {
        self.reaped
            .iter()
            .filter(|id| {
                let node = self.arena.node(**id);
                let family = self.arena.family(node);
                let idle_ms = now_ms.saturating_sub(node.mtime);
                let due = match Kind::of_owner(node.owner) {
                    Kind::Container if family.creates > 0 => true,
                    Kind::Container => max_never_used_ms > 0 && idle_ms > max_never_used_ms,
                    Kind::Ttl(ttl_ms) => idle_ms > ttl_ms,
                    Kind::Persistent | Kind::Ephemeral(_) => false,
                };
                due && family.num_children == 0
            })
            .take(limit)
            .map(|id| ReapCandidate {
                path: self.arena.path_of(*id),
                czxid: self.arena.node(*id).czxid,
            })
            .collect()
    }
}
