//! Containers and TTL znodes that have become due (protocol.md §1.11). Owns the rule by which the
//! leader looks for them; the decision is made again when the deletion is applied, as the znode may
//! have been used since.

use std::ops::Bound;

use crate::arena::NodeId;
use crate::kind::Kind;
use crate::level::MOST_DELETED_BYTES;
use crate::tree::Tree;

/// A znode for [`crate::Command::DeleteContainer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReapCandidate {
    /// Its path.
    pub path: String,
    /// The zxid of its creation.
    pub czxid: i64,
}

/// Position of a walk over all containers and TTL znodes; see [`Tree::reap_candidates`].
#[derive(Debug, Default, Clone, Copy)]
pub struct ReapCursor {
    /// The znode that was last looked at.
    last: Option<NodeId>,
    is_at_end: bool,
}

impl ReapCursor {
    /// Returns whether the walk has come to its end.
    #[must_use]
    pub const fn is_at_end(&self) -> bool {
        self.is_at_end
    }
}

impl Tree {
    /// The due ones of the next `most` containers and TTL znodes, or of fewer where their paths are
    /// long, at `now_ms`, milliseconds since the Unix epoch by the leader's clock: TTL znodes
    /// without children that were not written for longer than their time to live; containers
    /// without children that have had some, or that were never used for longer than
    /// `max_never_used_ms` (0: those stay). For a walk in slices, between which the tree may
    /// change: a znode that is there from the first to the last is looked at, once.
    #[must_use]
    pub fn reap_candidates(
        &self,
        now_ms: i64,
        max_never_used_ms: i64,
        cursor: &mut ReapCursor,
        most: usize,
    ) -> Vec<ReapCandidate> {
        let above = cursor.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.reaped.range((above, Bound::Unbounded));
        let mut found = Vec::new();
        let mut bytes = 0;
        for id in rest.by_ref().take(most) {
            cursor.last = Some(*id);
            let node = self.arena.node(*id);
            let (family, details) = (self.arena.family(node), node.details());
            let idle_ms = now_ms.saturating_sub(details.mtime);
            let due = match Kind::of_owner(details.owner) {
                Kind::Container if family.creates > 0 => true,
                Kind::Container => max_never_used_ms > 0 && idle_ms > max_never_used_ms,
                Kind::Ttl(ttl_ms) => idle_ms > ttl_ms,
                Kind::Persistent | Kind::Ephemeral(_) => false,
            };
            if due && family.num_children == 0 {
                let path = self.arena.path_of(*id);
                bytes += path.len();
                found.push(ReapCandidate {
                    path,
                    czxid: node.czxid(),
                });
            }
            if bytes >= MOST_DELETED_BYTES {
                break;
            }
        }
        cursor.is_at_end = rest.next().is_none();
        found
    }
}
