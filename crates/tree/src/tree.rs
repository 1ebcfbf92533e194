//! The state machine itself: takes one command after the other and is, after each, in a state that
//! depends on nothing but the commands. Owns the znodes, the sessions and the zxid. No clock, no
//! I/O, no chance: the only time is the batch's, the only order is the log's.

use std::collections::BTreeSet;

use baton_proto::{Acl, Perms, Stat};

use crate::acl_table::{AclTable, OPEN};
use crate::arena::{Arena, NewNode, Node, NodeId, ROOT};
use crate::digest::{self, Digest};
use crate::identity::Identity;
use crate::kind::Kind;
use crate::level::FormatLevel;
use crate::sessions::Sessions;
use crate::snapshot_content::SnapshotWalk;

/// Paths that exist from the beginning and cannot be deleted.
pub(crate) const INITIAL_PATHS: [&str; 4] =
    ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// The replicated tree of znodes with its sessions.
#[derive(Debug)]
pub struct Tree {
    pub(crate) arena: Arena,
    pub(crate) acls: AclTable,
    pub(crate) sessions: Sessions,
    /// Containers and TTL znodes.
    pub(crate) reaped: BTreeSet<NodeId>,
    /// The znode above all quotas.
    pub(crate) quotas: NodeId,
    pub(crate) zxid: i64,
    pub(crate) level: FormatLevel,
    /// Time of the newest command. Kept from level 2 on; 0 before.
    pub(crate) time_ms: i64,
    pub(crate) digest: Digest,
    pub(crate) walk: Option<SnapshotWalk>,
    /// Znodes changed or checked, and entries of ACLs looked at, by commands; not a part of the
    /// state.
    pub(crate) steps: usize,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// The tree before the first write: `/`, `/zookeeper`, `/zookeeper/quota` and
    /// `/zookeeper/config`, and no session.
    #[must_use]
    pub fn new() -> Self {
        Self::seeded(0)
    }

    /// The same as [`Tree::new`], with a seed of its hash tables. Nothing that the tree shows
    /// depends on it; a client that does not know it cannot seek names that the tables find slowly.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let mut acls = AclTable::new(seed);
        let readable = acls.acquire(vec![Acl::read_unsafe()]);
        let initial = |birth, acl, aversion| NewNode {
            czxid: 0,
            mzxid: 0,
            ctime: 0,
            mtime: 0,
            owner: 0,
            acl,
            version: 0,
            aversion,
            birth,
        };
        let mut arena = Arena::new(initial(0, OPEN, 0), Some(b""), seed);
        let system = arena.insert(initial(1, OPEN, 0), ROOT, b"zookeeper", Some(b""));
        let quotas = arena.insert(initial(2, OPEN, 0), system, b"quota", Some(b""));
        arena.insert(initial(3, readable, -1), system, b"config", Some(b""));
        let mut tree = Self::of_parts(arena, acls, Sessions::default(), quotas, 0);
        for path in INITIAL_PATHS {
            if let Some(id) = tree.arena.lookup(path) {
                tree.count_in(path, id);
            }
        }
        tree
    }

    /// A tree whose digest, containers and ephemerals of sessions are still to be counted. `quotas`
    /// is the znode above all quotas.
    pub(crate) fn of_parts(
        arena: Arena,
        acls: AclTable,
        sessions: Sessions,
        quotas: NodeId,
        zxid: i64,
    ) -> Self {
        Self {
            arena,
            acls,
            sessions,
            reaped: BTreeSet::new(),
            quotas,
            zxid,
            level: FormatLevel::Initial,
            time_ms: 0,
            digest: Digest::default(),
            walk: None,
            steps: 0,
        }
    }

    /// The zxid of the last command.
    #[must_use]
    pub const fn zxid(&self) -> i64 {
        self.zxid
    }

    /// Makes room at once for a tree that is about to grow by this many znodes. Does nothing where
    /// the tree is larger than that.
    pub fn reserve(&mut self, znodes: usize) {
        if znodes > self.arena.len() {
            self.arena.reserve(znodes);
        }
    }

    /// The time of the newest command, in milliseconds since 1970; 0 below level 2. Time never goes
    /// back, so it may be ahead of the clocks of those who write.
    #[must_use]
    pub const fn time_ms(&self) -> i64 {
        self.time_ms
    }

    /// A digest of the whole state, equal on replicas that have applied the same commands. Takes no
    /// time.
    #[must_use]
    pub fn digest(&self) -> u64 {
        match self.level {
            FormatLevel::Initial => self.digest.value(self.zxid),
            level => self
                .digest
                .value_at_level(self.zxid, level.number(), self.time_ms),
        }
    }

    /// The format level: which formats the log's writer may use.
    #[must_use]
    pub const fn level(&self) -> FormatLevel {
        self.level
    }

    pub(crate) fn family_term(&self, path_hash: u64, node: Node<'_>) -> u64 {
        let family = self.arena.family(node);
        let acl_hash = self.acls.get(node.acl()).content_hash();
        digest::family_term(path_hash, node, &family, acl_hash)
    }

    /// Returns whether `identity` has some permission of `wanted` on this znode.
    pub(crate) fn permits(&self, node: Node<'_>, identity: &Identity, wanted: Perms) -> bool {
        node.acl() == OPEN || self.acls.get(node.acl()).permits(identity, wanted)
    }

    /// Counts what a check of this znode's ACL costs at most.
    pub(crate) fn count_check(&mut self, id: NodeId, identity: &Identity) {
        let acl = self.arena.node(id).acl();
        self.steps += 1 + self.acls.get(acl).most_comparisons(identity);
    }

    /// Returns what commands have cost since the last call: znodes that they changed or checked,
    /// and entries of ACLs that they looked at.
    pub fn take_steps(&mut self) -> usize {
        std::mem::take(&mut self.steps)
    }

    /// The stat as clients see it (protocol.md §1.6).
    pub(crate) fn stat_of(&self, node: Node<'_>) -> Stat {
        let (family, details) = (self.arena.family(node), node.details());
        let num_children = family.num_children as i32;
        Stat {
            czxid: node.czxid(),
            mzxid: details.mzxid,
            ctime: node.ctime(),
            mtime: details.mtime,
            version: details.version,
            cversion: family
                .creates
                .wrapping_mul(2)
                .wrapping_sub(num_children.into()) as i32,
            aversion: details.aversion,
            ephemeral_owner: Kind::of_owner(details.owner).ephemeral_owner(),
            data_length: node.data_len() as i32,
            num_children,
            pzxid: family.pzxid,
        }
    }
}
