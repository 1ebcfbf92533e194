//! ZooKeeper's state in memory: znodes by path, sessions, ACLs by number. Owns the parts and their
//! links (who is whose ephemeral); what a transaction does to them is in `replay`.

use std::collections::{BTreeMap, BTreeSet};

use baton_proto::Acl;

/// The ACL number that means "anyone may do everything".
pub(crate) const OPEN_ACL: i64 = -1;

const CONTAINER: i64 = i64::MIN;
const EXTENDED: i64 = 0xff << 56;

/// Part of a znode's stat that a snapshot stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PersistedStat {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    /// Children ever created.
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    pub(crate) owner: i64,
    pub(crate) pzxid: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) data: Option<Box<[u8]>>,
    pub(crate) acl: i64,
    pub(crate) stat: PersistedStat,
}

/// A digest as ZooKeeper stores it with a snapshot or a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredDigest {
    pub(crate) zxid: i64,
    pub(crate) value: i64,
    /// File that it is stored in.
    pub(crate) file: String,
}

/// The state of a ZooKeeper server: what a snapshot holds and transactions change.
#[derive(Debug, Clone, Default)]
pub struct Database {
    /// Nodes by path; the root's is `/`.
    pub(crate) nodes: BTreeMap<String, Node>,
    /// Timeouts in milliseconds, by id.
    pub(crate) sessions: BTreeMap<i64, i32>,
    pub(crate) ephemerals: BTreeMap<i64, BTreeSet<String>>,
    pub(crate) acls: BTreeMap<i64, Vec<Acl<'static>>>,
    pub(crate) acl_numbers: BTreeMap<Vec<u8>, i64>,
    pub(crate) zxid: i64,
    /// The last zxid that the snapshot says, where it says one.
    pub(crate) last_zxid: Option<i64>,
    /// The snapshot's digest, until the transaction it belongs to has been replayed.
    pub(crate) awaited: Option<StoredDigest>,
    /// The newest transaction's digest.
    pub(crate) newest: Option<StoredDigest>,
    /// Whether ZooKeeper's digests are not compared.
    pub(crate) digests_ignored: bool,
}

impl Database {
    /// Number of znodes.
    #[must_use]
    pub fn znode_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of open sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// The zxid of the last transaction in it.
    #[must_use]
    pub const fn zxid(&self) -> i64 {
        self.zxid
    }

    /// From now on no digest of ZooKeeper's is compared with the tree.
    pub fn ignore_digests(&mut self) {
        self.digests_ignored = true;
    }

    /// The number of an ACL, a new one if it has none.
    pub(crate) fn acl_number(&mut self, acl: Vec<Acl<'static>>) -> i64 {
        if acl.is_empty() || acl == [Acl::open_unsafe()] {
            return OPEN_ACL;
        }
        let mut bytes = Vec::new();
        Acl::encode_list(Some(&acl), &mut bytes);
        if let Some(number) = self.acl_numbers.get(&bytes) {
            return *number;
        }
        let last = self.acls.last_key_value().map_or(0, |(number, _)| *number);
        let number = last.max(0).saturating_add(1);
        self.set_acl_number(number, acl);
        number
    }

    /// Gives an ACL this number.
    pub(crate) fn set_acl_number(&mut self, number: i64, acl: Vec<Acl<'static>>) {
        let mut bytes = Vec::new();
        Acl::encode_list(Some(&acl), &mut bytes);
        self.acls.insert(number, acl);
        self.acl_numbers.insert(bytes, number);
    }

    /// Adds a znode; its parent is there.
    pub(crate) fn insert(&mut self, path: String, node: Node) {
        if let Some(session) = session_of(node.stat.owner) {
            let paths = self.ephemerals.entry(session).or_default();
            paths.insert(path.clone());
        }
        self.nodes.insert(path, node);
    }

    /// Removes a znode and what a fuzzy snapshot has below it.
    pub(crate) fn remove(&mut self, path: &str) {
        let Some(node) = self.nodes.remove(path) else {
            return;
        };
        self.forget_owner(path, node.stat.owner);
        let below = format!("{path}/");
        let doomed: Vec<String> = self
            .nodes
            .range(below.clone()..)
            .take_while(|(path, _)| path.starts_with(&below))
            .map(|(path, _)| path.clone())
            .collect();
        for path in doomed {
            if let Some(node) = self.nodes.remove(&path) {
                self.forget_owner(&path, node.stat.owner);
            }
        }
    }

    fn forget_owner(&mut self, path: &str, owner: i64) {
        if let Some(session) = session_of(owner)
            && let Some(paths) = self.ephemerals.get_mut(&session)
        {
            paths.remove(path);
            if paths.is_empty() {
                self.ephemerals.remove(&session);
            }
        }
    }
}

/// The session that an owner names; none for a container, a TTL, and nobody.
pub(crate) const fn session_of(owner: i64) -> Option<i64> {
    if owner == 0 || owner == CONTAINER || owner & EXTENDED == EXTENDED {
        None
    } else {
        Some(owner)
    }
}
